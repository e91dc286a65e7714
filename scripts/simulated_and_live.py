"""The same scenario in the simulator and on this machine's kernel."""

from __future__ import annotations

import statistics
from concurrent.futures import Executor
from typing import Any

import skyhop

CONGESTION_CONTROLS = ("cubic", "bbr")
RUNS = 3
GOODPUT_TOLERANCE = 0.05
SRTT_TOLERANCE = 0.10
ATTEMPTS = 3
"""A live run that warns of its lateness is repeated, so often at most."""


def scenario(cc: str, seed: int) -> dict[str, Any]:
    """Return one flow over 50 Mbit/s and 40 ms with a queue of one BDP."""
    return {
        "path": {"kind": "fixed", "rtt": "40 ms"},
        "link": {"rate": "50 Mbit/s", "queue": "1 BDP"},
        "flow": [{"cc": cc}],
        "run": {"duration": "60 s", "seed": seed},
    }


def live(cc: str) -> tuple[dict[str, Any], bool]:
    """Return the flow's summary of a live run, and whether the run was late to the end."""
    for _ in range(ATTEMPTS):
        summary = skyhop.live(scenario(cc, 1)).summary
        if not summary["warnings"]:
            break
    return summary["flows"][0], bool(summary["warnings"])


def simulated(cc: str, seed: int) -> dict[str, Any]:
    """Return the flow's summary of a simulation."""
    flow: dict[str, Any] = skyhop.sim(scenario(cc, seed)).summary["flows"][0]
    return flow


def table(executor: Executor) -> str:
    """Return the lines of the table, two for each congestion control: goodput and srtt."""
    waiting = {
        cc: [executor.submit(simulated, cc, 1 + k) for k in range(RUNS)]
        for cc in CONGESTION_CONTROLS
    }
    simulations = {cc: [run.result() for run in runs] for cc, runs in waiting.items()}
    lines = []
    for cc, ours in simulations.items():
        # One at a time, and nothing beside them: they are as punctual as the machine is free.
        kernel = [live(cc) for _ in range(RUNS)]
        late = sum(was_late for _, was_late in kernel)
        for what, key, scale, tolerance in (
            ("goodput (Mbit/s)", "goodput_bps", 1e6, GOODPUT_TOLERANCE),
            ("mean srtt (ms)", "srtt_mean_us", 1e3, SRTT_TOLERANCE),
        ):
            simulator = [flow[key] / scale for flow in ours]
            on_kernel = [flow[key] / scale for flow, _ in kernel]
            difference = statistics.mean(simulator) / statistics.mean(on_kernel) - 1
            within = "yes" if abs(difference) <= tolerance else "**no**"
            lines.append(
                f"| {cc} | {what} | {written(simulator)} | {written(on_kernel)} "
                f"| {100 * difference:+.1f} % | {100 * tolerance:.0f} % | {within} | {late} |"
            )
    return "\n".join(lines)


def written(figures: list[float]) -> str:
    """Return the figures of all runs."""
    return ", ".join(f"{figure:.2f}" for figure in figures)
