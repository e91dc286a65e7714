"""`skyhop path animate`: animation of a computed path on a map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import ForceSize
from skyhop.cli.path.snapshots import File, Gateways
from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    import skyhop

HELP = """\
Animate a computed path on a map, as a video (MP4, needs ffmpeg) or a GIF.

Examples:

  skyhop path animate sd-ny.parquet -o sd-ny.mp4

  skyhop path animate sd-ny.parquet -o sd-ny.gif --from "2 min" --until "4 min" --every "2 s"
"""

_PICTURES = 100
"""Largest default number of pictures."""

_MOST_PICTURES = 2000


def animate(
    file: File,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="File to write: MP4 or GIF.")
    ],
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Time of the first picture, since the path's start."
        ),
    ] = "0 s",
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time of the last picture; default: the path's end."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help=f"Time between pictures; default: for {_PICTURES} pictures."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option("--fps", metavar="N", min=1, max=60, help="Pictures per second.")
    ] = 10,
    gateways: Gateways = None,
    force_size: ForceSize = False,
) -> None:
    """Animate a path on a map."""
    import skyhop
    from skyhop.analysis.ground import ground_views
    from skyhop.analysis.moment import moment_of
    from skyhop.data.figure_files import animation_kind
    from skyhop.data.files import check_place
    from skyhop.data.positions import GATEWAYS
    from skyhop.data.progress import progress_bar
    from skyhop.figures.animation import write_animation

    animation_kind(output)
    check_place(output)
    path = skyhop.read_path(file, force_size=force_size)
    times_s = _times_s(path, begin, until, every)
    moments = []
    with progress_bar("looking up satellites") as progress:
        for at_s in times_s:
            moments.append(moment_of(path, at_s, gateways=gateways or GATEWAYS))
            progress(len(moments), len(times_s))
    with progress_bar("drawing") as progress:
        write_animation(ground_views(moments), output, per_second=rate, progress=progress)
    print_note(f"animation: {output}, {len(times_s):,} pictures, {len(times_s) / rate:.3g} s")


def _times_s(path: skyhop.Path, begin: str, until: str | None, every: str | None) -> list[float]:
    """Return the times of the pictures, in s since the path's start.

    Raises:
        InputError: the times are not within the path, or there are too many pictures.
    """
    from skyhop import _core
    from skyhop.analysis.binning import round_step
    from skyhop.errors import InputError

    duration_s = path.header["duration_ns"] / 1e9
    begin_s = _core.duration_s("--from", begin)
    end_s = duration_s if until is None else _core.duration_s("--until", until)
    if not begin_s < end_s <= duration_s:
        raise InputError(
            f"--from, --until: {begin_s:g} s to {end_s:g} s is not within the path, which "
            f"lasts {duration_s:g} s"
        )
    length_s = end_s - begin_s
    step_s = round_step(length_s / _PICTURES)
    if every is not None:
        step_s = _core.duration_s("--every", every)
    if step_s <= 0 or length_s / step_s > _MOST_PICTURES:
        least_s = length_s / _MOST_PICTURES
        raise InputError(f"--every: {step_s:g} s is too short; expected at least {least_s:.3g} s")
    count = int(length_s / step_s + 1e-9) + 1
    return [round(begin_s + place * step_s, 9) for place in range(count)]
