"""Training of policies: it is reproducible, improves, and its network runs in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skyhop
from needs import needs_train
from skyhop import _core
from skyhop.errors import InputError

WORLD: dict[str, Any] = {
    "path": {"kind": "fixed", "rtt": "20 ms"},
    "link": {"rate": "4 Mbit/s", "queue": "2 BDP"},
    "run": {"duration": "8 s"},
    "flow": [{"cc": "policy"}],
    "draw": [{"key": "link.rate", "range": {"from": 2, "to": 8, "unit": "Mbit/s"}}],
}
CARD = """title = "trained"
[tcp]
every = "round-trip"
[observation]
steps = 2
features = [
    { name = "queue", of = "rtt_s", over = "min_rtt_s", plus = -1.0, most = 4.0 },
    { name = "rate", of = "delivered_bps", over = "max(delivered_bps, 8)" },
]
[network]
file = "trained.onnx"
[action]
moves = "own-cwnd"
shape = "power"
"""


@pytest.fixture(autouse=True)
def _needed() -> None:
    needs_train()


@pytest.fixture
def card(tmp_path: Path) -> Path:
    file = tmp_path / "card.toml"
    file.write_text(CARD, "utf-8")
    return file


@pytest.mark.soak
def test_a_seed_repeats_training_to_the_last_weight(card: Path) -> None:
    from skyhop_lab.gym.training import TrainingPlan, train

    several = {**WORLD, "flow": [{"cc": "policy"}, {"cc": "policy", "start": "1 s"}], "draw": []}

    def trained(seed: int) -> bytes:
        plan = TrainingPlan(
            steps=2048, seed=seed, slots=8, rollout_steps=64, hidden=(8,), minibatches=2
        )
        return train([WORLD, several], card, "leo", plan).network.onnx()

    first = trained(1)
    assert trained(1) == first
    assert trained(2) != first


@pytest.mark.soak
def test_training_improves_the_reward_and_its_network_runs_in_the_simulator(card: Path) -> None:
    from skyhop_lab.gym.training import TrainingPlan, train

    plan = TrainingPlan(
        steps=60_000, slots=16, rollout_steps=64, hidden=(16,), minibatches=4, learning_rate=3e-3
    )
    done = train(WORLD, card, "leo", plan)
    rewards = [row.mean_reward for row in done.curve]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.1
    assert len(done.curve_csv().splitlines()) == 1 + len(done.curve)

    card.with_name("trained.onnx").write_bytes(done.network.onnx())
    flow = [{"cc": "policy", "policy": str(card)}]
    run = skyhop.sim({**{k: v for k, v in WORLD.items() if k != "draw"}, "flow": flow})
    assert run.summary["flows"][0]["goodput_bps"] > 0.6 * 4e6


def test_the_onnx_file_computes_what_the_trained_network_does(card: Path) -> None:
    """Compare the file, which normalises inputs in its first layer, with the trained layers."""
    from skyhop_lab.gym.episodes import EpisodeSlots
    from skyhop_lab.gym.training import TrainingPlan, train

    plan = TrainingPlan(steps=2048, slots=8, rollout_steps=64, hidden=(8,), minibatches=2)
    network = train(WORLD, card, "leo", plan).network
    card.with_name("trained.onnx").write_bytes(network.onnx())
    slots = EpisodeSlots(WORLD, card, "leo", 4)
    slots.begin({slot: np.random.default_rng(slot) for slot in range(4)})
    for _ in range(5):
        slots.step(np.full(4, 0.3))
    values = slots.observations.astype(np.float64)
    for layer in network.layers:
        values = np.tanh(values @ layer.weight + layer.bias)
    for row, expected in zip(slots.observations.tolist(), values[:, 0].tolist(), strict=True):
        assert _core.ask_policy(str(card), [row])[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'file = "trained.onnx"',
            'file = "decide.py"',
            "network.file: expected the name of an ONNX",
        ),
        (
            'file = "trained.onnx"',
            'file = "../net.onnx"',
            "network.file: expected the name of an ONNX",
        ),
        (
            'file = "trained.onnx"',
            'file = "a.onnx"\nmemory = [{ input = "h", output = "i", size = 2 }]',
            "networks without memory",
        ),
    ],
)
def test_cards_that_cannot_be_trained_are_refused(
    card: Path, old: str, new: str, message: str
) -> None:
    from skyhop_lab.gym.training import network_file

    card.write_text(CARD.replace(old, new), "utf-8")
    with pytest.raises(InputError, match=message):
        network_file(card)


def test_other_bounds_cannot_be_trained(card: Path) -> None:
    from skyhop_lab.gym.training import train

    card.write_text(CARD.replace("[action]", "output = [0.0, 1.0]\n[action]"), "utf-8")
    with pytest.raises(InputError, match="outputs from -1 to 1"):
        train(WORLD, card)
