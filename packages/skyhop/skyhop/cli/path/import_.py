"""`skyhop path import`: convert another tool's log or measurement to a path file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.figures import Footer, Height, PanelName, Plot, Width, figure_file_or_none
from skyhop.cli.path.output import Output, finish
from skyhop.cli.terminal import print_note

FORMATS = ("leoem", "ping", "irtt", "atlas", "csv", "iperf3", "mahimahi", "leocc")
HELP = """\
Convert another tool's log or measurement to a path file. skyhop docs measured-paths has the
formats and the rules.

Examples:

  skyhop path import ping.txt -o path.parquet --plot path.png

  skyhop path import SD_NY_15_BP.log.gz -o sd-ny.parquet

  skyhop path import downlink.trace --rtt "50 ms" -o path.parquet
"""


def import_(
    file: Annotated[
        Path, typer.Argument(help='Log, plain or gzipped; "-" for the standard input.')
    ],
    output: Output,
    log_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"Format of the log: {', '.join(FORMATS)}; detected if not given.",
            autocompletion=completion.one_of(*FORMATS),
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="The end that sent the packets or probes."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The other end.")] = None,
    interval: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="ping without -D: time between two probes."),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(
            help="csv or iperf3 with rates: direction that goes from -> to, down (the default) or "
            "up."
        ),
    ] = None,
    rtt: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="files with rates alone: round-trip time (default: 0)."),
    ] = None,
    delay_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help='leocc: file of delays; default: FILE with "delay" instead of "bw" in its name.',
        ),
    ] = None,
    plot: Plot = None,
    panel: PanelName = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Convert a log to a path file."""
    import skyhop

    keys = {"interval": interval, "direction": direction, "rtt": rtt, "delay_file": delay_file}
    given = {key: value for key, value in keys.items() if value is not None}
    figure = figure_file_or_none(plot, width, height, footer=footer)
    trace = skyhop.import_path(file, log_format, from_=from_, to=to, **given)
    finish(trace, output, figure, panel)
    print_note(f"{file}: {trace.account}")
