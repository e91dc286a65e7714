"""Benchmark of gym environments: decisions per second of wall time, including the simulator."""

from __future__ import annotations

import importlib.util
import os
import time
from typing import Any

import numpy as np

from bench_previous import previous
from skyhop.cli.terminal import print_note, print_rows

ENVIRONMENTS, WARM_STEPS, STEPS = 64, 50, 400
INTERVAL_S = 0.02
RATES = ("2 Mbit/s", "10 Mbit/s", "50 Mbit/s")


def _world(rate: str) -> dict[str, Any]:
    return {
        "path": {"kind": "fixed", "rtt": "40 ms"},
        "link": {"rate": rate, "queue": "1 BDP"},
        "run": {"duration": "20 s"},
        "flow": [{"cc": "policy"}],
        "draw": [{"key": "path.rtt", "range": {"from": 20, "to": 60, "unit": "ms"}}],
    }


def gym_row(rate: str, threads: int) -> dict[str, object]:
    """Measure the steps per second of environments over a link of a given rate."""
    from skyhop_lab import gym

    env = gym.Environments(_world(rate), "astraea", num_envs=ENVIRONMENTS, threads=threads)
    env.reset(seed=1)
    # The window first grows to some BDP, and then action 0 keeps it.
    for step in range(WARM_STEPS):
        env.step(np.full((ENVIRONMENTS, 1), 1.0 if step < WARM_STEPS // 2 else 0.0))
    began_s, simulated_s = time.monotonic(), 0.0
    for _ in range(STEPS):
        *_, infos = env.step(np.zeros((ENVIRONMENTS, 1)))
        simulated_s += float(infos["interval_s"].sum())
    took_s = time.monotonic() - began_s
    figure = f"steps_per_s_{threads}"
    return {
        "link": rate,
        "threads": threads,
        "steps per s": round(ENVIRONMENTS * STEPS / took_s),
        "ms per step": round(1e3 * simulated_s / (ENVIRONMENTS * STEPS), 1),
        "simulated s per s": round(simulated_s / took_s),
        "before": previous("gym", rate, figure),
    }


def bench_gym() -> None:
    """Print the rows of several rates, on one thread and on all processors."""
    if importlib.util.find_spec("gymnasium") is None:
        print_note("environments: left out: make setup-soak installs them")
        return
    counts = sorted({1, len(os.sched_getaffinity(0))})
    rows = [gym_row(rate, threads) for rate in RATES for threads in counts]
    title = f"steps of {ENVIRONMENTS} environments of {1e3 * INTERVAL_S:g} ms"
    print_rows(rows, as_json=False, title=title)
