"""Log of a policy's observations and outputs for one simulated flow, and of their effects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skyhop import _core
from skyhop.data.places import position_of
from skyhop.data.progress import ignore_progress
from skyhop.data.scenarios import Scenario, load_scenario
from skyhop.errors import InputError

Column = NDArray[np.float64]
_MOST_DECISIONS = 1_000_000
_NOT_ANNOUNCED_S = 60.0
"""Value of the interval figure `handover_in_s` while no handover is announced."""


@dataclass(frozen=True)
class DecisionLog:
    """Decisions of a policy for one flow, in the order of time."""

    title: str
    features: list[str]
    observations: NDArray[np.float64]
    """Newest step of each observation; shape decisions x features."""
    outputs: Column
    """Output of the network at each decision; NaN where the output was not a number."""
    figures: dict[str, Column]
    """Figures of the interval before each decision that only the simulator knows, by name
    (`INTERVAL_FIGURES`).
    """

    def announced_s(self) -> list[float]:
        """Return the announced times of handovers, in s since the run's start."""
        ahead_s = self.figures["handover_in_s"]
        announced = ahead_s < _NOT_ANNOUNCED_S
        times_s = (self.figures["at_s"] + ahead_s)[announced]
        return sorted({round(float(at_s), 2) for at_s in times_s})


def log_decisions(
    card: str | os.PathLike[str],
    scenario: Scenario,
    *,
    flow: int = 0,
    sets: Sequence[str] = (),
) -> DecisionLog:
    """Run a scenario in which a card decides for a flow; log its observations and outputs.

    The run equals the run of `skyhop sim` in which the flow has the card as `cc`.

    Args:
        card: a card's file, or the name of one that comes with skyhop.
        scenario: a file or an example's name, or its content as a dictionary.
        flow: index of a `[[flow]]` with `count = 1`.
        sets: overrides, each "KEY=VALUE".

    Raises:
        InputError: the card, the scenario or the index of the flow is wrong.
    """
    name = os.fspath(card)
    answering = _core.Answering(name)
    checked = load_scenario(scenario, sets)
    # A resolved scenario has the flow's card as `cc`; the value `policy` hands the flow to an
    # agent.
    agent = [f"flow.{flow}.cc=policy"]
    loaded = _core.Scenario.from_json(checked.to_json(), checked.origin, agent)
    loaded.load_cc_files(False)
    experiment = _core.Experiment.build(loaded, position_of, ignore_progress)
    episodes = _core.Episodes(name, "power", 1, 1)
    episodes.begin([(0, experiment)])
    if episodes.agents(0) != 1:
        raise InputError(
            f'flow {flow}: expected one flow with count = 1, and no other with cc = "policy"'
        )
    observations, outputs, figures = _run_episode(episodes, answering)
    features = answering.features()
    return DecisionLog(
        name,
        features,
        np.array(observations)[:, -len(features) :].astype(np.float64),
        np.array(outputs),
        dict(zip(_core.INTERVAL_FIGURES, np.array(figures).T, strict=True)),
    )


def _run_episode(
    episodes: _core.Episodes, answering: _core.Answering
) -> tuple[list[NDArray[np.float32]], list[float], list[Column]]:
    """Let the card decide until the run ends; return observations, outputs and interval figures."""
    row = np.zeros((1, episodes.inputs()), np.float32)
    rewards, status = np.zeros(1), np.zeros(1, np.uint8)
    agents, interval = np.zeros(1, np.int32), np.zeros((1, len(_core.INTERVAL_FIGURES)))
    observations: list[NDArray[np.float32]] = []
    outputs: list[float] = []
    figures: list[Column] = []
    episodes.read(row, rewards, status, agents, interval)
    while not status[0] and len(outputs) < _MOST_DECISIONS:
        observations.append(row[0].copy())
        outputs.append(answering.answer(row))
        figures.append(interval[0].copy())
        episodes.step(np.array(outputs[-1:]))
        episodes.read(row, rewards, status, agents, interval)
    if not outputs:
        raise InputError("the flow made no decision: does it begin before the end of the run?")
    return observations, outputs, figures
