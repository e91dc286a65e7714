"""Loads of a network's links, and their map and tables on the page of a run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import skyhop as sh
from network_runs import PACIFIC
from skyhop.analysis.map_window import cut_at_date_line, unrolled, window_of
from skyhop.analysis.network_loads import channel_of, loads_of
from skyhop.analysis.network_map import most_of, network_map, network_maps
from skyhop.analysis.network_page import network_part
from skyhop.analysis.run_timeline import run_timeline
from skyhop.data.networks import network_of
from skyhop.data.reading import read_runs
from skyhop.data.records import RunRecord
from skyhop.errors import InputError
from skyhop.figures.network_map import draw_network_map
from skyhop.figures.style import figure_bytes
from skyhop.report import write_report


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run across the date line."""
    directory = tmp_path_factory.mktemp("runs") / "pacific"
    sh.sim(PACIFIC, directory)
    return directory


@pytest.fixture(scope="module")
def run(directory: Path) -> RunRecord:
    """Return the run's record."""
    return read_runs([directory])[0]


def test_names_of_links_name_their_nodes() -> None:
    there, back = (channel_of("satellite 84 - 85", way) for way in ("forward", "back"))
    assert there is not None
    assert back is not None
    assert (there.kind, there.satellites, there.sender) == ("laser", (84, 85), "satellite 84")
    assert (back.satellites, back.sender) == ((85, 84), "satellite 85")
    down = channel_of("satellite 84 - sites", "forward")
    up = channel_of("Here - there, XX - satellites", "forward")
    assert down is not None
    assert up is not None
    assert (down.kind, down.satellites, down.site) == ("downlink", (84,), "")
    assert (up.kind, up.satellites, up.sender) == ("uplink", (), "Here - there, XX")
    assert channel_of("path", "forward") is None


def test_loads_of_intervals_add_up_to_the_run(run: RunRecord) -> None:
    whole, parts = loads_of(run), loads_of(run, np.linspace(0, run.duration_s, 5))
    assert whole.channels == parts.channels
    assert parts.utilisation.mean(axis=1) == pytest.approx(whole.utilisation[:, 0])
    assert (parts.drops.sum(axis=1) == whole.drops[:, 0]).all()
    assert int(whole.drops.sum()) == (sh.Run(run.directory).events["kind"] == "loss").sum() > 0
    uplinks = [row for row, channel in enumerate(whole.channels) if channel.kind == "uplink"]
    for row in uplinks:
        of_link = run.summary["links"][whole.channels[row].link]
        assert whole.utilisation[row, 0] == pytest.approx(of_link["utilisation"])
    # The two flows of Auckland fill its uplink; that of Suva starts later.
    hottest = int(whole.utilisation[:, 0].argmax())
    assert whole.channels[hottest].site == "Auckland, NZ"
    assert whole.carried_mbps[hottest, 0] == pytest.approx(5, abs=1)
    assert (whole.busiest_s > 0).all()
    assert (whole.busiest_s <= run.duration_s).all()


def test_a_background_counts_as_load(tmp_path: Path) -> None:
    background = {"kind": "uniform", "rate": "1.2 Mbit/s", "burst": 0}
    network = {**PACIFIC["network"], "background": background}
    sh.sim({**PACIFIC, "network": network, "flow": PACIFIC["flow"][-1:]}, tmp_path / "run")
    run = read_runs([tmp_path / "run"])[0]
    loads = loads_of(run)
    of_uplink = {
        channel.site: float(loads.utilisation[row, 0])
        for row, channel in enumerate(loads.channels)
        if channel.kind == "uplink"
    }
    # Each site sends 100 kbit/s to each other one; Auckland and Tokyo have a probe as well.
    assert of_uplink["Suva, FJ"] == of_uplink["Honolulu, US"] == pytest.approx(0.06, abs=1e-4)
    assert 0.06 < of_uplink["Auckland, NZ"] < 0.08
    silent = loads.carried_mbps[:, 0] == 0
    assert silent.any()
    assert (loads.utilisation[silent, 0] > 0).all()
    parts = loads_of(run, np.linspace(0, run.duration_s, 5))
    assert parts.utilisation.mean(axis=1) == pytest.approx(loads.utilisation[:, 0])


def test_an_interval_before_the_traffic_is_empty(run: RunRecord) -> None:
    loads = loads_of(run, [0.0, 1e-6, run.duration_s])
    assert not loads.carried_mbps[:, 0].any()
    assert loads.carried_mbps[:, 1].any()


def test_flows_of_a_network_have_sites(run: RunRecord) -> None:
    ends = network_of(run.scenario).ends
    assert ends[0] == ends[1] == ("Auckland, NZ", "Honolulu, US")
    assert ends[2] == ("Suva, FJ", "Auckland, NZ")
    assert len(ends) == 4


def test_a_map_extends_over_the_date_line(run: RunRecord) -> None:
    view = network_map(run, network_of(run.scenario))
    west, east = view.longitudes_deg
    assert 100 < west < 180 < east < 260
    (south, north) = view.latitudes_deg
    for node in view.nodes:
        assert south < node.at_deg[0] < north
        assert west < node.at_deg[1] < east
    sites = {node.name: node for node in view.nodes if node.kind == "site"}
    assert sites["Honolulu, US"].at_deg[1] == pytest.approx(360 - 157.86, abs=0.1)
    assert sites["Auckland, NZ"].load == pytest.approx(1, abs=0.2)
    loads = [link.load for link in view.links]
    assert loads == sorted(loads)
    # No line jumps across the map.
    assert all(np.abs(np.diff(line[:, 1])).max() < 30 for k in view.links for line in k.lines_deg)


def test_maps_of_intervals_share_their_region_and_scale(run: RunRecord) -> None:
    views = network_maps(run, network_of(run.scenario), [0.0, 1.0], 1.0)
    assert len({(v.latitudes_deg, v.longitudes_deg, v.most) for v in views}) == 1
    assert [view.title.rpartition(", ")[2] for view in views] == ["0 to 1 s)", "1 to 2 s)"]


def test_lines_are_cut_at_the_date_line() -> None:
    line = unrolled(np.array([(10.0, 170.0), (0.0, -170.0)]))
    east, west = cut_at_date_line(line)
    assert east.tolist() == [[10, 170], [5, 180]]
    assert west.tolist() == [[5, -180], [0, -170]]
    there, back = cut_at_date_line(line[::-1])
    assert there.tolist() == [[0, -170], [5, -180]]
    assert back.tolist() == [[5, 180], [10, 170]]
    assert [part.tolist() for part in cut_at_date_line(line[:1].repeat(2, axis=0))] == []


def test_a_map_of_all_continents_is_not_turned() -> None:
    everywhere = np.array([(0.0, lon) for lon in range(-170, 180, 40)])
    assert window_of(everywhere, (5, 5)) == ((-5, 5), (-180, 180))
    assert window_of(np.array([(89.0, 0.0)]), (5, 5)) == ((84, 90), (-5, 5))


def test_the_scale_ends_at_a_round_number() -> None:
    assert [most_of(np.array([[x]])) for x in (0.0, 0.013, 0.4, 0.6, 1.2)] == [1, 0.02, 0.5, 1, 1]


def test_tables_tell_cities_links_and_fairness(run: RunRecord) -> None:
    part = network_part(run)
    assert part is not None
    tables = {each.heading: each.table for each in part.tables}
    assert list(tables) == [
        "Hottest links", "Hottest satellites and sites", "Cities", "Fairness by group of flows",
    ]  # fmt: skip
    assert tables["Hottest links"].rows[0][:2] == [
        "Auckland, NZ \N{RIGHTWARDS ARROW} satellites", "uplink",
    ]  # fmt: skip
    assert (
        len(tables["Hottest links"].rows) == len(tables["Hottest satellites and sites"].rows) == 10
    )
    flows = [flow["goodput_bps"] / 1e6 for flow in run.summary["flows"]]
    cities = {row[0]: row[1:] for row in tables["Cities"].rows}
    assert set(cities) == {"Auckland, NZ", "Honolulu, US", "Suva, FJ"}
    assert float(cities["Auckland, NZ"][1]) == pytest.approx(sum(flows[:2]), abs=0.01)
    # A flow of the second half counts half over the run.
    assert float(cities["Auckland, NZ"][5]) == pytest.approx(flows[2] / 2, abs=0.01)
    assert cities["Honolulu, US"][0] == "0"
    assert cities["Honolulu, US"][4] == "2"
    fairness = {row[0]: row for row in tables["Fairness by group of flows"].rows}
    index = sum(flows[:2]) ** 2 / 2 / sum(x * x for x in flows[:2])
    assert float(fairness["cubic"][3]) == pytest.approx(index, abs=1e-3)
    assert fairness["reno"][2] == "1"


def test_a_page_of_a_network_shows_its_map(directory: Path, tmp_path: Path) -> None:
    page = write_report([directory], tmp_path / "x.html").read_text()
    assert (tmp_path / "x-figures" / "network-1.png").stat().st_size > 10_000
    words = re.sub(r"<[^>]+>", " ", page)
    for heading in ("Network", "Hottest links", "Cities", "Fairness by group of flows"):
        assert f" {heading} " in words
    assert "Suva, FJ \N{RIGHTWARDS ARROW} Auckland, NZ" in page
    assert "The strip on top" not in page
    # The pictures are two thirds of a page.
    assert len(page) < 900_000


def test_a_network_has_no_strip_of_events(run: RunRecord) -> None:
    assert run_timeline(run).strip is None


def test_a_page_without_the_network_says_why(directory: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(directory, moved)
    manifest = json.loads((moved / "run.json").read_text())
    manifest["scenario"]["network"]["constellation"] = "gone.tle"
    (moved / "run.json").write_text(json.dumps(manifest))
    page = write_report([moved], tmp_path / "x.html").read_text()
    assert "No map and no table of cities: " in page
    assert "gone.tle" in page
    assert "Hottest links" in page
    assert "<h3>Cities</h3>" not in page


def test_a_run_over_a_path_has_no_network() -> None:
    with pytest.raises(InputError, match="give a run of a network"):
        network_of({"path": {}})


def test_narrow_maps_of_the_earth_have_two_halves(tmp_path: Path) -> None:
    scenario = json.loads(json.dumps(PACIFIC))
    scenario["network"] |= {"sites": ["Tokyo", "London", "São Paulo"], "interval": "never"}
    scenario["flow"] = []
    scenario["network"]["traffic"] = {"kind": "permutation", "cc": "reno"}
    scenario["run"] = {"duration": "100 ms"}
    run = read_runs([sh.sim(scenario, tmp_path / "still").directory])[0]
    network = network_of(run.scenario)
    # Satellites stand still.
    assert (network.satellites_m(0.0) == network.satellites_m(50.0)).all()
    view = network_map(run, network)
    assert view.longitudes_deg == (-180, 180)
    narrow, wide = (draw_network_map(view, width) for width in ("one-column", "page"))
    assert len(narrow.axes) == 3
    assert len(wide.axes) == 2
    assert narrow.axes[0].get_xlim()[1] > 0 > narrow.axes[1].get_xlim()[0]
    assert b"<svg" in figure_bytes(wide, "svg")
