"""`skyhop path export`: convert a path file for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.options import ForceSize, PathFile
from skyhop.cli.terminal import print_note

HELP = """\
Convert a path file for another tool. skyhop docs measured-paths has the formats.

Examples:

  skyhop path export sd-ny.parquet --format csv -o sd-ny.csv

  skyhop path export sd-ny.parquet --format czml -o sd-ny.czml   (drop it on Cesium's globe)

  skyhop path export sd-ny.parquet --format netem -o sd-ny.sh   (then, as root: sh sd-ny.sh eth0)

  skyhop path export sd-ny.parquet --format mahimahi --rate "150 Mbit/s" -o sd-ny.trace
"""


def export(
    file: PathFile,
    path_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format to write: csv, mahimahi, czml or netem.",
            autocompletion=completion.one_of("csv", "mahimahi", "czml", "netem"),
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")
    ],
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="mahimahi: rate for a path that has none."),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="netem: least time between changes (default: 100 ms). "
            "czml: time between satellites' positions (default: 30 s).",
        ),
    ] = None,
    gateways: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="czml: the gateways that the path was computed with."),
    ] = None,
    force_size: ForceSize = False,
) -> None:
    """Convert a path file for another tool."""
    import skyhop

    keys = {"rate": rate, "step": step, "gateways": gateways}
    given = {key: value for key, value in keys.items() if value is not None}
    skyhop.read_path(file, force_size=force_size).export(output, path_format, **given)
    print_note(f"{output}: {path_format} of {file}")
