"""`skyhop blind`: estimate the handover grid from traffic alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.terminal import print_note

HELP = """\
Estimate when handovers happen from a log of round trips or a packet capture alone.

Starlink reconfigures its terminals at fixed times (every 15 s). These handovers show as gaps
between arrivals and as steps of the round-trip time. The offset refers to the log's own clock: for
a log in UTC, to 1970. Three minutes of dense traffic are enough, or ten minutes of ten round trips
per second.

Formats: ping (output of ping -D), irtt, atlas (RIPE Atlas), csv (unix_ns,rtt_ms), pcap and pcapng
(of which the busiest conversation is used); each plain or gzipped.

Examples:

  skyhop blind rtt.csv.gz

  skyhop blind capture.pcapng --json

  skyhop blind rtt.csv.gz --period search
"""


def blind(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="A log of round trips or a packet capture.")
    ],
    log_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="Format of the log; detected if not given."
        ),
    ] = None,
    period: Annotated[
        str,
        typer.Option(
            metavar="TIME|search",
            help="Time between handovers; search: find it, from 5 to 60 s.",
        ),
    ] = "15 s",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a line.")] = False,
) -> None:
    """Estimate the handover grid."""
    from skyhop import _core

    found = _core.estimate_blindly(str(log), log_format, period)
    if found.cut_after is not None:
        print_note(f"{log}: ends in the middle of a packet; {found.cut_after:,} packets before it")
    elif found.is_cut:
        print_note(
            f"{log}: the compressed file ends early: what stands whole before its end counts"
        )
    if as_json:
        print(
            json.dumps(
                {
                    "grid": found.offset_s is not None,
                    "offset_s": found.offset_s,
                    "period_s": found.period_s,
                    "confidence": round(found.confidence, 3),
                    "samples": found.samples,
                    "evidence": found.evidence,
                    "stream": found.stream,
                }
            )
        )
        return
    of = f" of {found.stream}" if found.stream else ""
    if found.offset_s is None:
        periods = "5 to 60 s" if period == "search" else period
        print(f"no grid of {periods} in {found.samples} samples{of}")
        return
    print(
        f"a handover every {found.period_s:g} s, at {found.offset_s:.3f} s: "
        f"confidence {found.confidence:.2f}, "
        f"from the {found.evidence} of {found.samples} samples{of}"
    )
