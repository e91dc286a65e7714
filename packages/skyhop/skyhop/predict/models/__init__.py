"""Kinds of models: one module per kind; all modules of this package are used.

A kind's module defines `MODEL`, a `ModelKind`: its name, and how a saved model is read with numpy
alone; skyhop-lab has its trainer. A new kind needs no other change here.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from skyhop.predict.models.kind import ModelKind, Predictor

__all__ = ["ModelKind", "Predictor", "kinds"]

_SHARED = ("kind", "saved")


@cache
def kinds() -> dict[str, ModelKind]:
    """Return the kinds of models by name, sorted."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if module.name not in _SHARED
    ]
    found: list[ModelKind] = [module.MODEL for module in modules]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: kind.name)}
