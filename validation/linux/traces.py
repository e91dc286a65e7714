"""Measurement of this machine's TCP over paths with reordering, stalls and a slow return path.

The scenarios stand in tests/linux/traces.json, to which the results go. Their application has half
the link's rate where no queue should build, whose losses would differ between runs.
"""

from __future__ import annotations

import json
import platform
from statistics import mean
from typing import Annotated, Any

import typer

import skyhop
from skyhop.cli.terminal import print_note
from validation.flows import Flow, apart, first_flow, mean_of
from validation.linux import recorded
from validation.pages import percent, row

HOSTS = {"profile": "linux-6.18", "hz": 250}
"""Options of the simulator's hosts that match the measured kernel."""
METRICS = ("goodput_bps", "srtt_mean_us", "retransmits", "cwnd_mean_packets")
LATEST_US = 2000
"""Upper limit in us on the 99th percentile of packet lateness; a run that is later is repeated."""
ATTEMPTS = 3


def measure(name: str, scenario: dict[str, Any]) -> dict[str, Any]:
    """Run a scenario live; return its results, and cwnd averaged over each second."""
    for _ in range(ATTEMPTS):
        run = skyhop.live(scenario)
        late_us = run.summary["lateness_us"]["p99"]
        if late_us <= LATEST_US:
            break
        print_note(f"traces: {name} was {late_us:.0f} us late, repeating")
    # Averages over seconds keep the file small.
    cwnd = [round(value) for value in run.flows["cwnd_packets"].to_list()]
    seconds = [round(mean(cwnd[k : k + 10])) for k in range(0, len(cwnd), 10)]
    flow = run.summary["flows"][0]
    return {**{key: flow[key] for key in METRICS}, "lateness_p99_us": late_us, "cwnd_by_s": seconds}


def simulated(trace: dict[str, Any]) -> Flow:
    """Simulate the scenario of a trace; return the summary of its flow."""
    return first_flow({**trace["scenario"], "tcp": HOSTS})


def table() -> str:
    """Return a table row for each trace: the mean of the kernel's runs, and the simulation."""
    lines = []
    for name, trace in recorded.traces().items():
        ours, linux = simulated(trace), trace["runs"]
        cells = []
        for key, scale, decimals in (("goodput_bps", 1e6, 2), ("srtt_mean_us", 1e3, 1)):
            cells.append(f"{mean_of(linux, key) / scale:.{decimals}f}")
            cells.append(percent(apart([ours], linux, key)))
        cells.append(f"{mean_of(linux, 'retransmits'):.0f}")
        lines.append(row(name, *cells, ours["retransmits"]))
    return "\n".join(lines)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Scenarios; default: all.")] = None,
    runs: Annotated[int, typer.Option(help="Runs of each scenario.")] = 3,
) -> None:
    """Measure the named scenarios, or all, and write the results, one line per scenario."""
    traces = recorded.traces()
    for name in names or list(traces):
        print_note(f"traces: {name}")
        scenario = traces[name]["scenario"]
        done = [measure(name, scenario) for _ in range(runs)]
        kernel = platform.release().split("-")[0]
        traces[name] = {"kernel": kernel, "scenario": scenario, "runs": done}
        lines = (f"{json.dumps(name)}: {json.dumps(trace)}" for name, trace in traces.items())
        recorded.TRACES.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
