"""Environments to train policies in: an agent's decisions control TCP flows of the simulator.

>>> from skyhop_lab import gym
>>> env = gym.Environment("examples/world.toml", "astraea", reward="leo")  # doctest: +SKIP
>>> seen, _ = env.reset(seed=1)  # doctest: +SKIP
>>> seen, reward, terminated, truncated, info = env.step([0.5])  # doctest: +SKIP

This package needs the libraries of the extra `skyhop-lab[gym]`. docs/how-to/training.md explains
worlds, cards and rewards. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop_lab.gym.agents import Agents
    from skyhop_lab.gym.environment import Environment
    from skyhop_lab.gym.rewards import list_rewards
    from skyhop_lab.gym.vector import Environments
    from skyhop_lab.gym.world import World, read_world

__all__ = ["Agents", "Environment", "Environments", "World", "list_rewards", "read_world"]

_HOMES = {
    "Agents": "agents",
    "Environment": "environment",
    "Environments": "vector",
    "World": "world",
    "list_rewards": "rewards",
    "read_world": "world",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'skyhop_lab.gym' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(f"skyhop_lab.gym.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("gymnasium", "pettingzoo"):
            from skyhop.errors import RunError

            raise RunError(
                f"skyhop_lab.gym.{name}: needs {error.name}: pip install 'skyhop-lab[gym]'"
            ) from None
        raise


def __dir__() -> list[str]:
    return __all__
