"""Comparison of the simulator with this machine's kernel: equal scenarios and congestion controls.

The kernel's runs use each kind of device that can carry packets. The command prints the table of
the fixed path; with fewer and shorter runs it is faster.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.axes import Axes

import skyhop
from skyhop.analysis.styles import COLOURS
from skyhop.cli.terminal import print_note
from skyhop.errors import RunError
from skyhop.figures.style import Sheet
from validation.fixed import over_fixed_path
from validation.flows import Flow, apart, cells_of, first_flow
from validation.leoem import Sender, bent_pipe
from validation.pages import percent, row, table, yes_or_no
from validation.panels import sheet

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
    """Run live, and repeat the run while it is late; return the last run, and if it was late."""
    return punctual(lambda: skyhop.live({**scenario, "live": {"device": device}}))


def punctual(run: Callable[[], Run], attempts: int = ATTEMPTS) -> tuple[Run, bool]:
    """Repeat a live run that warns of lateness; return the last run, and if it was late."""
    for _ in range(attempts):
        done = run()
        if not done.summary["warnings"]:
            break
    return done, bool(done.summary["warnings"])


# --- fixed path, with the kernel's own congestion controls ---

FIXED = ("cubic", "bbr")
RUNS = 3
GOODPUT_TOLERANCE = 0.05
SRTT_TOLERANCE = 0.10


def fixed_path(cc: str, seed: int, duration: str = "60 s") -> Scenario:
    """Return a scenario of one flow over 50 Mbit/s and 40 ms with a queue of one BDP."""
    text = over_fixed_path("50 Mbit/s", "40 ms", duration, {"cc": cc}, queue="1 BDP")
    text["run"]["seed"] = seed
    return text


FIXED_HEAD = (
    "cc", "device", "", "simulated", "live", "differ by", "tolerance", "within",
    "lateness p50, p99 (us)", "CPU (s)", "late",
)  # fmt: skip


def fixed_table(executor: Executor, runs: int = RUNS, duration: str = "60 s") -> str:
    """Return the table: rows for goodput and srtt, per congestion control and device."""
    texts = [fixed_path(cc, 1 + k, duration) for cc in FIXED for k in range(runs)]
    simulated = list(executor.map(first_flow, texts))
    simulations = {cc: simulated[k * runs : (k + 1) * runs] for k, cc in enumerate(FIXED)}
    rows = []
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
            rows += fixed_rows(cc, device, ours, kernel)
    return table(FIXED_HEAD, rows)


def fixed_rows(
    cc: str, device: str, ours: list[Flow], kernel: list[tuple[Run, bool]]
) -> list[list[object]]:
    """Return the two rows of one congestion control over one device."""
    summaries = [run.summary for run, _ in kernel]
    flows = [summary["flows"][0] for summary in summaries]
    lateness = [
        f"{statistics.median(summary['lateness_us'][q] for summary in summaries):.0f}"
        for q in ("p50", "p99")
    ]
    cpu_s = statistics.mean(run.info["timing"]["cpu_s"] for run, _ in kernel)
    late = sum(was_late for _, was_late in kernel)
    rows: list[list[object]] = []
    for what, key, scale, tolerance in (
        ("goodput (Mbit/s)", "goodput_bps", 1e6, GOODPUT_TOLERANCE),
        ("mean srtt (ms)", "srtt_mean_us", 1e3, SRTT_TOLERANCE),
    ):
        values = [", ".join(f"{one[key] / scale:.2f}" for one in each) for each in (ours, flows)]
        difference = apart(ours, flows, key)
        judged = [f"{100 * tolerance:.0f} %", yes_or_no(abs(difference) <= tolerance)]
        cells = [cc, device, what, *values, percent(difference), *judged]
        rows.append([*cells, ", ".join(lateness), f"{cpu_s:.1f}", late])
    return rows


# --- BBR over a simulated link that stalls, as a live link does whose thread is late ---

STALLS_MS = (1, 3)
STALLS_PER_S = (1, 3, 10)
AFTER_START_NS = 2_000_000_000


def stalls_table(executor: Executor) -> str:
    """Return the table: BBR's goodput, srtt and pacing rate per length and number of stalls."""
    cases = [(0, 0), *((ms, per_s) for ms in STALLS_MS for per_s in STALLS_PER_S)]
    rows = list(executor.map(_stalls_row, *zip(*cases, strict=True)))
    head = ("stalls", "goodput (Mbit/s)", "mean srtt (ms)", "highest pacing rate (Mbit/s)")
    return table(head, rows)


def _stalls_row(stall_ms: int, per_s: int) -> list[object]:
    """Simulate BBR; at random times the path releases nothing for `stall_ms`, and then all."""
    chance, at_s, changes = random.Random(1), 0.5, []
    while per_s and at_s < 59:  # noqa: PLR2004 (the run's last second)
        # A delay of twice the stall's length, for its length, holds back as much as a stall.
        changes.append({"at": f"{at_s:.6f} s", "rtt": f"{40 + 2 * stall_ms} ms"})
        changes.append({"at": f"{at_s + stall_ms / 1e3:.6f} s", "rtt": "40 ms"})
        at_s += stall_ms / 1e3 + 0.001 + chance.expovariate(per_s)
    run = skyhop.sim({**fixed_path("bbr", 1), "change": changes})
    flow, later = run.summary["flows"][0], run.flows.filter(run.flows["t_ns"] > AFTER_START_NS)
    return [
        f"{per_s} of {stall_ms} ms per second" if per_s else "none",
        f"{flow['goodput_bps'] / 1e6:.1f}",
        f"{flow['srtt_mean_us'] / 1e3:.1f}",
        f"{later['pacing_rate_bps'].to_numpy().max() / 1e6:.1f}",
    ]


# --- a CUBIC flow and a probe, against what the path schedules ---

SCHEDULED = ((20, 40), (150, 50), (50, 600))
"""Paths of live runs: rate in Mbit/s and RTT in ms."""
PAYLOAD_SHARE = 1448 / 1514
"""TCP payload of a 1500-byte packet with timestamps, divided by its size on the wire."""


def punctuality_rows() -> str:
    """Return the table's rows of live runs over all paths and devices."""
    return "\n".join(punctuality_row(*path, device) for path in SCHEDULED for device in devices())


def punctuality_row(rate_mbps: int, rtt_ms: int, device: str) -> str:
    """Return the row of a live run: probe RTT and goodput against those of the path."""
    flows = {"kind": "probe", "stop": "5 s"}, {"cc": "cubic", "start": "6 s"}
    text = over_fixed_path(f"{rate_mbps} Mbit/s", f"{rtt_ms} ms", "36 s", *flows)
    run = skyhop.live(text | {"live": {"device": device}})
    probe, flow = run.summary["probes"][0], run.summary["flows"][0]
    return row(
        f"{rate_mbps} Mbit/s, {rtt_ms} ms",
        device,
        f"{probe['rtt_p50_us'] / 1e3:.2f}",
        f"{flow['goodput_bps'] / 1e6:.1f}",
        f"{rate_mbps * PAYLOAD_SHARE:.1f}",
        *(f"{run.summary['lateness_us'][q]:.0f}" for q in ("p50", "p99")),
        f"{run.info['timing']['cpu_s']:.1f}",
    )


# --- two minutes of San Diego to New York, with our congestion controls in both engines ---


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
NEAR_S = 0.05
"""Largest difference in s between the starts of a phase that counts as the same in both engines.
"""


@dataclass(frozen=True)
class Pair:
    """Runs of one sender in both engines."""

    sender: Sender
    device: str
    simulated: Run
    on_kernel: Run
    late: bool


def orbit_pairs() -> list[Pair]:
    """Run every sender in the simulator, and live over each device."""
    pairs = []
    for sender in SENDERS:
        print_note(f"validate: {sender.name}, simulator and kernel")
        scenario = bent_pipe(sender, 120, "20 ms")
        ours = skyhop.sim(scenario)
        pairs += [Pair(sender, on, ours, *live(scenario, on)) for on in devices()]
    return pairs


def orbit_table(pairs: list[Pair]) -> str:
    """Return a table row for each sender and device: goodput, and phases around handovers."""
    lines = []
    for pair in pairs:
        both = pair.simulated.summary["flows"][:1], pair.on_kernel.summary["flows"][:1]
        is_within = abs(apart(*both, "goodput_bps")) <= ORBIT_TOLERANCE
        cells = [*cells_of("goodput_bps", 1e6, 1, *both), yes_or_no(is_within)]
        cells += ["yes" if pair.late else "no", phases_written(pair)]
        lines.append(row(pair.sender.name, pair.device, *cells))
    return "\n".join(lines)


def phases_written(pair: Pair) -> str:
    """Return the number of phases in each engine, and how many of them both engines have."""
    ours, kernel = (
        [(kind, start_s) for kind, start_s, _ in phases(run)]
        for run in (pair.simulated, pair.on_kernel)
    )
    if not ours and not kernel:
        return ""
    both = sum(
        any(kind == other and abs(begin_s - at_s) < NEAR_S for other, at_s in kernel)
        for kind, begin_s in ours
    )
    kinds = " and ".join(sorted({kind for kind, _ in ours + kernel}))
    return f"{kinds}: {len(ours)} and {len(kernel)}, {both} of them within {1e3 * NEAR_S:.0f} ms"


def phases(run: Run) -> list[tuple[str, float, float]]:
    """Return kind, start and length (s) of each phase that the congestion control reported."""
    events = run.events.select(["kind", "t_ns", "length_ns"]).to_dicts()
    return [
        (event["kind"], event["t_ns"] / 1e9, (event["length_ns"] or 0) / 1e9)
        for event in events
        if event["kind"] in PHASES
    ]


SHOWN_S = (60.0, 80.0)
"""Interval of the two minutes that the figure shows, in s."""


def draw(pairs: list[Pair]) -> Sheet:
    """Draw one panel for each sender: cwnd and phases in both engines.

    The kernel's run in the figure is the run over the first device.
    """
    pairs = [pair for pair in pairs if pair.device == devices()[0]]
    with sheet(len(pairs), height=1.5, share=0.65, share_x=True) as (figure, axes):
        for ax, pair in zip(axes, pairs, strict=True):
            draw_pair(ax, pair)
    return figure


def draw_pair(ax: Axes, pair: Pair) -> None:
    """Draw one sender. Bars at the top are phases, the kernel's above the simulator's."""
    ax.set_title(pair.sender.name, fontsize=7)
    ax.set_xlim(*SHOWN_S)
    most = 0.0
    engines = (
        ("kernel", pair.on_kernel, "#999999", 1.8),
        ("simulator", pair.simulated, COLOURS[1], 0.7),
    )
    for place, (label, run, colour, width) in enumerate(engines):
        t_s = run.flows["t_ns"].to_numpy() / 1e9
        shown = (t_s >= SHOWN_S[0]) & (t_s <= SHOWN_S[1])
        cwnd = run.flows["cwnd_packets"].to_numpy()[shown]
        most = max(most, float(np.percentile(cwnd, 99.5)))
        ax.plot(t_s[shown], cwnd, color=colour, linewidth=width, label=label)
        bars = (0.93 - 0.08 * place, 0.06)
        phases_s = [(t, took) for _, t, took in phases(run) if SHOWN_S[0] <= t <= SHOWN_S[1]]
        ax.broken_barh(phases_s, bars, color=colour, transform=ax.get_xaxis_transform())
    ax.set_ylim(0, 1.35 * most)


def main(
    runs: Annotated[int, typer.Option(help="Runs each.")] = RUNS,
    duration: Annotated[str, typer.Option(help="Duration of each run.")] = "60 s",
) -> None:
    """Print the table of the fixed path."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        print(fixed_table(executor, runs, duration))
