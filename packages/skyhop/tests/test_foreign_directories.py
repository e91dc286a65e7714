"""A directory that is not skyhop's loses nothing, whatever its files are called."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Skyhop
from hypothesis import given, settings
from hypothesis import strategies as st

from needs import cases
from skyhop import _core
from skyhop.cli.repeat_mark import Mark
from skyhop.data.files import Scratch, write_file
from skyhop.errors import InputError
from skyhop.linux import kernels, modules
from skyhop.report.parts import FigureFiles, page_files, write_page
from skyhop.study.directory import StudyDirectory
from skyhop.telemetry.store import Store

SCENARIO = """\
[path]
kind = "fixed"
rtt = "20 ms"
[[flow]]
[run]
duration = "100 ms"
"""
NAMES = (
    ".lock",
    ".repeat",
    "study.json",
    "summary.json",
    "run.json",
    "flows.parquet",
    "failures.json",
    "results.parquet",
    "unfinished/.skyhop",
    "unfinished/.lock",
    "unfinished/chapter4.tex",
    "runs/notes.txt",
    "seed-1/summary.json",
    ".skyhop-mine",
    ".skyhop-work/.lock",
    ".skyhop-work/files/notes.txt",
    ".run.partial-1/.lock",
    ".run.partial-1/replaced/flows.parquet",
    ".new-1/.lock",
    "report.html",
    "report-figures/comparison.png",
    "report-figures/run-1-cubic.png",
    "report-figures/2-chapter.pdf",
    "report-figures/claims.tex",
    "thesis/2024-10-03.jsonl",
    "thesis/2024-10-03.parquet",
    "thesis/obstruction_map.json",
    "thesis/chapter4.tex",
    "thesis/.skyhop",
    "skyhop/kernels/6.12-0123456789ab/kernel.json",
    "skyhop/kernels/6.12-0123456789ab/linux",
    "skyhop/kernels/6.12-0123456789ab/.skyhop",
    "modules/idea-0123456789abcdef.ko",
    "modules/idea-two-0123456789abcdef.ko",
    "modules/.skyhop",
)
"""Names of files that skyhop creates and removes, and of a user's files in such directories."""
PAGE = b'<a href="report-figures/2-chapter.pdf">of my thesis</a>'
CONTENTS = (b"mine", PAGE, b"{}", b"[]", b'{"schema": 1}', b'{"study": 1}', b"PAR1", b"\n", b"\xff")
DESCRIPTION = {"skyhop": "0", "core": "0", "origin": "x", "study": {}}


def run_study(root: Path) -> None:
    """Open the directory as a study's, and close it."""
    directory = StudyDirectory(root)
    with directory.opened(DESCRIPTION):
        directory.write_failures([])


def repeat(root: Path) -> None:
    """Begin a repeat in the directory, and end it."""
    scenario = root.parent / "scenario.toml"
    scenario.write_text(SCENARIO, "utf-8")
    Mark(root, scenario, []).remove()


def force_run(root: Path) -> None:
    """Reserve the directory for a run that may replace another one."""
    _core.RunDirectory.reserve(str(root), force=True).abandon()


def work(root: Path) -> None:
    """Write a file, and use a temporary directory."""
    write_file(root / "skyhops-own", b"x")
    (root / "skyhops-own").unlink()
    with Scratch(root) as scratch:
        (scratch / "x").touch()


def report(root: Path) -> None:
    """Write a page without figures, which would remove those of an earlier page of skyhop."""
    page = root / "report.html"
    before = page.read_bytes() if page.exists() else None
    write_page(page, "<!doctype html>", page_files(page, FigureFiles()), {})
    # The page itself is replaced, as the user asks.
    page.unlink()
    if before is not None:
        page.write_bytes(before)


def remove_kernel(root: Path) -> None:
    """Remove a kernel from a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root))
        kernels.remove("6.12")


def compile_module(root: Path) -> None:
    """Move a module to its place, and remove its old versions."""
    compiled = root.with_name("compiled.ko")
    compiled.touch()
    old = [file for file in (root / "modules").glob("*") if file.is_file()]
    for file in old:
        os.utime(file, (0, 0))
    modules._install(compiled, root / "modules" / f"idea-{1:016x}.ko")


def delete_telemetry(root: Path) -> None:
    """Add telemetry of two nodes, remove old days, and remove the nodes."""
    store = Store(root)
    for node in ("thesis", "other"):
        store.append(node, [{"time_ns": 86_400 * 10**9 * 20_000, "tilt": 1.0}])
        store.expire(time.time_ns())
        with suppress(InputError):
            store.delete(node)
    assert not (root / "other").exists(), "what the store has created is removed"


def files_below(root: Path) -> dict[str, bytes]:
    """Return the content of all files below a directory, by name."""
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


USES = (
    run_study, repeat, force_run, work, report, remove_kernel, compile_module, delete_telemetry
)  # fmt: skip


@pytest.mark.parametrize("use", USES)
@settings(max_examples=cases(30), deadline=None)
@given(files=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(CONTENTS), min_size=5))
def test_nothing_is_lost(use: Callable[[Path], None], files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "thesis"
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        before = files_below(root)
        with suppress(InputError):
            use(root)
        after = files_below(root)
        assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("lock", [None, "", "mine"])
def test_a_thesis_is_not_taken_for_a_study(
    skyhop: Skyhop, tmp_path: Path, lock: str | None
) -> None:
    (tmp_path / "s.toml").write_text(
        'title = "t"\nquestion = "q"\nrepeats = 1\nbase = "scenario.toml"\n', "utf-8"
    )
    (tmp_path / "scenario.toml").write_text(SCENARIO, "utf-8")
    chapter = tmp_path / "thesis" / "unfinished" / "chapter4.tex"
    chapter.parent.mkdir(parents=True)
    chapter.write_text("three months of work", "utf-8")
    if lock is not None:
        (tmp_path / "thesis" / ".lock").write_text(lock, "utf-8")
    done = skyhop("study", "run", "s.toml", "-o", "thesis", "--jobs", 1)
    assert done.returncode == 2
    assert "thesis: holds other files than a study's: give another directory" in done.stderr
    assert chapter.read_text("utf-8") == "three months of work"


def test_a_study_continues_after_a_kill_at_any_step_of_its_start(tmp_path: Path) -> None:
    root = tmp_path / "study"
    steps: list[Callable[[], object]] = [
        root.mkdir,
        (root / "runs").mkdir,
        (root / "paths").mkdir,
        (root / ".lock").touch,
        (root / "unfinished").mkdir,
    ]
    for step in steps:
        step()
        assert StudyDirectory(root)._may_use()
    run_study(root)
    assert not (root / "unfinished").exists()
    # A user's directory in a study stays, too.
    (root / "unfinished").mkdir()
    (root / "unfinished" / "notes.txt").touch()
    with pytest.raises(InputError, match="unfinished: is not a directory of skyhop's"):
        run_study(root)
    assert (root / "unfinished" / "notes.txt").exists()


def test_force_replaces_only_files_of_runs(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO, "utf-8")
    command = ["sim", "scenario.toml", "-o", "out", "--force", "--json"]
    assert skyhop(*command).returncode == 0
    assert skyhop(*command).returncode == 0, "an earlier run is replaced"
    for name in ("summary.json", "run.json", "flows.parquet", "requests.parquet"):
        mine = tmp_path / "mine"
        mine.mkdir(exist_ok=True)
        (mine / name).write_text("mine", "utf-8")
        refused = skyhop("sim", "scenario.toml", "-o", "mine", "--force")
        assert refused.returncode == 2
        assert f"mine/{name}: is not a file of a skyhop run" in refused.stderr
        assert (mine / name).read_text("utf-8") == "mine"
        (mine / name).unlink()
