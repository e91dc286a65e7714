"""Coverage of a constellation, pairs of sites, and what failures cost: commands without a run."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop, skyhop_command

import skyhop as sh
from reference_files import reference
from skyhop import _core
from skyhop.analysis.coverage import coverage_geojson, coverage_of, grid_of, handovers_per_hour
from skyhop.analysis.failures import Cost, cost_of, cost_rows, cost_summary
from skyhop.data.geometry import seen_from
from skyhop.data.places import CITIES, Place, find_place, position_of
from skyhop.data.progress import ignore_progress
from skyhop.data.scenarios import load_scenario
from skyhop.data.site_routes import SiteRoutes, site_routes
from skyhop.errors import InputError
from waiting import wait_for

NAMES = ("London", "New York", "Sydney")
SITES = [find_place(name) for name in NAMES]
TIMES = {"duration": "60 s", "step": "20 s", "constellation": "starlink-shell1"}
AT_ONCE = {**TIMES, "duration": "1 s"}


def cost_without(whole: SiteRoutes, without: SiteRoutes) -> Cost:
    return cost_of([site.name for site in SITES], whole, without)


def every_seventh() -> list[dict[str, object]]:
    return [{"satellite": number} for number in range(0, 1584, 7)]


def test_delays_are_those_of_all_pairs_and_of_an_independent_search(tmp_path: Path) -> None:
    pairs = sh.all_pairs(NAMES, tmp_path / "x.parquet", **TIMES)
    routes = site_routes(SITES, **TIMES)
    assert routes.times_s.tolist() == [t_ns / 1e9 for t_ns in pairs.times_ns.tolist()]
    cost = cost_without(routes, site_routes(SITES, **TIMES, failures=every_seventh()))
    assert cost.whole_ms * 1e6 / 2 == pytest.approx(pairs.delays_ns, abs=0.01)
    # Delays in ns of a search by relaxation in numpy, which shared no code with this one.
    searched = [
        [21265326.3, 64393712.8, 62987482.5], [21537812.5, 64821675.9, 62661971.7],
        [22196188.0, 65360385.8, 62216609.4],
    ]  # fmt: skip
    searched_without = [
        [28085044.4, 83681892.1, 77839009.8], [26771443.5, 68167945.6, 78099521.0],
        [27465834.7, 68435222.0, 78474366.6],
    ]  # fmt: skip
    # Delays are rounded to whole nanoseconds.
    assert cost.whole_ms * 1e6 / 2 == pytest.approx(np.array(searched), abs=0.56)
    assert cost.without_ms * 1e6 / 2 == pytest.approx(np.array(searched_without), abs=0.56)


def test_routes_to_gateways_are_those_of_an_independent_search() -> None:
    gateways = [Place("a", 50.1, 8.7), Place("b", 40.0, -100.0)]
    over_lasers = site_routes(SITES, [gateways], lasers=True, **TIMES)
    bent_pipe = site_routes(SITES, [gateways], lasers=False, **TIMES)
    assert bent_pipe.satellites.tolist() == [[[1569, -1, -1]], [[1548, -1, -1]], [[1527, -1, -1]]]
    assert bent_pipe.delays_s[:, 0, 0] * 1e9 == pytest.approx(
        [4583425.4, 4664653.8, 4709397.8], abs=0.56
    )
    assert np.isnan(bent_pipe.delays_s[:, 0, 1:]).all()
    assert over_lasers.satellites.tolist() == [
        [[1569, 1398, 1181]], [[1548, 1377, 1181]], [[1527, 1377, 1160]],
    ]  # fmt: skip
    assert over_lasers.delays_s[:, 0] * 1e9 == pytest.approx(
        np.array(
            [[4583425.4, 10104837.5, 54879587.7], [4664653.8, 9301676.6, 54771106.1],
             [4709397.8, 9176872.5, 54699635.0]]
        ), abs=0.56,
    )  # fmt: skip


def test_failed_satellites_carry_nothing(tmp_path: Path) -> None:
    pairs = sh.all_pairs(NAMES, tmp_path / "x.parquet", **AT_ONCE)
    failed = pairs.routes("London", "New York")[0][1]
    whole = site_routes(SITES, **AT_ONCE)
    without = site_routes(SITES, **AT_ONCE, failures=[{"satellite": number} for number in failed])
    assert without.failed_satellites == sorted(failed)
    assert not set(failed) & set(without.satellites.ravel().tolist())
    cost = cost_without(whole, without)
    assert cost.without_ms[0, 0] > cost.whole_ms[0, 0]
    assert (cost.without_ms >= cost.whole_ms).all()
    rows = cost_rows(cost)
    assert rows[0]["rtt_added_mean_ms"] == max(row["rtt_added_mean_ms"] for row in rows)
    nothing = site_routes(SITES, **AT_ONCE, failures=[{"satellites": "100 %"}])
    assert (nothing.satellites == -1).all()
    cut = cost_without(whole, nothing)
    assert np.isnan(cut.without_ms).all()
    in_all, without_all, difference = cost_summary(cut)
    assert (in_all["pairs_never"], without_all["pairs_never"]) == (0, 3)
    assert (difference["availability_percent"], difference["rtt_mean_ms"]) == (-100, None)


def test_failed_sites_and_gateways_are_out() -> None:
    sites = [find_place(name) for name in ("London", "Sydney")]
    gateways = [Place("near London", 51.0, 0.0), Place("far", 40.0, -100.0)]
    whole = site_routes(sites, [gateways], **AT_ONCE)
    cost = cost_of(
        ["London", "Sydney"], whole,
        site_routes(sites, [gateways], **AT_ONCE, failed_places=gateways[:1]),
    )  # fmt: skip
    assert cost.pairs == [("London", "gateways"), ("Sydney", "gateways")]
    assert cost.whole_ms[0, 0] < 10
    assert cost.without_ms[0, 0] > 50
    all_fail = site_routes(sites, [gateways], **AT_ONCE, failed_places=gateways)
    assert np.isnan(all_fail.delays_s).all()
    without_sydney = site_routes(sites, [gateways], **AT_ONCE, failed_places=sites[1:])
    assert without_sydney.delays_s[0, 0, 0] == whole.delays_s[0, 0, 0]
    assert np.isnan(without_sydney.delays_s[0, 0, 1])


def test_a_share_and_a_seed_mean_the_same_satellites_as_in_a_scenario() -> None:
    entry: dict[str, object] = {"satellites": "10 %", "seed": 3}
    network = {"constellation": "starlink-shell1", "sites": list(NAMES)}
    scenario = load_scenario(
        {
            "network": network,
            "flow": [{"between": ["London", "Sydney"], "cc": "reno"}],
            "run": {"duration": "1 s"},
            "failure": [entry],
        }
    )
    experiment = _core.Experiment.build(scenario, position_of, ignore_progress, cities=CITIES)
    request = json.loads(experiment.to_json())["network"]["request"]
    failing = [failure["part"]["Satellite"] for failure in request["options"]["failures"]]
    assert len(failing) == 158
    assert site_routes(SITES, **AT_ONCE, failures=[entry]).failed_satellites == failing
    other = site_routes(SITES, **AT_ONCE, failures=[{**entry, "seed": 4}]).failed_satellites
    assert other != failing


def test_cells_have_the_route_of_their_middle(tmp_path: Path) -> None:
    grid = grid_of(20.0, (0.0, 170.0, 40.0, -150.0))
    assert (grid.rows, grid.columns) == (2, 2)
    middles = [(p.latitude_deg, p.longitude_deg) for p in grid.places]
    assert middles == [(10, 180), (10, 200), (30, 180), (30, 200)]
    tokyo = find_place("Tokyo")
    for policy in ("immediate", "sticky"):
        keys = {**TIMES, "handover": policy}
        coverage = coverage_of(site_routes(grid.places, [tokyo], **keys), grid)
        pairs = sh.all_pairs(["30,180", "Tokyo"], tmp_path / "x.parquet", **keys)
        rtts_ms = 2 * pairs.delays_ns[:, 0] / 1e6
        assert coverage.rtt_least_ms[2] == pytest.approx(rtts_ms.min(), abs=2e-6)
        assert coverage.rtt_median_ms[2] == pytest.approx(np.median(rtts_ms), abs=2e-6)
        assert coverage.rtt_most_ms[2] == pytest.approx(rtts_ms.max(), abs=2e-6)
        assert coverage.availability[2] == 1
        assert coverage.handovers_per_hour[2] == pairs.handovers[0, 0] * 3600 / 40
    polar = grid_of(5.0, (80.0, 0.0, 90.0, 10.0))
    nothing = coverage_of(site_routes(polar.places, [tokyo], **AT_ONCE), polar)
    assert not nothing.availability.any()
    assert np.isnan(nothing.rtt_median_ms).all()


def test_a_policy_trades_handovers_of_cells_for_latency() -> None:
    grid = grid_of(10.0, (30.0, -120.0, 50.0, -80.0))
    gateways = [Place("a", 40.0, -110.0), Place("b", 35.0, -90.0)]
    keys = {**TIMES, "duration": "10 min", "step": "15 s"}

    def of(policy: str, *, lasers: bool) -> tuple[float, float]:
        routes = site_routes(grid.places, [gateways], lasers=lasers, **keys, handover=policy)
        coverage = coverage_of(routes, grid)
        return float(coverage.rtt_median_ms.mean()), float(coverage.handovers_per_hour.mean())

    for lasers in (True, False):
        least_ms, most_handovers = of("immediate", lasers=lasers)
        for policy in ("sticky", "max-elevation-grid", "longest-visible-grid"):
            rtt_ms, handovers = of(policy, lasers=lasers)
            assert least_ms < rtt_ms
            assert (handovers < most_handovers / 2) == (policy == "sticky")


def test_changes_of_satellites_are_handovers_unless_a_route_is_missing() -> None:
    serving = np.array([[1, 1, 1], [2, -1, 1], [3, 2, 1]])
    assert handovers_per_hour(serving, [0.0, 10.0, 20.0]).tolist() == [360, 0, 0]
    assert np.isnan(handovers_per_hour(serving[:1], [0.0])).all()


@pytest.mark.parametrize(("west", "east"), [(170.0, -170.0), (165.0, -175.0)])
def test_cells_across_the_date_line_are_two_polygons(west: float, east: float) -> None:
    grid = grid_of(20.0, (0.0, west, 20.0, east))
    routes = site_routes(grid.places, [Place("x", 0, 0)], **AT_ONCE)
    (feature,) = coverage_geojson(coverage_of(routes, grid), "immediate")["features"]
    assert feature["properties"]["policy"] == "immediate"
    rings = [ring for (ring,) in feature["geometry"]["coordinates"]]
    assert len(rings) == 2
    assert {x for ring in rings for x, _ in ring} == {west, 180, -180, east}
    areas = [sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) / 2 for ring in rings]
    # Both are counter-clockwise and closed, and together as large as the cell.
    assert min(areas) > 0
    assert sum(areas) == 400
    assert all(ring[0] == ring[-1] for ring in rings)


def test_a_satellite_below_the_minimum_elevation_is_not_in_view() -> None:
    keys = {**AT_ONCE, "minimum_elevation": "40 deg"}
    # A route to a place next to it goes over the highest satellite, or nearly so.
    routes = site_routes([Place("a", 51.5, -0.1)], [Place("b", 51.5, -0.0999)], **keys)
    chosen = int(routes.satellites[0, 0, 0])
    positions_m = routes.constellation.positions(routes.constellation.epoch)
    elevation_deg, _ = seen_from(51.5, -0.1, positions_m)
    assert elevation_deg[chosen] >= 40
    assert chosen == int(elevation_deg.argmax())
    none = site_routes([Place("a", 51.5, -0.1)], [Place("b", 51.5, -0.0999)],
                       **AT_ONCE | {"minimum_elevation": "89.9 deg"})  # fmt: skip
    assert none.satellites[0, 0, 0] == -1


def test_a_user_is_told_which_satellites_have_no_lasers() -> None:
    shells = site_routes(SITES, **AT_ONCE | {"constellation": "starlink-gen1"})
    assert shells.notes == [
        "starlink-gen1 has no inter-satellite links between the 5 shells "
        '(isl_shells = "nearest" joins them)'
    ]
    joined = site_routes(
        SITES, **AT_ONCE | {"constellation": "starlink-gen1", "isl_shells": "nearest"}
    )
    assert joined.notes == []
    assert (joined.delays_s <= shells.delays_s).all()
    assert (joined.delays_s < shells.delays_s).any()
    assert site_routes(SITES, **AT_ONCE).notes == []
    (single,) = site_routes(SITES, **AT_ONCE | {"constellation": "oneweb"}).notes
    assert single == "oneweb has no links between satellites: each route uses a single satellite"
    (as_if,) = site_routes(SITES, lasers=True, **AT_ONCE | {"constellation": "oneweb"}).notes
    assert "computed as if it had" in as_if
    assert site_routes(SITES, lasers=False, **AT_ONCE).notes == []


def test_all_satellites_of_a_fleet_take_part() -> None:
    """Routes over ten thousand element sets, as published."""
    keys = {**TIMES, "constellation": str(reference("tle/starlink_20-05-2026.tle.gz"))}
    ends = [find_place("Reykjavik"), find_place("Riyadh")]
    apart = site_routes(ends, **keys)
    (note,) = apart.notes
    assert "no inter-satellite links between the 10 shells" in note
    assert "of 10,360 satellites, which are in no plane" in note
    joined = site_routes(ends, **keys, isl_shells="nearest")
    assert "between the" not in joined.notes[0]
    # Polar shells alone serve Reykjavik, and lower ones Riyadh.
    assert np.isnan(apart.delays_s[:, 1, 0]).any()
    assert np.isfinite(joined.delays_s).all()
    failing = site_routes(ends, **keys, isl_shells="nearest", failures=[{"satellites": "10 %"}])
    assert len(failing.failed_satellites) == 1036
    assert not set(failing.failed_satellites) & set(failing.satellites.ravel().tolist())


def test_too_many_routes_and_sites_twice_are_refused() -> None:
    with pytest.raises(InputError, match="26,244 routes at 3,600 times are too many; expected"):
        site_routes(grid_of(20.0).places, **TIMES | {"duration": "1 h", "step": "1 s"})
    with pytest.raises(InputError, match="two sites are the same place"):
        site_routes([*SITES, SITES[0]], **AT_ONCE)


def test_map_writes_each_format(skyhop: Skyhop, tmp_path: Path) -> None:
    words = ("network", "map", "--to", "Frankfurt", "--cell", "30 deg", "--duration", "20 s")
    done = skyhop(*words, "-o", "x.geojson", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 72
    assert {row["policy"] for row in rows} == {"immediate"}
    features = json.loads((tmp_path / "x.geojson").read_text())["features"]
    assert [feature["properties"] for feature in features] == rows
    done = skyhop(*words, "-o", "x.csv", "--csv")
    assert done.stdout.replace("\r\n", "\n") == (tmp_path / "x.csv").read_text().replace(
        "\r\n", "\n"
    )
    printed = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [float(row["latitude_deg"]) for row in printed] == [row["latitude_deg"] for row in rows]
    done = skyhop(*words, "-o", "x.png")
    assert done.returncode == 0, done.stderr
    assert "-15 to 0" in done.stdout
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
    policies = ("--handover", "sticky", "--handover", "immediate")
    both = json.loads(skyhop(*words, *policies, "--json").stdout)
    assert [row["policy"] for row in both] == ["sticky"] * 72 + ["immediate"] * 72
    assert both[72:] == rows
    assert [row["rtt_min_ms"] for row in both[:72]] != [row["rtt_min_ms"] for row in rows]


@pytest.mark.integration
def test_a_stopped_map_writes_nothing(tmp_path: Path) -> None:
    words = ("network", "map", "--to", "Paris", "--duration", "2 h", "-o", "x.csv")
    process = subprocess.Popen(
        [*skyhop_command(), *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    computes = Path(f"/proc/{process.pid}/maps")
    wait_for(lambda: "_core.abi3" in computes.read_text(), 120)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert printed == ""
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    words = ("network", "map", "--to", "Paris", "--cell", "60 deg", "--duration", "1 s", "--csv")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*skyhop_command(), *words], cwd=tmp_path, stdout=full, check=False,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "No space left" in done.stderr


def test_pairs_prints_a_row_per_pair_and_policy(skyhop: Skyhop) -> None:
    words = ("network", "pairs", *NAMES, "--duration", "60 s", "--step", "5 s")
    done = skyhop(*words, "--handover", "immediate", "--handover", "sticky", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["policy"], row["from"], row["to"]) for row in rows[:2]] == [
        ("immediate", "London, GB", "New York City, US"), ("immediate", "London, GB", "Sydney, AU"),
    ]  # fmt: skip
    assert len(rows) == 6
    for immediate, sticky in zip(rows[:3], rows[3:], strict=True):
        assert immediate["rtt_min_ms"] <= immediate["rtt_median_ms"] <= immediate["rtt_max_ms"]
        assert immediate["rtt_median_ms"] <= sticky["rtt_median_ms"]
        assert immediate["without_route"] == 0
    ends = [sum(row[f"handovers_per_hour_{e}"] for row in rows[i : i + 3] for e in ("from", "to"))
            for i in (0, 3)]  # fmt: skip
    assert ends[0] > ends[1]
    table = skyhop(*words).stdout
    assert table.count("immediate") >= 4
    assert "handovers" in table


def test_without_compares_with_the_whole(skyhop: Skyhop) -> None:
    words = ("network", "without", *NAMES, "--duration", "2 min", "--json")
    done = skyhop(*words, "--satellites", "20 %", "--seed", "3")
    assert done.returncode == 0, done.stderr
    fifth = json.loads(done.stdout)
    assert fifth["failed_satellites"] == 317
    whole, without, difference = fifth["summary"]
    assert whole["availability_percent"] == 100
    assert without["pairs_always"] < 3 or without["rtt_mean_ms"] > whole["rtt_mean_ms"]
    assert difference["pairs_always"] == without["pairs_always"] - 3
    again = json.loads(skyhop(*words, "--satellites", "20 %", "--seed", "3").stdout)
    assert again == fifth
    plane = json.loads(skyhop(*words, "--plane", "3", "--satellite", "0").stdout)
    assert plane["failed_satellites"] == 23
    printed = skyhop(*words[:-1], "--satellites", "20 %").stdout
    assert "317 of 1,584 satellites fail" in printed
    site = json.loads(skyhop(*words, "--site", "Sydney").stdout)
    assert site["failed_sites"] == ["Sydney, AU"]
    assert [row["availability_without"] for row in site["pairs"]] == [0, 0, 1]
    assert {row["to"] for row in site["pairs"][:2]} == {"Sydney, AU"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("map", "--to", "Frankfurtt"), "did you mean"),
        (("map", "--to", "London", "--constellation", "starlink-shel1"), "starlink-shell1?"),
        (("map", "--to", "London", "--cell", "0.1 deg"), "6,480,000 cells; at most 20,000"),
        (("map", "--to", "London", "--cell", "5 m"), "is not an angle"),
        (("map", "--to", "London", "--region", "1,2,3"), "expected SOUTH,WEST,NORTH,EAST"),
        (("map", "--to", "London", "--relay", "geo"), "expected isl or bent-pipe"),
        (("map",), "say where the routes end"),
        (("map", "--gateways", "nowhere"), 'unknown list of sites "nowhere"'),
        (("map", "--to", "London", "-o", "x.tiff"), "figures are PNG, SVG or PDF"),
        (("map", "--to", "London", "-o", "no/x.csv"), "there is no such directory"),
        (("map", "--to", "London", "--handover", "stick"), "--handover: "),
        (("map", "--to", "London", "--elevation", "100 deg"), "--elevation: is 100 deg"),
        (
            ("map", "--to", "London", "--handover", "sticky", "--handover", "leoem", "-o", "x.png"),
            "-o: a file is about one --handover",
        ),
        (
            ("map", "--to", "London", "--cell", "2 deg", "--duration", "2 h", "--step", "1 s"),
            "16,200 routes at 7,200 times are too many",
        ),
        (("pairs", "London"), "1 site; expected 2"),
        (("pairs", "London", "London"), 'two sites are named "London, GB"'),
        (("pairs", "London", "Paris", "--handover", "stick"), "did you mean sticky?"),
        (("pairs", "London", "Paris", "--elevation", "100 deg"), "--elevation: is 100 deg"),
        (("pairs", "London", "Paris", "--step", "0 s"), "--step: 0 s is too short"),
        (("without",), "say what fails"),
        (("without", "--satellites", "10"), '--satellites: "10" has no unit'),
        (("without", "--satellites", "110 %"), '--satellites: "110 %" is out of range'),
        (("without", "--satellite", "1584"), "--satellite: is 1584; expected a number below 1584"),
        (("without", "--satellite", "STAR"), "satellites of starlink-shell1 have no names"),
        (("without", "--plane", "72"), "--plane: is 72; expected a number below 72"),
        (("without", "--plane", "1:3"), "--plane: shell is 1; expected a number below 1"),
        (("without", "--plane", "1:x"), "expected N or SHELL:N"),
        (
            ("without", "--plane", "3", "--constellation", "starlink-gen1"),
            "starlink-gen1 has 5 shells; expected SHELL:N",
        ),
        (("map", "--to", "London", "--isl-shells", "near"), "--isl-shells: "),
        (("without", "--site", "Lagoss"), "did you mean Lagos, NG?"),
        (("without", "--gateway", "Nowhere"), 'starlink-gateways has no gateway "Nowhere"'),
    ],
)
def test_wrong_input_is_one_line(skyhop: Skyhop, words: tuple[str, ...], said: str) -> None:
    done = skyhop("network", *words)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr


def test_a_region_off_the_earth_is_an_error() -> None:
    with pytest.raises(InputError, match="is not a region"):
        grid_of(5.0, (10.0, 0.0, 5.0, 20.0))
    with pytest.raises(InputError, match="does not fit"):
        grid_of(50.0, (0.0, 0.0, 20.0, 20.0))
