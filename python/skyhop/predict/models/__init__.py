"""Models: one file per kind, each found by being here.

A kind's file offers `MODEL`, a `Kind`: its name, what training needs, how it is trained, and how
what was saved is read again with numpy alone. Nothing else has to be changed for a new one.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from skyhop.predict.models.kind import Kind, Predictor, Trained

__all__ = ["Kind", "Predictor", "Trained", "kinds"]

_SHARED = ("kind", "saved")


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds of models by name, in the order of the names."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if module.name not in _SHARED
    ]
    found: list[Kind] = [module.MODEL for module in modules]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: kind.name)}
