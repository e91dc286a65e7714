"""`skyhop path`: compute the path between two places."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completing
from skyhop.cli.figures import Width, figure_width
from skyhop.cli.options import ForceSize, with_size
from skyhop.cli.path.output import Output, Plot, check_figure, finish
from skyhop.cli.terminal import print_note
from skyhop.data.progress import progress_bar

HELP = """\
Compute the path between two places over a constellation, and write it to a path file.

Give the places here, or a scenario file with a [path]; options override the file.

Examples:

  skyhop path --from "San Diego" --to "New York" --relay bent-pipe --duration "1 h" -o sd-ny.parquet --plot sd-ny.png

  skyhop path --from Seattle --to Denver --relay access --constellation starlink.tle.gz -o access.parquet

  skyhop path scenario.toml -o path.parquet

  skyhop path import ping.txt --format ping -o path.parquet   (see skyhop path import --help)

Beside it: skyhop path import | export | stats | compare | ground | sky | animate, each with its
--help.
"""  # noqa: E501


_BESIDE_PATH = {
    *("output", "scenario", "from_", "to", "duration", "sets", "force_size", "plot", "width")
}
"""The options of `compute` that are no keys of `[path]`, or are called otherwise."""


def compute(
    output: Output,
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SCENARIO.toml]", help="A scenario file.", autocompletion=completing.examples
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help='One end: a city, or "lat,lon[,alt_m]".'),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The other end.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help='How much time to cover, such as "1 h".')
    ] = None,
    relay: Annotated[
        str | None,
        typer.Option(
            help="isl, bent-pipe, access or geo.",
            autocompletion=completing.one_of("isl", "bent-pipe", "access", "geo"),
        ),
    ] = None,
    constellation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="See skyhop list constellations; or geo:LONGITUDE; or a file or an address of "
            "element sets (TLE, OMM).",
            autocompletion=completing.constellations,
        ),
    ] = None,
    handover: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="See skyhop list handovers.",
            autocompletion=completing.handovers,
        ),
    ] = None,
    outage: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help='leoem, starlink, none, or a time such as "80 ms".'),
    ] = None,
    during_outage: Annotated[str | None, typer.Option(help="drop or hold.")] = None,
    start: Annotated[str | None, typer.Option(metavar="UTC", help="When the path begins.")] = None,
    step: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time between frames.")
    ] = None,
    gateways: Annotated[
        str | None, typer.Option(metavar="LIST", help="See skyhop list sites; or a CSV file.")
    ] = None,
    compat: Annotated[
        str | None,
        typer.Option(help="none, or leoem or hypatia to follow that tool's habits."),
    ] = None,
    satellites: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help='Such as "name=STARLINK-1*; shell=0; plane=0-35".'),
    ] = None,
    minimum_elevation: Annotated[
        str | None, typer.Option(metavar="ANGLE", help='Such as "25 deg".')
    ] = None,
    geo_avoidance: Annotated[
        str | None,
        typer.Option(metavar="ANGLE", help="How far to keep from the geostationary arc."),
    ] = None,
    stale_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How far from the start an element set may be."),
    ] = None,
    isl_seam: Annotated[
        bool | None, typer.Option(help="Whether the last plane links to the first.")
    ] = None,
    isl_clearance: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="How far above the ground links pass.")
    ] = None,
    pops: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="For --relay access: the points of presence."),
    ] = None,
    fibre_stretch: Annotated[
        float | None, typer.Option(help="For --relay access: fibre over great circle.")
    ] = None,
    grid_period: Annotated[
        str | None, typer.Option(metavar="TIME", help="For policies on a grid: the period.")
    ] = None,
    grid_offset: Annotated[
        str | None, typer.Option(metavar="TIME", help="For policies on a grid: when in it.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="constellation, fixed or trace.")] = None,
    rtt: Annotated[
        str | None, typer.Option(metavar="TIME", help="For --kind fixed: the round trip.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="For --kind trace: a path file.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the scenario."),
    ] = None,
    force_size: ForceSize = False,
    plot: Plot = None,
    width: Width = "page",
) -> None:
    """Compute a path."""
    options = locals().items()
    given = {key: value for key, value in options if key not in _BESIDE_PATH and value is not None}
    import skyhop
    from skyhop.errors import InputError

    if scenario is None and from_ is None and to is None and not given and not sets:
        raise InputError("nothing to compute: give --from and --to, or a scenario file")
    check_figure(plot)
    laid_out = figure_width(width)
    with progress_bar("computing the path") as progress:
        trace = skyhop.path(
            from_,
            to,
            scenario=scenario,
            sets=with_size(sets, force_size=force_size),
            duration=duration,
            progress=progress,
            **given,
        )
    if trace.account is not None:
        print_note(trace.account)
    for note in trace.notes:
        print_note(f"warning: {note}")
    finish(trace, output, plot, laid_out)
