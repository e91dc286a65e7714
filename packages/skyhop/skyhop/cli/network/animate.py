"""`skyhop network animate`: animation of the loads of a network's links on a map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.network.intervals import Directory, Every
from skyhop.cli.options import ForceSize
from skyhop.cli.terminal import print_note

HELP = """\
Animate the loads of a network's links on a map, as a video (MP4, needs ffmpeg) or a GIF.

Each picture shows one interval: links coloured by their utilisation in it.

Examples:

  skyhop network animate runs/network -o loads.mp4

  skyhop network animate runs/network -o loads.gif --from "5 s" --until "15 s" --every "500 ms"
"""


def animate(
    directory: Directory,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="File to write: MP4 or GIF.")
    ],
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Begin of the first interval, since the run's start."
        ),
    ] = "0 s",
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End of the last interval; default: the run's end."),
    ] = None,
    every: Every = None,
    rate: Annotated[
        float, typer.Option("--fps", metavar="N", min=1, max=60, help="Pictures per second.")
    ] = 10,
    force_size: ForceSize = False,
) -> None:
    """Animate the loads of a network's links."""
    from skyhop.cli.network.intervals import network_run, times_s
    from skyhop.data.figure_files import animation_kind
    from skyhop.data.files import check_place

    animation_kind(output)
    check_place(output)
    run, network = network_run(directory, force_size=force_size)
    begins_s, step_s = times_s(run, begin, until, every)

    from skyhop.analysis.network_map import network_maps
    from skyhop.data.progress import progress_bar
    from skyhop.figures.animation import write_animation

    views = network_maps(run, network, begins_s, step_s)
    with progress_bar("drawing") as progress:
        write_animation(views, output, per_second=rate, progress=progress)
    print_note(
        f"animation: {output}, {len(views):,} pictures of {step_s:g} s each, "
        f"{len(views) / rate:.3g} s"
    )
