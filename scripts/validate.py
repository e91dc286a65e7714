"""Long comparisons with other tools; writes docs/validation.md."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import skyhop
from skyhop.cli.terminal import print_note
from skyhop.errors import SkyhopError

ROOT = Path(__file__).resolve().parent.parent
LEOEM = ROOT.parent / "shared" / "data" / "leoem"
OUTPUT = ROOT / "docs" / "validation.md"

SAN_DIEGO, NEW_YORK, SEATTLE = "32.881,-117.237", "40.845,-73.932", "47.608,-122.335"


@dataclass(frozen=True)
class Log:
    """A published LeoEM path and how it was made."""

    name: str
    from_: str
    to: str
    relay: str
    target_percent: float


LOGS = (
    Log("SD_NY_15_ISL", SAN_DIEGO, NEW_YORK, "isl", 99),
    Log("SD_SEA_15_ISL", SAN_DIEGO, SEATTLE, "isl", 99),
    Log("SD_NY_15_BP", SAN_DIEGO, NEW_YORK, "bent-pipe", 93),
)


def compared(log: Log) -> str:
    """Return the table's row of a log: lines with the same nodes, and the delay's error."""
    logged = skyhop.import_path(LEOEM / f"{log.name}.log.gz", "leoem").frames
    started_s = time.monotonic()
    computed = skyhop.path(
        log.from_,
        log.to,
        relay=log.relay,
        constellation="leoem-starlink",
        compat="leoem",
        gateways=str(LEOEM / "ground_stations.csv"),
        duration=f"{logged.num_rows} s",
    ).frames
    took_s = time.monotonic() - started_s
    nodes = zip(computed["nodes"].to_pylist(), logged["nodes"].to_pylist(), strict=True)
    same = sum(ours == theirs for ours, theirs in nodes)
    delays = zip(computed["delay_ns"].to_pylist(), logged["delay_ns"].to_pylist(), strict=True)
    errors_us = [abs(a - b) / 1e3 for a, b in delays if a is not None and b is not None]
    errors_us.sort()
    return (
        f"| {log.name} | {logged.num_rows} | {100 * same / logged.num_rows:.2f} % "
        f"| {log.target_percent} % | {statistics.median(errors_us):.2f} "
        f"| {errors_us[int(0.99 * len(errors_us))]:.0f} "
        f"| {1e3 * took_s / logged.num_rows:.2f} |"
    )


def punctuality() -> str:
    """Return the rows about live runs: probe RTT and goodput against what was scheduled."""
    rows = []
    for rate_mbps, rtt_ms in ((20, 40), (150, 50), (50, 600)):
        run = skyhop.live(
            {
                "path": {"kind": "fixed", "rtt": f"{rtt_ms} ms"},
                "link": {"rate": f"{rate_mbps} Mbit/s"},
                "flow": [{"kind": "probe", "stop": "5 s"}, {"cc": "cubic", "start": "6 s"}],
                "run": {"duration": "36 s"},
            }
        )
        probe, flow = run.summary["probes"][0], run.summary["flows"][0]
        # TCP payload of a 1500-byte packet with timestamps, over its size on the wire.
        most_mbps = rate_mbps * 1448 / 1514
        rows.append(
            f"| {rate_mbps} Mbit/s, {rtt_ms} ms | {probe['rtt_p50_us'] / 1e3:.2f} "
            f"| {flow['goodput_bps'] / 1e6:.1f} | {most_mbps:.1f} "
            f"| {run.summary['lateness_us']['p99']:.0f} |"
        )
    return "\n".join(rows)


PAGE = """\
# Validation

Written by `make validate`; do not edit.

## LeoEM's published paths, recomputed

One orbit each, `compat = "leoem"`: lines with the same nodes, and the total one-way delay's error
against the log.

| log | lines | same nodes | target | median error (us) | p99 error (us) | ms per step |
|---|---|---|---|---|---|---|
{leoem}

Lines that differ are ones in which two routes are almost equally long or a satellite is at the very
edge of coverage: the last digits of the satellites' positions decide.

## Live runs against what was scheduled

A probe on an idle fixed path, then one CUBIC flow for 30 s on this machine's kernel. "Most" is the
payload's share of the wire rate.

| path | probe RTT p50 (ms) | goodput (Mbit/s) | most (Mbit/s) | lateness p99 (us) |
|---|---|---|---|---|
{live}
"""


def main() -> int:
    """Compare, and write the page."""
    if not LEOEM.is_dir():
        print_note(f"validate: no reference input at {LEOEM}; docs/validation.md stays as it is")
        return 1
    rows = []
    for log in LOGS:
        print_note(f"validate: {log.name}")
        rows.append(compared(log))
    print_note("validate: live runs")
    try:
        page = PAGE.format(leoem="\n".join(rows), live=punctuality())
    except SkyhopError as error:
        print_note(f"validate: {error}")
        return 1
    OUTPUT.write_text(page, "utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
