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
    from skyhop.constellations import Constellation, constellation
    from skyhop.engines import live, sim
    from skyhop.errors import InputError, RunError, SkyhopError
    from skyhop.pairs import AllPairs, all_pairs, read_all_pairs
    from skyhop.paths import Path, import_path, path, read_path
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
    "AllPairs": "pairs",
    "Constellation": "constellations",
    "InputError": "errors",
    "Path": "paths",
    "Run": "runs",
    "RunError": "errors",
    "SkyhopError": "errors",
    "all_pairs": "pairs",
    "constellation": "constellations",
    "import_path": "paths",
    "live": "engines",
    "path": "paths",
    "read_all_pairs": "pairs",
    "read_path": "paths",
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
