"""What all environments stand on: places in which episodes go on, and what is told of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyhop import _core
from skyhop.errors import InputError
from skyhop.gym.world import World, Worlds, read_world

COMPLETE, TIME_UP = 1, 2
"""How an episode has ended."""


class Places:
    """Places in which episodes go on side by side."""

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
        """Make so many places.

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        each = list(worlds) if isinstance(worlds, list | tuple) else [worlds]
        self.worlds = [read_world(one, sets) for one in each]
        if not self.worlds:
            raise InputError("expected at least one world")
        if count < 1:
            raise InputError(f"expected a place for an episode or more, not {count}")
        threads = threads or len(os.sched_getaffinity(0))
        self.count = count
        self.core = _core.Episodes(os.fspath(card), reward, count, min(threads, count))
        self.inputs, self.bounds = self.core.inputs(), self.core.bounds()
        self.seen: NDArray[np.float32] = np.zeros((count, self.inputs), np.float32)
        self.rewards: NDArray[np.float64] = np.zeros(count)
        self.ended: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.agents: NDArray[np.int32] = np.zeros(count, np.int32)
        self.figures: NDArray[np.float64] = np.zeros((count, len(_core.INTERVAL_FIGURES)))

    def begin(self, sources: Mapping[int, np.random.Generator]) -> list[dict[str, Any]]:
        """Begin an episode in each of these places, drawn from its source; return what was drawn.

        Raises:
            InputError: what was drawn is no scenario, or nobody has anything to decide in it.
        """
        begun, told = [], []
        for place, source in sources.items():
            drawn = self._world_of(place, source).draw(source)
            begun.append((place, drawn.experiment))
            told.append(drawn.values)
        self.core.begin(begun)
        self._read()
        return told

    def _world_of(self, place: int, source: np.random.Generator) -> World:
        """Return a place's world: its own, so that each world has as many turns as the others.

        Where there are more worlds than places they are drawn.
        """
        worlds = self.worlds
        if self.count < len(worlds):
            return worlds[int(source.integers(len(worlds)))]
        return worlds[place % len(worlds)]

    def step(self, outputs: NDArray[np.float64]) -> None:
        """Answer with an output for each place; where an episode has ended, nothing happens."""
        self.core.step(np.ascontiguousarray(outputs, np.float64))
        self._read()

    def _read(self) -> None:
        self.core.read(self.seen, self.rewards, self.ended, self.agents, self.figures)

    def known(self, place: int) -> dict[str, float]:
        """Return what is known of a place's interval, by name."""
        return dict(zip(_core.INTERVAL_FIGURES, self.figures[place].tolist(), strict=True))


def check_alone(places: Places, place: int) -> None:
    """Check that there is one agent in a place.

    Raises:
        InputError: there are more.
    """
    count = places.core.agents(place)
    if count > 1:
        raise InputError(
            f'{count} flows of the world have cc = "policy": that is for skyhop.gym.Agents'
        )
