"""Comparison of the simulator with runs of Linux in virtual time (tests/linux and its README).

This module has the scenarios for the simulator, the comparison of deterministic flows, and the
figure; `linux_chance` has random loss and sharing, `linux_short` short transfers and short answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context

import linux_runs
import skyhop
from skyhop.analysis.styles import COLOURS
from skyhop.figures.style import Sheet, dress

GOODPUT = 0.02
SRTT = 0.03
SRTT_WITH_LOSS = 0.05
RETRANSMITS, RETRANSMITS_MORE = 0.25, 20
"""Tolerance of retransmissions: a fraction of Linux's number, plus a constant number."""
SHARE = 0.05

LINUX_OWN = ("reno", "cubic", "bbr", "hybla", "vegas")
OUR_READING = ("satpipe", "bbr3")
"""Congestion controls that skyhop implements from a paper or draft, not from the modules that Linux
ran.
"""
PIE_PERIOD = "20 ms"
"""Update period of PIE: its default, 15 ms, takes two ticks at HZ = 100."""
RED = {
    "kind": "red",
    "min": "28486 B",
    "max": "88486 B",
    "avpkt": "1500 B",
    "burst": 40,
    "bandwidth": "0 bit/s",
    "probability": "10 %",
}
"""RED as it behaves in Linux below a token bucket: it also counts the packet that waits for tokens,
and does not notice idle periods.
"""
QDISCS: dict[str, tuple[str, Any]] = {
    "codel ecn": ("1000 packets", {"kind": "codel", "ecn": True}),
    "fq_codel": ("10240 packets", "fq_codel"),
    "fq_codel ecn": ("10240 packets", "fq_codel"),
    "fq": ("10000 packets", "fq"),
    "pie": ("1000 packets", {"kind": "pie", "tupdate": PIE_PERIOD}),
    "pie ecn": ("1000 packets", {"kind": "pie", "tupdate": PIE_PERIOD, "ecn": True}),
    "cake bandwidth 50mbit rtt 40ms": (
        "10240 packets",
        {"kind": "cake", "bandwidth": "50 Mbit/s", "rtt": "40 ms"},
    ),
    "red limit 250000 min 30000 max 90000 avpkt 1500 burst 40 bandwidth 50mbit probability 0.1": (
        "248486 B",
        RED,
    ),
}
"""Queue limit and discipline in skyhop, by tc's arguments in tests/linux; a queue without a limit
there has tc's default.
"""

HOSTS = {"profile": "linux-6.12", "hz": 100, "rmem": {"max": "64 MiB"}, "wmem": {"max": "64 MiB"}}
"""Host options that match the hosts in tests/linux: kernel, ticks and buffers."""
UNLIMITED = "10 Gbit/s"
"""Rate of the return path, as Linux's ACKs had no bottleneck."""

REASONS = {
    "single-vegas-50m-40ms-1bdp": "which packets slow start loses decides how much of the queue "
    "Vegas keeps for ten seconds (below, over nine round trips: within)",
    "geo-bbr-20m-600ms-1bdp": "of eight seeds six reach 16.05 Mbit/s in the guest, two 15.68, "
    "which all of the simulator's do; what decides is open",
    "aqm-fq-bbr-50m-40ms": "the flows' PROBE_RTTs fall together in the guest and alternate here, "
    "where a flow that is alone for 0.2 s loses what is beyond fq's 100 packets of a flow. Its "
    "first round trip is 40.17 ms, less than any later; behind the bucket 40.50, more; over this "
    "project's link a guest's fall together, too, so that why is open",
    "100 kB received": "in the guest the acknowledgement of the 30th packet is delayed, and the "
    "last two wait for it; likely by how much memory packets take there (limitations.md)",
}
"""Known causes why rows are out of tolerance, by row name; for other rows the cause is open."""

Scenario = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Result of a simulation: summaries of the flows, and their samples.

    A curve is a pair of arrays: times (s) and cwnd (packets).
    """

    flows: list[dict[str, Any]]
    curves: list[tuple[list[float], list[float]]]
    srtt_us: list[list[float]]


@dataclass(frozen=True)
class Row:
    """Scenario, with Linux's flows and the simulations of it."""

    name: str
    linux: list[dict[str, Any]]
    runs: list[Outcome]


def missing(linux: Scenario) -> list[str]:
    """Return congestion controls and queues of a scenario that the simulator does not have."""
    ccs = [flow["cc"] for flow in linux["flows"] if flow["cc"] not in (*LINUX_OWN, *OUR_READING)]
    queue = linux.get("aqm")
    return sorted({*ccs, *([queue.split()[0]] if queue and queue not in QDISCS else [])})


def scenario(name: str, linux: Scenario) -> dict[str, Any]:
    """Return a scenario of tests/linux, converted to skyhop's format."""
    rtt_us, queue_bytes = linux_runs.our_link(linux)
    queue, qdisc = QDISCS.get(linux.get("aqm", ""), (f"{queue_bytes} B", "fifo"))
    text: dict[str, Any] = {
        "path": {"kind": "fixed", "rtt": f"{rtt_us:.0f} us"},
        "link": {
            "rate": f"{linux['rate_kbps']} kbit/s",
            "queue": queue,
            "qdisc": qdisc,
            "loss": f"{linux.get('loss_percent', 0)} %",
            "back": {"rate": UNLIMITED},
        },
        "tcp": {**HOSTS, "ecn": linux.get("ecn", False)},
        "flow": [
            {"cc": flow["cc"], "start": f"{1000 * flow['start_s']:.0f} ms"}
            for flow in linux["flows"]
        ],
        "run": {"duration": f"{linux['flows'][0]['seconds']} s"},
    }
    if name.startswith("handover-"):
        text["change"] = [
            {
                "at": f"{15 * k} s",
                "outage": "100 ms",
                "rtt": f"{rtt_us + (20_000 if k % 2 else 0):.0f} us",
            }
            for k in range(1, 7)
        ]
    if any(flow["cc"] == "satpipe" for flow in linux["flows"]):
        # The congestion control expects a reconfiguration 12 s into every 15 s of the clock.
        text["path"]["start"] = "2024-01-01T00:00:00Z"
        text["signal"] = {"source": "schedule", "period": "15 s", "offset": "12 s"}
    return text


def simulate(text: Scenario) -> Outcome:
    """Simulate one scenario; return its flows and samples."""
    run = skyhop.sim(text)
    table = run.flows.to_pydict()
    flows = run.summary["flows"]
    columns = {}
    for flow in flows:
        of_flow = [index for index, number in enumerate(table["flow"]) if number == flow["id"]]
        columns[flow["id"]] = {
            name: [float(table[name][index] or 0) for index in of_flow]
            for name in ("t_ns", "cwnd_packets", "srtt_us")
        }
    return Outcome(
        flows,
        [([t / 1e9 for t in one["t_ns"]], one["cwnd_packets"]) for one in columns.values()],
        [one["srtt_us"] for one in columns.values()],
    )


def rows(executor: Executor) -> list[Row]:
    """Simulate every supported scenario once."""
    waiting = []
    for name, linux in linux_runs.summary().items():
        if not missing(linux):
            run = executor.submit(simulate, scenario(name, linux))
            waiting.append((name, linux["flows"], run))
    return [Row(name, flows, [run.result()]) for name, flows, run in waiting]


def is_certain(name: str, flows: list[dict[str, Any]]) -> bool:
    """Return whether a scenario has neither random loss nor competing flows."""
    own = all(flow["cc"] in LINUX_OWN for flow in flows)
    return own and name.split("-", maxsplit=1)[0] in ("single", "geo", "handover")


def is_of_our_reading(row: Row) -> bool:
    """Return whether a row's congestion control is implemented from a paper or draft."""
    return any(flow["cc"] in OUR_READING for flow in row.linux)


def table(rows: list[Row]) -> str:
    """Return the table rows of deterministic flows."""
    return "\n".join(line(row, 0, SRTT) for row in rows if is_certain(row.name, row.linux))


def reading_table(rows: list[Row]) -> str:
    """Return the table rows of congestion controls from papers, which have no tolerance."""
    lines = [
        line(row, index, None)
        for row in rows
        if is_of_our_reading(row)
        for index, _ in enumerate(row.linux)
    ]
    return "\n".join(lines)


def line(row: Row, flow: int, srtt_tolerance: float | None) -> str:
    """Return the table row of a flow, with a verdict if there is a tolerance."""
    linux, ours = row.linux[flow], row.runs[0].flows[flow]
    goodput, srtt = relative(ours, linux, "goodput_bps"), relative(ours, linux, "srtt_mean_us")
    name = row.name if len(row.linux) == 1 else f"{row.name}, {linux['cc']}"
    text = (
        f"| {name} | {linux['goodput_bps'] / 1e6:.2f} | {ours['goodput_bps'] / 1e6:.2f} "
        f"| {percent(goodput)} | {linux['srtt_mean_us'] / 1e3:.1f} "
        f"| {ours['srtt_mean_us'] / 1e3:.1f} | {percent(srtt)} "
        f"| {linux['retransmits']} | {ours['retransmits']} "
        f"| {linux['cwnd_mean_packets']:.0f} | {ours['cwnd_mean_packets']:.0f} |"
    )
    if srtt_tolerance is None:
        return text
    within = (
        abs(goodput) <= GOODPUT
        and abs(srtt) <= srtt_tolerance
        and are_near(ours["retransmits"], linux["retransmits"])
    )
    return f"{text} {verdict(row.name, within=within)} |"


def are_near(ours: float, linux: float) -> bool:
    """Return whether two counts of retransmissions or marks agree within the tolerance."""
    return abs(ours - linux) <= RETRANSMITS * linux + RETRANSMITS_MORE


def verdict(name: str, *, within: bool) -> str:
    """Return the text of the column "within", with the known cause of a difference."""
    return "yes" if within else f"**no**: {REASONS.get(name, 'open')}"


def percent(part: float) -> str:
    """Format a relative difference in per cent."""
    return f"{100 * part:+.1f} %"


def relative(ours: Mapping[str, Any], linux: Mapping[str, Any], key: str) -> float:
    """Return the simulator's difference from Linux, as a fraction of Linux's value."""
    return float(ours[key] / linux[key] - 1)


def sum_of(flows: list[dict[str, Any]], key: str) -> float:
    """Return the sum of a value over flows."""
    return float(sum(flow[key] for flow in flows))


def share(flows: list[dict[str, Any]]) -> float:
    """Return the first flow's share of the total goodput."""
    return float(flows[0]["goodput_bps"] / sum_of(flows, "goodput_bps"))


def not_modelled() -> str:
    """Return the table rows of features that are not simulated, and scenarios that need them."""
    needing: dict[str, list[str]] = {}
    for name, linux in linux_runs.summary().items():
        if lacks := missing(linux):
            needing.setdefault(" and ".join(lacks), []).append(f"`{name}`")
    return "\n".join(f"| {what} | {', '.join(names)} |" for what, names in sorted(needing.items()))


def draw(rows: list[Row]) -> Sheet:
    """Draw one panel per flow: cwnd over time in Linux and in the first simulation."""
    panels = list(_panels(rows))
    columns = 3
    with rc_context({"font.size": 7}):
        lines = -(-len(panels) // columns)
        figure = Sheet(1.2 * lines, "page", 0.8)
        axes = list(figure.subplots(lines, columns, squeeze=False).flat)
        for ax, (row, flow) in zip(axes, panels, strict=False):
            dress(ax)
            start_s = row.runs[0].flows[flow]["start_s"]
            linux, ours = linux_curve(row.name, flow, start_s), row.runs[0].curves[flow]
            ax.plot(*linux, color="#999999", linewidth=1.8, label="Linux")
            ax.plot(*ours, color=COLOURS[1], linewidth=0.7, label="ours")
            ax.tick_params(labelsize=7)
            which = f", {row.linux[flow]['cc']} {flow}" if len(row.linux) > 1 else ""
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


def _panels(rows: list[Row]) -> Iterator[tuple[Row, int]]:
    for row in rows:
        yield from ((row, flow) for flow, _ in enumerate(row.linux))


def linux_curve(name: str, flow: int, start_s: float) -> tuple[list[float], list[float]]:
    """Return Linux's samples: times since the start of the run (s), and cwnd (packets)."""
    series = linux_runs.series(name, flow)
    return [start_s + t_s for t_s in series.t_s], [float(cwnd) for cwnd in series.cwnd_packets]
