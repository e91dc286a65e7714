"""What agents saw, said and got, one turn after another, and what each turn was worth."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skyhop.gym.episodes import Places

Reals = NDArray[np.float32]


@dataclass
class _Turns:
    """Those of one agent in one episode."""

    rows: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    """What it got for the turn before."""


@dataclass(frozen=True)
class Batch:
    """Turns whose reward is known."""

    seen: Reals
    known: Reals
    """What only the simulator knew."""
    said: Reals
    odds: Reals
    """Logarithm of how likely it was to say that."""
    gained: Reals
    """How much better it was than expected (generalized advantage estimation)."""
    worth: Reals
    """What followed, discounted."""
    mean_reward: float


class Record:
    """Turns in all places since the last batch was taken."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen: list[Reals] = []
        self._known: list[Reals] = []
        self._said: list[Reals] = []
        self._odds: list[Reals] = []
        self._expected: list[Reals] = []
        self._of: dict[tuple[int, int, int], _Turns] = defaultdict(_Turns)
        self._episodes = np.zeros(places.count, np.int64)

    def note(self, known: Reals, said: Reals, odds: Reals, expected: Reals) -> None:
        """Note the turn of each place.

        Args:
            known: what only the simulator knows of the interval before.
            said: by its agent.
            odds: logarithm of how likely that was.
            expected: what is to follow.
        """
        places = self._places
        first = len(self._seen) * places.count
        agents, rewards = places.agents.tolist(), places.rewards.tolist()
        for place, episode in enumerate(self._episodes.tolist()):
            turns = self._of[place, episode, agents[place]]
            turns.rows.append(first + place)
            turns.rewards.append(rewards[place])
        self._seen.append(places.seen.copy())
        self._known.append(known)
        self._said.append(said)
        self._odds.append(odds)
        self._expected.append(expected)

    def begin(self, over: list[int]) -> None:
        """Note that the episodes in these places are over."""
        self._episodes[over] += 1

    def take(self, discount: float, trace: float) -> Batch:
        """Return the turns after which their agent was asked again, and forget them all.

        Schulman et al., "High-dimensional continuous control using generalized advantage
        estimation", ICLR 2016: `trace` is their lambda. The last turn of an agent stands for what
        came after it, as far as it was expected.
        """
        expected = np.concatenate(self._expected)
        rows: list[int] = []
        gained: list[float] = []
        rewards: list[float] = []
        for turns in self._of.values():
            more = 0.0
            for turn in range(len(turns.rows) - 2, -1, -1):
                row, after = turns.rows[turn], turns.rows[turn + 1]
                reward = turns.rewards[turn + 1]
                more *= discount * trace
                more += reward + discount * float(expected[after]) - float(expected[row])
                rows.append(row)
                gained.append(more)
                rewards.append(reward)
        gains = np.asarray(gained, np.float32)
        batch = Batch(
            np.concatenate(self._seen)[rows],
            np.concatenate(self._known)[rows],
            np.concatenate(self._said)[rows],
            np.concatenate(self._odds)[rows],
            gains,
            gains + expected[rows],
            float(np.mean(rewards)),
        )
        for kept in (self._seen, self._known, self._said, self._odds, self._expected):
            kept.clear()
        self._of.clear()
        return batch
