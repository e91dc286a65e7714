"""What Linux did in virtual time (tests/linux, its README) beside what the simulator does."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import linux_runs
import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import skyhop
from skyhop.analysis.flows import FLOW_COLOURS
from skyhop.figures.style import dress

CONGESTION_CONTROLS = ("reno", "cubic", "bbr", "hybla", "vegas")

GOODPUT_TOLERANCE = 0.03
OUTAGE_TOLERANCE = 0.05
LOSS_TOLERANCE = 0.15
SRTT_TOLERANCE = 0.10
SHARE_TOLERANCE = 0.10
SEEDS = 20
"""Runs of a scenario with random loss; as many starts of the second of two flows."""
STARTS_APART_MS = 7

Scenario = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What one of our runs gave: the flows' summaries, and time and cwnd of their samples."""

    flows: list[dict[str, Any]]
    curves: list[tuple[list[float], list[float]]]


@dataclass(frozen=True)
class Row:
    """A scenario of Linux's and our runs of it."""

    name: str
    linux: list[dict[str, Any]]
    runs: list[Outcome]

    @property
    def tolerance(self) -> float:
        """Of the goodput."""
        kinds = {"handover": OUTAGE_TOLERANCE, "loss": LOSS_TOLERANCE}
        return kinds.get(self.name.split("-", maxsplit=1)[0], GOODPUT_TOLERANCE)

    def mean(self, key: str) -> float:
        """Return the mean over our runs of a figure of the first flow."""
        return float(statistics.mean(run.flows[0][key] for run in self.runs))


def scenario(name: str, linux: Scenario) -> dict[str, Any]:
    """Return what Linux went through as a scenario."""
    text: dict[str, Any] = {
        "path": {"kind": "fixed", "rtt": f"{2 * linux['one_way_us']} us"},
        "link": {
            "rate": f"{linux['rate_kbps']} kbit/s",
            "queue": f"{linux['queue_bytes']} B",
            "loss": f"{linux.get('loss_percent', 0)} %",
        },
        "flow": [{"cc": flow["cc"]} for flow in linux["flows"]],
        "run": {"duration": f"{linux['flows'][0]['seconds']} s"},
    }
    if name.startswith("handover-"):
        text["change"] = [
            {"at": f"{15 * k} s", "outage": "100 ms", "rtt": "60 ms" if k % 2 else "40 ms"}
            for k in range(1, 7)
        ]
    return text


def variants(name: str, text: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the runs of a scenario: seeds of the loss, starts of the second flow, or one."""
    for k in range(SEEDS if name.startswith(("loss-", "fair-")) else 1):
        run, flows = dict(text["run"], seed=1 + k), [dict(flow) for flow in text["flow"]]
        for flow in flows[1:]:
            run["seed"], flow["start"] = 1, f"{20_000 + STARTS_APART_MS * k} ms"
        yield dict(text, run=run, flow=flows)


def simulate(text: Scenario) -> Outcome:
    """Run one scenario."""
    run = skyhop.sim(text)
    table = run.flows.to_pydict()
    rows = list(zip(table["t_ns"], table["flow"], table["cwnd_packets"], strict=True))
    flows = run.summary["flows"]
    return Outcome(
        flows,
        [
            (
                [t_ns / 1e9 for t_ns, of, _ in rows if of == flow["id"]],
                [float(cwnd) for _, of, cwnd in rows if of == flow["id"]],
            )
            for flow in flows
        ],
    )


def compare(executor: Executor) -> list[Row]:
    """Simulate every scenario whose congestion controls and queue we have."""
    waiting = []
    for name, linux in linux_runs.summary().items():
        flows = linux["flows"]
        if "aqm" not in linux and all(flow["cc"] in CONGESTION_CONTROLS for flow in flows):
            texts = variants(name, scenario(name, linux))
            waiting.append((name, flows, [executor.submit(simulate, text) for text in texts]))
    return [Row(name, flows, [run.result() for run in runs]) for name, flows, runs in waiting]


def table(rows: list[Row]) -> str:
    """Return the lines of the table of first flows."""
    return "\n".join(line(row) for row in rows if not row.name.startswith("fair-"))


def line(row: Row) -> str:
    """Return a scenario's line, with a mark where it is out of tolerance."""
    linux = row.linux[0]
    goodput = row.mean("goodput_bps") / linux["goodput_bps"] - 1
    srtt = row.mean("srtt_mean_us") / linux["srtt_mean_us"] - 1
    ours, theirs = row.mean("retransmits"), linux["retransmits"]
    within = (
        abs(goodput) <= row.tolerance
        and abs(srtt) <= SRTT_TOLERANCE
        and ours <= 2 * theirs + 20
        and theirs <= 2 * ours + 20
    )
    return (
        f"| {row.name} | {linux['goodput_bps'] / 1e6:.2f} | {row.mean('goodput_bps') / 1e6:.2f} "
        f"| {100 * goodput:+.1f} % | {100 * row.tolerance:.0f} % "
        f"| {linux['srtt_mean_us'] / 1e3:.1f} | {row.mean('srtt_mean_us') / 1e3:.1f} "
        f"| {100 * srtt:+.1f} % | {theirs} | {ours:.0f} "
        f"| {linux['cwnd_mean_packets']:.0f} | {row.mean('cwnd_mean_packets'):.0f} "
        f"| {'yes' if within else '**no**'} |"
    )


def shares(rows: list[Row]) -> str:
    """Return the lines about flows that compete: the first one's share of the goodput of both."""
    lines = []
    for row in rows:
        if not row.name.startswith("fair-"):
            continue
        linux = share(row.linux)
        ours = sorted(share(run.flows) for run in row.runs)
        mean = statistics.mean(ours)
        within = "yes" if abs(mean - linux) <= SHARE_TOLERANCE else "**no**"
        lines.append(
            f"| {row.name} | {100 * linux:.1f} % | {100 * mean:.1f} % "
            f"| {100 * ours[0]:.1f} to {100 * ours[-1]:.1f} % "
            f"| {100 * SHARE_TOLERANCE:.0f} points | {within} |"
        )
    return "\n".join(lines)


def share(flows: list[dict[str, Any]]) -> float:
    """Return the first flow's part of the sum of goodputs."""
    return float(flows[0]["goodput_bps"] / sum(flow["goodput_bps"] for flow in flows))


def draw(rows: list[Row]) -> Figure:
    """Return small multiples: each flow's cwnd over time, Linux's and that of our first run."""
    panels = [(row, flow) for row in rows for flow in range(len(row.linux))]
    columns = 2
    with rc_context({"font.size": 7}):
        lines = -(-len(panels) // columns)
        figure = Figure(figsize=(7.6, 1.45 * lines), layout="constrained")
        FigureCanvasAgg(figure)
        axes = list(figure.subplots(lines, columns, squeeze=False).flat)
        for ax, (row, flow) in zip(axes, panels, strict=False):
            dress(ax)
            start_s = row.runs[0].flows[flow]["start_s"]
            linux, ours = linux_curve(row.name, flow, start_s), row.runs[0].curves[flow]
            ax.plot(*linux, color="#999999", linewidth=1.8, label="Linux")
            ax.plot(*ours, color=FLOW_COLOURS[1], linewidth=0.7, label="ours")
            ax.tick_params(labelsize=7)
            which = f", flow {flow}" if len(row.linux) > 1 else ""
            ax.set_title(f"{row.name}{which}", fontsize=7)
            ax.set_ylim(0, 1.1 * float(np.percentile(linux[1] + ours[1], 99.5)))
            ax.set_xlim(start_s, None)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        figure.supxlabel("time (s)")
        figure.supylabel("cwnd (packets)")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
    return figure


def linux_curve(name: str, flow: int, start_s: float) -> tuple[list[float], list[float]]:
    """Return Linux's samples: time since the run's start, cwnd in packets."""
    series = linux_runs.series(name, flow)
    return [start_s + t_s for t_s in series.t_s], [float(cwnd) for cwnd in series.cwnd_packets]
