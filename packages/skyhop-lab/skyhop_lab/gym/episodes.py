"""Parallel episodes, on which all environments are built, with observations and rewards."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyhop import _core
from skyhop.errors import InputError
from skyhop_lab.gym.world import World, Worlds, read_world

COMPLETE, TIME_UP = 1, 2
"""Status of an episode that has ended: all data has arrived, or the run's time is up. The status is
0 while the episode runs.
"""


class EpisodeSlots:
    """Slots for episodes that run in parallel; each slot's current state is a row of the arrays."""

    def __init__(
        self,
        worlds: Worlds,
        card: str | os.PathLike[str],
        reward: str,
        count: int,
        *,
        threads: int | None = None,
        sets: Sequence[str] = (),
    ) -> None:
        """Create `count` empty slots.

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        each = list(worlds) if isinstance(worlds, list | tuple) else [worlds]
        self.worlds = [read_world(one, sets) for one in each]
        if not self.worlds:
            raise InputError("expected at least one world")
        if count < 1:
            raise InputError(f"expected at least one environment, not {count}")
        threads = threads or len(os.sched_getaffinity(0))
        self.count = count
        self.core = _core.Episodes(os.fspath(card), reward, count, min(threads, count))
        self.inputs, self.bounds = self.core.inputs(), self.core.bounds()
        self.observations: NDArray[np.float32] = np.zeros((count, self.inputs), np.float32)
        self.rewards: NDArray[np.float64] = np.zeros(count)
        self.status: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.agents: NDArray[np.int32] = np.zeros(count, np.int32)
        self.figures: NDArray[np.float64] = np.zeros((count, len(_core.INTERVAL_FIGURES)))

    def begin(self, generators: Mapping[int, np.random.Generator]) -> list[dict[str, Any]]:
        """Begin an episode in each of these slots; draw its scenario with the slot's generator.

        Returns:
            The values drawn for each episode.

        Raises:
            InputError: the drawn scenario is invalid, or no flow of it has an agent.
        """
        begun, drawn_values = [], []
        for slot, generator in generators.items():
            drawn = self._world_of(slot, generator).draw(generator)
            begun.append((slot, drawn.experiment))
            drawn_values.append(drawn.values)
        self.core.begin(begun)
        self._read()
        return drawn_values

    def _world_of(self, slot: int, generator: np.random.Generator) -> World:
        """Return the world for a slot's next episode.

        Each slot always has the same world, so that slots are shared equally among worlds. If there
        are more worlds than slots, each episode draws its world.
        """
        worlds = self.worlds
        if self.count < len(worlds):
            return worlds[int(generator.integers(len(worlds)))]
        return worlds[slot % len(worlds)]

    def step(self, outputs: NDArray[np.float64]) -> None:
        """Pass on one policy output per slot, and run each until its next decision.

        Outputs for slots whose episode has ended are ignored.
        """
        self.core.step(np.ascontiguousarray(outputs, np.float64))
        self._read()

    def _read(self) -> None:
        self.core.read(self.observations, self.rewards, self.status, self.agents, self.figures)

    def interval_figures(self, slot: int) -> dict[str, float]:
        """Return figures of a slot's last interval, by the names in `INTERVAL_FIGURES`.

        These include figures that only the simulator knows.
        """
        return dict(zip(_core.INTERVAL_FIGURES, self.figures[slot].tolist(), strict=True))


def check_single_agent(slots: EpisodeSlots, slot: int) -> None:
    """Check that the episode in a slot has only one agent.

    Raises:
        InputError: the episode has several agents.
    """
    count = slots.core.agents(slot)
    if count > 1:
        raise InputError(
            f'{count} flows of the world have cc = "policy": that needs skyhop_lab.gym.Agents'
        )
