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
from skyhop_lab.policies.onnx import INPUT_NAME, OUTPUT_NAME, Node, encode

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
    nodes, constants, name = [], {}, INPUT_NAME
    for layer, (inputs, outputs) in enumerate(pairwise(SIZES)):
        constants[f"w{layer}"] = draws.normal(0.0, inputs**-0.5, (inputs, outputs))
        constants[f"b{layer}"] = draws.normal(0.0, 0.1, outputs)
        is_last = outputs == SIZES[-1]
        nodes.append(Node("Gemm", (name, f"w{layer}", f"b{layer}"), f"sum{layer}"))
        name = OUTPUT_NAME if is_last else f"out{layer}"
        nodes.append(Node("Tanh" if is_last else "Relu", (f"sum{layer}",), name))
    return encode(nodes, constants, SIZES[0], SIZES[-1])


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
