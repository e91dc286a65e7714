"""Comparison of the simulator with this machine's kernel: equal scenarios and congestion controls.

The kernel's runs use each kind of device that can carry packets. Run as a script, it prints the
first table; with fewer and shorter runs it is faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

import skyhop
from skyhop.analysis.styles import COLOURS
from skyhop.cli.terminal import print_note
from skyhop.errors import RunError
from skyhop.figures.style import Sheet, dress

ATTEMPTS = 3
"""Upper limit on attempts at a live run; a run that warns of lateness is repeated."""

Scenario = dict[str, Any]
Run = skyhop.Run


@cache
def devices() -> tuple[str, ...]:
    """Return the kinds of device that work on this machine."""
    found = []
    for device in ("tun", "packet"):
        short = {**fixed_path("reno", 1, "100 ms"), "live": {"device": device}}
        try:
            skyhop.live(short)
        except RunError as error:
            print_note(f"validate: without the device {device}: {error}")
        else:
            found.append(device)
    return tuple(found)


def live(scenario: Mapping[str, Any], device: str = "tun") -> tuple[Run, bool]:
    """Run live, and repeat the run while it is late.

    Return the last run, and whether it was late too.
    """
    for _ in range(ATTEMPTS):
        run = skyhop.live({**scenario, "live": {"device": device}})
        if not run.summary["warnings"]:
            break
    return run, bool(run.summary["warnings"])


# --- fixed path, with the kernel's own congestion controls ---

FIXED = ("cubic", "bbr")
RUNS = 3
GOODPUT_TOLERANCE = 0.05
SRTT_TOLERANCE = 0.10


def fixed_path(cc: str, seed: int, duration: str = "60 s") -> Scenario:
    """Return a scenario of one flow over 50 Mbit/s and 40 ms with a queue of one BDP."""
    return {
        "path": {"kind": "fixed", "rtt": "40 ms"},
        "link": {"rate": "50 Mbit/s", "queue": "1 BDP"},
        "flow": [{"cc": cc}],
        "run": {"duration": duration, "seed": seed},
    }


def simulated(cc: str, seed: int, duration: str) -> dict[str, Any]:
    """Return the flow's summary from a simulation over the fixed path."""
    flow: dict[str, Any] = skyhop.sim(fixed_path(cc, seed, duration)).summary["flows"][0]
    return flow


FIXED_HEAD = """\
| cc | device | | simulated | live | differ by | tolerance | within | lateness p50, p99 (us) \
| CPU (s) | late |
|---|---|---|---|---|---|---|---|---|---|---|"""


def fixed_table(executor: Executor, runs: int = RUNS, duration: str = "60 s") -> str:
    """Return the table: rows for goodput and srtt, per congestion control and device."""
    waiting = {
        cc: [executor.submit(simulated, cc, 1 + k, duration) for k in range(runs)] for cc in FIXED
    }
    simulations = {cc: [run.result() for run in submitted] for cc, submitted in waiting.items()}
    lines = [FIXED_HEAD]
    for cc, ours in simulations.items():
        # Only one live run executes at a time, because load makes it late. The devices alternate,
        # so that load by other programs affects both equally.
        turns = [
            (device, live(fixed_path(cc, 1, duration), device))
            for _ in range(runs)
            for device in devices()
        ]
        for device in devices():
            kernel = [run for used, run in turns if used == device]
            lines += fixed_lines(cc, device, ours, kernel)
    return "\n".join(lines)


def fixed_lines(
    cc: str, device: str, ours: list[dict[str, Any]], kernel: list[tuple[Run, bool]]
) -> list[str]:
    """Return the two rows of one congestion control over one device."""
    late = sum(was_late for _, was_late in kernel)
    lateness = [
        statistics.median(run.summary["lateness_us"][q] for run, _ in kernel)
        for q in ("p50", "p99")
    ]
    cpu_s = statistics.mean(run.info["timing"]["cpu_s"] for run, _ in kernel)
    lines = []
    for what, key, scale, tolerance in (
        ("goodput (Mbit/s)", "goodput_bps", 1e6, GOODPUT_TOLERANCE),
        ("mean srtt (ms)", "srtt_mean_us", 1e3, SRTT_TOLERANCE),
    ):
        simulator = [flow[key] / scale for flow in ours]
        on_kernel = [run.summary["flows"][0][key] / scale for run, _ in kernel]
        difference = statistics.mean(simulator) / statistics.mean(on_kernel) - 1
        within = "yes" if abs(difference) <= tolerance else "**no**"
        lines.append(
            f"| {cc} | {device} | {what} | {written(simulator)} | {written(on_kernel)} "
            f"| {100 * difference:+.1f} % | {100 * tolerance:.0f} % | {within} "
            f"| {lateness[0]:.0f}, {lateness[1]:.0f} | {cpu_s:.1f} | {late} |"
        )
    return lines


def written(figures: list[float]) -> str:
    """Format the values of all runs for one table cell."""
    return ", ".join(f"{figure:.2f}" for figure in figures)


# --- two minutes of San Diego to New York, with our congestion controls in both engines ---


@dataclass(frozen=True)
class Sender:
    """Sender in the table: congestion control, and its announcements of handovers."""

    name: str
    flow: dict[str, Any]
    signal: dict[str, str]


PHASES = ("hold", "drain", "probe-rtt")
ANNOUNCED = {"source": "path", "lead": "0.5 s"}
SENDERS = (
    Sender("cubic", {"cc": "skyhop:cubic"}, {}),
    Sender("bbr", {"cc": "skyhop:bbr"}, {}),
    Sender("satcp, published", {"cc": "satcp", "satcp": {"mode": "published"}}, ANNOUNCED),
    Sender("satcp, freeze", {"cc": "satcp", "satcp": {"mode": "freeze"}}, ANNOUNCED),
    Sender("satpipe", {"cc": "satpipe"}, ANNOUNCED),
    Sender("bbr2", {"cc": "bbr2"}, {}),
    Sender("bbr3", {"cc": "bbr3"}, {}),
    Sender("copa", {"cc": "copa"}, {}),
    Sender("leocc", {"cc": "leocc"}, ANNOUNCED),
    Sender("vivace", {"cc": "vivace"}, {}),
    Sender("vivudt", {"cc": "vivudt"}, {}),
)
ORBIT_TOLERANCE = 0.07
NEAR_MS = 50
"""Largest difference in ms between the starts of a phase that counts as the same in both engines.
"""


def orbit(sender: Sender, gateways: Path) -> Scenario:
    """Return a scenario with one flow over two minutes of LeoEM's bent-pipe path."""
    return {
        "path": {
            "constellation": "leoem-starlink",
            "compat": "leoem",
            "relay": "bent-pipe",
            "from": "32.881,-117.237",
            "to": "40.845,-73.932",
            "gateways": str(gateways),
        },
        "link": {"rate": "150 Mbit/s", "queue": "5 MB"},
        "flow": [sender.flow],
        "signal": sender.signal,
        "run": {"duration": "120 s", "sample": "20 ms"},
    }


@dataclass(frozen=True)
class Pair:
    """Runs of one sender in both engines."""

    sender: Sender
    device: str
    simulated: Run
    on_kernel: Run
    late: bool


def orbit_pairs(gateways: Path) -> list[Pair]:
    """Run every sender in the simulator, and live over each device."""
    pairs = []
    for sender in SENDERS:
        print_note(f"validate: {sender.name}, simulator and kernel")
        scenario = orbit(sender, gateways)
        ours = skyhop.sim(scenario)
        for device in devices():
            on_kernel, late = live(scenario, device)
            pairs.append(Pair(sender, device, ours, on_kernel, late))
    return pairs


def orbit_table(pairs: list[Pair]) -> str:
    """Return a table row for each sender and device: goodput, and phases around handovers."""
    lines = []
    for pair in pairs:
        ours, kernel = (
            run.summary["flows"][0]["goodput_bps"] / 1e6 for run in (pair.simulated, pair.on_kernel)
        )
        difference = ours / kernel - 1
        within = "yes" if abs(difference) <= ORBIT_TOLERANCE else "**no**"
        lines.append(
            f"| {pair.sender.name} | {pair.device} | {ours:.1f} | {kernel:.1f} "
            f"| {100 * difference:+.1f} % | {within} | {'yes' if pair.late else 'no'} "
            f"| {phases_written(pair)} |"
        )
    return "\n".join(lines)


def phases_written(pair: Pair) -> str:
    """Return the number of phases in each engine, and how many of them both engines have."""
    ours, kernel = phases(pair.simulated), phases(pair.on_kernel)
    if not ours and not kernel:
        return ""
    both = sum(
        any(kind == other and abs(begin - at) < NEAR_MS for other, at in kernel)
        for kind, begin in ours
    )
    kinds = " and ".join(sorted({kind for kind, _ in ours + kernel}))
    return f"{kinds}: {len(ours)} and {len(kernel)}, {both} of them within {NEAR_MS} ms"


def phases(run: Run) -> list[tuple[str, float]]:
    """Return kind and start (ms) of each phase that the congestion control reported."""
    events = run.events.select(["kind", "t_ns"]).to_pylist()
    return [(event["kind"], event["t_ns"] / 1e6) for event in events if event["kind"] in PHASES]


SHOWN_S = (60.0, 80.0)
"""Interval of the two minutes that the figure shows, in s."""


def draw(pairs: list[Pair]) -> Sheet:
    """Draw one panel for each sender: cwnd and phases in both engines.

    The kernel's run in the figure is the run over the first device.
    """
    pairs = [pair for pair in pairs if pair.device == devices()[0]]
    with rc_context({"font.size": 7}):
        figure = Sheet(1.5 * len(pairs), "page", 0.65)
        panels = figure.subplots(len(pairs), 1, sharex=True, squeeze=False).flat
        for ax, pair in zip(panels, pairs, strict=True):
            draw_pair(ax, pair)
        figure.supxlabel("time (s)")
        figure.supylabel("cwnd (packets)")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
    return figure


def draw_pair(ax: Axes, pair: Pair) -> None:
    """Draw one sender. Bars at the top are phases, the kernel's above the simulator's."""
    dress(ax)
    ax.tick_params(labelsize=7)
    ax.set_title(pair.sender.name, fontsize=7)
    ax.set_xlim(*SHOWN_S)
    most = 0.0
    engines = (
        ("kernel", pair.on_kernel, "#999999", 1.8),
        ("simulator", pair.simulated, COLOURS[1], 0.7),
    )
    for row, (label, run, colour, width) in enumerate(engines):
        t_s = run.flows["t_ns"].to_numpy() / 1e9
        shown = (t_s >= SHOWN_S[0]) & (t_s <= SHOWN_S[1])
        cwnd = run.flows["cwnd_packets"].to_numpy()[shown]
        most = max(most, float(np.percentile(cwnd, 99.5)))
        ax.plot(t_s[shown], cwnd, color=colour, linewidth=width, label=label)
        place = (0.93 - 0.08 * row, 0.06)
        ax.broken_barh(bars_of(run), place, color=colour, transform=ax.get_xaxis_transform())
    ax.set_ylim(0, 1.35 * most)


def bars_of(run: Run) -> list[tuple[float, float]]:
    """Return start and length in s of every phase in the shown interval."""
    events = run.events.select(["kind", "t_ns", "length_ns"]).to_pylist()
    return [
        (event["t_ns"] / 1e9, event["length_ns"] / 1e9)
        for event in events
        if event["kind"] in PHASES and SHOWN_S[0] <= event["t_ns"] / 1e9 <= SHOWN_S[1]
    ]


def main() -> int:
    """Print the table of the fixed path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs each (default {RUNS})")
    parser.add_argument("--duration", default="60 s", help='of each run (default "60 s")')
    arguments = parser.parse_args()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        print(fixed_table(executor, arguments.runs, arguments.duration))
    return 0


if __name__ == "__main__":
    sys.exit(main())
