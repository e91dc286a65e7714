"""Input that needs more memory or time than machines have is refused at once, in one line."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Skyhop

import skyhop as sh
from skyhop.data.scenarios import load_scenario
from skyhop.data.shipped import shipped_files
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.store import Store
from synthetic_run import SyntheticRun

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


def test_a_run_is_forced_and_says_so(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tmp_path / "x.toml"
    scenario.write_text(FIXED)
    grid = ("--set", "signal.source=schedule", "--set", "signal.period=900 ns")
    refused = skyhop("sim", str(scenario), "-o", str(tmp_path / "run"), *grid)
    assert "signal.period: makes 1,111,112 announcements; at most 1,000,000" in one_line(refused)
    run = tmp_path / "run"
    done = skyhop("sim", str(scenario), "-o", str(run), *grid, "--force-size", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "run.json").read_text())["scenario"]["run"]["force_size"] is True
    # What a run says about itself does not lift the reader's limit: it may come from others.
    monkeypatch.setattr("skyhop.tables.MOST_BYTES", 1000)
    with pytest.raises(InputError, match=r"flows.parquet: .* or say --force-size"):
        _ = sh.read_run(run).flows
    assert sh.read_run(run, force_size=True).flows.height > 0
    # Without the option, run.json does not mention it.
    plain = sh.sim(scenario)
    assert "force_size" not in plain.info["scenario"]["run"]
    assert not plain.force_size
    assert sh.sim(scenario, sets=["run.force_size=true"]).flows.height > 0


def test_all_that_is_shipped_is_of_usual_size() -> None:
    for file in shipped_files("examples").values():
        load_scenario(file)


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit this process to 900 MB more memory than it has."""
    status = Path("/proc/self/status").read_text("ascii")
    data_kb = next(int(line.split()[1]) for line in status.splitlines() if "VmData" in line)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, ((data_kb << 10) + (900 << 20), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@pytest.fixture
def frugal(skyhop: Skyhop) -> Skyhop:
    """Run skyhop with little memory."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        with little_memory():
            return skyhop(*arguments)

    return run


@pytest.fixture(scope="module")
def large_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a path file of some megabytes whose repeated values take gigabytes in memory."""
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
        # Frames without known nodes and hops.
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
    frugal: Skyhop, large_path: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *rest = command
    said = one_line(frugal("path", name, str(large_path), *rest))
    assert "large.parquet: would take " in said
    assert "MB of memory; at most 1073 MB: cut it, or say --force-size" in said
    assert list(tmp_path.iterdir()) == []


def repeated(text: str, count: int) -> pa.DictionaryArray:
    """Return a column that repeats a text and takes next to nothing in a file."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), pa.array([text]))


def path_with_texts(file: Path, kind: str, *, junk: str = "", **options: object) -> Path:
    """Write a path file of a thousand events, whose texts take gigabytes when decoded."""
    count = 1000
    small = file.with_name("small.parquet")
    sh.path("Paris", "Rome", duration="1 s").write(small)
    one = pq.read_table(small)
    columns = {name: one[name].combine_chunks().take([0] * count) for name in one.column_names}
    columns["t_ns"] = pa.array(np.arange(count) * 1_000_000_000)
    zeros, kinds = pa.array(np.zeros(count, dtype=np.int64)), repeated(kind, count)
    events = pa.StructArray.from_arrays(
        [columns["t_ns"], kinds, pa.nulls(count, pa.int16()), zeros],
        ["t_ns", "kind", "hop", "outage_ns"],
    )
    columns["events"] = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), events)
    if junk:
        columns["junk"] = repeated(junk, count)
    metadata = json.loads(one.schema.metadata[b"skyhop"])
    header = {b"skyhop": json.dumps({**metadata, "duration_ns": count * 10**9}).encode()}
    pq.write_table(
        pa.table(columns).replace_schema_metadata(header), file, compression="zstd", **options
    )
    small.unlink()
    assert file.stat().st_size < 100_000
    return file


LONG = "x" * 2_000_000


def test_a_path_file_whose_kinds_take_gigabytes_is_refused(frugal: Skyhop, tmp_path: Path) -> None:
    path = path_with_texts(tmp_path / "x.parquet", LONG)
    said = one_line(frugal("path", "stats", str(path)))
    assert "the kind of an event has 2000000 bytes; at most " in said


@pytest.mark.parametrize("length", [2_000, pytest.param(2_000_000, marks=pytest.mark.soak)])
def test_a_path_file_whose_kinds_are_all_of_the_one_before_is_refused(
    frugal: Skyhop, tmp_path: Path, length: int
) -> None:
    encodings = {"events.list.element.kind": "DELTA_BYTE_ARRAY"}
    path = path_with_texts(
        tmp_path / "x.parquet", "x" * length, use_dictionary=False, column_encoding=encodings
    )
    said = one_line(frugal("path", "stats", str(path)))
    assert "events.kind is encoded as DELTA_BYTE_ARRAY" in said


def test_other_columns_of_a_path_file_are_not_read(frugal: Skyhop, tmp_path: Path) -> None:
    path = path_with_texts(tmp_path / "x.parquet", "reroute", junk=LONG)
    done = frugal("path", "stats", str(path))
    assert done.returncode == 0, done.stderr


def test_a_scenario_over_a_large_path_says_how_to_go_on(large_path: Path) -> None:
    path = {"kind": "trace", "file": str(large_path)}
    scenario = {"path": path, "flow": [{}], "run": {"duration": "1 s"}}
    with pytest.raises(InputError, match=r"in a scenario run.force_size = true"):
        sh.sim(scenario)


@pytest.mark.usefixtures("pictures")
def test_tables_that_take_gigabytes_are_refused(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SyntheticRun().write(tmp_path / "run")
    monkeypatch.setattr("skyhop.tables.MOST_BYTES", 1000)
    with pytest.raises(InputError, match=r"flows.parquet: .* rows take .* or say --force-size"):
        _ = sh.read_run(run).flows
    assert sh.read_run(run, force_size=True).flows.height > 0
    # The command uses the same reader.
    done = skyhop("report", str(run), "-o", str(tmp_path / "x.html"), "--force-size")
    assert done.returncode == 0, done.stderr


def rewritten(run: Path, name: str, column: str, text: str) -> None:
    """Replace a column of a run's table by one that repeats a text."""
    file = run / f"{name}.parquet"
    table = pq.read_table(file)
    kept = table.drop_columns([column]) if column in table.column_names else table
    kept = kept.append_column(column, repeated(text, table.num_rows))
    pq.write_table(kept, file, compression="zstd")
    assert file.stat().st_size < 100_000


@pytest.mark.usefixtures("pictures")
def test_other_columns_of_a_run_are_not_read(frugal: Skyhop, tmp_path: Path) -> None:
    run = SyntheticRun().write(tmp_path / "run")
    rewritten(run, "flows", "junk", "y" * 10_000_000)
    done = frugal("report", str(run), "-o", "x.html")
    assert done.returncode == 0, done.stderr
    assert "junk" not in sh.read_run(run).flows.columns


def test_tables_whose_texts_take_gigabytes_are_refused(frugal: Skyhop, tmp_path: Path) -> None:
    run = SyntheticRun().write(tmp_path / "run")
    assert sh.read_run(run).flows.schema["state"] == pl.String
    rewritten(run, "flows", "state", "y" * 10_000_000)
    said = one_line(frugal("report", str(run), "-o", "x.html"))
    assert "flows.parquet: " in said
    assert OR_FORCE in said


def test_tables_with_lists_are_refused(tmp_path: Path) -> None:
    run = SyntheticRun().write(tmp_path / "run")
    file = run / "flows.parquet"
    table = pq.read_table(file)
    lists = pa.array([[1, 2]] * table.num_rows)
    pq.write_table(table.set_column(table.column_names.index("flow"), "flow", lists), file)
    with pytest.raises(InputError, match=r"flows.parquet: cannot read: flow: expected one value"):
        _ = sh.read_run(run).flows


def test_a_day_of_telemetry_that_takes_gigabytes_is_refused(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "kept")
    samples: list[Sample] = [{TIME: at * 10**9, "state": "CONNECTED"} for at in range(1000)]
    store.append("a", samples)
    store.close()
    file = tmp_path / "kept" / "a" / "1970-01-01.parquet"
    times = pq.read_table(file)[TIME]
    pq.write_table(pa.table({TIME: times, "junk": repeated(LONG, 1000)}), file, compression="zstd")
    # Columns that are not read do not count.
    assert store.read().height == 1000
    pq.write_table(pa.table({TIME: times, "state": repeated(LONG, 1000)}), file, compression="zstd")
    assert file.stat().st_size < 100_000
    for place in (tmp_path / "kept", file):
        told = skyhop("telemetry", "show", str(place), "--fields", "state")
        assert told.returncode == 2
        assert "1970-01-01.parquet: 1,000 rows take 2.0 GB of memory; at most 1 GB" in told.stderr
        assert told.stderr.count("\n") == 1
    monkeypatch.setattr("skyhop.tables.MOST_BYTES", 1000)
    with pytest.raises(InputError, match=r"1,000 rows take 0\.0 GB of memory"):
        store.read(fields=[])


def test_all_pairs_that_take_gigabytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pairs.parquet"
    sh.all_pairs(["Seattle", "Rome"], file, duration="3 s", constellation="iridium-next")
    monkeypatch.setattr("skyhop.tables.MOST_BYTES", 40)
    with pytest.raises(InputError, match=r"pairs.parquet: 3 rows take .* with force_size=True"):
        sh.read_all_pairs(file)
    assert len(sh.read_all_pairs(file, force_size=True).times_ns) == 3
