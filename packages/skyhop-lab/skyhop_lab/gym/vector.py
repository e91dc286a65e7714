"""Gymnasium vector environment: many episodes in parallel on all processors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from skyhop import _core
from skyhop_lab.gym.environment import Observation, spaces_of
from skyhop_lab.gym.episodes import COMPLETE, TIME_UP, EpisodeSlots, check_single_agent
from skyhop_lab.gym.world import Worlds

Flags = NDArray[np.bool_]


class Environments(VectorEnv[Observation, Observation, Flags]):
    """`num_envs` environments that step together on several threads.

    Each environment draws from its own seed, so that an episode depends only on that seed and its
    actions. The step after the last step of an episode ignores its action and begins the next
    episode.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        worlds: Worlds,
        card: str | os.PathLike[str],
        reward: str = "leo",
        *,
        num_envs: int,
        threads: int | None = None,
        sets: Sequence[str] = (),
    ) -> None:
        """Create the environments.

        Args:
            worlds: as for `Environment`.
            card: as for `Environment`.
            reward: as for `Environment`.
            num_envs: number of environments.
            threads: number of threads; by default the number of available processors.
            sets: overrides of the scenarios, each "KEY=VALUE".

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        self.num_envs = num_envs
        self._slots = EpisodeSlots(worlds, card, reward, num_envs, threads=threads, sets=sets)
        self.single_observation_space, self.single_action_space = spaces_of(self._slots)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator] = []

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode in each environment.

        Environment n gets the seed `seed` + n, or the n-th seed if `seed` is a sequence.

        Raises:
            InputError: a drawn scenario is invalid, or does not have exactly one agent.
        """
        del options
        if seed is not None or not self._generators:
            seeds = (
                [None if seed is None else seed + slot for slot in range(self.num_envs)]
                if seed is None or isinstance(seed, int)
                else list(seed)
            )
            self._generators = [np.random.default_rng(one) for one in seeds]
        infos = self._begin(range(self.num_envs))
        return self._slots.observations.copy(), infos

    def step(
        self, actions: Any
    ) -> tuple[Observation, NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Apply the actions, and run each environment until its agent's next decision."""
        ended = np.flatnonzero(self._slots.status)
        self._slots.step(np.asarray(actions, np.float64).reshape(self.num_envs))
        infos = self._begin(ended.tolist()) if len(ended) else {}
        slots = self._slots
        every = np.ones(self.num_envs, np.bool_)
        for name, column in zip(_core.INTERVAL_FIGURES, slots.figures.T, strict=True):
            infos[name], infos[f"_{name}"] = column.copy(), every
        return (
            slots.observations.copy(),
            slots.rewards.copy(),
            slots.status == COMPLETE,
            slots.status == TIME_UP,
            infos,
        )

    def _begin(self, ended: Sequence[int]) -> dict[str, Any]:
        drawn = self._slots.begin({slot: self._generators[slot] for slot in ended})
        infos: dict[str, Any] = {}
        for slot, values in zip(ended, drawn, strict=True):
            check_single_agent(self._slots, slot)
            infos = self._add_info(infos, {"drawn": _Opaque(values)}, slot)
        return infos


class _Opaque(dict[str, Any]):
    """Dictionary that Gymnasium stores as one object, not as one column per key."""
