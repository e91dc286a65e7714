"""The workbench for transport over satellite networks.

    import skyhop

    trace = skyhop.path("San Diego", "New York", duration="10 min")
    trace.plot()
    run = skyhop.sim("handover")
    run.flows  # a pyarrow table
    skyhop.sweep("handover", {"flow.0.cc": ["cubic", "bbr"]}, repeat=3)  # a polars frame

Names are imported at their first use, so that importing the package is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop import figures, report, study
    from skyhop.data.constellations import Constellation, constellation
    from skyhop.data.pairs import AllPairs, all_pairs, read_all_pairs
    from skyhop.data.paths import Path, import_path, path, read_path
    from skyhop.engines import live, sim
    from skyhop.errors import (
        InputError,
        InterruptedRunError,
        ProgramError,
        RunError,
        SkyhopError,
    )
    from skyhop.runs import Run, read_run
    from skyhop.study.sweep import sweep

__all__ = [
    "AllPairs",
    "Constellation",
    "InputError",
    "InterruptedRunError",
    "Path",
    "ProgramError",
    "Run",
    "RunError",
    "SkyhopError",
    "__version__",
    "all_pairs",
    "constellation",
    "figures",
    "import_path",
    "linux",
    "live",
    "path",
    "read_all_pairs",
    "read_path",
    "read_run",
    "report",
    "sim",
    "study",
    "sweep",
]

_PACKAGES = ("figures", "linux", "report", "study")

_HOMES = {
    "AllPairs": "data.pairs",
    "Constellation": "data.constellations",
    "InputError": "errors",
    "InterruptedRunError": "errors",
    "Path": "data.paths",
    "ProgramError": "errors",
    "Run": "runs",
    "RunError": "errors",
    "SkyhopError": "errors",
    "all_pairs": "data.pairs",
    "constellation": "data.constellations",
    "import_path": "data.paths",
    "live": "engines",
    "path": "data.paths",
    "read_all_pairs": "data.pairs",
    "read_path": "data.paths",
    "read_run": "runs",
    "sim": "engines",
    "sweep": "study.sweep",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from skyhop import _core

        return _core.VERSION
    if name in _PACKAGES:
        return importlib.import_module(f"skyhop.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"skyhop.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skyhop' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
