"""Measurement of this machine's TCP over paths with reordering, stalls and a slow return path.

The results go to tests/linux/traces.json.
"""

from __future__ import annotations

import json
import platform
import statistics
from typing import Annotated, Any

import typer

import skyhop
from skyhop.cli.terminal import print_note
from validation.leoem import first_flow
from validation.linux import recorded
from validation.pages import percent, row

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
    return "\n".join(line(name, trace) for name, trace in recorded.traces().items())


def line(name: str, trace: dict[str, Any]) -> str:
    """Return the table's row of a trace."""
    ours = first_flow({**trace["scenario"], "tcp": {"profile": "linux-6.18", "hz": HZ}})
    linux = {key: statistics.mean(run[key] for run in trace["runs"]) for key in METRICS}
    goodput, srtt = (percent(ours[key] / linux[key] - 1) for key in METRICS[:2])
    cells = [f"{linux['goodput_bps'] / 1e6:.2f}", goodput, f"{linux['srtt_mean_us'] / 1e3:.1f}"]
    return row(name, *cells, srtt, f"{linux['retransmits']:.0f}", ours["retransmits"])


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(SCENARIOS)}; default: all")
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs of each scenario.")] = 3,
) -> None:
    """Measure the named scenarios, or all, and write the results, one line per scenario."""
    traces = recorded.traces() if recorded.TRACES.exists() else {}
    for name in names or SCENARIOS:
        print_note(f"traces: {name}")
        done = [measure(name) for _ in range(runs)]
        kernel = platform.release().split("-")[0]
        traces[name] = {"kernel": kernel, "scenario": SCENARIOS[name], "runs": done}
        lines = (f"{json.dumps(name)}: {json.dumps(trace)}" for name, trace in traces.items())
        recorded.TRACES.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
