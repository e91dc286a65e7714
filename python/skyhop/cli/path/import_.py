"""`skyhop path import`: another tool's log or measurement as a path file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completing
from skyhop.cli.figures import Width, figure_width
from skyhop.cli.path.output import Output, Plot, check_figure, finish
from skyhop.cli.terminal import print_note

HELP = """\
Read another tool's log or measurement as a path file. docs/measured-paths.md has the formats and
the rules.

Examples:

  skyhop path import ping.txt --format ping -o path.parquet --plot path.png

  skyhop path import SD_NY_15_BP.log.gz --format leoem -o sd-ny.parquet

  skyhop path import downlink.trace --format mahimahi --rtt "50 ms" -o path.parquet
"""


def import_(
    file: Annotated[Path, typer.Argument(help="The log, plain or gzipped.")],
    log_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="leoem, ping, irtt, csv, mahimahi or leocc.",
            autocompletion=completing.one_of("leoem", "ping", "irtt", "csv", "mahimahi", "leocc"),
        ),
    ],
    output: Output,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="The end that sends, or that probed."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The other end.")] = None,
    interval: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="ping without -D: the time between two probes."),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(help="csv with rates: down (the default) or up is from -> to."),
    ] = None,
    rtt: Annotated[
        str | None, typer.Option(metavar="TIME", help="mahimahi: the round trip, 0 if not given.")
    ] = None,
    delay_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help='leocc: the delays; if not given, FILE with "delay" in place of "bw" in its name.',
        ),
    ] = None,
    plot: Plot = None,
    width: Width = "page",
) -> None:
    """Import a log."""
    import skyhop

    keys = {"interval": interval, "direction": direction, "rtt": rtt, "delay_file": delay_file}
    given = {key: value for key, value in keys.items() if value is not None}
    check_figure(plot)
    laid_out = figure_width(width)
    trace = skyhop.import_path(file, log_format, from_=from_, to=to, **given)
    finish(trace, output, plot, laid_out)
    if log_format == "mahimahi" and rtt is None:
        print_note("the trace holds no delay, so the round trip is 0; --rtt gives one")
