"""Figures of paths and runs.

>>> from skyhop.plot import path_figure, save
>>> save(path_figure("sd-ny.parquet"), "sd-ny.png")  # doctest: +SKIP

Names are loaded when they are first used: reading a run needs no drawing library.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.plot.comparison import comparison_figure
    from skyhop.plot.path import path_figure
    from skyhop.plot.records import ReportError, read_path, read_runs
    from skyhop.plot.run import run_figure
    from skyhop.plot.style import png_bytes
    from skyhop.plot.writing import save, write_files

__all__ = [
    "ReportError",
    "comparison_figure",
    "path_figure",
    "png_bytes",
    "read_path",
    "read_runs",
    "run_figure",
    "save",
    "write_files",
]

# It says at length that a home directory is not writable, which harms nothing here.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

_HOMES = {
    "ReportError": "records",
    "comparison_figure": "comparison",
    "path_figure": "path",
    "png_bytes": "style",
    "read_path": "records",
    "read_runs": "records",
    "run_figure": "run",
    "save": "writing",
    "write_files": "writing",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"skyhop.plot.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skyhop.plot' has no attribute '{name}'")
