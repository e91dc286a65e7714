"""Animations of maps: an MP4 made by ffmpeg, or a GIF made by Pillow."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from skyhop.analysis.ground import GroundView
from skyhop.analysis.network_map import NetworkMap
from skyhop.data.figure_files import animation_kind
from skyhop.data.files import Scratch, write_file
from skyhop.errors import RunError
from skyhop.figures.ground import draw_ground
from skyhop.figures.network_map import draw_network_map
from skyhop.figures.style import Sheet

_COLOURS = 256
"""Largest number of colours in a GIF's palette."""

_APART = 8
"""Least difference between colours of a palette; of two nearer colours, Pillow picks either."""

Picture = npt.NDArray[np.uint8]


def write_animation(
    views: Sequence[GroundView] | Sequence[NetworkMap],
    output: Path,
    *,
    per_second: float,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write maps of the same region as an animation; the file is complete or does not appear.

    Args:
        views: maps, one per picture; at least one.
        output: file to write, .mp4 or .gif; its directory must exist.
        per_second: number of pictures per second.
        progress: callback (pictures drawn, all pictures).

    Raises:
        InputError: `output` has another suffix, or ffmpeg is missing for an MP4.
        RunError: ffmpeg fails, or the file cannot be written.
    """
    kind = animation_kind(output)
    # The map with the most nodes has the longest legend and the most colours.
    every: list[GroundView | NetworkMap] = [*views]
    fullest = _drawn(max(every, key=lambda view: len(view.nodes)))
    pictures = _pictures(every, fullest, progress)
    with Scratch(output.parent) as place:
        made = place / f"made.{kind}"
        if kind == "gif":
            _gif(pictures, _palette(_even(fullest.pixels())), made, per_second)
        else:
            _mp4(pictures, made, per_second, output.name)
        write_file(output, made.read_bytes())
    return output


def _pictures(
    views: Sequence[GroundView | NetworkMap],
    like: Sheet,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Picture]:
    """Yield a picture per view, (height, width, 3), all with the layout of the figure `like`."""
    like.draw_without_rendering()
    width_in, height_in = like.get_size_inches().tolist()
    places = [ax.get_position() for ax in like.axes]
    for drawn, view in enumerate(views, start=1):
        figure = _drawn(view)
        figure.set_layout_engine("none")
        figure.set_size_inches(width_in, height_in)
        for ax, place in zip(figure.axes, places, strict=True):
            ax.set_position(place)
        yield _even(figure.pixels())
        if progress is not None:
            progress(drawn, len(views))


def _drawn(view: GroundView | NetworkMap) -> Sheet:
    return draw_network_map(view) if isinstance(view, NetworkMap) else draw_ground(view)


def _even(picture: Picture) -> Picture:
    """Cut a picture to even height and width, as video stores colours per pair of pixels."""
    height, width = (length // 2 * 2 for length in picture.shape[:2])
    return picture[:height, :width]


def _palette(picture: Picture) -> Image.Image:
    """Return the most frequent colours of a picture, each at least `_APART` from the others."""
    # One number per colour, which sorts much faster than rows of three.
    codes = picture.reshape(-1, 3).astype(np.int64) @ (1 << 16, 1 << 8, 1)
    colours, counts = np.unique(codes, return_counts=True)
    ordered = colours[np.argsort(-counts, kind="stable")]
    left = np.column_stack((ordered >> 16, ordered >> 8 & 255, ordered & 255))
    chosen: list[int] = []
    while len(left) and len(chosen) < 3 * _COLOURS:
        chosen += left[0].tolist()
        left = left[np.abs(left - left[0]).max(axis=1) >= _APART]
    palette = Image.new("P", (1, 1))
    palette.putpalette(chosen)
    return palette


def _gif(
    pictures: Iterator[Picture], palette: Image.Image, output: Path, per_second: float
) -> None:
    frames = (
        Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)
        for picture in pictures
    )
    first = next(frames)
    first.save(output, save_all=True, append_images=frames, duration=1000 / per_second, loop=0)


def _mp4(pictures: Iterator[Picture], output: Path, per_second: float, called: str) -> None:
    first = next(pictures)
    height, width = first.shape[:2]
    command = [
        "ffmpeg", "-loglevel", "error", "-y",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{per_second:g}",
        "-i", "-", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(output),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said) as ffmpeg:
            assert ffmpeg.stdin is not None
            try:
                for picture in itertools.chain([first], pictures):
                    ffmpeg.stdin.write(picture.tobytes())
                ffmpeg.stdin.close()
            except BrokenPipeError:
                # ffmpeg's own message is read below.
                pass
            except BaseException:
                ffmpeg.kill()
                raise
        if ffmpeg.returncode != 0:
            said.seek(0)
            lines = said.read().decode(errors="replace").split("\n")
            why = next((line for line in lines if line.strip()), f"status {ffmpeg.returncode}")
            raise RunError(f"{called}: ffmpeg failed: {why.strip()}")
