"""Rewards by name."""

from __future__ import annotations

from skyhop import _core


def list_rewards() -> dict[str, str]:
    """Return what each reward is for, by name."""
    return dict(_core.list_rewards())
