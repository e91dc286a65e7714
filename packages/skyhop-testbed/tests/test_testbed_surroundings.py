"""Surroundings of a node: satellites compared with sgp4 and paths, weather from a fake server.

All requests go to servers on the loopback, which the tests start.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sgp4.api as sgp4
from manual_clock import ManualClock
from sgp4 import omm
from test_testbed_agent import job
from testbed_fake_orchestrator import AgentProcess, FakeOrchestrator

import skyhop as sh
from damaged import Trial
from dish_sources import recorded_status, served
from element_files import walker_omm
from needs import ROOT, needs_namespaces
from skyhop.data import serving_satellites
from skyhop.errors import InputError, RunError
from skyhop.telemetry.columns import checked
from skyhop.telemetry.fields import BY_NAME, TIME, Sample
from skyhop_lab.dish.device import Place
from skyhop_lab.dish.recorded import RecordedAnswers
from skyhop_testbed.agent import sky, weather
from skyhop_testbed.agent.position import Position, position
from skyhop_testbed.agent.sensing import Watch
from skyhop_testbed.agent.settings import Orbit, Predict, Settings, read_settings
from skyhop_testbed.agent.surroundings import BATCH_S, Surroundings, until_grid_s
from skyhop_testbed.executor.journal import JournalEntry, read_journal
from skyhop_testbed.triggers import Trigger
from tiers import is_soak
from waiting import wait_for

S = 10**9
PLACE = "48.43,-123.37"
SITE = Position(48.43, -123.37, 0.0)
EXACTLY = {"place": PLACE, "dish": None, "precision_deg": 0.0}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bypass proxies for the test's own servers."""
    monkeypatch.setenv("no_proxy", "*")


def now_s() -> int:
    """Return the present time in s."""
    return int(time.time())


def order(file: Path, begin_s: int, seconds: int, **others: Any) -> dict[str, Any]:
    orbit = {"elements": str(file), "handover": "max-elevation-grid", "old_after_days": 3.0}
    return {**EXACTLY, **orbit, "from_ns": begin_s * S, "seconds": seconds, **others}


def rows_of(asked: dict[str, Any]) -> list[sky.Row]:
    return [sky.Row(*row) for row in sky.table(asked)["rows"]]


def fleet(tmp_path: Path, **how: Any) -> Path:
    file = tmp_path / "fleet.csv"
    file.write_text(walker_omm(**how), "utf-8")
    return file


def await_quiet(around: Surroundings) -> None:
    """Wait until no call is in progress."""
    for each in (around._sky, around._weather):
        if each is not None and each._call._thread is not None:
            each._call._thread.join(120)
            assert not each._call.is_busy


def looked(around: Surroundings, at_s: int) -> None:
    """Refresh once, and wait for the results."""
    around.refresh(at_s * S)
    await_quiet(around)


# --- satellites: compared with sgp4, by an independent computation of the sky ---


class Oracle:
    """Satellites of the same fleet by the library sgp4, with positions in the site's sky."""

    def __init__(self, file: Path) -> None:
        self.satellites = []
        self.names = []
        for fields in csv.DictReader(io.StringIO(file.read_text("utf-8"))):
            record = sgp4.Satrec()
            extra = {"CLASSIFICATION_TYPE": "U", "OBJECT_ID": "2020-001A", "EPHEMERIS_TYPE": "0",
                     "ELEMENT_SET_NO": "1", "REV_AT_EPOCH": "1", "MEAN_MOTION_DOT": "0",
                     "MEAN_MOTION_DDOT": "0"}  # fmt: skip
            omm.initialize(record, {**fields, **extra})
            self.satellites.append(record)
            self.names.append(fields["OBJECT_NAME"])

    def sky(self, at_s: int) -> tuple[Any, Any]:
        """Return distances (m) and elevations (deg) of all satellites from the site."""
        at = datetime.fromtimestamp(at_s, UTC)
        jd, fraction = sgp4.jday(at.year, at.month, at.day, at.hour, at.minute, at.second)
        _, km, _ = sgp4.SatrecArray(self.satellites).sgp4(np.array([jd]), np.array([fraction]))
        turn = sidereal_rad(jd, fraction)
        x, y, z = 1e3 * np.moveaxis(km[:, 0, :], -1, 0)
        cos, sin = math.cos(turn), math.sin(turn)
        fixed = np.stack([cos * x + sin * y, -sin * x + cos * y, z], axis=1)
        sight = fixed - site_m()
        distances_m = np.linalg.norm(sight, axis=1)
        lat, lon = math.radians(SITE.latitude_deg), math.radians(SITE.longitude_deg)
        up = [math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)]
        return distances_m, np.degrees(np.arcsin(sight @ np.array(up) / distances_m))


def sidereal_rad(jd: float, fraction: float) -> float:
    """Return Greenwich mean sidereal time (IAU 1982) in rad."""
    centuries = (jd - 2451545.0 + fraction) / 36525.0
    seconds = (
        67310.54841
        + (876600.0 * 3600 + 8640184.812866) * centuries
        + 0.093104 * centuries**2
        - 6.2e-6 * centuries**3
    )
    return math.radians(seconds / 240 % 360)


def site_m() -> Any:
    """Return the position of the site on WGS84 in m."""
    lat, lon = math.radians(SITE.latitude_deg), math.radians(SITE.longitude_deg)
    a, f = 6_378_137.0, 1 / 298.257223563
    n = a / math.sqrt(1 - f * (2 - f) * math.sin(lat) ** 2)
    return np.array([n * math.cos(lat) * math.cos(lon), n * math.cos(lat) * math.sin(lon),
                     n * (1 - f) ** 2 * math.sin(lat)])  # fmt: skip


def test_satellites_and_who_serves_are_as_sgp4_has_them(tmp_path: Path) -> None:
    file = fleet(tmp_path, age=timedelta(hours=5))
    begin_s, seconds = now_s(), 90
    rows = rows_of(order(file, begin_s, seconds))
    oracle = Oracle(file)
    assert len(rows) == seconds
    last_choice_s = begin_s - (begin_s - 12) % 15
    chosen = [
        int(np.argmax(oracle.sky(at_s)[1]))
        for at_s in range(last_choice_s, begin_s + seconds + 301, 15)
    ]
    assert len(set(chosen)) > 2
    changes_s = [
        last_choice_s + 15 * k for k in range(1, len(chosen)) if chosen[k] != chosen[k - 1]
    ]
    for at_s, row in zip(range(begin_s, begin_s + seconds), rows, strict=True):
        distances_m, elevations_deg = oracle.sky(at_s)
        above = elevations_deg >= 25.0
        # A satellite at the minimum elevation may be counted by one computation only.
        doubtful = int(np.sum(np.abs(elevations_deg - 25.0) < 0.005))
        assert row.sat_count is not None
        assert abs(row.sat_count - int(np.sum(above))) <= doubtful
        serving = chosen[(at_s - last_choice_s) // 15]
        assert row.serving_satellite == oracle.names[serving]
        assert row.serving_elevation == pytest.approx(elevations_deg[serving], abs=0.01)
        assert row.sat_dist_min == pytest.approx(np.min(distances_m[above]), abs=50)
        assert row.handover_in_s == min(s for s in changes_s if s > at_s) - at_s
        if not doubtful:
            assert row.sat_dist_mean == pytest.approx(np.mean(distances_m[above]), abs=50)
            assert row.sat_dist_max == pytest.approx(np.max(distances_m[above]), abs=50)


def test_one_batch_goes_on_where_another_ended(tmp_path: Path) -> None:
    file, begin_s = fleet(tmp_path), now_s()
    whole = rows_of(order(file, begin_s, 240))
    for later in range(7, 235, 14 if is_soak() else 56):
        assert whole[later : later + 5] == rows_of(order(file, begin_s + later, 5)), later


def test_a_constellation_that_comes_with_skyhop_has_no_age() -> None:
    rows = rows_of({**order(Path(), now_s(), 20), "elements": "starlink-shell1"})
    assert all(row.sat_count and row.serving_elevation is not None for row in rows)
    assert all(str(row.serving_satellite).startswith("satellite ") for row in rows)
    assert all(row.sat_dist_min and 5e5 < row.sat_dist_min < 1.2e6 for row in rows)


def test_where_no_satellite_is_there_are_none(tmp_path: Path) -> None:
    # The fleet's inclination is 53 degrees, so it does not come further north.
    rows = rows_of({**order(fleet(tmp_path), now_s(), 3), "place": "89,0"})
    assert rows == [sky.Row(sat_count=0)] * 3


@pytest.mark.soak
@pytest.mark.alone
def test_ten_thousand_satellites_take_less_than_20_ms(tmp_path: Path) -> None:
    first = walker_omm()
    head, *lines = first.splitlines()
    many = [
        ",".join([f"{name} {copy}", *rest[:-2], str(100_000 * copy + int(rest[-2])), rest[-1]])
        for copy in range(13)
        for name, *rest in (line.split(",") for line in lines)
    ]
    file = tmp_path / "many.csv"
    file.write_text("\n".join([head, *many]), "utf-8")
    made = serving_satellites.Fleet(str(file), serving_satellites.utc_text(now_s() * S))
    assert len(made.names) > 10_000
    above = sky._Sky(
        lambda t_ns: made.positions(now_s() * S + t_ns), SITE, made.minimum_elevation_deg, None
    )
    took_s = []
    for second in range(20):
        begin = time.perf_counter()
        above.row(second * S, 0, None)
        took_s.append(time.perf_counter() - begin)
    assert sorted(took_s)[10] < 0.020


# --- satellites: the path of an emulated link ---


@pytest.fixture(scope="module")
def site_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return ten minutes of rows, as of a site of the demo."""
    file = tmp_path_factory.mktemp("site") / "site.parquet"
    made = sh.path("Barcelona, ES", "Madrid, ES", relay="access", duration="10 min",
                   progress=lambda _done, _all: None)  # fmt: skip
    made.write(file)
    return file


def handovers_s(file: Path) -> list[float]:
    """Return the times in s at which the path's own serving satellite changes."""
    found = [
        event["t_ns"] / S
        for events in sh.read_path(file).frames["events"].to_list()
        for event in events
        if event["kind"] == "end" and event["hop"] == 0
    ]
    assert len(found) > 5
    return found


def of_path(file: Path, begin_s: int, from_s: int, seconds: int) -> list[sky.Row]:
    return rows_of({"path": str(file), "begins_ns": begin_s * S, "from_ns": from_s * S,
                    "seconds": seconds})  # fmt: skip


def test_an_emulated_site_knows_its_links_satellite(site_path: Path) -> None:
    frames = sh.read_path(site_path).frames.to_dicts()
    rows, changes_s = of_path(site_path, 1000, 1000, 600), handovers_s(site_path)
    for second, (row, frame) in enumerate(zip(rows, frames, strict=True)):
        assert frame["t_ns"] == second * S
        assert row.serving_satellite == f"satellite {frame['nodes'][1]}"
        distance_m = frame["hop_delay_ns"][0] * 0.299792458
        assert row.serving_elevation == pytest.approx(elevation_of(distance_m), abs=0.5)
        assert row.sat_dist_min is not None
        assert row.sat_dist_max is not None
        assert row.sat_dist_min - 1 <= distance_m <= row.sat_dist_max + 1
        later = [s for s in changes_s if s > second]
        if later:
            assert row.handover_in_s == pytest.approx(later[0] - second)


def elevation_of(distance_m: float) -> float:
    """Return the elevation in deg of a satellite at 550 km at a distance, on a sphere."""
    earth_m, orbit_m = 6_369_000.0, 6_378_137.0 + 550_000.0
    sine = (orbit_m**2 - earth_m**2 - distance_m**2) / (2 * earth_m * distance_m)
    return math.degrees(math.asin(sine))


def test_a_path_goes_round_and_is_not_before_it_begins(site_path: Path) -> None:
    first, later = (of_path(site_path, 1000, from_s, 30) for from_s in (1000, 1000 + 7 * 600))
    assert first == later
    assert of_path(site_path, 1000, 995, 7)[:5] == [sky.Row()] * 5
    # Between the last handover and the path's end, the next one is in the next round.
    near_end = of_path(site_path, 1000, 1599, 1)[0].handover_in_s
    assert near_end is not None
    assert near_end <= 1 + handovers_s(site_path)[0]


def test_a_path_that_was_measured_has_no_satellites(tmp_path: Path) -> None:
    log = tmp_path / "ping.txt"
    lines = [f"[{1000 + k / 10:.6f}] 64 bytes from 1.1.1.1: icmp_seq={k + 1} ttl=57 time=30.0 ms"
             for k in range(100)]  # fmt: skip
    log.write_text("\n".join(["PING 1.1.1.1 (1.1.1.1) 56(84) bytes of data.", *lines]))
    file = tmp_path / "measured.parquet"
    sh.import_path(log, "ping").write(file)
    assert of_path(file, 1000, 1000, 3) == [sky.Row()] * 3


def test_a_trigger_fires_before_each_handover_of_the_path(site_path: Path) -> None:
    rows = of_path(site_path, 1000, 1000, 600)
    trigger = Trigger("handover_in_s < 3", cooldown_s=0.0)
    fired_s = []
    for second, row in enumerate(rows):
        sample: Sample = {TIME: (1000 + second) * S, "handover_in_s": row.handover_in_s}
        look = trigger.update((1000 + second) * S, sample)
        if look is not None and look.fired:
            fired_s.append(second)
    # The last firing is at the path's end, where the next round begins with another satellite.
    assert fired_s == [s - 2 for s in [*handovers_s(site_path), 600]]


# --- outdated rows, changed files, missing files ---


class Said(list[str]):
    """List of log lines, or of orders."""

    def __call__(self, line: str) -> None:
        """Append a line to the list."""
        self.append(line)


def ask_here(module: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run the module's function in this process."""
    assert module == "sky"
    return json.loads(json.dumps(sky.table({**asked, "seconds": 30})))  # type: ignore[no-any-return]


def above(tmp_path: Path, file: Path, said: Said, **orbit: Any) -> Surroundings:
    settings = Settings(PLACE, 0.0, Orbit(elements=str(file), **orbit))
    return Surroundings(settings, None, tmp_path, said, ask_here)


def test_old_elements_are_null_and_said_once(tmp_path: Path) -> None:
    file, said, at_s = fleet(tmp_path, age=timedelta(days=4)), Said(), now_s()
    around = above(tmp_path, file, said)
    for second in range(0, 200, 5):
        looked(around, at_s + second)
        assert around.of_second((at_s + second) * S) == {}
    assert len(said) == 1
    assert "4.0 days" in said[0]
    assert "fleet.csv" in said[0]
    # Newer element sets are used at once, whatever the backoff.
    file.write_text(walker_omm(), "utf-8")
    looked(around, at_s + 211)
    found = around.of_second((at_s + 211) * S)
    assert found["sat_count"]
    assert found["handover_in_s"]
    assert said[1:] == ["sky: works again"]
    assert checked({**found, TIME: 1}) == {**found, TIME: 1}


def test_so_old_may_they_be_as_the_owner_wants(tmp_path: Path) -> None:
    at_s, said = now_s(), Said()
    around = above(tmp_path, fleet(tmp_path, age=timedelta(days=4)), said, old_after_days=5.0)
    looked(around, at_s)
    assert around.of_second(at_s * S)["sat_count"]
    assert not said


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file, said, at_s = fleet(tmp_path), Said(), now_s()
    around = above(tmp_path, file, said)
    looked(around, at_s)
    before = around.of_second((at_s + 12) * S)
    looked(around, at_s + 11)
    assert around.of_second((at_s + 12) * S) == before
    # The new elements move all satellites ahead by a third of their spacing.
    file.write_text(walker_omm(ahead_s=86_400 / 15.06 / 22 / 3), "utf-8")
    looked(around, at_s + 12)
    assert around.of_second((at_s + 12) * S) == before, "looked at too often"
    looked(around, at_s + 23)
    after = around.of_second((at_s + 24) * S)
    assert after == dict_of(rows_of(order(file, at_s + 24, 1))[0])
    # With an unreadable file the present rows stay until they run out.
    file.write_text("<html>not found</html>")
    looked(around, at_s + 34)
    assert around.of_second((at_s + 35) * S)
    assert len(said) == 1
    looked(around, at_s + 500)
    assert around.of_second((at_s + 500) * S) == {}


def dict_of(row: sky.Row) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if value is not None}


def test_rows_are_there_before_they_are_needed(tmp_path: Path) -> None:
    asked: list[Mapping[str, Any]] = []

    def ask(_module: str, each: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(each)
        return {"fields": ["sat_count"], "rows": [[7]] * each["seconds"]}

    around = Surroundings(Settings(PLACE, 0.1, Orbit("a.tle")), None, tmp_path, Said(), ask)
    for at_s in range(10_000, 10_000 + 3 * BATCH_S):
        looked(around, at_s)
        assert around.of_second(at_s * S) == {"sat_count": 7}
    begins_s = [each["from_ns"] // S for each in asked]
    assert begins_s == [10_000, 10_180, 10_780, 11_380]
    # Set the clock by an hour in either direction.
    for at_s in (20_000, 10_000 - 3600):
        looked(around, at_s)
        assert around.of_second(at_s * S) == {"sat_count": 7}


def test_what_fails_is_tried_again_later_and_later(tmp_path: Path) -> None:
    asked_s, said = [], Said()
    clock = [0]

    def ask(_module: str, _order: Mapping[str, Any]) -> dict[str, Any]:
        asked_s.append(clock[0])
        raise RunError("no such thing")

    around = Surroundings(Settings(PLACE, 0.1, Orbit("a.tle")), None, tmp_path, said, ask)
    for at_s in range(10_000, 21_000, 10):
        clock[0] = at_s
        looked(around, at_s)
    waits_s = [b - a for a, b in itertools.pairwise(asked_s)]
    assert waits_s == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert said == ["sky: no such thing"]


def test_the_grid_alone_needs_nothing(tmp_path: Path) -> None:
    around = Surroundings(Settings(orbit=Orbit(is_grid=True)), None, tmp_path, Said(), never)
    around.refresh(S)
    minute = [around.of_second(second * S)["handover_in_s"] for second in range(60)]
    assert [second for second, left in enumerate(minute) if left == 15.0] == [12, 27, 42, 57]
    assert until_grid_s(26_900_000_000) == pytest.approx(0.1)


def never(_module: str, _order: Mapping[str, Any]) -> dict[str, Any]:
    raise AssertionError("asked")


@pytest.mark.integration
def test_nothing_is_done_where_the_owner_wants_nothing(tmp_path: Path) -> None:
    settings = read_settings(tmp_path / "agent.toml", is_wanted=False)
    around = Surroundings(settings, None, tmp_path, Said(), never)
    around.refresh(now_s() * S)
    assert (around.of_second(now_s() * S), around.new_fields()) == ({}, {})
    assert list(tmp_path.iterdir()) == []
    script = (
        "import sys; import skyhop_testbed.agent.service; "
        "print([m for m in ('numpy', 'pyarrow', 'urllib.request', 'skyhop_testbed.agent.sky', "
        "'skyhop_testbed.agent.weather') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.integration
def test_the_process_apart_answers_or_says_why_not(tmp_path: Path, site_path: Path) -> None:
    said = Said()
    begins_ns = (now_s() - 20) * S
    settings = Settings(orbit=Orbit(path=str(site_path), begins_ns=begins_ns))
    around = Surroundings(settings, None, tmp_path, said)
    at_s = now_s()
    looked(around, at_s)
    assert around.of_second(at_s * S) == dict_of(of_path(site_path, begins_ns // S, at_s, 1)[0])
    around.close()
    missing = Settings(orbit=Orbit(path=str(tmp_path / "none.parquet"), begins_ns=begins_ns))
    around = Surroundings(missing, None, tmp_path, said)
    looked(around, at_s)
    assert len(said) == 1
    assert "none.parquet" in said[0]
    assert "Traceback" not in said[0]


@pytest.mark.soak
def test_elements_of_an_address_are_fetched_every_six_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server, said, at_s = Meteo(), Said(), now_s()
    server.body = walker_omm().encode()
    with server.served() as source:
        settings = Settings(PLACE, 0.0, Orbit(elements=f"{source}.csv"))
        around = Surroundings(settings, None, tmp_path, said, ask_here)
        for later_s in (0, 100, 200):
            looked(around, at_s + later_s)
            assert around.of_second((at_s + later_s) * S)["sat_count"]
        assert len(server.asked) == 1
        (copy,) = (tmp_path / "cache" / "skyhop").iterdir()
        six_hours_ago = time.time() - 6 * 3600 - 1
        os.utime(copy, (six_hours_ago, six_hours_ago))
        looked(around, at_s + 300)
        assert len(server.asked) == 2
        # A copy that cannot be refreshed stays in use; the failure is logged once, and the server
        # is not asked again for a while.
        server.status = 404
        for later_s in (400, 500):
            os.utime(copy, (six_hours_ago, six_hours_ago))
            looked(around, at_s + later_s)
            assert around.of_second((at_s + later_s) * S)["sat_count"]
        assert len(server.asked) == 3
        assert len(said) == 1
        assert "404" in said[0]
        assert "the older copy is used" in said[0]


# --- position of the node ---


def test_a_place_is_rounded_as_its_owner_wants() -> None:
    exact = "41.3874,2.1686,87"
    assert position(exact, None, 0.1) == Position(41.4, 2.2, 100.0)
    assert position(exact, None, 0.01) == Position(41.39, 2.17, 100.0)
    assert position(exact, None, 0.0) == Position(41.3874, 2.1686, 87.0)
    assert position("89.99,-179.99", None, 7.0) == Position(90.0, -182.0, 0.0)


@pytest.mark.integration
def test_the_terminal_says_where_it_is_where_its_owner_allows_it() -> None:
    with served(RecordedAnswers(S, recorded_status()), Place(41.38, 2.17, 12.5)) as address:
        assert position("dish", address, 0.1) == Position(41.4, 2.2, 0.0)
    with (
        served(RecordedAnswers(S, recorded_status())) as address,
        pytest.raises(RunError, match="does not report its position"),
    ):
        position("dish", address, 0.1)


def test_distances_do_not_tell_more_than_the_rounded_place(tmp_path: Path) -> None:
    file, begin_s = fleet(tmp_path), now_s()
    places = ("41.3874,2.1686,30", "41.4311,2.2013,10")
    one, other = (
        rows_of({**order(file, begin_s, 2), "place": place, "precision_deg": 0.1})
        for place in places
    )
    assert one == other
    assert one != rows_of({**order(file, begin_s, 2), "place": places[0]})


# --- weather ---

AT_S = 1_800_000_000 + 3600
"""2027-01-15, 09:00 UTC, in s since 1970."""


def answer(**current: Any) -> dict[str, Any]:
    """Return an answer of open-meteo; `current` overrides its values."""
    now = {
        "time": AT_S, "interval": 900, "weather_code": 63, "temperature_2m": 4.2,
        "pressure_msl": 1009.5, "relative_humidity_2m": 81, "cloud_cover": 97,
        "visibility": 8200.0, "wind_speed_10m": 5.3, "wind_gusts_10m": 11.6,
        "wind_direction_10m": 240, **current,
    }  # fmt: skip
    hours = [AT_S + 3600 * k for k in range(-4, 2)]
    day_s = AT_S - AT_S % 86_400
    return {
        "latitude": 41.5, "longitude": 2.2, "elevation": 20.0,
        "current_units": {
            "time": "unixtime", "interval": "seconds", "weather_code": "wmo code",
            "temperature_2m": "°C", "pressure_msl": "hPa", "relative_humidity_2m": "%",
            "cloud_cover": "%", "visibility": "m", "wind_speed_10m": "m/s",
            "wind_gusts_10m": "m/s", "wind_direction_10m": "°",
        },
        "current": now,
        "hourly_units": {"time": "unixtime", "rain": "mm", "snowfall": "cm"},
        "hourly": {"time": hours, "rain": [9.0, 0.5, 0.0, 1.2, 2.0, 7.0],
                   "snowfall": [0.0, 0.7, 0.0, 0.0, 0.7, 3.5]},
        "daily_units": {"time": "unixtime", "temperature_2m_min": "°C",
                        "temperature_2m_max": "°C", "temperature_2m_mean": "°C"},
        "daily": {"time": [day_s - 86_400, day_s], "temperature_2m_min": [-9.0, 1.0],
                  "temperature_2m_max": [-3.0, 6.5], "temperature_2m_mean": [-6.0, 3.75]},
    }  # fmt: skip


FIELDS = {
    "weather_id": 63, "weather_main": "Rain", "weather_desc": "moderate rain",
    "weather_temp": 277.35, "weather_temp_min": 274.15, "weather_temp_max": 279.65,
    "weather_temp_mean": 276.9, "weather_pressure": 1009.5, "weather_humidity": 81.0,
    "weather_clouds": 97.0, "weather_rain1h": 2.0, "weather_rain3h": 3.2, "weather_snow1h": 1.0,
    "weather_snow3h": 1.0, "weather_visibility": 8200.0, "weather_speed": 5.3,
    "weather_gust": 11.6, "weather_deg": 240.0,
}  # fmt: skip


def test_the_weather_is_in_our_units() -> None:
    found = weather.fields_of(answer(), AT_S)
    assert found == pytest.approx(FIELDS)
    assert set(found) == {name for name in BY_NAME if name.startswith("weather_")}
    assert checked({**found, TIME: 1}) == {**found, TIME: 1}


def test_what_is_not_said_is_null_and_what_is_in_other_units_no_number() -> None:
    some = answer(visibility=None, wind_gusts_10m=float("nan"), weather_code=None)
    some["hourly"]["rain"][4] = None
    del some["daily"]
    gone = {"weather_visibility", "weather_gust", "weather_id", "weather_main", "weather_desc",
            "weather_rain1h", "weather_rain3h", "weather_temp_min", "weather_temp_max",
            "weather_temp_mean"}  # fmt: skip
    found = weather.fields_of(some, AT_S)
    assert found == pytest.approx({n: v for n, v in FIELDS.items() if n not in gone})
    for unit, name in (("°F", "temperature_2m"), ("km/h", "wind_speed_10m"), (None, "visibility")):
        other = answer()
        other["current_units"][name] = unit
        with pytest.raises(RunError, match=name):
            weather.fields_of(other, AT_S)


def test_every_code_of_the_table_has_words() -> None:
    for codes, kind, _ in weather._KINDS:
        for code in codes:
            assert weather.fields_of(answer(weather_code=code), AT_S)["weather_main"] == kind
    assert "weather_main" not in weather.fields_of(answer(weather_code=4), AT_S)


class Meteo:
    """Server with open-meteo's API, which a test can make fail."""

    def __init__(self) -> None:
        self.status, self.body = 200, json.dumps(answer()).encode()
        self.asked: list[dict[str, list[str]]] = []

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve, and yield the address."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query))
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/forecast"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)


def ask_weather(module: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    assert module == "weather"
    return dict(weather.fetch_weather({**asked, "at_s": AT_S}))


@pytest.mark.integration
def test_weather_is_asked_every_half_hour_with_a_rounded_place(tmp_path: Path) -> None:
    server, said = Meteo(), Said()
    with server.served() as source:
        settings = Settings("41.3874,2.1686", 0.1, weather=source)
        around = Surroundings(settings, None, tmp_path, said, ask_weather)
        news = []
        for at_s in range(AT_S, AT_S + 2 * 1800 + 60, 30):
            looked(around, at_s)
            news += [each for each in [around.new_fields()] if each]
        assert len(news) == len(server.asked) == 3
        assert news[0] == pytest.approx(FIELDS)
        # A restarted agent continues the schedule of requests.
        again = Surroundings(settings, None, tmp_path, said, ask_weather)
        looked(again, at_s)
        assert len(server.asked) == 3
        looked(again, at_s + 1800)
        assert len(server.asked) == 4
    asked = server.asked[0]
    assert (asked["latitude"], asked["longitude"]) == (["41.4"], ["2.2"])
    assert asked["wind_speed_unit"] == ["ms"]
    assert {"rain", "snowfall"} == set(asked["hourly"][0].split(","))
    assert not said


@pytest.mark.integration
def test_an_outage_is_null_said_once_and_asked_less_and_less(tmp_path: Path) -> None:
    server, said = Meteo(), Said()
    with server.served() as source:
        around = Surroundings(
            Settings(PLACE, 0.1, weather=source), None, tmp_path, said, ask_weather
        )
        asked_s = []
        server.status = 503
        for at_s in range(AT_S, AT_S + 2000, 10):
            before = len(server.asked)
            looked(around, at_s)
            asked_s += [at_s - AT_S] * (len(server.asked) - before)
            assert around.new_fields() == {}
            if at_s == AT_S + 500:
                server.status, server.body = 200, b'{"error": true, "reason": "no"}'
        assert asked_s == [0, 60, 180, 420, 900, 1860]
        assert len(said) == 1
        assert "503" in said[0]
        server.body = json.dumps(answer()).encode()
        looked(around, AT_S + 5000)
        assert around.new_fields()["weather_main"] == "Rain"
        assert said[1:] == ["weather: works again"]
    # The server has ended.
    looked(around, AT_S + 7000)
    assert around.new_fields() == {}
    assert "cannot be reached" in said[2]


def test_weather_that_stays_away_becomes_null_in_triggers() -> None:
    trigger = Trigger("weather_rain1h > 1", cooldown_s=0.0)
    seen = {}
    for second in range(0, 6000, 10):
        sample: Sample = {TIME: second * S, "tilt": 1.0}
        if second == 0:
            sample["weather_rain1h"] = 2.0
        look = trigger.update(second * S, sample)
        seen[second] = None if look is None else look.value
    assert seen[5400]
    assert seen[5500] is None


def test_answers_of_a_weather_server() -> None:
    sample = json.dumps(answer(), ensure_ascii=False).encode()

    def read(content: bytes) -> None:
        try:
            values = json.loads(content)
        except (ValueError, RecursionError):
            raise InputError("is no JSON") from None
        found = weather.fields_of(values, AT_S)
        assert checked({**found, TIME: 1})

    Trial("weather", [sample], usual=200).run(read)


# --- the owner's settings ---

WHOLE = """\
place = "41.39,2.17"
precision_deg = 0.01

[orbit]
elements = "starlink.tle"
handover = "nearest-grid"
old_after_days = 1.5

[weather]
source = "open-meteo"
"""
EMULATED = '[orbit]\npath = "site.parquet"\nbegins = 2026-12-01T10:00:00Z\n'


def settings_of(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "agent.toml"
    file.write_text(text, "utf-8")
    return read_settings(file)


def test_settings_say_what_they_say(tmp_path: Path) -> None:
    found = settings_of(tmp_path, WHOLE)
    assert found.place == "41.39,2.17"
    assert found.precision_deg == 0.01
    assert found.orbit == Orbit(str(tmp_path / "starlink.tle"), "nearest-grid", 1.5)
    assert found.weather is not None
    assert found.weather.startswith("https://api.open-meteo.com/")
    emulated = settings_of(tmp_path, EMULATED).orbit
    assert emulated == Orbit(path=str(tmp_path / "site.parquet"), begins_ns=1_796_119_200 * S)
    named = 'place = "Oslo"\n[orbit]\nelements = "{}"'
    for name in ("starlink-shell1", "https://example.org/a.tle"):
        orbit = settings_of(tmp_path, named.format(name)).orbit
        assert orbit is not None
        assert orbit.elements == name
    assert settings_of(tmp_path, "") == Settings()
    one = settings_of(tmp_path, '[predict]\nmodel = "m"').predict
    assert one == Predict((str(tmp_path / "m"),))
    both = settings_of(tmp_path, '[predict]\nmodel = ["m", "/n"]\nhorizon = 5').predict
    assert both == Predict((str(tmp_path / "m"), "/n"), 5)


def test_the_pages_settings_and_the_examples_are_settings(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testbed" / "host.md").read_text("utf-8")
    block = next(b for b in re.findall(r"```toml\n(.+?)```", page, re.S) if "[orbit]" in b)
    of_page = settings_of(tmp_path, block)
    assert of_page.orbit is not None
    assert of_page.weather is not None
    example = read_settings(ROOT / "examples" / "testbed" / "agent.toml")
    assert (example.place, example.weather) == (of_page.place, of_page.weather)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('plcae = "x"', "plcae"),
        ("place = 3", "place"),
        ('[orbit]\nelements = "a.tle"', "place"),
        ('[weather]\nsource = "open-meteo"', "place"),
        ('place = "0,0"\n[weather]', "weather.source"),
        ('place = "0,0"\n[weather]\nsource = "ftp://a"', "weather.source"),
        ('place = "0,0"\nprecision_deg = -1', "precision_deg"),
        ('place = "0,0"\nprecision_deg = nan', "precision_deg"),
        ("orbit = 3", "orbit"),
        ("[orbit]", "one of elements, path and grid"),
        ('[orbit]\ngrid = true\npath = "a"\nbegins = 2026-01-01', "one of elements"),
        ('[orbit]\npath = "a.parquet"', "orbit.begins"),
        ('[orbit]\npath = "a.parquet"\nbegins = "noon"', "orbit.begins"),
        ('place = "0,0"\n[orbit]\nelements = "a.tle"\nhandover = "sticky"', "orbit.handover"),
        ('place = "0,0"\n[orbit]\nelements = "a.tle"\nold_after_days = 30', "old_after_days"),
        ("[predict]", "predict.model"),
        ("[predict]\nmodel = 3", "predict.model"),
        ("[predict]\nmodel = []", "predict.model"),
        ('[predict]\nmodel = ["a", "b", "c"]', "predict.model"),
        ('[predict]\nmodel = ["a", 1]', "predict.model"),
        ('[predict]\nmodel = "a"\nhorizon = 31', "predict.horizon"),
        ('[predict]\nmodel = "a"\nhorizon = 1.5', "predict.horizon"),
        ('[predict]\nmodle = "a"', "predict.modle"),
        ("[orbit", "is no TOML"),
    ],
)
def test_settings_that_are_wrong_are_refused_by_their_key(
    tmp_path: Path, text: str, names: str
) -> None:
    with pytest.raises(InputError) as refused:
        settings_of(tmp_path, text)
    message = str(refused.value)
    assert names in message
    assert "agent.toml" in message
    assert "\n" not in message


def test_settings_that_are_damaged(tmp_path: Path) -> None:
    def read(content: bytes) -> None:
        file = tmp_path / "agent.toml"
        file.write_bytes(content)
        read_settings(file)

    probed = b'[probe]\ntarget = "[::1]:53"\n'
    asked = b'[predict]\nmodel = ["a", "b"]\nhorizon = 5\n'
    samples = [WHOLE.encode(), EMULATED.encode(), b"[orbit]\ngrid = true\n", probed, asked]
    Trial("agent-settings", samples, usual=300).run(read)


# --- in the agent ---


def test_every_second_gets_its_own_sky_and_only_the_newest_the_rest() -> None:
    taken: list[Sample] = []
    watch = Watch(
        None,
        None,
        host_fields=lambda: {"hour": 1.0},
        fields_of_second=lambda time_ns: {"sat_count": time_ns // S, "tilt": 9.0},
        on_samples=taken.extend,
        say=Said(),
        clock=ManualClock(),
    )
    watch._deliver([{TIME: 5 * S, "tilt": 1.0}, {TIME: 7 * S}, {TIME: 6 * S}])
    assert taken == [
        {TIME: 5 * S, "sat_count": 5, "tilt": 1.0},
        {TIME: 7 * S, "sat_count": 7, "tilt": 9.0, "hour": 1.0},
        {TIME: 6 * S, "sat_count": 6, "tilt": 9.0},
    ]


@pytest.mark.soak
@pytest.mark.alone
def test_a_run_begins_before_the_links_handover(tmp_path: Path, site_path: Path) -> None:
    needs_namespaces()
    orchestrator = FakeOrchestrator(tmp_path / "orchestrator")
    agent = AgentProcess(tmp_path / "state", orchestrator)
    # The path's first handover is due in ten seconds.
    first_s = handovers_s(site_path)[0]
    begins = datetime.now(UTC) + timedelta(seconds=10 - first_s)
    handover_ns = round((begins.timestamp() + first_s) * S)
    (agent.state / "agent.toml").write_text(
        f'[orbit]\npath = "{site_path}"\nbegins = "{begins.isoformat()}"\n'
    )
    try:
        agent.start()
        when = {"trigger": "handover_in_s < 3 s", "end": 1, "cooldown": 60.0, "max_runs": 1}
        run = orchestrator.plan(job("true", when=when, length_s=10.0))
        orchestrator.runs[0]["end_ns"] += 60 * S
        orchestrator.publish()
        wait_for(lambda: orchestrator.states(run) == ["armed"], why=agent.log)
        wait_for(lambda: len(orchestrator.states(run)) > 1, why=agent.log)
        wait_for(lambda: steps(agent, run), why=agent.log)
        begun_ns = steps(agent, run)[0].at_ns
        assert handover_ns - 3.1 * S < begun_ns < handover_ns, (handover_ns - begun_ns) / S
        told = [
            s for _, kind, b in orchestrator.events if kind == "telemetry" for s in b["samples"]
        ]
        known = [s for s in told if s.get("handover_in_s") is not None]
        assert known
        assert all(s["serving_elevation"] > 20 and s["sat_count"] > 0 for s in known)
    finally:
        agent.clear()
        orchestrator.stop()


def steps(agent: AgentProcess, run: str) -> list[JournalEntry]:
    place = agent.state / "runs" / run
    return [s for s in read_journal(place) if s.step == "started"] if place.is_dir() else []


@pytest.mark.soak
def test_an_agent_whose_settings_are_wrong_does_not_begin(tmp_path: Path) -> None:
    orchestrator = FakeOrchestrator(tmp_path / "orchestrator")
    agent = AgentProcess(tmp_path / "state", orchestrator)
    try:
        for text, why in (("[orbit]", "orbit"), ('place = "dish"', "--dish")):
            (agent.state / "agent.toml").write_text(text)
            agent.start()
            assert agent.process is not None
            assert agent.process.wait(120) != 0
            assert why in agent.log()
    finally:
        agent.clear()
        orchestrator.stop()
