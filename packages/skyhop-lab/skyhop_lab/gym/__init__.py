"""Environments to train policies in: an agent's decisions control TCP flows of the simulator.

>>> from skyhop_lab import gym
>>> env = gym.Environment("examples/world.toml", "astraea", reward="leo")  # doctest: +SKIP
>>> seen, _ = env.reset(seed=1)  # doctest: +SKIP
>>> seen, reward, terminated, truncated, info = env.step([0.5])  # doctest: +SKIP

This package needs the libraries of the extra `skyhop-lab[gym]`. docs/how-to/training.md explains
worlds, cards and rewards. Names are loaded when they are first used.
"""

from skyhop.lazy import lazy_names

_load, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name in ("gymnasium", "pettingzoo"):
            from skyhop.errors import RunError
            from skyhop.install import how_to_install

            raise RunError(
                f"skyhop_lab.gym.{name}: needs {error.name}, which is not installed: "
                f"run {how_to_install('skyhop-lab[gym]')}"
            ) from None
        raise
