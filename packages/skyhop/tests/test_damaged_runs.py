"""Damaged run directories: a report, or one line that says what is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyhop as sh
from needs import cases, recorded
from skyhop.cli import main

SCENARIO = {
    "path": {"from": "Seattle", "to": "New York", "relay": "access"},
    "link": {"rate": "5 Mbit/s", "loss": "0.1 %"},
    "flow": [{"cc": "satcp"}, {"kind": "probe"}],
    "signal": {"source": "path", "lead": "0.5 s"},
    "run": {"duration": "6 s"},
}
VALUES = [None, "x", -1, 1e308, [], {}, True, "\x1b[2J", 2**70, 0.5]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole") / "run"
    sh.sim(SCENARIO, place)
    return place


def damage(place: Path, seed: int) -> str:
    """Damage one file of a run; return a description of the damage."""
    draw = random.Random(seed)
    file = draw.choice(sorted(place.iterdir()))
    content = bytearray(file.read_bytes())
    how = draw.choice(["cut", "zeros", "bits", "value"])
    if how == "value" and file.suffix == ".json":
        return f"{file.name}: {_change(file, draw)}"
    if how == "cut":
        file.write_bytes(content[: draw.randrange(len(content))])
    elif how == "zeros":
        at = draw.randrange(len(content))
        content[at : at + 64] = bytes(len(content[at : at + 64]))
        file.write_bytes(content)
    else:
        for _ in range(draw.choice([1, 3, 10])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
    return f"{file.name}: {how}"


def _change(file: Path, draw: random.Random) -> str:
    """Change or remove one value of a JSON file."""
    content = json.loads(file.read_text("utf-8"))
    *above, last = draw.choice(list(_places(content)))
    inner = content
    for key in above:
        inner = inner[key]
    if draw.random() < 0.2:
        del inner[last]
        value: Any = "removed"
    else:
        value = inner[last] = draw.choice(VALUES)
    file.write_text(json.dumps(content), "utf-8")
    return f"{[*above, last]} = {value!r}"


def _places(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = content.items() if isinstance(content, dict) else ()
    if isinstance(content, list):
        inner = enumerate(content)
    for key, value in inner:
        yield (*above, key)
        yield from _places(value, (*above, key))


@pytest.mark.parametrize("trials", [12, pytest.param(cases(20), marks=pytest.mark.soak)])
def test_a_damaged_run_gives_a_page_or_one_line(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: int
) -> None:
    monkeypatch.setattr("sys.argv", ["skyhop", "report", "run", "-o", "report.html"])
    monkeypatch.chdir(tmp_path)
    assert not is_refused(whole, None), "the whole run has a page"
    with recorded("fuzz", "run directory (slow: a page each)", trials, 0):
        refused = sum(is_refused(whole, seed) for seed in range(trials))
        assert 0 < refused < trials


def is_refused(whole: Path, seed: int | None) -> bool:
    """Return whether a report of a copy, damaged if there is a seed, is refused, in one line."""
    shutil.rmtree("run", ignore_errors=True)
    shutil.copytree(whole, "run")
    what = "whole" if seed is None else damage(Path("run"), seed)
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    lines = said.getvalue().splitlines()
    assert ended.value.code in (None, 0, 2), (seed, what, lines)
    if ended.value.code != 2:
        return False
    assert len(lines) == 1, (seed, what, lines)
    assert lines[0].isprintable(), (seed, what)
    return True


def test_a_version_that_is_none_is_named(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "summary.json"
    content = {**json.loads(file.read_text("utf-8")), "schema": "x"}
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(sh.InputError, match="`schema` should be a whole number"):
        _ = sh.read_run(tmp_path / "run").summary
