"""Trainers of predictors: one module per kind; all modules of this package are used.

A module defines `TRAINER`, a `Trainer` of the kind of the same name in `skyhop.predict.models`,
which reads what the trainer writes. A new trainer needs no other change.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from skyhop_lab.predict.kinds.trainer import Trainer

__all__ = ["Trainer", "trainers"]

_SHARED = ("trainer",)


@cache
def trainers() -> dict[str, Trainer]:
    """Return the trainers by the name of their kind, sorted."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if module.name not in _SHARED
    ]
    found: list[Trainer] = [module.TRAINER for module in modules]
    return {trainer.kind: trainer for trainer in sorted(found, key=lambda trainer: trainer.kind)}
