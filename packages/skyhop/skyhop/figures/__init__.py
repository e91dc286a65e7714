"""Figures of paths and runs: view models of `analysis` drawn as PNG, SVG and PDF.

>>> from skyhop.figures import path_figure, save
>>> save(path_figure("sd-ny.parquet"), "sd-ny.png")  # doctest: +SKIP

This is the only package that needs a drawing library. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.figures.sources import comparison_figure, path_figure, run_figure
    from skyhop.figures.style import Sheet, png_bytes, save

__all__ = ["Sheet", "comparison_figure", "path_figure", "png_bytes", "run_figure", "save"]

# Matplotlib prints long warnings about a home directory that is not writable; this is harmless.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

_HOMES = {
    "Sheet": "style",
    "comparison_figure": "sources",
    "path_figure": "sources",
    "png_bytes": "style",
    "run_figure": "sources",
    "save": "style",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"skyhop.figures.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skyhop.figures' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
