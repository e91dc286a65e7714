"""Animations, CZML and GeoJSON of the loads of a network's links."""

from __future__ import annotations

import itertools
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Skyhop
from PIL import Image

import skyhop as sh
from network_runs import PACIFIC
from skyhop.analysis.network_map import LOAD_COLOURS, load_rgb
from skyhop.data.geometry import earth_fixed_m, geodetic


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run across the date line."""
    directory = tmp_path_factory.mktemp("runs") / "pacific"
    sh.sim(PACIFIC, directory)
    return directory


def _times(interval: str) -> tuple[datetime, datetime]:
    begin, end = map(datetime.fromisoformat, interval.split("/"))
    return begin, end


def _check_colours(colours: Any, whole: tuple[datetime, datetime]) -> None:
    """Check that a colour is constant, or covers the whole time without a gap."""
    if isinstance(colours, dict):
        spans = [whole]
    else:
        spans = [_times(entry["interval"]) for entry in colours]
    assert (spans[0][0], spans[-1][1]) == whole
    assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
    for entry in [colours] if isinstance(colours, dict) else colours:
        assert len(entry["rgba"]) == 4
        assert all(isinstance(part, int) and 0 <= part <= 255 for part in entry["rgba"])


def test_czml_has_every_node_and_link_that_was_used(
    skyhop: Skyhop, directory: Path, tmp_path: Path
) -> None:
    done = skyhop("network", "export", directory, "--format", "czml", "-o", "x.czml")
    assert done.returncode == 0, done.stderr
    document, *packets = json.loads((tmp_path / "x.czml").read_text("utf-8"))
    assert (document["id"], document["version"]) == ("document", "1.0")
    whole = _times(document["clock"]["interval"])
    assert (whole[1] - whole[0]).total_seconds() == 2
    by_id = {packet["id"]: packet for packet in packets}
    assert len(by_id) == len(packets)
    assert {"site Auckland, NZ", "site Suva, FJ"} <= by_id.keys()
    links = sh.read_run(directory).link.filter(pl.col("delivered_bytes") > 0)
    lasers = {name for name in links["link"] if re.fullmatch(r"satellite \d+ - \d+", name)}
    assert {f"link {name}" for name in lasers} == {i for i in by_id if i.startswith("link ")}
    for packet in packets:
        if "point" in packet:
            _check_colours(packet["point"]["color"], whole)
            numbers = packet["position"]["cartesian"]
            assert len(numbers) == 3 or len(numbers) % 4 == 0
            positions = np.array(numbers).reshape(-1, 3 if len(numbers) == 3 else 4)[:, -3:]
            heights_km = np.linalg.norm(positions, axis=1) / 1e3 - 6371
            assert (abs(heights_km - (550 if packet["id"].startswith("sat") else 0)) < 30).all()
        else:
            _check_colours(packet["polyline"]["material"]["solidColor"]["color"], whole)
            for reference in packet["polyline"]["positions"]["references"]:
                node, _, name = reference.partition("#")
                assert name == "position"
                assert node in by_id
            for shown in map(_times, packet["availability"]):
                assert whole[0] <= shown[0] < shown[1] <= whole[1]
    # The uplink of Suva carries nothing in the first half.
    suva = by_id["site Suva, FJ"]["point"]["color"]
    assert suva[0]["rgba"] != suva[-1]["rgba"]


def test_geojson_has_values_in_units_and_no_line_over_the_date_line(
    skyhop: Skyhop, directory: Path, tmp_path: Path
) -> None:
    done = skyhop("network", "export", directory, "--format", "geojson", "-o", "x.geojson")
    assert done.returncode == 0, done.stderr
    collection = json.loads((tmp_path / "x.geojson").read_text("utf-8"))
    assert collection["type"] == "FeatureCollection"
    kinds: dict[str, list[Any]] = {}
    for feature in collection["features"]:
        assert feature["type"] == "Feature"
        kinds.setdefault(feature["properties"]["kind"], []).append(feature)
    assert len(kinds["site"]) == 4
    for feature in kinds["laser"]:
        geometry = feature["geometry"]
        parts = geometry["coordinates"]
        parts = parts if geometry["type"] == "MultiLineString" else [parts]
        assert (len(parts) > 1) == (geometry["type"] == "MultiLineString")
        for part in parts:
            points = np.array(part)
            assert (abs(points) <= (180, 90)).all()
            assert abs(np.diff(points[:, 0])).max() < 30
        assert re.fullmatch("#[0-9a-f]{6}", feature["properties"]["stroke"])
    assert any(f["geometry"]["type"] == "MultiLineString" for f in kinds["laser"])
    altitudes_m = [feature["geometry"]["coordinates"][2] for feature in kinds["satellite"]]
    assert all(530e3 < altitude_m < 580e3 for altitude_m in altitudes_m)
    auckland = next(f["properties"] for f in kinds["site"] if f["properties"]["name"][0] == "A")
    of_link = sh.read_run(directory).summary["links"]["Auckland, NZ - satellites"]
    assert auckland["utilisation"] == pytest.approx(of_link["utilisation"], abs=1e-6)
    assert auckland["drops_packets"] == sum(of_link["drops"].values()) > 0
    assert auckland["carried_bps"] == pytest.approx(5e6, rel=0.2)
    # In the first second, the uplink of Suva carries nothing.
    part = ("--at", "0 s", "--every", "500 ms")
    done = skyhop("network", "export", directory, "--format", "geojson", "-o", "x.geojson", *part)
    assert done.returncode == 0, done.stderr
    collection = json.loads((tmp_path / "x.geojson").read_text("utf-8"))
    assert (collection["from_s"], collection["until_s"]) == (0, 0.5)
    loads = {f["properties"]["name"]: f["properties"] for f in collection["features"]}
    assert loads["Suva, FJ"]["carried_bps"] == 0 < loads["Auckland, NZ"]["carried_bps"]


def test_an_animation_has_a_picture_per_interval(
    skyhop: Skyhop, directory: Path, tmp_path: Path
) -> None:
    part = ("--from", "500 ms", "--every", "500 ms", "--fps", "4")
    done = skyhop("network", "animate", directory, "-o", "x.gif", *part)
    assert done.returncode == 0, done.stderr
    assert "x.gif, 3 pictures of 0.5 s each, 0.75 s" in done.stderr
    with Image.open(tmp_path / "x.gif") as gif:
        assert gif.n_frames == 3
        pictures = []
        for frame in range(3):
            gif.seek(frame)
            pictures.append(np.array(gif.convert("RGB")))
    # The uplink of Suva changes its colour; the axes stay.
    changed = (pictures[0] != pictures[1]).any(axis=2)
    assert 0 < changed.mean() < 0.1
    assert not changed[-20:].any()


def test_geodetic_positions_return_to_their_places() -> None:
    places = [
        (51.5, -0.1, 0.0),
        (-89.0, 120.0, 550e3),
        (0.0, 180.0, 35_786e3),
        (45.0, 10.0, -400.0),
    ]
    found = geodetic(np.array([earth_fixed_m(*place) for place in places]))
    assert found == pytest.approx(np.array(places), abs=1e-6)


def test_colours_of_loads_end_at_the_scale() -> None:
    ends = [tuple(int(text[i : i + 2], 16) for i in (1, 3, 5)) for text in LOAD_COLOURS]
    assert (load_rgb(0.0, 0.5), load_rgb(0.5, 0.5), load_rgb(2.0, 0.5)) == (
        ends[0],
        ends[-1],
        ends[-1],
    )
    assert load_rgb(0.25, 0.5) == ends[len(ends) // 2]
    brightness = [sum(load_rgb(load / 50, 1.0)) for load in range(51)]
    assert brightness == sorted(brightness, reverse=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("export", "--format", "gejson", "-o", "x"), "did you mean geojson?"),
        (
            ("export", "--format", "czml", "-o", "x", "--at", "1 s"),
            "--at: the format czml does not",
        ),
        (
            ("export", "--format", "geojson", "-o", "x", "--step", "1 s"),
            "--step: the format geojson",
        ),
        (
            ("export", "--format", "geojson", "-o", "x", "--every", "1 s"),
            "give its begin with --at",
        ),
        (("export", "--format", "czml", "-o", "x", "--every", "1 ms"), "expected at least 0.1 s"),
        (("export", "--format", "czml", "-o", "x", "--step", "0 s"), "--step: 0 s is too short"),
        (("animate", "-o", "x.gif", "--from", "3 s"), "is not within the run, which lasts 2 s"),
        (("animate", "-o", "x.png"), "animations are MP4 or GIF"),
    ],
)
def test_wrong_options_are_one_line(
    skyhop: Skyhop, directory: Path, words: tuple[str, ...], said: str
) -> None:
    done = skyhop("network", words[0], directory, *words[1:])
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr


def test_a_run_over_a_path_has_no_loads_of_a_network(skyhop: Skyhop, tmp_path: Path) -> None:
    scenario = {"path": {"kind": "fixed", "rtt": "20 ms"}, "link": {"rate": "5 Mbit/s"},
                "flow": [{"cc": "reno"}], "run": {"duration": "100 ms"}}  # fmt: skip
    sh.sim(scenario, tmp_path / "run")
    done = skyhop("network", "export", "run", "--format", "czml", "-o", "x.czml")
    assert done.returncode == 2
    assert "run: the run has no [network]" in done.stderr
