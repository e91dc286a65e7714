"""Comparison of the simulator with runs of Linux in virtual time (tests/linux and its README).

This module has the scenarios for the simulator, the comparison of deterministic flows, and the
figure; `chance` has random loss and sharing, `short` short transfers and short answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

import skyhop
from skyhop.analysis.styles import COLOURS
from skyhop.figures.style import Sheet
from validation.linux import recorded
from validation.pages import percent, row
from validation.panels import sheet

GOODPUT = 0.02
SRTT = 0.03
SRTT_WITH_LOSS = 0.05
RETRANSMITS, RETRANSMITS_MORE = 0.25, 20
"""Tolerance of retransmissions: a fraction of Linux's number, plus a constant number."""
SHARE = 0.05

LINUX_OWN = ("reno", "cubic", "bbr", "hybla", "vegas")
OUR_READING = ("satpipe", "bbr3")
AS_THE_MODULE = {
    "satpipe": {
        "guard_start": "-50 ms",
        "guard_end": "-50 ms",
        "probe_rtt_time": "300 ms",
        "raise_min_rtt": 0,
    }
}
"""Parameters with which our congestion controls do as the authors' modules, not as their papers."""
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
    rtt_us, queue_bytes = recorded.our_link(linux)
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
            {
                "cc": flow["cc"],
                "start": f"{1000 * flow['start_s']:.0f} ms",
                **({cc: AS_THE_MODULE[cc]} if (cc := flow["cc"]) in AS_THE_MODULE else {}),
            }
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
    curves, srtts_us = [], []
    for flow in run.summary["flows"]:
        of_flow = run.flows.filter(pl.col("flow") == flow["id"])
        t_ns, cwnd, srtt_us = (
            [float(value or 0) for value in of_flow[name].to_list()]
            for name in ("t_ns", "cwnd_packets", "srtt_us")
        )
        curves.append(([t / 1e9 for t in t_ns], cwnd))
        srtts_us.append(srtt_us)
    return Outcome(run.summary["flows"], curves, srtts_us)


def simulate_all(
    executor: Executor, texts: Mapping[str, Iterable[Scenario]]
) -> dict[str, list[Outcome]]:
    """Simulate the variants of some scenarios, all at the same time."""
    waiting = {name: [executor.submit(simulate, one) for one in of] for name, of in texts.items()}
    return {name: [run.result() for run in runs] for name, runs in waiting.items()}


def rows(executor: Executor) -> list[Row]:
    """Simulate every supported scenario once."""
    of_linux = {name: linux for name, linux in recorded.summary().items() if not missing(linux)}
    texts = {name: [scenario(name, linux)] for name, linux in of_linux.items()}
    runs = simulate_all(executor, texts)
    return [Row(name, linux["flows"], runs[name]) for name, linux in of_linux.items()]


def is_certain(name: str, flows: list[dict[str, Any]]) -> bool:
    """Return whether a scenario has neither random loss nor competing flows."""
    own = all(flow["cc"] in LINUX_OWN for flow in flows)
    return own and name.split("-", maxsplit=1)[0] in ("single", "geo", "handover")


def table(rows: list[Row]) -> str:
    """Return the table rows of deterministic flows."""
    return "\n".join(line(one, 0, SRTT) for one in rows if is_certain(one.name, one.linux))


def reading_table(rows: list[Row]) -> str:
    """Return the table rows of congestion controls from papers, which have no tolerance."""
    return "\n".join(
        line(one, index, None)
        for one in rows
        if any(flow["cc"] in OUR_READING for flow in one.linux)
        for index, _ in enumerate(one.linux)
    )


def line(of: Row, flow: int, srtt_tolerance: float | None) -> str:
    """Return the table row of a flow, with a verdict if there is a tolerance."""
    linux, ours = of.linux[flow], of.runs[0].flows[flow]
    name = of.name if len(of.linux) == 1 else f"{of.name}, {linux['cc']}"
    cells = []
    for key, scale, decimals in (("goodput_bps", 1e6, 2), ("srtt_mean_us", 1e3, 1)):
        cells += [f"{one[key] / scale:.{decimals}f}" for one in (linux, ours)]
        cells.append(percent(relative(ours, linux, key)))
    cells += [linux["retransmits"], ours["retransmits"]]
    cells += [f"{one['cwnd_mean_packets']:.0f}" for one in (linux, ours)]
    if srtt_tolerance is None:
        return row(name, *cells)
    within = (
        abs(relative(ours, linux, "goodput_bps")) <= GOODPUT
        and abs(relative(ours, linux, "srtt_mean_us")) <= srtt_tolerance
        and are_near(ours["retransmits"], linux["retransmits"])
    )
    return row(name, *cells, verdict(of.name, within=within))


def are_near(ours: float, linux: float) -> bool:
    """Return whether two counts of retransmissions or marks agree within the tolerance."""
    return abs(ours - linux) <= RETRANSMITS * linux + RETRANSMITS_MORE


def verdict(name: str, *, within: bool, may_be: bool = False) -> str:
    """Return the text of the column "within", with the known cause of a difference.

    `may_be` says that the row is within the tolerance for a part of the confidence interval.
    """
    if within or may_be:
        return "yes" if within else "perhaps"
    return f"**no**: {REASONS.get(name, 'open')}"


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
    for name, linux in recorded.summary().items():
        if lacks := missing(linux):
            needing.setdefault(" and ".join(lacks), []).append(f"`{name}`")
    return "\n".join(row(what, ", ".join(names)) for what, names in sorted(needing.items()))


def draw(rows: list[Row]) -> Sheet:
    """Draw one panel per flow: cwnd over time in Linux and in the first simulation."""
    panels = [(one, flow) for one in rows for flow, _ in enumerate(one.linux)]
    with sheet(len(panels), columns=3, height=1.2, share=0.8) as (figure, axes):
        for ax, (one, flow) in zip(axes, panels, strict=False):
            start_s, ours = one.runs[0].flows[flow]["start_s"], one.runs[0].curves[flow]
            series = recorded.series(one.name, flow)
            times_s = [start_s + t_s for t_s in series.t_s]
            ax.plot(times_s, series.cwnd_packets, color="#999999", linewidth=1.8, label="Linux")
            ax.plot(*ours, color=COLOURS[1], linewidth=0.7, label="ours")
            which = f", {one.linux[flow]['cc']} {flow}" if len(one.linux) > 1 else ""
            ax.set_title(f"{one.name}{which}", fontsize=7)
            ax.set_ylim(0, 1.1 * float(np.percentile(series.cwnd_packets + ours[1], 99.5)))
            ax.set_xlim(start_s, None)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
    return figure
