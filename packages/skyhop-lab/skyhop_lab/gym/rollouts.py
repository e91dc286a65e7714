"""Rollouts for PPO: observations, actions and rewards of all agents, and their advantages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skyhop_lab.gym.episodes import EpisodeSlots

Reals = NDArray[np.float32]


@dataclass
class _Trajectory:
    """Steps of one agent within one episode."""

    rows: list[int] = field(default_factory=list)
    """Index of each step in the buffer's concatenated columns."""
    rewards: list[float] = field(default_factory=list)
    """Reward for the previous step, which is known at the agent's next decision."""


@dataclass(frozen=True)
class Batch:
    """Steps whose reward is known, one row per step."""

    observations: Reals
    privileged: Reals
    """Figures that only the simulator knows: additional input of the critic."""
    actions: Reals
    log_probabilities: Reals
    """Logarithm of the policy's probability density at the action, when it was taken."""
    advantages: Reals
    """Generalized advantage estimate of each action."""
    returns: Reals
    """Estimated discounted return of each step: the critic's targets."""
    mean_reward: float


class RolloutBuffer:
    """Steps in all slots that were added since the last call of `drain`."""

    def __init__(self, slots: EpisodeSlots) -> None:
        self._slots = slots
        self._observations: list[Reals] = []
        self._privileged: list[Reals] = []
        self._actions: list[Reals] = []
        self._log_probabilities: list[Reals] = []
        self._values: list[Reals] = []
        self._trajectories: dict[tuple[int, int, int], _Trajectory] = defaultdict(_Trajectory)
        self._episodes = np.zeros(slots.count, np.int64)

    def add(
        self, privileged: Reals, actions: Reals, log_probabilities: Reals, values: Reals
    ) -> None:
        """Add the current step of each slot.

        Args:
            privileged: figures of the last interval that only the simulator knows.
            actions: the action of each slot's agent.
            log_probabilities: logarithm of the policy's density at each action.
            values: the critic's estimate of the discounted return.
        """
        slots = self._slots
        first = len(self._observations) * slots.count
        agents, rewards = slots.agents.tolist(), slots.rewards.tolist()
        for slot, episode in enumerate(self._episodes.tolist()):
            trajectory = self._trajectories[slot, episode, agents[slot]]
            trajectory.rows.append(first + slot)
            trajectory.rewards.append(rewards[slot])
        self._observations.append(slots.observations.copy())
        self._privileged.append(privileged)
        self._actions.append(actions)
        self._log_probabilities.append(log_probabilities)
        self._values.append(values)

    def end_episodes(self, slots: list[int]) -> None:
        """Record that the episodes in these slots have ended.

        Later steps belong to new episodes.
        """
        self._episodes[slots] += 1

    def drain(self, discount: float, gae_lambda: float) -> Batch:
        """Return all steps whose agent has decided again since, and empty the buffer.

        Source: Schulman et al., "High-dimensional continuous control using generalized advantage
        estimation", ICLR 2016. The last step of an agent only bootstraps: its value estimate stands
        for the rewards that were not observed.
        """
        values = np.concatenate(self._values)
        rows: list[int] = []
        advantages: list[float] = []
        rewards: list[float] = []
        for trajectory in self._trajectories.values():
            advantage = 0.0
            for step in range(len(trajectory.rows) - 2, -1, -1):
                row, after = trajectory.rows[step], trajectory.rows[step + 1]
                reward = trajectory.rewards[step + 1]
                advantage *= discount * gae_lambda
                advantage += reward + discount * float(values[after]) - float(values[row])
                rows.append(row)
                advantages.append(advantage)
                rewards.append(reward)
        advantage_column = np.asarray(advantages, np.float32)
        batch = Batch(
            np.concatenate(self._observations)[rows],
            np.concatenate(self._privileged)[rows],
            np.concatenate(self._actions)[rows],
            np.concatenate(self._log_probabilities)[rows],
            advantage_column,
            advantage_column + values[rows],
            float(np.mean(rewards)),
        )
        for column in (
            self._observations,
            self._privileged,
            self._actions,
            self._log_probabilities,
            self._values,
        ):
            column.clear()
        self._trajectories.clear()
        return batch
