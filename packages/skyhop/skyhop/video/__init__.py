"""Adaptive video: playback at a path's rate in virtual time, and in a browser over a live run."""

from skyhop.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
