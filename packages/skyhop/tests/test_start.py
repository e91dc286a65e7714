"""Modules that skyhop loads at start: a command loads only those that it uses."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import ROOT, skyhop_command

# Modules whose import takes tens of milliseconds or more; each stands for its package.
ARRAYS = {"numpy", "pyarrow", "polars", "pandas", "scipy"}
DRAWING = {"matplotlib", "jinja2"}
SELDOM = {"urllib.request", "http.client", "concurrent.futures.process", "ray"}
STUDIES = {"skyhop.study", "tomli_w"}

SCENARIO = """
[path]
kind = "fixed"
rtt = "50 ms"
[link]
rate = "10 Mbit/s"
[[flow]]
[run]
duration = "1 s"
"""


def imported(command: Sequence[str], tmp_path: Path) -> set[str]:
    """Return the modules that a Python command imports, from `-X importtime`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.integration
def test_sim_loads_no_arrays_to_print_a_table(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SCENARIO, "utf-8")
    found = imported([*skyhop_command(), "sim", "short.toml", "-o", "run"], tmp_path)
    assert {"skyhop._core", "rich.table"} <= found, "it runs, and prints a table"
    assert found & (ARRAYS | DRAWING | SELDOM | STUDIES) == set()


@pytest.mark.integration
def test_help_loads_neither_core_nor_tables(tmp_path: Path) -> None:
    found = imported([*skyhop_command(), "--help"], tmp_path)
    assert {"skyhop.cli.sim", "typer"} <= found, "it knows the commands"
    unused = {"skyhop._core", "rich", "pydantic", "skyhop.engines", "skyhop.data.runs"}
    assert found & (ARRAYS | DRAWING | SELDOM | STUDIES | unused) == set()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param("typer", marks=pytest.mark.integration),
        pytest.param("typer.colors", marks=pytest.mark.soak),
        pytest.param("skyhop.cli.app_", marks=pytest.mark.soak),
        pytest.param("skyhop.cli.study", marks=pytest.mark.soak),
    ],
)
def test_ctrl_c_while_it_loads_is_one_line(tmp_path: Path, after: str) -> None:
    (tmp_path / "long.toml").write_text(SCENARIO.replace("1 s", "20 h"), "utf-8")
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *skyhop_command(), "sim", "long.toml", "-o", "run"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        # A command that ignores the signal would run for hours.
        deadline = threading.Timer(120, process.kill)
        deadline.start()
        loaded = iter(process.stderr)
        while next(loaded).rpartition("|")[2].strip() != after:
            pass
        process.send_signal(signal.SIGINT)
        said = [line.strip() for line in loaded if not line.startswith("import time:")]
        deadline.cancel()
    assert process.returncode == 130
    # On a slow machine the simulation may have started, and so print its progress.
    assert said == ["skyhop: interrupted"] or said[-1].startswith("skyhop: interrupted after")


@pytest.mark.integration
def test_importing_the_package_loads_only_the_tables_of_its_names(tmp_path: Path) -> None:
    found = imported(["-c", "import skyhop"], tmp_path)
    assert "skyhop" in found
    assert {name for name in found if name.startswith("skyhop.")} == {"skyhop.lazy", "skyhop.views"}
    unused = {"typer", "rich", "pydantic"}
    assert found & (ARRAYS | DRAWING | SELDOM | STUDIES | unused) == set()


@pytest.mark.integration
def test_workers_of_studies_load_no_frames(tmp_path: Path) -> None:
    found = imported(["-c", "import skyhop.study.workers"], tmp_path)
    assert {"skyhop._core", "skyhop.study.metrics"} <= found, "they run, and measure"
    unused = {"polars", "pyarrow", "pandas", "scipy"}
    assert found & (DRAWING | unused) == set()


def test_all_names_of_the_package_exist() -> None:
    import skyhop
    import skyhop.figures
    import skyhop.report
    import skyhop.study

    for package in (skyhop, skyhop.report, skyhop.figures, skyhop.study):
        for name in package.__all__:
            assert getattr(package, name) is not None, f"{package.__name__}.{name}"


def test_only_commands_use_the_names_of_the_package() -> None:
    """Check what `make lint` cannot see: names that the package looks up when they are used."""
    package = ROOT / "packages" / "skyhop" / "skyhop"
    parts = {file.name.partition(".")[0] for file in package.iterdir()}
    for file in package.rglob("*.py"):
        text = file.read_text("utf-8")
        if package / "cli" in file.parents or file == package / "__init__.py":
            continue
        assert not re.search(r"^ *import skyhop\b(?!\.)", text, re.MULTILINE), file
        for names in re.findall(r"^ *from skyhop import (.+)$", text, re.MULTILINE):
            assert set(names.split(", ")) <= parts, file


READING = """
import skyhop

run = skyhop.sim("short.toml", output="run")
assert run.flows.height
trace = skyhop.path("Madrid", "Paris", duration="2 s")
assert trace.frames.height
trace.write("path.parquet")
assert skyhop.read_path("path.parquet").frames.height
skyhop.all_pairs(["Madrid", "Paris"], "pairs.parquet", duration="2 s")
assert skyhop.read_all_pairs("pairs.parquet")
"""


@pytest.mark.integration
def test_an_interpreter_that_has_read_tables_ends_cleanly(tmp_path: Path) -> None:
    """Check that threads of the libraries for tables do not abort the interpreter at its exit."""
    (tmp_path / "short.toml").write_text(SCENARIO, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", READING],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
