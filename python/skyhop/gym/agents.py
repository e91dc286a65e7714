"""Several agents that compete in one world: a PettingZoo environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray
from pettingzoo import AECEnv

from skyhop.errors import InputError
from skyhop.gym.environment import spaces_of
from skyhop.gym.episodes import COMPLETE, TIME_UP, Places
from skyhop.gym.world import Worlds

Seen = NDArray[np.float32]


class Agents(AECEnv[str, Seen, Any]):
    """Flows of a simulated run, each of which has an agent: `agent_0`, `agent_1`, in their order.

    They are asked one after another, whenever the interval of one ends, as their packets come; one
    that has not begun is not asked. What they see and do is what the card says, for all of them.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": [],
        "name": "skyhop",
        "is_parallelizable": False,
    }

    def __init__(
        self,
        worlds: Worlds,
        card: str | os.PathLike[str],
        reward: str = "astraea",
        *,
        most_agents: int,
        sets: Sequence[str] = (),
    ) -> None:
        """Make one.

        Args:
            worlds: as for `Environment`.
            card: likewise.
            reward: likewise.
            most_agents: no episode has more.
            sets: overrides of the scenarios, each "KEY=VALUE".

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        super().__init__()
        self.render_mode = None
        self._places = Places(worlds, card, reward, 1, sets=sets)
        self.possible_agents = [f"agent_{number}" for number in range(most_agents)]
        self._seen_space = spaces_of(self._places)[0]
        # Each of its own: what one draws is no matter of another's.
        self._own_spaces = {agent: spaces_of(self._places)[1] for agent in self.possible_agents}
        self._source = np.random.default_rng()

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        """Return what an agent sees."""
        del agent
        return self._seen_space

    def action_space(self, agent: str) -> gymnasium.spaces.Box:
        """Return what an agent may say."""
        return self._own_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Draw a scenario, and begin it.

        Raises:
            InputError: what was drawn is no scenario, has no agent, or more than `most_agents`.
        """
        del options
        if seed is not None:
            self._source = np.random.default_rng(seed)
        [drawn] = self._places.begin({0: self._source})
        count = self._places.core.agents(0)
        if count > len(self.possible_agents):
            most = len(self.possible_agents)
            raise InputError(f"an episode has {count} agents; most_agents is {most}")
        self.agents = self.possible_agents[:count]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {"drawn": drawn} for agent in self.agents}
        nothing = np.zeros(self._places.inputs, np.float32)
        self._seen = dict.fromkeys(self.agents, nothing)
        self._take_turn()

    def observe(self, agent: str) -> Seen:
        """Return what an agent saw when it was asked last."""
        return self._seen[agent]

    def step(self, action: Any) -> None:
        """Do what the agent says whose turn it is, until somebody is asked."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._places.step(np.asarray(action, np.float64).reshape(1))
        self._clear_rewards()
        self._take_turn()
        self.rewards[self.agent_selection] = float(self._places.rewards[0])
        self._accumulate_rewards()

    def _take_turn(self) -> None:
        """Turn to the agent that is asked; at the end to all, who have nothing to say any more."""
        ended = int(self._places.ended[0])
        agent = self.possible_agents[int(self._places.agents[0])]
        self.agent_selection = agent
        self._seen[agent] = self._places.seen[0].copy()
        self.infos[agent].update(self._places.known(0))
        if ended:
            self.terminations = dict.fromkeys(self.agents, ended == COMPLETE)
            self.truncations = dict.fromkeys(self.agents, ended == TIME_UP)
