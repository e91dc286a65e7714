"""Measurement of this machine's TCP over paths with reordering, stalls and a slow return path.

The results go to tests/linux/traces.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import linux_runs
import skyhop
from skyhop.cli.terminal import print_note
from skyhop.errors import SkyhopError

FILE = linux_runs.TRACES
HZ = 250
"""Timer ticks per second of the measured kernel."""
METRICS = ("goodput_bps", "srtt_mean_us", "retransmits", "cwnd_mean_packets")
LATEST_US = 2000
"""Upper limit in us on the 99th percentile of packet lateness; a run that is later is repeated."""
ATTEMPTS = 3


CALM = {"kind": "constant-rate", "rate": "10 Mbit/s", "size": "14480 B"}
"""Application at half the link's rate: no queue builds, whose losses would differ between runs."""


def scenario(rtt: str, seconds: int, changes: list[dict[str, str]]) -> dict[str, Any]:
    """Return a scenario with one CUBIC flow over a path with changes."""
    return {
        "path": {"kind": "fixed", "rtt": rtt},
        "link": {"rate": "20 Mbit/s"},
        "change": changes,
        "flow": [{"cc": "cubic", "app": CALM}],
        "run": {"duration": f"{seconds} s"},
    }


def alternating(rtts: tuple[str, str]) -> list[dict[str, str]]:
    """Return changes of the RTT every 5 s between two values; packets stay in order."""
    return [{"at": f"{5 * (1 + k)} s", "rtt": rtts[k % 2]} for k in range(5)]


def over_two_links(rtts: tuple[str, str]) -> dict[str, Any]:
    """Return a scenario in which one CUBIC flow alternates between two links.

    The alternation reorders its packets.
    """
    names = ("one", "other")
    turns = [{"at": f"{5 * (1 + k)} s", "flow": 0, "via": [names[(k + 1) % 2]]} for k in range(5)]
    return {
        "path": {"kind": "fixed", "rtt": rtts[0]},
        "links": {
            name: {"rate": "20 Mbit/s", "path": {"kind": "fixed", "rtt": rtt}}
            for name, rtt in zip(names, rtts, strict=True)
        },
        "change": turns,
        "flow": [{"cc": "cubic", "app": CALM, "via": [names[0]]}],
        "run": {"duration": "30 s"},
    }


SCENARIOS: dict[str, dict[str, Any]] = {
    # Reordering by less than RACK's reordering window, and by more.
    "reordering": over_two_links(("100 ms", "84 ms")),
    "dsack": over_two_links(("100 ms", "40 ms")),
    # RTTs longer than the retransmission timeout, without loss.
    "spurious-timeout": scenario("20 ms", 30, alternating(("800 ms", "20 ms"))),
    "outage-of-10-minutes": scenario("100 ms", 800, [{"at": "5 s", "outage": "600 s"}]),
    "ack-bottleneck": {
        "path": {"kind": "fixed", "rtt": "40 ms"},
        "link": {
            "rate": "50 Mbit/s",
            "queue": "1 BDP",
            "back": {"rate": "300 kbit/s", "queue": "50 packets"},
        },
        "flow": [{"cc": "cubic"}],
        "run": {"duration": "30 s"},
    },
}


def measure(name: str) -> dict[str, Any]:
    """Run a scenario live; return its results, and cwnd averaged over each second."""
    for _ in range(ATTEMPTS):
        run = skyhop.live(SCENARIOS[name])
        late_us = run.summary["lateness_us"]["p99"]
        if late_us <= LATEST_US:
            break
        print_note(f"traces: {name} was {late_us:.0f} us late, repeating")
    table = run.flows.to_pydict()
    # Averages over seconds keep the file small.
    cwnd = [round(value) for value in table["cwnd_packets"]]
    seconds = [
        round(sum(cwnd[k : k + 10]) / len(cwnd[k : k + 10])) for k in range(0, len(cwnd), 10)
    ]
    flow = run.summary["flows"][0]
    return {**{key: flow[key] for key in METRICS}, "lateness_p99_us": late_us, "cwnd_by_s": seconds}


def table() -> str:
    """Return a table row for each trace: the mean of the kernel's runs, and the simulation."""
    return "\n".join(line(name, trace) for name, trace in linux_runs.traces().items())


def line(name: str, trace: dict[str, Any]) -> str:
    """Return the table's row of a trace."""
    hosts = {"profile": "linux-6.18", "hz": HZ}
    ours = skyhop.sim({**trace["scenario"], "tcp": hosts}).summary["flows"][0]
    linux = {key: statistics.mean(run[key] for run in trace["runs"]) for key in METRICS}
    goodput, srtt = (ours[key] / linux[key] - 1 for key in METRICS[:2])
    return (
        f"| {name} | {linux['goodput_bps'] / 1e6:.2f} | {100 * goodput:+.1f} % "
        f"| {linux['srtt_mean_us'] / 1e3:.1f} | {100 * srtt:+.1f} % "
        f"| {linux['retransmits']:.0f} | {ours['retransmits']} |"
    )


def main() -> int:
    """Measure the named scenarios, or all, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SCENARIOS)}; or all")
    parser.add_argument("--runs", type=int, default=3, help="runs of each scenario (default 3)")
    arguments = parser.parse_args()
    traces = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    try:
        for name in arguments.names or SCENARIOS:
            print_note(f"traces: {name}")
            runs = [measure(name) for _ in range(arguments.runs)]
            kernel = platform.release().split("-")[0]
            traces[name] = {"kernel": kernel, "scenario": SCENARIOS[name], "runs": runs}
            write(traces)
    except SkyhopError as error:
        print_note(f"traces: {error}")
        return 1
    return 0


def write(traces: dict[str, Any]) -> None:
    """Write the results so far, one line per scenario."""
    lines = (f"{json.dumps(name)}: {json.dumps(trace)}" for name, trace in traces.items())
    Path(FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
