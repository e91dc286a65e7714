"""Engines of studies that run no scenario: what their tables ask for, and who does it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from skyhop.study import films, prediction
from skyhop.study.file import StudyFile

OTHERS: Mapping[str, tuple[str, ModuleType]] = {
    "predict": ("prediction", prediction),
    "video": ("video", films),
}
"""By engine: the study's table, and the module that knows its METRICS and LAYOUT, resolves what a
run is asked for (`resolve`, `resolved_dict`, `data_of`), and makes its row (`rows_of`)."""


def other(study: StudyFile) -> ModuleType | None:
    """Return who makes a study's runs; None where the engines of scenarios do."""
    found = OTHERS.get(study.engine)
    return None if found is None else found[1]
