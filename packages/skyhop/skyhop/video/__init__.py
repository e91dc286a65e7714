"""Adaptive video: playback at a path's rate in virtual time, and in a browser over a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyhop.video.playing import Sessions, play, rate_trace

_MODULES = {"Sessions": "playing", "play": "playing", "rate_trace": "playing"}

__all__ = ["Sessions", "play", "rate_trace"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
