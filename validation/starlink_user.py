"""Draw docs/starlink-user.png: goodput and round trip of CUBIC and BBR over a Starlink downlink.

The link is drawn from the access profile "starlink". The picture shows two slots of 15 s between
reconfigurations, and prints the means of the whole runs.
"""

from __future__ import annotations

from typing import Any, Literal

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes

import skyhop
from skyhop.cli.terminal import print_note
from skyhop.data.runs import Run
from validation import ROOT, pages

PICTURE = ROOT / "docs" / "starlink-user.png"
SENDERS = {"cubic": ("CUBIC", "#0072B2"), "bbr": ("BBR", "#D55E00")}
SCENARIO: dict[str, Any] = {
    "path": {"kind": "access", "profile": "starlink", "dish": "to"},
    "link": {"queue": "1 BDP"},
    "run": {"duration": "80 s", "seed": 6},
}
FROM_S, UNTIL_S = 40.0, 74.0
"""Time of the runs that the picture shows: the slots from 42 to 57 and from 57 to 72 s."""
MARKS_S = (42.0, 57.0, 72.0)
"""Times of reconfigurations: the path begins at a full minute of UTC."""
BIN_S = 0.5
"""Time over which values are averaged, in s."""
STEP_NS = 1_000_000
"""Time between the values of which means are taken."""


def simulate(cc: str) -> Run:
    """Simulate a download with a congestion control."""
    return skyhop.sim({**SCENARIO, "flow": [{"cc": cc}]})


def shown(frame: pl.DataFrame, holds: Literal["backward", "forward"] = "backward") -> pl.DataFrame:
    """Return the means over time of each `BIN_S` of the shown time, with its begin as `t_s`.

    Args:
        frame: values by `t_ns`.
        holds: the row whose values hold at a time: the last ("backward") or the next ("forward").
    """
    from_ns, until_ns = int(FROM_S * 1e9), int(UNTIL_S * 1e9)
    every = pl.DataFrame({"t_ns": range(from_ns, until_ns, STEP_NS)}, schema={"t_ns": pl.Int64})
    held = every.join_asof(frame.sort("t_ns"), on="t_ns", strategy=holds)
    t_s = (pl.col("t_ns") / 1e9 / BIN_S).floor() * BIN_S
    return held.group_by(t_s.alias("t_s"), maintain_order=True).agg(pl.exclude("t_ns").mean())


def draw(runs: dict[str, Run]) -> None:
    """Draw goodput and round trip, over the link's capacity and its round trip without queues."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(8, 3.6), sharex=True, layout="constrained")
    path = next(iter(runs.values())).path
    assert path is not None
    rtt_ns = pl.col("delay_ns") + pl.col("delay_back_ns")
    link = shown(path.frames.select("t_ns", "rate_bps", rtt_ns=rtt_ns))
    grey: dict[str, Any] = {"color": "0.82", "step": "post"}
    upper.fill_between(link["t_s"], 0, link["rate_bps"] / 1e6, label="link", **grey)
    lower.fill_between(link["t_s"], 0, link["rtt_ns"] / 1e6, label="without queues", **grey)
    for cc, run in runs.items():
        name, colour = SENDERS[cc]
        flow = shown(run.flows.select("t_ns", "goodput_bps", "srtt_us"), "forward")
        line: dict[str, Any] = {"color": colour, "label": name, "drawstyle": "steps-post"}
        upper.plot(flow["t_s"], flow["goodput_bps"] / 1e6, linewidth=1.3, **line)
        lower.plot(flow["t_s"], flow["srtt_us"] / 1e3, linewidth=1.3, **line)
    _finish(upper, "goodput (Mbit/s)")
    _finish(lower, "round trip (ms)")
    lower.set_xlabel("time (s); dotted lines: Starlink reconfigures, every 15 s", fontsize=9)
    figure.savefig(PICTURE, dpi=110)
    plt.close(figure)


def _finish(panel: Axes, label: str) -> None:
    for mark_s in MARKS_S:
        panel.axvline(mark_s, color="black", linewidth=1, linestyle=":")
    panel.set_ylabel(label, fontsize=9)
    panel.set_xlim(FROM_S, UNTIL_S)
    panel.set_ylim(0)
    panel.tick_params(labelsize=9)
    panel.legend(loc="lower right", bbox_to_anchor=(1, 0.97), fontsize=8, ncols=3, frameon=False)
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Run both senders, write the picture, and print their means."""
    runs = {cc: simulate(cc) for cc in SENDERS}
    draw(runs)
    flows = {SENDERS[cc][0]: run.summary["flows"][0] for cc, run in runs.items()}
    rows = [
        [name, f"{flow['goodput_bps'] / 1e6:.1f}", f"{flow['srtt_mean_us'] / 1e3:.0f}"]
        for name, flow in flows.items()
    ]
    print_note(pages.table(["sender", "goodput (Mbit/s)", "mean round trip (ms)"], rows))
    print_note(str(PICTURE))
