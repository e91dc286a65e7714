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
from skyhop_lab.gym.environment import spaces_of
from skyhop_lab.gym.episodes import COMPLETE, TIME_UP, EpisodeSlots
from skyhop_lab.gym.world import Worlds

Observation = NDArray[np.float32]


class Agents(AECEnv[str, Observation, Any]):
    """Agents `agent_0`, `agent_1`, … for the flows of a simulated run, in the order of the flows.

    An agent's turn comes whenever a decision interval of its flow ends, so the order of turns
    follows the packets. Agents of flows that have not begun get no turn. One card defines the
    observations and actions of all agents.
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
        """Create the environment.

        Args:
            worlds: as for `Environment`.
            card: as for `Environment`.
            reward: as for `Environment`.
            most_agents: upper limit on the agents in an episode.
            sets: overrides of the scenarios, each "KEY=VALUE".

        Raises:
            InputError: a world, the card or the reward is wrong.
        """
        super().__init__()
        self.render_mode = None
        self._slots = EpisodeSlots(worlds, card, reward, 1, sets=sets)
        self.possible_agents = [f"agent_{number}" for number in range(most_agents)]
        self._observation_space = spaces_of(self._slots)[0]
        # Each agent has a space of its own, because a space samples from its own random generator.
        self._action_spaces = {agent: spaces_of(self._slots)[1] for agent in self.possible_agents}
        self._generator = np.random.default_rng()

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        """Return the observation space, the same for all agents."""
        del agent
        return self._observation_space

    def action_space(self, agent: str) -> gymnasium.spaces.Box:
        """Return an agent's action space: the policy's output, within the card's bounds."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Draw a scenario from the world and begin an episode with it.

        Raises:
            InputError: the drawn scenario is invalid, has no agent, or more than `most_agents`.
        """
        del options
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        [drawn] = self._slots.begin({0: self._generator})
        count = self._slots.core.agents(0)
        if count > len(self.possible_agents):
            most = len(self.possible_agents)
            raise InputError(f"an episode has {count} agents; most_agents is {most}")
        self.agents = self.possible_agents[:count]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {"drawn": drawn} for agent in self.agents}
        nothing = np.zeros(self._slots.inputs, np.float32)
        self._observations = dict.fromkeys(self.agents, nothing)
        self._select_agent()

    def observe(self, agent: str) -> Observation:
        """Return the observation that an agent had at its last turn."""
        return self._observations[agent]

    def step(self, action: Any) -> None:
        """Apply the action of the selected agent, and run until the next agent's turn."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._slots.step(np.asarray(action, np.float64).reshape(1))
        self._clear_rewards()
        self._select_agent()
        self.rewards[self.agent_selection] = float(self._slots.rewards[0])
        self._accumulate_rewards()

    def _select_agent(self) -> None:
        """Select the agent whose turn it is; at the end of the episode mark all agents as done."""
        status = int(self._slots.status[0])
        agent = self.possible_agents[int(self._slots.agents[0])]
        self.agent_selection = agent
        self._observations[agent] = self._slots.observations[0].copy()
        self.infos[agent].update(self._slots.interval_figures(0))
        if status:
            self.terminations = dict.fromkeys(self.agents, status == COMPLETE)
            self.truncations = dict.fromkeys(self.agents, status == TIME_UP)
