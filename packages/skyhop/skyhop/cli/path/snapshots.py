"""`skyhop path ground` and `skyhop path sky`: map and sky plot of a path at one time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.figures import Footer, Height, Width, figure_file
from skyhop.cli.options import ForceSize

if TYPE_CHECKING:
    import skyhop
    from skyhop.analysis.moment import Moment

GROUND_HELP = """\
Draw a map of a computed path at one time: links, gateways and satellites.

Example:

  skyhop path ground sd-ny.parquet --at "2 min" -o ground.png
"""

SKY_HELP = """\
Draw the sky above one end of a computed path at one time: visible and serving satellites.

Example:

  skyhop path sky sd-ny.parquet --at "2 min" --end from -o sky.png
"""

File = Annotated[Path, typer.Argument(help="Path file (Parquet) of a constellation.")]
At = Annotated[str, typer.Option("--at", metavar="TIME", help="Time since the path's start.")]
Figure = Annotated[
    Path, typer.Option("-o", "--output", metavar="FIGURE", help="Figure to write: PNG, SVG or PDF.")
]
Gateways = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="List of gateways that the path was computed with."),
]


def ground(
    file: File,
    output: Figure,
    at: At = "0 s",
    gateways: Gateways = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    force_size: ForceSize = False,
) -> None:
    """Draw a path at one time on a map."""
    figure = figure_file(output, width, height, footer=footer)
    _, moment = _read(file, at, gateways, force_size=force_size)
    from skyhop.analysis.ground import ground_view
    from skyhop.figures.ground import draw_ground

    figure.write(partial(draw_ground, ground_view(moment)))


def sky(
    file: File,
    output: Figure,
    at: At = "0 s",
    end: Annotated[str, typer.Option(help="End of the path: from or to.")] = "from",
    gateways: Gateways = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    force_size: ForceSize = False,
) -> None:
    """Draw the satellites above one end of a path."""
    from skyhop.errors import InputError

    figure = figure_file(output, width, height, footer=footer)
    if end not in ("from", "to"):
        raise InputError(f'--end: "{end}" is not an end of a path; expected from or to')
    path, moment = _read(file, at, gateways, force_size=force_size)
    from skyhop.analysis.sky import sky_view
    from skyhop.data.positions import end_deg
    from skyhop.figures.sky import draw_sky

    nearest = moment.nodes[1 if end == "from" else -2] if moment.nodes else -1
    serving = nearest if nearest in moment.chosen else None
    place, place_deg = path.header[end]["name"], end_deg(path.header, end)
    figure.write(partial(draw_sky, sky_view(moment, place, place_deg, serving)))


def _read(
    file: Path, at: str, gateways: str | None, *, force_size: bool
) -> tuple[skyhop.Path, Moment]:
    import skyhop
    from skyhop import _core
    from skyhop.analysis.moment import moment_of
    from skyhop.data.positions import GATEWAYS

    path = skyhop.read_path(file, force_size=force_size)
    at_s = _core.duration_s("--at", at)
    return path, moment_of(path, at_s, gateways=gateways or GATEWAYS)
