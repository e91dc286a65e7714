"""`skyhop path`: compute the path between two places."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.figures import Footer, Height, PanelName, Plot, Width, figure_file_or_none
from skyhop.cli.options import ForceSize, with_size
from skyhop.cli.path.output import Output, finish
from skyhop.cli.terminal import print_note
from skyhop.data.progress import progress_bar

HELP = """\
Compute the path between two places over a constellation, and write it to a path file.

Give the places as options, or a scenario file with a [path]; options override the file.

Examples:

  skyhop path --from "San Diego" --to "New York" --relay bent-pipe --duration "1 h" -o sd-ny.parquet --plot sd-ny.png

  skyhop path --from Seattle --to Denver --relay access --constellation starlink.tle.gz -o access.parquet

  skyhop path --from Seattle --to Denver --relay starlink --duration "5 min" -o as-measured.parquet

  skyhop path --kind access --access starlink --duration "5 min" -o without-places.parquet

  skyhop path scenario.toml -o path.parquet

  skyhop path import ping.txt --format ping -o path.parquet   (see skyhop path import --help)

Further commands: skyhop path import | export | stats | compare | ground | sky | animate, each with
its --help.
"""  # noqa: E501


_OTHER_OPTIONS = {
    *("output", "scenario", "from_", "to", "duration", "sets", "force_size", "plot", "panel"),
    *("width", "height", "footer", "access"),
}
"""Options of `compute` that are not keys of `[path]`, or have another name there."""


def compute(
    output: Output,
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SCENARIO.toml]", help="A scenario file.", autocompletion=completion.examples
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help='One end: a city, or "lat,lon[,alt_m]".'),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The other end.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help='Length of the path, such as "1 h".')
    ] = None,
    relay: Annotated[
        str | None,
        typer.Option(
            help="Relay of the path: isl, bent-pipe, access, starlink or geo.",
            autocompletion=completion.one_of(*completion.RELAYS),
        ),
    ] = None,
    access: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Access profile (skyhop list access), or a TOML file: for --relay starlink or "
            "access, or alone with --kind access.",
            autocompletion=completion.access_profiles,
        ),
    ] = None,
    dish: Annotated[
        str | None,
        typer.Option(
            help="End at which the terminal is: from (the default) or to.",
            autocompletion=completion.one_of("from", "to"),
        ),
    ] = None,
    constellation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name in skyhop list constellations, geo:LONGITUDE, or a file or URL of element "
            "sets (TLE, OMM).",
            autocompletion=completion.constellations,
        ),
    ] = None,
    handover: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Handover policy (skyhop list handovers).",
            autocompletion=completion.handovers,
        ),
    ] = None,
    outage: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help='Outage at a handover: leoem, starlink, none, or a time such as "80 ms".',
        ),
    ] = None,
    intermediate_outage: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Outage of a link in the middle of the path at a handover there."
        ),
    ] = None,
    during_outage: Annotated[
        str | None, typer.Option(help="Packets during an outage: drop or hold.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(metavar="UTC", help="Start time of the path.")
    ] = None,
    step: Annotated[str | None, typer.Option(metavar="TIME", help="Time between frames.")] = None,
    gateways: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="List of gateways (skyhop list sites), or a CSV file."),
    ] = None,
    compat: Annotated[
        str | None,
        typer.Option(help="Tool whose paths to reproduce: leoem, hypatia or none."),
    ] = None,
    satellites: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help='Satellites to use, such as "name=STARLINK-1*; shell=0; plane=0-35".',
        ),
    ] = None,
    minimum_elevation: Annotated[
        str | None,
        typer.Option(metavar="ANGLE", help='Least elevation of satellites, such as "25 deg".'),
    ] = None,
    geo_avoidance: Annotated[
        str | None,
        typer.Option(
            metavar="ANGLE", help="Least angle between a satellite and the geostationary arc."
        ),
    ] = None,
    stale_after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Largest time between an element set's epoch and the path's start."
        ),
    ] = None,
    isl_seam: Annotated[
        bool | None,
        typer.Option(help="Whether inter-satellite links join the last plane to the first."),
    ] = None,
    isl_shells: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="Inter-satellite links between shells: apart (none) or nearest.",
            autocompletion=completion.one_of("apart", "nearest"),
        ),
    ] = None,
    isl_clearance: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH", help="Least height of inter-satellite links above the ground."
        ),
    ] = None,
    isl_backhaul: Annotated[
        bool | None,
        typer.Option(
            help="For --relay access and starlink: whether packets reach a satellite with a "
            "gateway in view over inter-satellite links."
        ),
    ] = None,
    pops: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="For --relay access and starlink: list of points of presence."
        ),
    ] = None,
    fibre_stretch: Annotated[
        float | None,
        typer.Option(
            help="For --relay access and starlink: ratio of fibre length to great-circle distance."
        ),
    ] = None,
    grid_period: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For grid policies: period of the handover grid."),
    ] = None,
    grid_offset: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For grid policies: offset of the grid in each minute."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Kind of path: constellation, fixed, trace or access.")
    ] = None,
    rtt: Annotated[
        str | None, typer.Option(metavar="TIME", help="For --kind fixed: round-trip time.")
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
    panel: PanelName = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Compute a path, and write it to a path file."""
    options = locals().items()
    given = {
        key: value for key, value in options if key not in _OTHER_OPTIONS and value is not None
    }
    import skyhop
    from skyhop.errors import InputError

    is_named = from_ is not None or to is not None or access is not None
    if scenario is None and not is_named and not given and not sets:
        raise InputError("nothing to compute: give --from and --to, or a scenario file")
    figure = figure_file_or_none(plot, width, height, footer=footer)
    with progress_bar("computing the path") as progress:
        trace = skyhop.path(
            from_,
            to,
            scenario=scenario,
            sets=with_size(sets, force_size=force_size),
            duration=duration,
            progress=progress,
            access=access,
            **given,
        )
    if trace.account is not None:
        print_note(trace.account)
    for note in trace.notes:
        print_note(f"warning: {note}")
    finish(trace, output, figure, panel)
