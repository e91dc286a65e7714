"""One agent in one world: a Gymnasium environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from skyhop.gym.episodes import COMPLETE, TIME_UP, Places, check_alone
from skyhop.gym.world import Worlds

Seen = NDArray[np.float32]


def spaces_of(places: Places) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Return what an agent sees, and what it says: the input and output of the card's network."""
    least, most = places.bounds
    seen = gymnasium.spaces.Box(-np.inf, np.inf, (places.inputs,), np.float32)
    return seen, gymnasium.spaces.Box(least, most, (1,), np.float32)


class Environment(gymnasium.Env[Seen, Seen]):
    """A flow of a simulated run whose congestion control is the agent.

    What it sees is what the card says, and so is what its action, one number, means. An episode is
    a run of a scenario that is drawn from the world; it is truncated when its time is up, and
    terminated when all that the flow had to send has arrived. `info` has the figures of the
    interval by name, and at the beginning what was `drawn`.
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
        """Make one.

        Args:
            worlds: the file or content of a world, or several, each of which is as likely.
            card: a card's file, or the name of one that comes with skyhop; its network is not
                looked at.
            reward: the name of one of `list_rewards`.
            sets: overrides of the scenarios, each "KEY=VALUE".

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        self._places = Places(worlds, card, reward, 1, sets=sets)
        self.observation_space, self.action_space = spaces_of(self._places)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Draw a scenario, and begin it.

        Raises:
            InputError: what was drawn is no scenario, or does not have one agent.
        """
        super().reset(seed=seed, options=options)
        [drawn] = self._places.begin({0: self.np_random})
        check_alone(self._places, 0)
        return self._places.seen[0].copy(), {**self._places.known(0), "drawn": drawn}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Do what `action` says until the agent is asked again."""
        self._places.step(np.asarray(action, np.float64).reshape(1))
        ended = int(self._places.ended[0])
        reward = float(self._places.rewards[0])
        told = (ended == COMPLETE, ended == TIME_UP)
        return self._places.seen[0].copy(), reward, *told, self._places.known(0)
