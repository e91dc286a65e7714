"""The workbench for transport over satellite networks.

    import skyhop

    trace = skyhop.path("San Diego", "New York", duration="10 min")
    run = skyhop.live("scenario.toml")
    run.flows  # a pyarrow table

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.data.constellations import Constellation, constellation
    from skyhop.data.pairs import AllPairs, all_pairs, read_all_pairs
    from skyhop.data.paths import Path, import_path, path, read_path
    from skyhop.engines import live, sim
    from skyhop.errors import InputError, RunError, SkyhopError
    from skyhop.runs import Run, read_run

__all__ = [
    "AllPairs",
    "Constellation",
    "InputError",
    "Path",
    "Run",
    "RunError",
    "SkyhopError",
    "__version__",
    "all_pairs",
    "constellation",
    "import_path",
    "live",
    "path",
    "read_all_pairs",
    "read_path",
    "read_run",
    "sim",
]

_HOMES = {
    "AllPairs": "data.pairs",
    "Constellation": "data.constellations",
    "InputError": "errors",
    "Path": "data.paths",
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
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from skyhop import _core

        return _core.VERSION
    if name in _HOMES:
        return getattr(importlib.import_module(f"skyhop.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skyhop' has no attribute '{name}'")
