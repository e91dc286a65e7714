"""Gymnasium environment with one agent in one world."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from skyhop_lab.gym.episodes import COMPLETE, TIME_UP, EpisodeSlots, check_single_agent
from skyhop_lab.gym.world import Worlds

Observation = NDArray[np.float32]


def spaces_of(slots: EpisodeSlots) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Return the observation and action space: input and output of the card's network."""
    least, most = slots.bounds
    observations = gymnasium.spaces.Box(-np.inf, np.inf, (slots.inputs,), np.float32)
    return observations, gymnasium.spaces.Box(least, most, (1,), np.float32)


class Environment(gymnasium.Env[Observation, Observation]):
    """One agent that is the congestion control of one flow in simulated runs.

    The card defines the observation, and what the action, one number, means. An episode is a run of
    a scenario that is drawn from the world. It is truncated when its time is up, and terminated
    when all data of the flow has arrived. `info` has the figures of the last interval by name; at
    the beginning of an episode it has the drawn values as `drawn`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        worlds: Worlds,
        card: str | os.PathLike[str],
        reward: str = "leo",
        *,
        sets: Sequence[str] = (),
    ) -> None:
        """Create the environment.

        Args:
            worlds: the file or content of a world, or several worlds, which are equally likely.
            card: a card's file, or the name of one that comes with skyhop; its network is
                ignored.
            reward: a name that `list_rewards` returns.
            sets: overrides of the scenarios, each "KEY=VALUE".

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        self._slots = EpisodeSlots(worlds, card, reward, 1, sets=sets)
        self.observation_space, self.action_space = spaces_of(self._slots)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a scenario from the world and begin an episode with it.

        Raises:
            InputError: the drawn scenario is invalid, or does not have exactly one agent.
        """
        super().reset(seed=seed, options=options)
        [drawn] = self._slots.begin({0: self.np_random})
        check_single_agent(self._slots, 0)
        return self._slots.observations[0].copy(), {
            **self._slots.interval_figures(0),
            "drawn": drawn,
        }

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Apply `action`, and run until the agent's next decision."""
        self._slots.step(np.asarray(action, np.float64).reshape(1))
        status = int(self._slots.status[0])
        reward = float(self._slots.rewards[0])
        ended = (status == COMPLETE, status == TIME_UP)
        figures = self._slots.interval_figures(0)
        return self._slots.observations[0].copy(), reward, *ended, figures
