"""`skyhop dissect`: split the latency of a route into segments."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.figures import Footer, Height, Width, figure_file_or_none
from skyhop.cli.options import Json
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from skyhop.analysis.dissection import Dissection

HELP = """\
Split the latency of a route into segments: host to terminal (S1), bent pipe (S2), ground network of
the operator (S3 to S5), Internet (S6).

Files are output of traceroute -n or Windows' tracert -d (any number of traces one after the other),
of mtr --json -n, or traces of scamper or RIPE Atlas as JSON; all from one host to one destination.
skyhop docs telemetry has the method.

Examples:

  while sleep 1; do traceroute -n 8.8.8.8; done > traces.txt

  skyhop dissect traces.txt -o segments.png

  skyhop dissect traces.txt --as prefixes.txt --json
"""


def dissect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files with traces, plain or gzipped.")
    ],
    prefixes: Annotated[
        Path | None,
        typer.Option(
            "--as",
            metavar="FILE",
            help="Owners of prefixes: lines such as 206.224.64.0/19 AS14593; an owner is an AS, "
            "or S1, S2, S6 or operator.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap intervals.")] = 1,
    as_json: Json = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FIGURE", help="Also draw a figure: PNG, SVG or PDF."
        ),
    ] = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Split the latency of traces into segments."""
    from skyhop.errors import InputError
    from skyhop.telemetry.traces import read_traces

    wanted = figure_file_or_none(figure, width, height, footer=footer)
    if seed < 0:
        raise InputError("--seed: expected a number of at least 0")

    from skyhop.analysis import dissection

    table = None if prefixes is None else dissection.read_prefixes(prefixes)
    notes: list[str] = []
    traces = [trace for file in files for trace in read_traces(file, notes)]
    found = dissection.dissect(traces, table, seed)
    for note in notes:
        print_note(note)
    if as_json:
        print(json.dumps(_document(found), indent=2, ensure_ascii=False))
    else:
        title = (
            f"{found.used:,} of {found.traces:,} traces, median round trip {found.rtt_ms:.1f} ms"
        )
        print_rows(_rows(found), as_json=False, title=title)
        for note in found.notes:
            print_note(note)
    if wanted is not None:
        from skyhop.figures.dissection import dissection_figure

        wanted.write(partial(dissection_figure, found))


def _rows(found: Dissection) -> list[dict[str, Any]]:
    return [
        {
            "segment": piece.name,
            "what": piece.what,
            "by trace (ms)": f"{piece.by_trace_ms:.2f}",
            "95 % (ms)": f"{piece.low_ms:.2f}-{piece.high_ms:.2f}",
            "share": _per_cent(piece.share),
            "share 95 %": f"{100 * piece.share_low:.1f}-{_per_cent(piece.share_high)}",
            "of medians (ms)": _or_unknown(piece.of_medians_ms, f"{piece.of_medians_ms:.2f}"),
            "its share": _per_cent(piece.of_medians_share),
            "ends at": " ".join(piece.addresses),
        }
        for piece in found.pieces
    ]


def _per_cent(share: float) -> str:
    return _or_unknown(share, f"{100 * share:.1f} %")


def _or_unknown(value: float, text: str) -> str:
    return "cannot be told" if math.isnan(value) else text


def _document(found: Dissection) -> dict[str, Any]:
    pieces = [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in vars(piece).items()
        }
        for piece in found.pieces
    ]
    return {
        "traces": found.traces,
        "used": found.used,
        "rtt_ms": found.rtt_ms,
        "segments": pieces,
        "notes": list(found.notes),
    }
