"""`skyhop network export`: loads of a network's links for globes and maps of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.network.intervals import Directory, Every
from skyhop.cli.options import ForceSize
from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    from skyhop.data.networks import Network
    from skyhop.data.records import RunRecord

HELP = """\
Convert the loads of a network's links for another tool.

czml has satellites, sites and lasers over time, for Cesium's globe. geojson has them at one time,
with their values as properties, for maps and GIS.

Examples:

  skyhop network export runs/network --format czml -o loads.czml   (drop it on Cesium's globe)

  skyhop network export runs/network --format geojson -o loads.geojson

  skyhop network export runs/network --format geojson --at "5 s" --every "1 s" -o loads.geojson
"""

FORMATS = ("czml", "geojson")


def export(
    directory: Directory,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")
    ],
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format to write: czml or geojson.",
            autocompletion=completion.one_of(*FORMATS),
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="geojson: begin of the interval; default: the whole run."
        ),
    ] = None,
    every: Every = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="czml: time between satellites' positions (default: 30 s)."
        ),
    ] = None,
    force_size: ForceSize = False,
) -> None:
    """Convert the loads of a network's links."""
    from skyhop.cli.network.intervals import network_run
    from skyhop.data.files import check_place, write_file
    from skyhop.data.near_names import did_you_mean
    from skyhop.errors import InputError

    if file_format not in FORMATS:
        hint = did_you_mean(file_format, FORMATS)
        raise InputError(
            f'--format: "{file_format}" is not a format{hint}; expected czml or geojson'
        )
    foreign = "--at" if file_format == "czml" and at is not None else None
    foreign = "--step" if file_format == "geojson" and step is not None else foreign
    if foreign is not None:
        raise InputError(f"{foreign}: the format {file_format} does not use it")
    check_place(output)
    run, network = network_run(directory, force_size=force_size)
    text = (
        _czml(run, network, every, step)
        if file_format == "czml"
        else _geojson(run, network, at, every)
    )
    write_file(output, text.encode())
    print_note(f"{output}: {file_format} of {directory}")


def _czml(run: RunRecord, network: Network, every: str | None, step: str | None) -> str:
    from skyhop import _core
    from skyhop.analysis.network_czml import network_czml
    from skyhop.cli.network.intervals import times_s
    from skyhop.data.czml import MOST_POSITIONS, STEP
    from skyhop.errors import InputError

    begins_s, step_s = times_s(run, "0 s", None, every)
    position_s = _core.duration_s("--step", step or STEP)
    if position_s <= 0 or run.duration_s / position_s > MOST_POSITIONS:
        least_s = run.duration_s / MOST_POSITIONS
        raise InputError(
            f"--step: {position_s:g} s is too short; expected at least {least_s:.3g} s"
        )
    edges_s = [*begins_s, max(run.duration_s, begins_s[-1] + step_s)]
    return network_czml(run, network, edges_s, position_s)


def _geojson(run: RunRecord, network: Network, at: str | None, every: str | None) -> str:
    from skyhop.analysis.network_geojson import network_geojson
    from skyhop.cli.network.intervals import times_s
    from skyhop.errors import InputError

    if at is None:
        if every is not None:
            raise InputError("--every: is the length of an interval: give its begin with --at")
        return network_geojson(run, network, (0.0, run.duration_s))
    begins_s, step_s = times_s(run, at, None, every)
    return network_geojson(run, network, (begins_s[0], min(begins_s[0] + step_s, run.duration_s)))
