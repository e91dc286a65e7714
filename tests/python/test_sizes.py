"""What takes more memory or time than a machine has is refused before it begins, in one line."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Skyhop, skyhop_command
from synthetic_run import SyntheticRun

import skyhop as sh
from skyhop.data.scenarios import load_scenario
from skyhop.data.shipped import shipped_files
from skyhop.errors import InputError

FIXED = '[path]\nkind = "fixed"\nrtt = "20 ms"\n[[flow]]\n[run]\nduration = "1 s"\n'
OR_FORCE = "or say --force-size"


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (["run.duration=30 d", "run.sample=1 ms"], "run.sample: makes 7,776,000,000 rows"),
        (["flow.0.count=10000", "run.duration=1 d"], "run.sample: makes 8,641,728,000 rows"),
        (["path.rtt=0 ms", "link.rate=10000 Gbit/s", "run.duration=60 s"], "packets to simulate"),
    ],
)
def test_a_run_that_takes_too_much_is_not_begun(
    skyhop: Skyhop, tmp_path: Path, sets: list[str], expected: str
) -> None:
    scenario = tmp_path / "x.toml"
    scenario.write_text(FIXED)
    given = [word for text in sets for word in ("--set", text)]
    said = one_line(skyhop("sim", str(scenario), "-o", str(tmp_path / "run"), *given))
    assert expected in said
    assert OR_FORCE in said
    assert not (tmp_path / "run").exists()


def test_a_run_is_forced_and_says_so(skyhop: Skyhop, tmp_path: Path) -> None:
    scenario = tmp_path / "x.toml"
    scenario.write_text(FIXED)
    grid = ("--set", "signal.source=schedule", "--set", "signal.period=900 ns")
    refused = skyhop("sim", str(scenario), "-o", str(tmp_path / "run"), *grid)
    assert "signal.period: makes 1,111,112 announcements; at most 1,000,000" in one_line(refused)
    run = tmp_path / "run"
    done = skyhop("sim", str(scenario), "-o", str(run), *grid, "--force-size", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "run.json").read_text())["scenario"]["run"]["force_size"] is True
    assert sh.read_run(run).is_large
    # Of usual size it is written as it always was.
    plain = sh.sim(scenario)
    assert "force_size" not in plain.info["scenario"]["run"]
    assert not plain.is_large


def test_all_that_is_shipped_is_of_usual_size() -> None:
    for file in shipped_files("examples").values():
        load_scenario(file)


@pytest.fixture(scope="module")
def large_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a path file of some megabytes that takes gigabytes: its values repeat."""
    small = tmp_path_factory.mktemp("small") / "small.parquet"
    sh.path("Paris", "Rome", duration="1 s").write(small)
    one = pq.read_table(small)
    count = 8_000_000
    columns = {
        name: one.column(name).combine_chunks().take(pa.array(np.zeros(count, dtype=np.int32)))
        for name in one.column_names
        if name not in ("t_ns", "nodes", "hop_delay_ns", "events")
    }
    columns["t_ns"] = pa.array(np.arange(count) * 1_000_000)
    for name in ("nodes", "hop_delay_ns", "events"):
        # Frames of which neither nodes nor hops are known.
        empty = pa.array([[]], type=one.schema.field(name).type)
        columns[name] = empty.take(pa.array(np.zeros(count, dtype=np.int32)))
    table = pa.table({name: columns[name] for name in one.column_names}).cast(one.schema)
    file = tmp_path_factory.mktemp("large") / "large.parquet"
    pq.write_table(
        table,
        file,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"t_ns": "DELTA_BINARY_PACKED"},
    )
    assert file.stat().st_size < 10_000_000
    return file


@pytest.mark.parametrize("command", [("stats",), ("export", "--format", "csv", "-o", "out")])
def test_a_path_file_that_takes_gigabytes_is_refused(
    large_path: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *rest = command
    most = 900 << 20

    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    done = subprocess.run(
        [*skyhop_command(), "path", name, str(large_path), *rest],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        preexec_fn=little_memory,
        check=False,
    )
    said = one_line(done)
    assert "large.parquet: would take " in said
    assert "MB of memory; at most 1073 MB: cut it, or say --force-size" in said
    assert list(tmp_path.iterdir()) == []


def test_a_scenario_over_a_large_path_says_how_to_go_on(large_path: Path) -> None:
    path = {"kind": "trace", "file": str(large_path)}
    scenario = {"path": path, "flow": [{}], "run": {"duration": "1 s"}}
    with pytest.raises(InputError, match=r"in a scenario run.force_size = true"):
        sh.sim(scenario)


def test_tables_that_take_gigabytes_are_refused(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SyntheticRun().write(tmp_path / "run")
    monkeypatch.setattr("skyhop.runs.MOST_BYTES", 1000)
    with pytest.raises(InputError, match=r"flows.parquet: .* rows take .* or say --force-size"):
        _ = sh.read_run(run).flows
    assert sh.read_run(run, force_size=True).flows.num_rows > 0
    # The same reader stands behind the command.
    done = skyhop("report", str(run), "-o", str(tmp_path / "x.html"), "--force-size")
    assert done.returncode == 0, done.stderr
