"""Benchmark of policies: decisions of a network per second, on one thread."""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench_previous import previous
from skyhop import _core
from skyhop.cli.terminal import print_rows
from skyhop_lab.policies.networks import Activation, DenseNetwork, Layer

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


def _network() -> bytes:
    """Return a network with layers of `SIZES` and random weights, as ONNX."""
    draws = np.random.default_rng(1)
    layers = []
    for inputs, outputs in pairwise(SIZES):
        weight = draws.normal(0.0, inputs**-0.5, (inputs, outputs))
        then = Activation("tanh" if outputs == SIZES[-1] else "relu")
        layers.append(Layer(weight, draws.normal(0.0, 0.1, outputs), then))
    return DenseNetwork(layers).onnx()


def write_card(directory: Path, *, tcp: str = "", moves: str = "cwnd", step: float = 0.025) -> Path:
    """Write a policy card whose network has layers of `SIZES`."""
    (directory / "bench.onnx").write_bytes(_network())
    card = directory / "bench.toml"
    features = ", ".join(['{ of = "cwnd", times = 0.001 }'] * 10)
    card.write_text(CARD.format(features=features, tcp=tcp, moves=moves, step=step), "utf-8")
    return card


def policy_row(directory: Path) -> dict[str, object]:
    """Measure the network's decisions per second."""
    card = write_card(directory)
    seen = np.random.default_rng(2).normal(0.0, 1.0, (DECISIONS // 10, SIZES[0])).tolist()
    began_s = time.monotonic()
    for _ in range(10):
        _core.ask_policy(str(card), seen)
    took_s = time.monotonic() - began_s
    return {
        "network": NETWORK,
        "decisions per s": round(DECISIONS / took_s),
        "before": previous("policies", NETWORK, "decisions_per_s"),
    }


def bench_policies() -> None:
    """Print the row of a network with layers of `SIZES`."""
    with tempfile.TemporaryDirectory() as directory:
        row = policy_row(Path(directory))
    print_rows([row], as_json=False, title="decisions of one network, one thread")
