"""One card in every engine: equal observations give equal outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from guest_kernels import needs_module_kernel
from needs import needs_namespaces, unless_impossible
from skyhop_lab.policies.networks import Activation, DenseNetwork, Layer

FIRST_MBPS = 4.0
STEP = 0.02
CARD = f"""\
title = "Steps of a rate"
about = "sees what is the same always, and steps its rate by what an odd network says to it"

[tcp]
governs = "window"
every = "interval"
interval = "100 ms"
patience = "2 s"

[observation]
steps = 1
features = [
    {{ of = "mss_bytes", times = 0.001 }},
    {{ of = "one", times = 0.7 }},
    {{ of = "handover_in_s", times = 0.01 }},
]

[network]
file = "odd.onnx"
output = [-1.0, 1.0]

[action]
moves = "own-rate"
shape = "step"
step = {STEP}
rate_mbps = [{FIRST_MBPS}, 0.1, 1000.0]
window_rtts = 4.0
round = "nearest"
least_cwnd = 4
"""
SCENARIO = """\
[path]
kind = "fixed"
rtt = "40 ms"
[link]
rate = "20 Mbit/s"
queue = "1 MB"
[run]
duration = "3 s"
[[flow]]
cc = "policy"
policy = "odd.toml"
"""
SEED, SLOPE = 15, 0.2
SEEN = [1.448, 0.7, 0.6]
"""Constant features of an observation as the card scales them: MSS, one, and no announcement."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Write the card, its network and a scenario."""
    (tmp_path / "odd.onnx").write_bytes(_network().onnx())
    (tmp_path / "odd.toml").write_text(CARD, "utf-8")
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO, "utf-8")
    return file


def _network() -> DenseNetwork:
    source = np.random.default_rng(SEED)
    sizes = [3, 16, 8, 1]
    after = [Activation("tanh"), Activation("leaky-relu", SLOPE), Activation("tanh")]
    return DenseNetwork(
        [
            Layer(source.normal(size=(rows, across)) / rows**0.5, source.normal(size=across), then)
            for rows, across, then in zip(sizes[:-1], sizes[1:], after, strict=True)
        ]
    )


def _said() -> float:
    """Return the output of the network in double precision."""
    values = np.array(SEEN)
    for layer in _network().layers:
        values = values @ layer.weight + layer.bias
        assert layer.activation is not None
        tanh = layer.activation.name == "tanh"
        values = np.tanh(values) if tanh else np.where(values < 0, SLOPE * values, values)
    return float(values[0])


def _simulate(scenario: Path, out: Path, _: Skyhop) -> None:
    sh.sim(scenario, out)


def _run_live(scenario: Path, out: Path, skyhop: Skyhop) -> None:
    needs_namespaces()
    done = skyhop("live", str(scenario), "-o", str(out))
    unless_impossible(done)
    assert done.returncode == 0, done.stderr


def _run_in_guest(scenario: Path, out: Path, skyhop: Skyhop) -> None:
    needs_module_kernel()
    done = skyhop("linux", str(scenario), "-o", str(out))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "run",
    [
        _simulate,
        pytest.param(_run_live, marks=[pytest.mark.soak, pytest.mark.alone]),
        pytest.param(_run_in_guest, marks=pytest.mark.soak),
    ],
)
def test_equal_observations_give_equal_outputs(
    run: Callable[[Path, Path, Skyhop], None], scenario: Path, skyhop: Skyhop
) -> None:
    out = scenario.with_name("out")
    run(scenario, out, skyhop)
    flows = sh.read_run(out).flows.to_pandas()
    rates = flows[flows.t_ns > 0.5e9].pacing_rate_bps.to_numpy()
    said = _said()
    assert 0.1 < abs(said) < 0.9
    factor = 1 + STEP * said if said >= 0 else 1 / (1 - STEP * said)
    decisions = np.round(np.log(rates / (FIRST_MBPS * 1e6)) / np.log(factor))
    # Successive decisions, of which the last ones differ much from the first.
    assert set(np.diff(decisions)) <= {0, 1, 2}
    assert decisions.max() >= 20
    # Each decision may be wrong by 1e-5, and rates are rounded to bytes per second.
    wrong = rates / (FIRST_MBPS * 1e6 * factor**decisions) - 1
    assert np.all(np.abs(wrong) <= STEP * 1e-5 * decisions + 8 / (FIRST_MBPS * 1e6))
