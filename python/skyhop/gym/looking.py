"""Looking at a policy: what it saw of a connection, what it said, and what came of it."""

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
_NEVER_S = 60.0
"""So far ahead lies what is not announced."""


@dataclass(frozen=True)
class Look:
    """All decisions for a connection, in their order."""

    title: str
    features: list[str]
    seen: NDArray[np.float64]
    """The newest step of what was seen: decisions x features."""
    said: Column
    """NaN where it said nothing that is a number."""
    figures: dict[str, Column]
    """What the simulator knows of the interval that each decision ends, by name."""

    def announced_s(self) -> list[float]:
        """Return when handovers were announced to be, since the run's start."""
        ahead_s = self.figures["handover_in_s"]
        told = ahead_s < _NEVER_S
        return sorted({round(float(at), 2) for at in (self.figures["at_s"] + ahead_s)[told]})


def look(
    card: str | os.PathLike[str],
    scenario: Scenario,
    *,
    flow: int = 0,
    sets: Sequence[str] = (),
) -> Look:
    """Run a scenario in which a card decides for a flow, and keep what it saw and said.

    The run is that of `skyhop sim` with the card in the flow.

    Args:
        card: a card's file, or the name of one that comes with skyhop.
        scenario: a file or an example's name, or its content as a dictionary.
        flow: the flow's number, of one that runs once (`count = 1`).
        sets: overrides, each "KEY=VALUE".

    Raises:
        InputError: the card, the scenario, or the flow's number is wrong.
    """
    name = os.fspath(card)
    answering = _core.Answering(name)
    checked = load_scenario(scenario, sets)
    # As it is resolved, a card that the flow has is its `cc`.
    asked = [f"flow.{flow}.cc=policy"]
    loaded = _core.Scenario.from_json(checked.to_json(), checked.origin, asked)
    loaded.load_cc_files(False)
    experiment = _core.Experiment.build(loaded, position_of, ignore_progress)
    episodes = _core.Episodes(name, "power", 1, 1)
    episodes.begin([(0, experiment)])
    if episodes.agents(0) != 1:
        raise InputError(
            f"flow {flow}: a look is at one flow, with count = 1, and no other of policy"
        )
    seen, said, figures = _played(episodes, answering)
    features = answering.features()
    return Look(
        name,
        features,
        np.array(seen)[:, -len(features) :].astype(np.float64),
        np.array(said),
        dict(zip(_core.INTERVAL_FIGURES, np.array(figures).T, strict=True)),
    )


def _played(
    episodes: _core.Episodes, answering: _core.Answering
) -> tuple[list[NDArray[np.float32]], list[float], list[Column]]:
    """Let the card decide until the run is over."""
    row = np.zeros((1, episodes.inputs()), np.float32)
    rewards, ended = np.zeros(1), np.zeros(1, np.uint8)
    agents, known = np.zeros(1, np.int32), np.zeros((1, len(_core.INTERVAL_FIGURES)))
    seen: list[NDArray[np.float32]] = []
    said: list[float] = []
    figures: list[Column] = []
    episodes.read(row, rewards, ended, agents, known)
    while not ended[0] and len(said) < _MOST_DECISIONS:
        seen.append(row[0].copy())
        said.append(answering.answer(row))
        figures.append(known[0].copy())
        episodes.step(np.array(said[-1:]))
        episodes.read(row, rewards, ended, agents, known)
    if not said:
        raise InputError("the flow was never asked to decide: does it begin before the run's end?")
    return seen, said, figures
