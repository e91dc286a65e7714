"""Long comparisons with other tools; writes docs/validation.md."""

from __future__ import annotations

import json
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
ORACLE = ROOT.parent / "shared" / "oracle"
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


# What the real Linux stack did: the name, rate, RTT, queue, time, and what is expected of goodput.
LINUX = (
    ("single-reno-50m-40ms-1bdp", "reno", 50, 40, 250_000),
    ("single-cubic-50m-40ms-1bdp", "cubic", 50, 40, 250_000),
    ("single-bbr-50m-40ms-1bdp", "bbr", 50, 40, 250_000),
    ("single-cubic-20m-100ms-4bdp", "cubic", 20, 100, 1_000_000),
    ("geo-cubic-20m-600ms-1bdp", "cubic", 20, 600, 1_500_000),
    ("geo-bbr-20m-600ms-1bdp", "bbr", 20, 600, 1_500_000),
)


def simulated() -> str:
    """Return the rows about the simulator against what Linux did on the same link."""
    linux = json.loads((ORACLE / "summary.json").read_text("utf-8"))
    rows = []
    for name, cc, rate_mbps, rtt_ms, queue_bytes in LINUX:
        run = skyhop.sim(
            {
                "path": {"kind": "fixed", "rtt": f"{rtt_ms} ms"},
                "link": {"rate": f"{rate_mbps} Mbit/s", "queue": f"{queue_bytes} B"},
                "flow": [{"cc": cc}],
                "run": {"duration": "60 s"},
            }
        )
        ours, theirs = run.summary["flows"][0], linux[name]["flows"][0]
        rows.append(
            f"| {name} | {theirs['goodput_bps'] / 1e6:.2f} | {ours['goodput_bps'] / 1e6:.2f} "
            f"| {theirs['srtt_mean_us'] / 1e3:.1f} | {ours['srtt_mean_us'] / 1e3:.1f} "
            f"| {theirs['retransmits']} | {ours['retransmits']} "
            f"| {theirs['cwnd_mean_packets']:.0f} | {ours['cwnd_mean_packets']:.0f} |"
        )
    return "\n".join(rows)


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

## Simulated TCP against Linux

One flow for 60 s on a fixed path; Linux 6.12 in virtual time did the same. The tests hold goodput
within 3 %, mean srtt within 10 % and retransmits within a factor of 2 plus 20.

| scenario | Linux Mbit/s | ours | Linux srtt ms | ours | Linux rexmit | ours | Linux cwnd | ours |
|---|---|---|---|---|---|---|---|---|
{simulated}

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
        page = PAGE.format(leoem="\n".join(rows), simulated=simulated(), live=punctuality())
    except SkyhopError as error:
        print_note(f"validate: {error}")
        return 1
    OUTPUT.write_text(page, "utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
