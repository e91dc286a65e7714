"""Paths through the command line and from Python."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, Skyhop

import skyhop as sh
from element_files import walker_omm
from reference_files import reference

# interface: the columns of a path file.
COLUMNS = {
    "t_ns": pa.int64(),
    "delay_ns": pa.int64(),
    "delay_back_ns": pa.int64(),
    "rate_bps": pa.int64(),
    "loss": pa.float64(),
}


def test_a_path_is_computed_and_drawn(skyhop: Skyhop, tmp_path: Path) -> None:
    done = skyhop(
        *("path", "--from", "San Diego", "--to", "New York", "--relay", "bent-pipe"),
        *("--duration", "2 min", "-o", "x.parquet", "--plot", "x.png"),
    )
    assert done.returncode == 0, done.stderr
    assert "x.parquet: 120 frames, mean base RTT" in done.stderr
    table = pq.ParquetFile(tmp_path / "x.parquet").read()
    assert table["t_ns"].to_pylist() == [second * 10**9 for second in range(120)]
    for name, kind in COLUMNS.items():
        assert table.schema.field(name).type == kind
    assert table["nodes"][0].as_py()[0] == -1
    assert table["nodes"][0].as_py()[-1] == -2
    header = json.loads(table.schema.metadata[b"skyhop"])
    assert header["constellation"] == "starlink-shell1"
    assert header["from"]["name"] == "San Diego, US"
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_options_override_a_scenario(skyhop: Skyhop, tmp_path: Path) -> None:
    scenario = ROOT / "examples" / "san-diego-new-york.toml"
    done = skyhop("path", scenario, "--relay", "isl", "--duration", "20 s", "-o", "x.parquet")
    assert done.returncode == 0, done.stderr
    header = json.loads(pq.read_schema(tmp_path / "x.parquet").metadata[b"skyhop"])
    assert header["relay"] == "isl"
    assert header["duration_ns"] == 20 * 10**9


def test_python_gives_the_same_path() -> None:
    once = sh.path("Seattle", "New York", relay="isl", duration="30 s")
    again = sh.path(
        scenario={
            "path": {"from": "Seattle", "to": "New York", "relay": "isl"},
            "run": {"duration": "30 s"},
        }
    )
    assert once.frames.equals(again.frames)
    assert once.frames.height == 30


def test_a_written_path_reads_back(tmp_path: Path) -> None:
    path = sh.path("Seattle", "New York", duration="10 s")
    path.write(tmp_path / "x.parquet")
    assert sh.read_path(tmp_path / "x.parquet").frames.equals(path.frames)


def test_short_outages_are_not_shown_as_zero(skyhop: Skyhop, tmp_path: Path) -> None:
    path = sh.path("Seattle", "New York", duration="60 s", outage="1 ms")
    path.write(tmp_path / "x.parquet")
    share = json.loads(skyhop("path", "stats", "x.parquet", "--json").stdout)["outage_share"]
    assert 0 < share < 0.0005
    (line,) = [
        line
        for line in skyhop("path", "stats", "x.parquet").stdout.splitlines()
        if line.startswith("outage %")
    ]
    assert line.split()[2] == f"{100 * share:.3f}"


def test_other_sites_and_constellations_may_be_files(skyhop: Skyhop, tmp_path: Path) -> None:
    text = (ROOT / "data" / "constellations" / "starlink-shell1.toml").read_text("utf-8")
    (tmp_path / "mine.toml").write_text(text, "utf-8")
    rows = (ROOT / "data" / "sites" / "starlink-gateways.csv").read_text("utf-8")
    (tmp_path / "mine.csv").write_text(rows, "utf-8")
    common = ("path", "--from", "San Diego", "--to", "Seattle", "--duration", "5 s", "-o")
    mine = ("--constellation", "mine.toml", "--gateways", "mine.csv")
    assert skyhop(*common, "mine.parquet", *mine).returncode == 0
    assert skyhop(*common, "theirs.parquet").returncode == 0
    frames = [pq.ParquetFile(tmp_path / name).read() for name in ("mine.parquet", "theirs.parquet")]
    assert frames[0].equals(frames[1])


def test_a_printed_list_of_sites_reads_back(skyhop: Skyhop, tmp_path: Path) -> None:
    for name, option in (("starlink-gateways", "--gateways"), ("starlink-pops", "--pops")):
        printed = skyhop("list", "sites", name)
        rows = json.loads(skyhop("list", "sites", name, "--json").stdout)
        assert len(printed.stdout.splitlines()) == 1 + len(rows)
        (tmp_path / "mine.csv").write_text(printed.stdout, "utf-8")
        common = ("path", "--from", "Seattle", "--to", "Denver", "--relay", "access")
        places = [
            skyhop(*common, "--duration", "5 s", "-o", f"{number}.parquet", *more)
            for number, more in enumerate([(), (option, "mine.csv")])
        ]
        assert [done.returncode for done in places] == [0, 0], places[1].stderr
        mine, theirs = (sh.read_path(tmp_path / f"{number}.parquet") for number in (1, 0))
        assert mine.frames.equals(theirs.frames)
    wrong = skyhop("list", "sites", "starlink-gateway")
    assert (wrong.returncode, "(did you mean starlink-gateways?)" in wrong.stderr) == (2, True)


def test_a_leoem_log_is_imported(skyhop: Skyhop, tmp_path: Path) -> None:
    log = reference("leoem/SD_NY_15_BP.log.gz")
    done = skyhop("path", "import", log, "--format", "leoem", "-o", "x.parquet")
    assert done.returncode == 0, done.stderr
    table = pq.ParquetFile(tmp_path / "x.parquet").read()
    with gzip.open(log, "rt") as lines:
        logged = [line.rstrip("\n").split("$") for line in lines]
    assert table.num_rows == len(logged)
    for index in (0, 1000, 5731):
        fields = logged[index]
        nodes = json.loads(fields[1]) if fields[1] != "NULL" else []
        assert table["nodes"][index].as_py() == nodes
    events = [event for events in table["events"].to_pylist() for event in events]
    # models.md: the broken links of an orbit.
    assert sum(event["kind"] == "intermediate" for event in events) == 3584


def test_leoem_compatibility_follows_a_log(skyhop: Skyhop, tmp_path: Path) -> None:
    """Compute the first ten minutes; the tests of crates/path compare whole orbits."""
    gateways = reference("leoem/ground_stations.csv")
    done = skyhop(
        *("path", "--from", "32.881,-117.237", "--to", "40.845,-73.932", "--relay", "bent-pipe"),
        *("--constellation", "leoem-starlink", "--compat", "leoem", "--gateways", gateways),
        *("--duration", "600 s", "-o", "x.parquet"),
    )
    assert done.returncode == 0, done.stderr
    sh.import_path(reference("leoem/SD_NY_15_BP.log.gz"), "leoem").write(tmp_path / "log.parquet")
    computed = pq.ParquetFile(tmp_path / "x.parquet").read()["nodes"].to_pylist()
    logged = pq.ParquetFile(tmp_path / "log.parquet").read()["nodes"].to_pylist()
    same = sum(ours == theirs for ours, theirs in zip(computed, logged, strict=False))
    assert same >= 0.93 * 600


@pytest.mark.parametrize("command", [["path", "--help"], ["path", "import", "--help"]])
def test_help_has_an_example(skyhop: Skyhop, command: list[str]) -> None:
    done = skyhop(*command)
    assert done.returncode == 0
    assert "skyhop path" in done.stdout


@pytest.mark.parametrize(
    "times",
    [pytest.param(1, marks=pytest.mark.integration), pytest.param(8, marks=pytest.mark.soak)],
)
def test_a_script_that_ends_with_a_table_ends_well(tmp_path: Path, times: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import skyhop\n"
        'path = skyhop.path("San Diego", "New York", relay="bent-pipe", duration="30 s")\n'
        "assert path.frames.height == 30\n"
        'scenario = {"path": {"kind": "fixed", "rtt": "20 ms"}, "flow": [{}]}\n'
        'run = skyhop.sim({**scenario, "run": {"duration": "1 s"}})\n'
        "assert run.flows.height > 0\n"
    )
    # Whether threads of a library disturb the exit depends on timing.
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


POLAR_SHELL = """\
description = "a sparse polar shell"
source = "a test"
epoch = "2026-01-01T00:00:00Z"
minimum_elevation_deg = 25.0

[[shell]]
planes = 3
satellites_per_plane = 24
altitude = "560 km"
inclination_deg = 97.6
node_span_deg = 180.0
phasing = 1
"""
LOW_SHELL = """
[[shell]]
planes = 24
satellites_per_plane = 24
altitude = "550 km"
inclination_deg = 30
phasing = 1
"""


def test_a_path_that_shells_interrupt_says_so(skyhop: Skyhop, tmp_path: Path) -> None:
    both, polar = tmp_path / "both.toml", tmp_path / "polar.toml"
    both.write_text(POLAR_SHELL + LOW_SHELL, "utf-8")
    polar.write_text(POLAR_SHELL, "utf-8")
    times = {"relay": "isl", "duration": "60 min", "step": "30 s"}

    # The place in the north sees polar satellites alone; the place near the equator always sees
    # satellites of the low shell, and polar ones at times.
    path = sh.path("75,0", "1,0", constellation=str(both), **times)
    (note,) = path.notes
    assert note.startswith("there is no path at 0 s, although both ends have satellites in view")
    assert note.endswith(
        'no inter-satellite links between the 2 shells (isl_shells = "nearest" joins them)'
    )
    joined = sh.path("75,0", "1,0", constellation=str(both), isl_shells="nearest", **times)
    assert joined.notes == []

    def share(path: sh.Path) -> float:
        return float((path.frames["nodes"].list.len() > 0).mean())  # type: ignore[arg-type]

    assert share(path) < share(joined)
    assert share(joined) > 0.9
    # Without the low shell the path is interrupted by a lack of satellites, which needs no word.
    assert sh.path("75,0", "1,0", constellation=str(polar), **times).notes == []
    given = ("--relay", "isl", "--constellation", "both.toml", "--duration", "5 min")
    done = skyhop("path", "--from", "75,0", "--to", "1,30", *given, "-o", "x.parquet")
    assert done.returncode == 2
    assert "or only satellites of shells without links between them" in done.stderr
    assert done.stderr.count("\n") == 1


def test_pairs_that_shells_separate_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "both.toml").write_text(POLAR_SHELL + LOW_SHELL, "utf-8")
    over = {"constellation": str(tmp_path / "both.toml"), "duration": "2 s", "step": "1 s"}
    file = tmp_path / "pairs.parquet"
    with pytest.warns(UserWarning, match="there is no path between 1,0 and 75,0 at 0 s") as told:
        pairs = sh.all_pairs(["1,0", "2,2", "75,0"], file, **over)
    assert [str(one.message) for one in told] == pairs.notes
    assert "there are no inter-satellite links between the 2 shells" in pairs.notes[0]
    assert "inter-satellite links" in pairs._repr_html_()
    joined = sh.all_pairs(["1,0", "2,2", "75,0"], file, **over, isl_shells="nearest")
    assert joined.notes == []
    assert (joined.delays_ns > 0).all()
    # Without the low shell no pair has satellites in view at both ends but no path.
    (tmp_path / "both.toml").write_text(POLAR_SHELL, "utf-8")
    assert sh.all_pairs(["1,0", "75,0"], file, **over).notes == []


def test_element_sets_in_no_plane_are_counted(tmp_path: Path) -> None:
    fleet = walker_omm(age=timedelta(hours=1))
    *fields, number, drag = fleet.splitlines()[-1].split(",")
    # Another inclination: the satellite belongs to no plane.
    fields[4] = "81.5"
    stray = ",".join([*fields, str(int(number) + 1), drag])
    file = tmp_path / "fleet.csv"
    file.write_text(f"{fleet}{stray}\n", "utf-8")
    common = {"constellation": str(file), "start": "now", "duration": "2 s"}
    path = sh.path("Rome", "Madrid", relay="isl", **common)
    count = len(fleet.splitlines())
    said = f"no inter-satellite links to 1 of {count} satellites, which are in no plane"
    assert path.account is not None
    assert path.account.endswith(f"; there are {said}")
    assert path.notes == []
    other = sh.path("Rome", "Madrid", relay="bent-pipe", **common).account
    assert other is not None
    assert "inter-satellite" not in other
