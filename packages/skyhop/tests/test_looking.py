"""Views of paths: statistics, map, sky and globe."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop
from matplotlib.path import Path as Shape

import skyhop as sh
from element_files import walker_omm
from skyhop.analysis.ground import ground_view
from skyhop.analysis.moment import moment_of
from skyhop.analysis.path_statistics import path_statistics
from skyhop.analysis.sky import sky_view
from skyhop.data.geometry import earth_fixed_m, great_circle_m, seen_from
from skyhop.data.land import land_deg
from skyhop.data.reading import path_record
from skyhop.figures.ground import draw_ground


@pytest.fixture(scope="module")
def path() -> sh.Path:
    return sh.path("San Diego", "New York", relay="bent-pipe", duration="5 min")


@pytest.fixture
def file(path: sh.Path, tmp_path: Path) -> str:
    path.write(tmp_path / "x.parquet")
    return "x.parquet"


def named(node: int) -> str:
    """Return the name of a node in CZML."""
    return {-1: "from", -2: "to"}.get(node, f"node {node}")


def figures_of(rows: str, tmp_path: Path) -> dict[str, object]:
    """Return the statistics of rows ul and dl rate, ul and dl delay, ul and dl loss, time (ms)."""
    (tmp_path / "x.csv").write_text(rows, "utf-8")
    return path_statistics(path_record(sh.import_path(tmp_path / "x.csv", "csv")))


def test_statistics_weigh_by_time(tmp_path: Path) -> None:
    figures = figures_of("1,8,10,20,0,0,0\n1,4,20,50,0,0,3000\n1,4,20,50,0,0,4000\n", tmp_path)
    # The last frame lasts as long as the first: 3 of 7 s at 30 ms, 4 s at 70 ms.
    assert figures["duration_s"] == 7
    rtt_ms = figures["rtt_ms"]
    assert isinstance(rtt_ms, dict)
    assert rtt_ms["p50"] == pytest.approx(70)
    assert rtt_ms["min"] == pytest.approx(30)
    assert rtt_ms["mean"] == pytest.approx((3 * 30 + 4 * 70) / 7)
    assert figures["rate_mbps"]["mean"] == pytest.approx((3 * 8 + 4 * 4) / 7)
    assert figures["stretch_fibre"] is None


def test_statistics_of_a_computed_path(skyhop: Skyhop, file: str, path: sh.Path) -> None:
    done = skyhop("path", "stats", file, "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["from"] == "San Diego, US"
    events = [event for row in path.frames["events"].to_list() for event in row]
    ends = [event for event in events if event["kind"] == "end"]
    assert figures["handovers_per_hour"]["end"] == pytest.approx(12 * len(ends))
    # A simultaneous handover of both ends is one interruption.
    longest_ns = {event["t_ns"]: 0 for event in ends}
    for event in ends:
        longest_ns[event["t_ns"]] = max(longest_ns[event["t_ns"]], event["outage_ns"])
    assert figures["outages"] == len(longest_ns)
    assert figures["outage_s"] == pytest.approx(sum(longest_ns.values()) / 1e9)
    assert figures["great_circle_km"] == pytest.approx(3910, rel=0.01)
    mean_ms = np.mean((path.frames["delay_ns"].to_numpy() * 2) / 1e6)
    assert figures["rtt_ms"]["mean"] == pytest.approx(mean_ms, rel=0.005)
    assert figures["stretch_great_circle"] > 1
    # Light in fibre is 1.5 times slower, on a path 1.4 times as long.
    assert figures["stretch_great_circle"] / figures["stretch_fibre"] == pytest.approx(2.1)
    table = skyhop("path", "stats", file)
    assert "stretch great circle" in table.stdout


def test_great_circles_and_directions() -> None:
    assert great_circle_m((0, 0), (0, 90)) == pytest.approx(np.pi / 2 * 6_371_008.8)
    assert great_circle_m((50, 5), (50, 5)) == 0
    overhead = earth_fixed_m(40, -100, 550e3)
    north = earth_fixed_m(45, -100, 550e3)
    elevation_deg, azimuth_deg = seen_from(40, -100, np.array([overhead, north]))
    assert elevation_deg[0] == pytest.approx(90, abs=1e-6)
    assert azimuth_deg[1] == pytest.approx(0, abs=1e-6)
    assert 30 < elevation_deg[1] < 50


def test_a_moment_has_the_distances_of_its_hops(path: sh.Path) -> None:
    for at_s in (0, 100, 299):
        moment = moment_of(path, at_s)
        lengths_m = np.linalg.norm(np.diff(moment.route_m, axis=0), axis=1)
        delays_ns = path.frames["hop_delay_ns"][at_s].to_list()
        assert lengths_m / 299_792_458 * 1e9 == pytest.approx(delays_ns, abs=5)
    user_deg = (path.header["from"]["latitude_deg"], path.header["from"]["longitude_deg"])
    elevation_deg, _ = seen_from(*user_deg, moment.satellites_m)
    assert elevation_deg[moment.chosen[0]] >= moment.minimum_elevation_deg


def test_a_part_of_a_constellation_is_shown() -> None:
    keys = {"constellation": "starlink-gen1", "satellites": "shell=1"}
    path = sh.path("San Diego", "New York", duration="10 s", **keys)
    moment = moment_of(path, 5)
    assert len(moment.satellites_m) == path.header["satellites"] == 1584
    assert moment.names[0] == "San Diego, US"
    # Satellites of shells have no names.
    view = sky_view(moment, "San Diego", (32.7, -117.2), moment.chosen[0])
    assert f"served by {moment.chosen[0]} at" in view.title
    assert all(name == str(satellite) for satellite, name in view.named.items())


def test_current_satellites_can_be_shown(skyhop: Skyhop, tmp_path: Path) -> None:
    elements = tmp_path / "today.csv"
    elements.write_text(walker_omm(age=timedelta(hours=3)), "utf-8")
    ends = ("--from", "Seattle", "--to", "Denver", "--relay", "access")
    keys = ("--constellation", "today.csv", "--start", "now", "--duration", "20 s")
    before = datetime.now(UTC) - timedelta(seconds=1)
    done = skyhop("path", *ends, *keys, "-o", "now.parquet")
    assert done.returncode == 0, done.stderr
    header = sh.read_path(tmp_path / "now.parquet").header
    assert before < datetime.fromisoformat(header["start"]) <= datetime.now(UTC)
    for words in (("ground",), ("sky",), ("export", "--format", "czml")):
        figure = ("-o", f"{words[0]}.{'czml' if 'czml' in words else 'png'}")
        done = skyhop("path", words[0], "now.parquet", *words[1:], *figure)
        assert done.returncode == 0, done.stderr
    labels = [one.get("name", "") for one in json.loads((tmp_path / "export.czml").read_text())]
    assert any(label.startswith("SAT ") for label in labels)
    # The point of presence follows the gateway.
    moment = moment_of(sh.read_path(tmp_path / "now.parquet"), 0)
    assert moment.names[1].startswith("SAT ")
    assert len(moment.names) == 5
    view = sky_view(moment, "Seattle", (47.6, -122.3), moment.chosen[0])
    assert f"served by {moment.names[1]} at" in view.title
    assert view.named[moment.chosen[0]] == moment.names[1]
    assert {name[:4] for name in view.named.values()} == {"SAT "}
    # The gateways of a path are in its file, whatever lists there are later.
    assert {site["name"] for site in header["sites"]} >= set(moment.names[2:4])
    elements.write_text(walker_omm(age=timedelta(hours=2)), "utf-8")
    done = skyhop("path", "ground", "now.parquet", "-o", "later.png")
    assert done.returncode == 2
    assert "today.csv is not what it was when the path was computed" in done.stderr
    elements.unlink()
    done = skyhop("path", "ground", "now.parquet", "-o", "later.png")
    assert done.returncode == 2
    assert "today.csv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_geostationary_satellite_can_be_shown(skyhop: Skyhop, tmp_path: Path) -> None:
    ends = ("--from", "Seattle", "--to", "Denver", "--relay", "geo", "--constellation", "geo:-95")
    done = skyhop("path", *ends, "--start", "2026-05-20", "--duration", "5 s", "-o", "x.parquet")
    assert done.returncode == 0, done.stderr
    path = sh.read_path(tmp_path / "x.parquet")
    assert path.header["start"] == "2026-05-20T00:00:00Z"
    moment = moment_of(path, 0)
    assert np.linalg.norm(moment.satellites_m[0]) == pytest.approx(42_164e3, rel=1e-3)
    for command in ("ground", "sky"):
        assert skyhop("path", command, "x.parquet", "-o", "x.png").returncode == 0


def test_the_map_shows_the_links_of_the_moment(path: sh.Path) -> None:
    moment = moment_of(path, 60)
    ax = draw_ground(ground_view(moment)).axes[0]
    (links,) = [line for line in ax.lines if line.get_gid() == "links"]
    assert len(links.get_xdata()) == len(moment.nodes)
    assert ax.figure.get_suptitle().startswith("San Diego, US \N{RIGHTWARDS ARROW} New York City")
    assert "starlink-shell1" in ax.figure.get_suptitle()
    texts = {text.get_text() for text in ax.texts}
    assert {"San Diego, US", "New York City, US", *map(str, moment.chosen)} <= texts


def on_land(latitude_deg: float, longitude_deg: float) -> bool:
    """Whether a point is on land, by the rings around it; those of lakes wind the other way."""
    point = np.array([latitude_deg, longitude_deg])
    turns = 0.0
    for ring in land_deg():
        (y, x), (next_y, next_x) = (ring - point).T, (np.roll(ring, -1, axis=0) - point).T
        turns -= float(np.arctan2(x * next_y - y * next_x, x * next_x + y * next_y).sum())
    return round(turns / (2 * np.pi)) == 1


@pytest.mark.parametrize(
    ("place", "place_deg", "expected"),
    [
        ("Denver", (39.7, -105.0), True), ("Nairobi", (-1.3, 36.8), True),
        ("Alice Springs", (-23.7, 133.9), True), ("the South Pole", (-89.0, 10.0), True),
        ("Iceland", (64.8, -18.5), True), ("the Atlantic", (30.0, -45.0), False),
        ("the Pacific", (0.0, -179.0), False), ("the Caspian Sea", (42.0, 50.5), False),
    ],
)  # fmt: skip
def test_land_is_at_known_coordinates(
    place: str, place_deg: tuple[float, float], expected: bool
) -> None:
    assert on_land(*place_deg) is expected, place


def test_maps_over_the_date_line_have_land_on_both_sides() -> None:
    path = sh.path("Tokyo", "Seattle", relay="isl", duration="1 s")
    view = ground_view(moment_of(path, 0))
    west, east = view.longitudes_deg
    assert west < 139.7
    assert east > 360 - 122.3
    for land in ((140.0, 36.5), (360 - 121.5, 47.0)):
        inside = [Shape(ring[:, ::-1]).contains_point(land) for ring in view.land_deg]
        assert sum(inside) == 1


def test_a_long_chain_of_satellites_keeps_its_names_on_the_map() -> None:
    path = sh.path("Tokyo", "New York", relay="isl", duration="1 s", compat="leoem")
    nodes = ground_view(moment_of(path, 0)).nodes
    named = [node for node in nodes if node.kind == "chosen satellite" and node.text]
    assert len(named) >= 5
    assert max(node.stacked for node in named) < 3


@pytest.mark.parametrize("command", [("ground",), ("sky", "--end", "to")])
def test_pictures_are_drawn(
    skyhop: Skyhop, file: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = skyhop("path", command[0], file, *command[1:], "--at", "2 min", "-o", "x.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_globe_has_every_node_and_link(skyhop: Skyhop, file: str, path: sh.Path,
                                           tmp_path: Path) -> None:  # fmt: skip
    done = skyhop("path", "export", file, "--format", "czml", "-o", "x.czml")
    assert done.returncode == 0, done.stderr
    document, *packets = json.loads((tmp_path / "x.czml").read_text("utf-8"))
    assert document["id"] == "document"
    assert document["version"] == "1.0"
    rows = path.frames["nodes"].to_list()
    points = {packet["id"] for packet in packets if "point" in packet}
    assert points == {named(node) for row in rows for node in row}
    for packet in packets:
        if "point" in packet:
            everywhen, *uses = packet["label"]["show"]
            assert everywhen["boolean"] is False
            frames = [packet["id"] in map(named, row) for row in rows]
            # Each span of use begins with a frame that has the node after one without.
            assert len(uses) == sum(now and not before for before, now in
                                    itertools.pairwise([False, *frames]))  # fmt: skip
            assert all(use["boolean"] for use in uses)
    links = [packet for packet in packets if "polyline" in packet]
    assert len(links) == len({link for row in rows for link in itertools.pairwise(row)})
    for link in links:
        assert all(r.split("#")[0] in points for r in link["polyline"]["positions"]["references"])
    moving = next(packet for packet in packets if packet["id"] == f"node {rows[0][1]}")
    numbers = moving["position"]["cartesian"]
    moment = moment_of(path, 30)
    assert numbers[4] == 30
    assert numbers[5:8] == pytest.approx(moment.satellites_m[rows[0][1]], abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("ground", "x.parquet", "-o", "x.png", "--at", "6 min"), "is not within the path"),
        (("ground", "x.parquet", "-o", "x.png", "--at", "noon"), "--at: "),
        (("ground", "x.parquet", "-o", "x.jpg"), "give a name that ends in .png"),
        (("ground", "gone.parquet", "-o", "x.png"), "gone.parquet: cannot read"),
        (("sky", "x.parquet", "-o", "x.png", "--end", "middle"), "expected from or to"),
        (("stats", "x.csv"), "x.csv: "),
        (("export", "x.parquet", "--format", "czml", "-o", "x", "--step", "1 ms"), "too short"),
        (
            ("export", "x.parquet", "--format", "czml", "-o", "x", "--rate", "1 bit/s"),
            "does not use it",
        ),
    ],
)
def test_wrong_arguments(
    skyhop: Skyhop, file: str, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "x.csv").write_text("1,2\n", "utf-8")
    assert file == "x.parquet"
    done = skyhop("path", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_measured_path_has_no_satellites_to_show(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2,3,4,0,0,5\n", "utf-8")
    sh.import_path(tmp_path / "x.csv", "csv").write(tmp_path / "x.parquet")
    for command in (("ground", "x.parquet"), ("sky", "x.parquet"),
                    ("export", "x.parquet", "--format", "czml")):  # fmt: skip
        done = skyhop("path", *command, "-o", "x.png")
        assert done.returncode == 2
        assert "does not come from a constellation" in done.stderr
