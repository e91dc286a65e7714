"""Many worlds side by side, over the processors: a Gymnasium vector environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from skyhop import _core
from skyhop.gym.environment import Seen, spaces_of
from skyhop.gym.episodes import COMPLETE, TIME_UP, Places, check_alone
from skyhop.gym.world import Worlds

Flags = NDArray[np.bool_]


class Environments(VectorEnv[Seen, Seen, Flags]):
    """As many environments as are wanted, which step at the same time on several threads.

    Each draws from a seed of its own, so that what happens in one depends on nothing but that and
    its actions. The step after an episode's last begins the next one, whatever the action.
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
        """Make them.

        Args:
            worlds: as for `Environment`.
            card: likewise.
            reward: likewise.
            num_envs: how many environments.
            threads: on how many threads; as many as there are processors where not given.
            sets: overrides of the scenarios, each "KEY=VALUE".

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        self.num_envs = num_envs
        self._places = Places(worlds, card, reward, num_envs, threads=threads, sets=sets)
        self.single_observation_space, self.single_action_space = spaces_of(self._places)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._sources: list[np.random.Generator] = []

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode in each; the seed of the n-th is `seed` + n, or the n-th of several.

        Raises:
            InputError: what was drawn is no scenario, or does not have one agent.
        """
        del options
        if seed is not None or not self._sources:
            seeds = (
                [None if seed is None else seed + place for place in range(self.num_envs)]
                if seed is None or isinstance(seed, int)
                else list(seed)
            )
            self._sources = [np.random.default_rng(one) for one in seeds]
        infos = self._begin(range(self.num_envs))
        return self._places.seen.copy(), infos

    def step(self, actions: Any) -> tuple[Seen, NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Do what the actions say until each agent is asked again."""
        over = np.flatnonzero(self._places.ended)
        self._places.step(np.asarray(actions, np.float64).reshape(self.num_envs))
        infos = self._begin(over.tolist()) if len(over) else {}
        places = self._places
        every = np.ones(self.num_envs, np.bool_)
        for name, column in zip(_core.INTERVAL_FIGURES, places.figures.T, strict=True):
            infos[name], infos[f"_{name}"] = column.copy(), every
        return (
            places.seen.copy(),
            places.rewards.copy(),
            places.ended == COMPLETE,
            places.ended == TIME_UP,
            infos,
        )

    def _begin(self, over: Sequence[int]) -> dict[str, Any]:
        drawn = self._places.begin({place: self._sources[place] for place in over})
        infos: dict[str, Any] = {}
        for place, told in zip(over, drawn, strict=True):
            check_alone(self._places, place)
            infos = self._add_info(infos, {"drawn": _Whole(told)}, place)
        return infos


class _Whole(dict[str, Any]):
    """What is told of one environment as a whole, not key by key."""
