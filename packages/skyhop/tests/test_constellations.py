"""Constellations by name, by file and by address; relays and policies; all pairs of sites."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from conftest import Skyhop
from skyfield import api, framelib

import skyhop as sh
from reference_files import reference
from skyhop.data.downloads import RETRY_S, cached_file, download
from skyhop.data.pairs import AllPairs
from skyhop.data.scenarios import load_scenario
from skyhop.study import load_study

STARLINK = "tle/starlink_19-05-2026.tle.gz"
GOOD = (
    "1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927",
    "2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537",
)
SHIPPED = {
    "geo-americas": 3,
    "iridium-next": 66,
    "kuiper": 3236,
    "kuiper-630-hypatia": 1156,
    "leoem-starlink": 1584,
    "oneweb": 588,
    "starlink-550-hypatia": 1584,
    "starlink-gen1": 4408,
    "starlink-shell1": 1584,
    "telesat-1015-hypatia": 351,
    "telesat-lightspeed": 298,
}


def gunzipped(file: Path) -> str:
    """Return the text of a gzipped file."""
    return gzip.decompress(file.read_bytes()).decode()


@pytest.mark.parametrize(("name", "satellites"), SHIPPED.items())
def test_shipped_constellations_have_their_satellites(name: str, satellites: int) -> None:
    constellation = sh.constellation(name)
    assert constellation.satellites.height == satellites
    radius_m = np.linalg.norm(constellation.positions(constellation.epoch), axis=1)
    assert radius_m.min() > 6.87e6
    assert radius_m.max() < 4.22e7


def test_the_list_shows_them_all_with_sources(skyhop: Skyhop) -> None:
    rows = json.loads(skyhop("list", "constellations", "--json").stdout)
    assert SHIPPED.keys() <= {row["name"] for row in rows}
    assert all(len(row["source"]) > 40 for row in rows)
    kuiper = next(row for row in rows if row["name"] == "kuiper")
    assert (kuiper["satellites"], kuiper["altitudes_km"]) == (3236, [630, 610, 590])
    listed = skyhop("list", "constellations").stdout.splitlines()
    assert len(listed) == len(rows) + 3, "a line each below the heading"
    (line,) = [line for line in listed if line.startswith("oneweb")]
    assert line.split() == ["oneweb", "588", "1,200", "87.9", "no"]
    shown = " ".join(skyhop("list", "constellations", "kuiper").stdout.split())
    assert kuiper["source"] in shown
    assert "see skyhop list constellations" in skyhop("list", "constellations", "kuper").stderr


def test_real_satellites_are_where_skyfield_says() -> None:
    """Check 200 satellites, each a day after its epoch, in the frame of SGP4."""
    file = reference(STARLINK)
    ours = sh.constellation(str(file))
    numbers = ours.satellites["catalogue_number"].to_list()
    timescale = api.load.timescale(builtin=True)
    lines = gunzipped(file).splitlines()
    worst_m = 0.0
    for index in range(0, 200 * 51, 51):
        satellite = api.EarthSatellite(*lines[3 * index + 1 : 3 * index + 3], ts=timescale)
        epoch = satellite.epoch.utc_datetime().replace(microsecond=0)
        day_later = (epoch + timedelta(days=1)).astimezone(UTC)
        row = numbers.index(satellite.model.satnum)
        text = day_later.isoformat().replace("+00:00", "Z")
        position_m = ours.positions(text, "inertial")[row]
        jd = timescale.from_datetime(day_later)
        theirs_km, _, error = satellite._position_and_velocity_TEME_km(jd)
        assert error is None
        worst_m = max(worst_m, float(np.linalg.norm(position_m - np.array(theirs_km) * 1e3)))
    print(f"at most {worst_m:.3f} m from skyfield")
    assert worst_m < 1


def test_earth_fixed_positions_differ_from_skyfields_by_the_earths_turn_only() -> None:
    """Take UT1 as UTC: up to 0.9 s, which rotates positions by up to 0.5 km."""
    ours = sh.constellation(str(reference(STARLINK)))
    position_m = ours.positions(ours.epoch)[0]
    lines = gunzipped(reference(STARLINK)).splitlines()
    timescale = api.load.timescale(builtin=True)
    satellite = api.EarthSatellite(lines[1], lines[2], ts=timescale)
    at = timescale.from_datetime(datetime.fromisoformat(ours.epoch.replace("Z", "+00:00")))
    theirs_m = satellite.at(at).frame_xyz(framelib.itrs).m
    assert np.linalg.norm(position_m - theirs_m) < 500
    assert abs(np.linalg.norm(position_m) - np.linalg.norm(theirs_m)) < 1


def test_a_path_over_real_satellites_says_what_it_used(skyhop: Skyhop, tmp_path: Path) -> None:
    lines = gunzipped(reference(STARLINK)).splitlines(keepends=True)
    lines[1] = lines[1].replace("44714U", "44713U")
    (tmp_path / "x.tle").write_text("".join(lines), "utf-8")
    done = skyhop(
        *("path", "--constellation", "x.tle", "--from", "Seattle", "--to", "Denver"),
        *("--relay", "isl", "--duration", "10 s", "-o", "x.parquet"),
    )
    assert done.returncode == 0, done.stderr
    note = "x.tle: 10362 of 10363 element sets used; skipped: 1 wrong checksum (STARLINK-1008)"
    assert note in done.stderr
    header = json.loads(pq.read_schema(tmp_path / "x.parquet").metadata[b"skyhop"])
    assert (header["constellation"], header["satellites"]) == ("x", 10362)
    assert header["start"].startswith("2026-05-19T")


def test_satellites_are_chosen_by_name_shell_and_plane() -> None:
    file = str(reference(STARLINK))
    named = sh.constellation(file, satellites="name=STARLINK-10*")
    assert all(name.startswith("STARLINK-10") for name in named.satellites["name"].to_list())
    everything = sh.constellation(file).satellites.to_dicts()
    plane = [row for row in everything if (row["shell"], row["plane"]) == (1, 3)]
    chosen = sh.constellation(file, satellites="shell=1; plane=3").satellites
    assert set(chosen["name"].to_list()) == {row["name"] for row in plane}
    assert sorted(row["slot"] for row in plane) == list(range(len(plane)))
    shell = sh.constellation("starlink-gen1", satellites="shell=2")
    assert shell.satellites.height == 720


def test_a_start_far_from_the_epochs_is_refused_with_a_better_one(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    (tmp_path / "x.tle").write_text("\n".join(["ISS", *GOOD]), "utf-8")
    common = ("path", "--constellation", "x.tle", "--from", "Rome", "--to", "Oslo", "-o", "x.pq")
    done = skyhop(*common, "--start", "2019-12-01T00:00:00Z")
    assert done.returncode == 2
    assert "1 stale (ISS); most epochs are near 2008-09-20T12:25:00Z" in done.stderr


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """Serve element sets and a web page; the list collects the requested paths."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/gone":
                self.send_error(404, "Not Found")
                return
            if self.path == "/same":
                self.send_response(403)
                self.end_headers()
                self.wfile.write(b"data has not changed\nsince 08:11.\n")
                return
            body = b"<html>busy</html>" if self.path == "/page" else "\n".join(GOOD).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing about requests."""

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}", asked
        served.shutdown()
        thread.join()


@pytest.mark.integration
def test_an_address_is_downloaded_once(server: tuple[str, list[str]]) -> None:
    address, asked = server
    for _ in range(2):
        constellation = sh.constellation(f"{address}/stations.tle")
        assert constellation.satellites["catalogue_number"].to_list() == [25544]
    assert asked == ["/stations.tle"]


@pytest.mark.integration
def test_an_address_may_be_the_path_of_any_link_and_of_a_study(
    server: tuple[str, list[str]],
) -> None:
    address, asked = server
    fixed, over = {"kind": "fixed", "rtt": "20 ms"}, {"from": "Rome", "to": "Oslo"}
    path = {**over, "constellation": f"{address}/stations.tle"}
    linked = {
        "path": fixed,
        "links": {"more": {"path": path, "rate": "5 Mbit/s"}},
        "flow": [{"cc": "cubic"}, {"cc": "cubic", "via": ["more"]}],
    }
    of_link = json.loads(load_scenario(linked).to_json())["links"]["more"]["path"]
    assert Path(of_link["constellation"]).read_text("utf-8").splitlines() == list(GOOD)
    for scenario in (linked, {"path": path, "flow": [{"cc": "cubic"}]}):
        content = {"title": "t", "question": "q", "scenario": scenario}
        (run,) = load_study(content).runs()
        # The run uses the planned copy, even if the address serves something else later.
        again = load_scenario(scenario, run.sets)
        assert json.loads(again.to_json()) == run.resolved
        assert address not in json.dumps(run.resolved)
    assert asked == ["/stations.tle"]


@pytest.mark.integration
def test_an_address_that_answers_with_something_else_is_an_error(
    server: tuple[str, list[str]],
) -> None:
    address, _ = server
    with pytest.raises(sh.InputError, match="HTML"):
        sh.constellation(f"{address}/page")
    with pytest.raises(sh.InputError, match="404 Not Found"):
        download(f"{address}/gone")
    with pytest.raises(sh.InputError, match=r"cannot download: Connection refused$"):
        download("http://127.0.0.1:9/nobody")


@pytest.mark.integration
def test_an_old_copy_is_better_than_none_and_a_failure_is_remembered(
    server: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, asked = server
    with pytest.raises(sh.InputError, match="403 Forbidden: data has not changed since 08:11"):
        download(f"{address}/same")
    with pytest.raises(sh.InputError, match="since 08:11; skyhop asks again in 15 min"):
        download(f"{address}/same")
    assert asked == ["/same"]
    for name in (f"{address}/same", "http://127.0.0.1:9/nobody"):
        copy = cached_file(name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("old", "utf-8")
        os.utime(copy, (time.time() - 3 * 3600,) * 2)
        for _ in range(2):
            assert download(name).read_text("utf-8") == "old"
            assert "using the copy of 3 h ago" in capsys.readouterr().err
    assert asked == ["/same"]
    # Once the time is over, the server is asked again.
    failure = cached_file(f"{address}/same").with_suffix(".failure")
    os.utime(failure, (time.time() - RETRY_S - 1,) * 2)
    download(f"{address}/same")
    assert asked == ["/same", "/same"]


@pytest.mark.parametrize(
    ("keys", "hops"),
    [
        ({"relay": "access"}, 4),
        ({"relay": "geo", "constellation": "geo:-95.2"}, 2),
    ],
)
def test_relays_of_one_satellite(keys: dict[str, str], hops: int) -> None:
    trace = sh.path("Seattle", "Dallas", duration="30 s", **keys)
    assert {len(delays) for delays in trace.frames["hop_delay_ns"].to_list()} == {hops}
    segments = trace.segments
    for row, delay_ns in zip(segments.to_dicts(), trace.frames["delay_ns"].to_list(), strict=True):
        assert sum(value for key, value in row.items() if key != "t_ns") == delay_ns
        assert (row["fibre_ns"] > 0) == (keys["relay"] == "access")
        assert row["isl_ns"] == 0


@pytest.mark.parametrize("policy", ["nearest-grid", "max-elevation-grid", "longest-visible-grid"])
def test_policies_on_a_grid_follow_another_grid(policy: str) -> None:
    trace = sh.path(
        "Seattle",
        "New York",
        relay="isl",
        handover=policy,
        outage="starlink",
        duration="120 s",
        grid_period="20 s",
        grid_offset="5 s",
    )
    events = [event for frame in trace.frames["events"].to_list() for event in frame]
    ends = [event for event in events if event["kind"] == "end"]
    assert sum(event["t_ns"] // 10**9 % 20 == 5 for event in ends) >= len(ends) / 2
    assert all(30e6 <= event["outage_ns"] <= 100e6 for event in ends)


def test_hypatias_path_is_followed() -> None:
    published = reference("hypatia/kuiper630_manila_dalian_rtt.txt").read_text("utf-8")
    trace = sh.path(
        "14.6042,120.9822",
        "38.913811,121.602322",
        constellation="kuiper-630-hypatia",
        compat="hypatia",
        relay="isl",
        step="100 ms",
        duration="200 s",
    )
    assert trace.header["handover"] == "immediate"
    rtts_ns = [float(line.split(",")[1]) for line in published.splitlines()]
    ours_ns = 2 * trace.frames["delay_ns"].to_numpy()
    assert np.abs(ours_ns - np.array(rtts_ns)).max() < 1_000


def test_all_pairs_are_read_back_as_arrays(tmp_path: Path) -> None:
    sites = ["Seattle", "New York", "London", "78.2,15.6"]
    file = tmp_path / "pairs.parquet"
    pairs = sh.all_pairs(sites, file, duration="300 s", relay="isl")
    assert pairs.delays_ns.shape == (300, 6)
    alone = sh.path("Seattle", "New York", relay="isl", handover="immediate", duration="300 s")
    assert np.abs(pairs.delays_ns[:, 0] - alone.frames["delay_ns"].to_numpy()).max() < 30
    routes = pairs.routes("New York", "Seattle")
    assert routes[0][1] == alone.frames["nodes"][0].to_list()[-2:0:-1]
    assert [since for since, _ in pairs.routes(0, 3)] == []
    assert (pairs.delays_ns[:, 2] == 0).all()
    again = sh.read_all_pairs(file)
    assert (again.delays_ns == pairs.delays_ns).all()
    # A delay takes less than three bytes, routes included.
    assert file.stat().st_size < 3 * pairs.delays_ns.size + 10_000
    with pytest.raises(sh.InputError, match="at least two"):
        sh.all_pairs(["Rome"], file)
    with pytest.raises(sh.InputError, match="cannot read"):
        sh.read_all_pairs(tmp_path / "nothing.parquet")


@pytest.mark.parametrize("handover", ["shortest-grid", "sticky"])
def test_all_pairs_under_a_handover_policy_are_the_paths_of_each_pair(
    handover: str, tmp_path: Path
) -> None:
    sites, keys = ["Seattle", "New York", "London"], {"handover": handover, "duration": "600 s"}
    pairs = sh.all_pairs(sites, tmp_path / "pairs.parquet", relay="isl", step="5 s", **keys)
    assert pairs.header["handover"] == handover
    for index, (one, other) in enumerate(pairs.pairs):
        alone = sh.path(sites[one], sites[other], relay="isl", step="5 s", **keys)
        assert (pairs.delays_ns[:, index] == alone.frames["delay_ns"].to_numpy()).all()
        events = [event for frame in alone.frames["events"].to_list() for event in frame]
        ends = [event["hop"] for event in events if event["kind"] == "end"]
        counts = [ends.count(0), len(ends) - ends.count(0)]
        assert [*pairs.handovers[index]] == counts
        assert sum(counts) > 0
        rtt_ms = 2 * np.median(alone.frames["delay_ns"].to_numpy()) / 1e6
        assert pairs.rtt_matrix_ms[other, one] == pairs.rtt_matrix_ms[one, other] == rtt_ms


def test_handovers_over_a_time_without_a_path_do_not_count() -> None:
    changes = [
        [{"pair": 0, "nodes": [5, 6]}],
        [{"pair": 0, "nodes": [5, 7]}],
        [{"pair": 0, "nodes": []}],
        [{"pair": 0, "nodes": [8, 9]}],
        [{"pair": 0, "nodes": [9, 9]}],
    ]
    table = pl.DataFrame(
        {
            "t_ns": range(5),
            "delay_dd_ns": [[4_000_000], [-4_000_000], [-4_000_000], [8_000_000], [0]],
            "changes": changes,
        }
    )
    pairs = AllPairs(table, {"sites": [{"name": "A"}, {"name": "B"}]})
    assert [*pairs.delays_ns[:, 0]] == [4_000_000, 4_000_000, 0, 4_000_000, 8_000_000]
    assert pairs.handovers.tolist() == [[1, 1]]
    assert pairs.rtt_matrix_ms.tolist() == [[0.0, 8.0], [8.0, 0.0]]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"outage": "none", "handover": "sticky"}, "outage=…"),
        ({"grid_period": "15 s"}, "grid_period=…"),
        ({"grid_period": "15 s", "handover": "sticky"}, "grid_period=…"),
        ({"grid_offset": "12 s"}, "grid_offset=…"),
        ({"pops": "starlink-pops"}, "pops=…"),
        ({"fibre_stretch": "1.4"}, "fibre_stretch=…"),
        ({"from": "Rome"}, "from=…"),
        ({"gateways": "starlink-gateways"}, "gateways=…"),
        ({"relay": "bent-pipe", "isl_seam": "false"}, "isl_seam=…"),
        ({"relay": "bent-pipe", "isl_clearance": "90 km"}, "isl_clearance=…"),
        ({"relay": "access"}, 'relay="access"'),
        ({"relay": "geo", "constellation": "geo:-95"}, 'relay="geo"'),
    ],
)
def test_all_pairs_refuse_what_they_do_not_use_before_the_work(
    keys: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyhop.data.pairs.position_of", pytest.fail)
    typed = {key: {"false": False, "1.4": 1.4}.get(value, value) for key, value in keys.items()}
    with pytest.raises(sh.InputError, match=re.escape(f"all_pairs({said})")) as told:
        sh.all_pairs(["Rome", "Oslo"], tmp_path / "pairs.parquet", duration="3 s", **typed)
    assert "\n" not in str(told.value)


def test_all_pairs_obey_every_key_that_they_accept(tmp_path: Path) -> None:
    common = {"constellation": "starlink-gen1", "start": "2026-01-01T12:00:00Z", "step": "2 s"}

    def delays_ns(to: str = "New York", **keys: Any) -> list[int]:
        file = tmp_path / "pairs.parquet"
        pairs = sh.all_pairs(["Rome", to], file, duration="4 s", **{**common, **keys})
        return [*map(int, pairs.delays_ns[:, 0])]

    usual = delays_ns()
    assert len(usual) == 2
    changes: list[dict[str, Any]] = [
        {"start": "2026-01-01T12:07:00Z"},
        {"satellites": "shell=0"},
        {"constellation": "kuiper"},
        {"minimum_elevation": "45 deg"},
        {"geo_avoidance": "75 deg"},
        {"isl_clearance": "520 km"},
        {"relay": "bent-pipe"},
        {"handover": "longest-visible-grid"},
        {"handover": "shortest-grid", "grid_offset": "1 s"},
    ]
    assert [keys for keys in changes if delays_ns(**keys) == usual] == []
    one = tmp_path / "one.csv"
    one.write_text("name,latitude_deg,longitude_deg\nBasel,47.6,7.6\n", "utf-8")
    near = {"to": "Oslo", "relay": "bent-pipe"}
    assert delays_ns(**near) != delays_ns(**near, gateways=str(one))
