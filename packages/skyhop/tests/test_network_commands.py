"""Coverage of a constellation, pairs of sites, and what failures cost: commands without a run."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from skyhop.analysis.coverage import coverage_geojson, coverage_of, grid_of, handovers_per_hour
from skyhop.analysis.failures import cost_of, cost_rows, cost_summary
from skyhop.data.geometry import seen_from
from skyhop.data.mesh import Mesh, ground, mesh_of
from skyhop.data.places import Place, find_place
from skyhop.errors import InputError

NAMES = ("London", "New York", "Sydney")
TIMES_S = [0.0, 20.0, 40.0]


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    """Return a shell with its lasers."""
    return mesh_of("starlink-shell1", None, 60.0, {}, with_lasers=True)


def test_delays_over_lasers_are_those_of_all_pairs(mesh: Mesh, tmp_path: Path) -> None:
    pairs = sh.all_pairs(NAMES, tmp_path / "x.parquet", duration="60 s", step="20 s",
                         constellation="starlink-shell1")  # fmt: skip
    assert [t_ns / 1e9 for t_ns in pairs.times_ns.tolist()] == TIMES_S
    nothing = np.zeros(mesh.satellites, np.bool_)
    cost = cost_of(mesh, [find_place(name) for name in NAMES], TIMES_S, nothing)
    # All pairs round to whole nanoseconds.
    assert cost.whole_ms * 1e6 / 2 == pytest.approx(pairs.delays_ns, abs=0.51)
    assert (cost.whole_ms == cost.without_ms).all()


def test_failed_satellites_carry_nothing(mesh: Mesh, tmp_path: Path) -> None:
    pairs = sh.all_pairs(NAMES, tmp_path / "x.parquet", duration="1 s",
                         constellation="starlink-shell1")  # fmt: skip
    sites = [find_place(name) for name in NAMES]
    failed = np.zeros(mesh.satellites, np.bool_)
    failed[pairs.routes("London", "New York")[0][1]] = True
    cost = cost_of(mesh, sites, [0.0], failed)
    assert cost.failed_satellites == failed.sum() > 2
    assert cost.without_ms[0, 0] > cost.whole_ms[0, 0]
    assert (cost.without_ms >= cost.whole_ms).all()
    rows = cost_rows(cost)
    assert rows[0]["rtt_added_mean_ms"] == max(row["rtt_added_mean_ms"] for row in rows)
    cut = cost_of(mesh, sites, [0.0], ~np.zeros_like(failed))
    assert np.isnan(cut.without_ms).all()
    whole, without, difference = cost_summary(cut)
    assert (whole["pairs_never"], without["pairs_never"]) == (0, 3)
    assert (difference["availability_percent"], difference["rtt_mean_ms"]) == (-100, None)


def test_a_failed_gateway_makes_routes_longer(mesh: Mesh) -> None:
    sites = [find_place(name) for name in ("London", "Sydney")]
    gateways = [Place("near London", 51.0, 0.0), Place("far", 40.0, -100.0)]
    nothing = np.zeros(mesh.satellites, np.bool_)
    cost = cost_of(mesh, sites, [0.0], nothing, (gateways, np.array([True, False])))
    assert cost.pairs == [("London, GB", "gateways"), ("Sydney, AU", "gateways")]
    assert list(cost.failed_gateways) == ["near London"]
    assert cost.whole_ms[0, 0] < 10
    assert cost.without_ms[0, 0] > 50
    all_fail = cost_of(mesh, sites, [0.0], nothing, (gateways, np.array([True, True])))
    assert np.isnan(all_fail.without_ms).all()


def test_cells_have_the_route_of_their_middle(mesh: Mesh, tmp_path: Path) -> None:
    grid = grid_of(20.0, (0.0, 170.0, 40.0, -150.0))
    assert (grid.rows, grid.columns) == (2, 2)
    middles = [(p.latitude_deg, p.longitude_deg) for p in grid.places]
    assert middles == [(10, 180), (10, 200), (30, 180), (30, 200)]
    coverage = coverage_of(mesh, grid, [find_place("Tokyo")], TIMES_S)
    pairs = sh.all_pairs(["30,180", "Tokyo"], tmp_path / "x.parquet", duration="60 s", step="20 s",
                         constellation="starlink-shell1")  # fmt: skip
    rtts_ms = 2 * pairs.delays_ns[:, 0] / 1e6
    assert coverage.rtt_least_ms[2] == pytest.approx(rtts_ms.min(), abs=2e-6)
    assert coverage.rtt_median_ms[2] == pytest.approx(np.median(rtts_ms), abs=2e-6)
    assert coverage.rtt_most_ms[2] == pytest.approx(rtts_ms.max(), abs=2e-6)
    assert coverage.availability[2] == 1
    assert coverage.handovers_per_hour[2] == pairs.handovers[0, 0] * 3600 / 40
    polar = coverage_of(mesh, grid_of(5.0, (80.0, 0.0, 90.0, 10.0)), [find_place("Tokyo")], [0.0])
    assert not polar.availability.any()
    assert np.isnan(polar.rtt_median_ms).all()


def test_changes_of_satellites_are_handovers_unless_a_route_is_missing() -> None:
    serving = np.array([[1, 1, 1], [2, -1, 1], [3, 2, 1]])
    assert handovers_per_hour(serving, [0.0, 10.0, 20.0]).tolist() == [360, 0, 0]
    assert np.isnan(handovers_per_hour(serving[:1], [0.0])).all()


@pytest.mark.parametrize(("west", "east"), [(170.0, -170.0), (165.0, -175.0)])
def test_cells_across_the_date_line_are_two_polygons(mesh: Mesh, west: float, east: float) -> None:
    grid = grid_of(20.0, (0.0, west, 20.0, east))
    (feature,) = coverage_geojson(coverage_of(mesh, grid, [Place("x", 0, 0)], [0.0]))["features"]
    rings = [ring for (ring,) in feature["geometry"]["coordinates"]]
    assert len(rings) == 2
    assert {x for ring in rings for x, _ in ring} == {west, 180, -180, east}
    areas = [sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) / 2 for ring in rings]
    # Both are counter-clockwise and closed, and together as large as the cell.
    assert min(areas) > 0
    assert sum(areas) == 400
    assert all(ring[0] == ring[-1] for ring in rings)


def test_a_satellite_below_the_horizon_is_not_in_view(mesh: Mesh) -> None:
    now = mesh.at(0.0)
    up_s = now.up_s(ground([find_place("London")]))[0]
    elevation, _ = seen_from(51.50853, -0.12574, now.positions_m)
    assert (np.isfinite(up_s) == (elevation >= 25)).all()
    assert 0 < np.isfinite(up_s).sum() < 40


def test_map_writes_each_format(skyhop: Skyhop, tmp_path: Path) -> None:
    words = ("network", "map", "--to", "Frankfurt", "--cell", "30 deg", "--duration", "20 s")
    done = skyhop(*words, "-o", "x.geojson", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 72
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
        (("pairs", "London"), "1 site; expected 2"),
        (("pairs", "London", "London"), 'two sites are named "London, GB"'),
        (("pairs", "London", "Paris", "--handover", "stick"), "did you mean sticky?"),
        (("pairs", "London", "Paris", "--step", "0 s"), "--step: 0 s is too short"),
        (("without",), "say what fails"),
        (("without", "--satellites", "10"), "is not a share"),
        (("without", "--satellite", "1584"), "expected 0 to 1,583"),
        (("without", "--plane", "72"), "has no plane 72"),
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
