"""Benchmarks of calls: start-up, paths, films, decisions of policies, environments."""

from __future__ import annotations

import importlib.util
import os
import random
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import skyhop
from skyhop import _core
from skyhop.cli.terminal import print_note, print_rows
from skyhop_lab.policies.networks import Activation, DenseNetwork, Layer
from validation.bench.measure import cost, previous
from validation.fixed import over_fixed_path

# --- start-up ---

TIMES = 9
"""Number of measured runs of each command, after one that warms the caches; the median counts."""
SCENARIO = """
flow = [{}]
path = { kind = "fixed", rtt = "50 ms" }
link = { rate = "10 Mbit/s" }
run = { duration = "1 s" }
"""
SKYHOP = str(Path(sys.executable).with_name("skyhop"))
COMMANDS = {
    "skyhop sim, 1 simulated s": [SKYHOP, "sim", "scenario.toml", "-o", "run", "--force"],
    "skyhop --help": [SKYHOP, "--help"],
    "skyhop path, coordinates": [
        *(SKYHOP, "path", "--from", "32.72,-117.16", "--to", "40.71,-74.01"),
        *("--duration", "2 s", "-o", "path.parquet"),
    ],
    "skyhop path, city names": [
        *(SKYHOP, "path", "--from", "San Diego", "--to", "New York"),
        *("--duration", "2 s", "-o", "path.parquet"),
    ],
    "import skyhop": [sys.executable, "-c", "import skyhop"],
}


def bench_start() -> None:
    """Print the start-up times with warm caches."""
    with TemporaryDirectory(prefix="skyhop-bench-") as place:
        (Path(place) / "scenario.toml").write_text(SCENARIO, "utf-8")
        rows = [start_row(name, command, place) for name, command in COMMANDS.items()]
    print_rows(rows, as_json=False, title=f"start-up, warm, median of {TIMES}")


def start_row(name: str, command: list[str], place: str) -> dict[str, object]:
    """Measure a command that is run in the directory `place`."""
    took = []
    for _ in range(1 + TIMES):
        with cost() as one:
            subprocess.run(command, check=True, cwd=place, capture_output=True)
        took.append((one.wall_s, one.children_s))
    wall_s, cpu_s = (statistics.median(column) for column in zip(*took[1:], strict=True))
    return {
        "command": name,
        "wall s": round(wall_s, 2),
        "wall s before": previous("start", name, "wall_s"),
        "CPU s": round(cpu_s, 2),
        "CPU s before": previous("start", name, "cpu_s"),
    }


# --- paths ---

# LeoEM's own scripts take this time in s for one orbit, on a machine of 2 cores.
LEOEM_S = {"isl": 50 * 60, "bent-pipe": 14 * 60}
ORBIT_S = 5731
# Hypatia's satgenpy takes this time in ms for a step of all pairs of 100 sites: Starlink-550, 2
# cores.
SATGENPY_STEP_MS = 17_800
PAIRS_STEPS = 60


def bench_paths() -> None:
    """Print the speed of paths."""
    # The first path also loads libraries, so it is not measured.
    skyhop.path("32.72,-117.16", "40.71,-74.01", duration="1 s")
    orbits = [orbit_row(relay) for relay in LEOEM_S]
    print_rows(orbits, as_json=False, title="one pair, one orbit of 5,731 steps")
    print_rows([pairs_row()], as_json=False, title="all pairs, steps of 1 s, 1,584 satellites")


def orbit_row(relay: str) -> dict[str, object]:
    """Measure one orbit of one pair of sites, with 1,584 satellites and steps of 1 s."""
    with cost() as took:
        skyhop.path("32.72,-117.16", "40.71,-74.01", relay=relay, duration=f"{ORBIT_S} s")
    return {
        "path": relay,
        "orbit_s": round(took.wall_s, 2),
        "before": previous("paths", relay, "orbit_s"),
        "ms per step": round(1e3 * took.wall_s / ORBIT_S, 3),
        "times faster than LeoEM": round(LEOEM_S[relay] / took.wall_s),
    }


def pairs_row() -> dict[str, object]:
    """Measure one step of all pairs of 100 sites, including writing the file."""
    sites = [f"{-36 + 18 * row},{-171 + 18 * column}" for row in range(5) for column in range(20)]
    with TemporaryDirectory() as directory, cost() as took:
        skyhop.all_pairs(sites, Path(directory) / "pairs.parquet", duration=f"{PAIRS_STEPS} s")
    step_ms = 1e3 * took.wall_s / PAIRS_STEPS
    return {
        "all pairs": "100 sites, isl",
        "ms per step": round(step_ms, 1),
        "before": previous("paths", "all pairs", "ms_per_step"),
        "times faster than satgenpy": round(SATGENPY_STEP_MS / step_ms),
    }


# --- adaptive video ---

TRACE_S = 3600
SESSIONS = {"robust-mpc": 6_000, "bola": 20_000, "mpc-o": 1_000}


def bench_video() -> None:
    """Print how many sessions of some controllers play per minute."""
    rows = [video_row(controller, sessions) for controller, sessions in SESSIONS.items()]
    print_rows(rows, as_json=False, title="sessions of 48 chunks over a rate trace, all cores")


def video_row(controller: str, sessions: int) -> dict[str, object]:
    """Measure sessions that play Pensieve's film over an hour of random rates, on all cores."""
    draws = random.Random(1)
    rates_bps = [draws.gammavariate(4.0, 0.6e6) for _ in range(TRACE_S)]
    trace = _core.RateTrace("bench", [float(s) for s in range(TRACE_S)], rates_bps, TRACE_S)
    film = _core.Film.read("pensieve")
    offsets_s = [TRACE_S * number / sessions for number in range(sessions)]
    seeds = list(range(sessions))
    with cost() as took:
        _core.play_over_rate(film, controller, "pensieve-linear", trace, offsets_s, seeds)
    return {
        "controller": controller,
        "sessions": sessions,
        "sessions per minute": round(60 * sessions / took.wall_s),
        "before": previous("video", controller, "sessions_per_minute"),
        "of CPU": round(60 * sessions / took.own_s),
    }


# --- policies ---

DECISIONS = 100_000
SIZES = (50, 256, 128, 64, 1)
"""Layer sizes of Astraea's actor."""
NETWORK = "-".join(map(str, SIZES))
CARD = """title = "bench"
{tcp}[observation]
steps = 5
features = [{features}]
[network]
file = "bench.onnx"
[action]
moves = "{moves}"
shape = "step"
step = {step!r}
"""


def bench_policies() -> None:
    """Print the decisions per second of a network with layers of `SIZES`, on one thread."""
    seen = np.random.default_rng(2).normal(0.0, 1.0, (DECISIONS // 10, SIZES[0])).tolist()
    with TemporaryDirectory() as directory:
        card = write_card(Path(directory))
        with cost() as took:
            for _ in range(10):
                _core.ask_policy(str(card), seen)
    row = {
        "network": NETWORK,
        "decisions per s": round(DECISIONS / took.wall_s),
        "before": previous("policies", NETWORK, "decisions_per_s"),
    }
    print_rows([row], as_json=False, title="decisions of one network, one thread")


def write_card(directory: Path, *, tcp: str = "", moves: str = "cwnd", step: float = 0.025) -> Path:
    """Write a policy card whose network has layers of `SIZES`."""
    (directory / "bench.onnx").write_bytes(_network())
    card = directory / "bench.toml"
    features = ", ".join(['{ of = "cwnd", times = 0.001 }'] * 10)
    card.write_text(CARD.format(features=features, tcp=tcp, moves=moves, step=step), "utf-8")
    return card


def _network() -> bytes:
    """Return a network with layers of `SIZES` and random weights, as ONNX."""
    draws = np.random.default_rng(1)
    layers = []
    for inputs, outputs in pairwise(SIZES):
        weight = draws.normal(0.0, inputs**-0.5, (inputs, outputs))
        then = Activation("tanh" if outputs == SIZES[-1] else "relu")
        layers.append(Layer(weight, draws.normal(0.0, 0.1, outputs), then))
    return DenseNetwork(layers).onnx()


# --- environments ---

ENVIRONMENTS, WARM_STEPS, STEPS = 64, 50, 400
INTERVAL_S = 0.02
RATES = ("2 Mbit/s", "10 Mbit/s", "50 Mbit/s")


def bench_gym() -> None:
    """Print the steps per second of environments, on one thread and on all processors."""
    if importlib.util.find_spec("gymnasium") is None:
        print_note("environments: left out: make setup-soak installs them")
        return
    counts = sorted({1, len(os.sched_getaffinity(0))})
    rows = [gym_row(rate, threads) for rate in RATES for threads in counts]
    title = f"steps of {ENVIRONMENTS} environments of {1e3 * INTERVAL_S:g} ms"
    print_rows(rows, as_json=False, title=title)


def gym_row(rate: str, threads: int) -> dict[str, object]:
    """Measure the steps per second of environments over a link of a given rate."""
    from skyhop_lab import gym

    world = over_fixed_path(rate, "40 ms", "20 s", {"cc": "policy"}, queue="1 BDP")
    world["draw"] = [{"key": "path.rtt", "range": {"from": 20, "to": 60, "unit": "ms"}}]
    env = gym.Environments(world, "astraea", num_envs=ENVIRONMENTS, threads=threads)
    env.reset(seed=1)
    # The window first grows to some BDP, and then action 0 keeps it.
    for step in range(WARM_STEPS):
        env.step(np.full((ENVIRONMENTS, 1), 1.0 if step < WARM_STEPS // 2 else 0.0))
    simulated_s = 0.0
    with cost() as took:
        for _ in range(STEPS):
            *_, infos = env.step(np.zeros((ENVIRONMENTS, 1)))
            simulated_s += float(infos["interval_s"].sum())
    return {
        "link": rate,
        "threads": threads,
        "steps per s": round(ENVIRONMENTS * STEPS / took.wall_s),
        "ms per step": round(1e3 * simulated_s / (ENVIRONMENTS * STEPS), 1),
        "simulated s per s": round(simulated_s / took.wall_s),
        "before": previous("gym", rate, f"steps_per_s_{threads}"),
    }
