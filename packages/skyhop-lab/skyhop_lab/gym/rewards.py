"""Names and descriptions of the rewards for training, from `crates/gym/src/rewards`."""

from __future__ import annotations

from skyhop import _core


def list_rewards() -> dict[str, str]:
    """Return the description of each reward, by the reward's name."""
    return dict(_core.list_rewards())
