"""Figures and tables of relays and handover policies (docs/explanation)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import skyhop
from skyhop.cli.terminal import print_note
from skyhop.data.arrays import FloatArray
from skyhop.data.paths import Path as Trace
from validation import ROOT
from validation.pages import table

DOCS = ROOT / "docs" / "explanation"
ENDS = ("Seattle", "New York")
DURATION = "30 min"
RELAYS: dict[str, dict[str, str]] = {
    "isl": {},
    "bent-pipe": {},
    "access": {},
    "geo": {"constellation": "geo:-95.2"},
}
POLICIES = [
    "shortest-grid",
    "leoem",
    "immediate",
    "nearest-grid",
    "max-elevation-grid",
    "longest-visible-grid",
    "sticky",
]
# Names for the columns of `Path.segments`, in the same order.
SEGMENTS = ["user - satellite", "between satellites", "satellite - ground", "fibre"]


def trace_of(relay: str, policy: str = "shortest-grid", **keys: Any) -> Trace:
    """Compute half an hour of a path with a given relay and handover policy."""
    return skyhop.path(*ENDS, relay=relay, handover=policy, duration=DURATION, **keys)


def rtt_ms(trace: Trace) -> FloatArray:
    """Return the RTT of each frame in ms; NaN without a path."""
    there, back = (
        trace.frames[name].cast(float).to_numpy() for name in ("delay_ns", "delay_back_ns")
    )
    total: FloatArray = (there + back) / 1e6
    return total


def segments_ms(trace: Trace) -> list[float]:
    """Return the mean one-way delay of each segment in ms."""
    return [value / 1e6 for value in trace.segments.drop("t_ns").mean().row(0)]


def events_per_hour(trace: Trace, kind: str) -> float:
    """Return the number of events of a kind per hour."""
    events = [event for frame in trace.frames["events"].to_list() for event in frame]
    hours = trace.header["duration_ns"] / 3.6e12
    return float(sum(event["kind"] == kind for event in events) / hours)


def summary(trace: Trace) -> list[str]:
    """Return the table cells that both tables have."""
    rtts = rtt_ms(trace)
    without = 100 * np.isnan(rtts).mean()
    return [
        f"{np.nanmean(rtts):.1f}",
        f"{np.nanpercentile(rtts, 5):.1f} to {np.nanpercentile(rtts, 95):.1f}",
        f"{events_per_hour(trace, 'end'):.0f}",
        f"{without:.1f} %",
    ]


def draw(traces: dict[str, Trace], output: Path, until_s: float) -> None:
    """Draw the RTTs of several paths, one panel each."""
    figure, axes = plt.subplots(
        len(traces), 1, figsize=(8, 1.15 * len(traces) + 0.5), sharex=True, layout="constrained"
    )
    for panel, (name, trace) in zip(axes, traces.items(), strict=True):
        times_s = trace.frames["t_ns"].to_numpy() / 1e9
        shown = times_s <= until_s
        panel.plot(times_s[shown], rtt_ms(trace)[shown], color="#0072B2", linewidth=1)
        for frame, at_s in zip(trace.frames["events"].to_list(), times_s, strict=True):
            if at_s <= until_s and any(event["kind"] == "end" for event in frame):
                panel.axvline(at_s, color="#D55E00", linewidth=0.5, alpha=0.6)
        panel.set_title(name, loc="left", fontsize=9)
        panel.set_ylabel("RTT (ms)", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.margins(x=0)
    axes[-1].set_xlabel("time (s); vertical lines: a user's satellite changes", fontsize=8)
    figure.savefig(output, dpi=90)
    plt.close(figure)


def main() -> None:
    """Compute the paths, write the figures, and print the tables."""
    relays = {relay: trace_of(relay, **keys) for relay, keys in RELAYS.items()}
    draw(relays, DOCS / "paths-relays.png", 1800)
    rows = [
        [f"`{relay}`", *summary(trace), *(f"{ms:.1f}" for ms in segments_ms(trace))]
        for relay, trace in relays.items()
    ]
    shared = ["mean RTT (ms)", "5 to 95 %", "end handovers per hour", "without a path"]
    print_note(table(["relay", *shared, *SEGMENTS], rows))
    policies = {policy: trace_of("isl", policy) for policy in POLICIES}
    draw(policies, DOCS / "paths-policies.png", 300)
    rows = [[f"`{policy}`", *summary(trace)] for policy, trace in policies.items()]
    print_note(table(["policy", *shared], rows))
