"""Animations of a path on a map: GIFs, videos, and errors."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop
from PIL import Image

import skyhop as sh
from needs import needs_program
from skyhop.analysis.ground import GroundView, ground_views
from skyhop.analysis.moment import moment_of
from skyhop.errors import InputError, RunError
from skyhop.figures.animation import write_animation


@pytest.fixture(scope="module")
def path() -> sh.Path:
    return sh.path("San Diego", "New York", relay="bent-pipe", duration="1 min")


@pytest.fixture(scope="module")
def views(path: sh.Path) -> list[GroundView]:
    return ground_views([moment_of(path, at_s) for at_s in (0, 20, 40)])


def test_maps_of_an_animation_show_the_same_part_of_the_earth(views: list[GroundView]) -> None:
    windows = {(view.latitudes_deg, view.longitudes_deg) for view in views}
    assert len(windows) == 1
    ((south, north), (west, east)) = windows.pop()
    for view in views:
        assert (view.route_deg > (south, west)).all()
        assert (view.route_deg < (north, east)).all()
    assert len({view.title for view in views}) == 3


def test_a_gif_holds_every_picture(skyhop: Skyhop, path: sh.Path, tmp_path: Path) -> None:
    path.write(tmp_path / "x.parquet")
    part = ("--every", "10 s", "--from", "10 s", "--until", "30 s", "--fps", "4")
    done = skyhop("path", "animate", "x.parquet", "-o", "x.gif", *part)
    assert done.returncode == 0, done.stderr
    assert "x.gif, 3 pictures, 0.75 s" in done.stderr
    with Image.open(tmp_path / "x.gif") as gif:
        assert gif.n_frames == 3
        assert gif.info["duration"] == 250
        pictures = []
        for frame in range(3):
            gif.seek(frame)
            pictures.append(np.array(gif.convert("RGB")))
    # Satellites move from picture to picture; the axes stay.
    for before, after in itertools.pairwise(pictures):
        changed = (before != after).any(axis=2)
        assert 0 < changed.mean() < 0.1
        assert not changed[-40:].any()
    assert (pictures[0][0, 0] == 255).all(), "white stays white"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.gif", "x.parquet"]


@pytest.mark.integration
def test_a_video_is_made_by_ffmpeg(views: list[GroundView], tmp_path: Path) -> None:
    needs_program("ffmpeg", "ffmpeg")
    told: list[tuple[int, int]] = []
    write_animation(views, tmp_path / "x.MP4", per_second=2, progress=lambda *at: told.append(at))
    assert told == [(1, 3), (2, 3), (3, 3)]
    content = (tmp_path / "x.MP4").read_bytes()
    assert content[4:8] == b"ftyp"
    # With the index (moov) first, players start before the whole file has arrived.
    assert content.index(b"moov") < content.index(b"mdat")


@pytest.mark.integration
def test_an_error_of_ffmpeg_is_one_line(
    views: list[GroundView], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "ffmpeg"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho >&2\necho 'no such encoder' >&2\nexit 3\n", "utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    with pytest.raises(RunError, match=r"^x\.mp4: ffmpeg failed: no such encoder$"):
        write_animation(views, tmp_path / "x.mp4", per_second=2)
    assert [file.name for file in tmp_path.iterdir()] == ["bin"]


def test_a_video_without_ffmpeg_is_refused_before_the_work(
    skyhop: Skyhop, path: sh.Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write(tmp_path / "x.parquet")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = skyhop("path", "animate", "x.parquet", "-o", "x.mp4")
    assert done.returncode == 2
    assert done.stderr == (
        "skyhop: x.mp4: MP4 is made by ffmpeg, which is not installed: install it, or give a name "
        "that ends in .gif\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "x.avi"), "give a name that ends in .mp4 or .gif"),
        (("-o", "x.gif", "--from", "2 min"), "120 s to 60 s is not within the path"),
        (("-o", "x.gif", "--every", "1 ms"), "--every: 0.001 s is too short"),
    ],
)
def test_wrong_arguments(
    skyhop: Skyhop, path: sh.Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    path.write(tmp_path / "x.parquet")
    done = skyhop("path", "animate", "x.parquet", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_wrong_file_name_writes_nothing(views: list[GroundView], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.mp4 or \.gif"):
        write_animation(views, tmp_path / "x.png", per_second=2)
    assert not list(tmp_path.iterdir())
