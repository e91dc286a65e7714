"""Engines of studies whose runs are no scenario alone: what their tables ask for, who does it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from skyhop.study import browsers, films, prediction
from skyhop.study.file import StudyFile

OTHERS: Mapping[str, tuple[str, ModuleType]] = {
    "predict": ("prediction", prediction),
    "video": ("video", films),
    "browser": ("browser", browsers),
}
"""By engine: the study's table, and the module that knows its METRICS and LAYOUT, resolves what a
run is asked for (`resolve`, `resolved_dict`, `data_of`), and makes its row (`rows_of`); IS_LIVE,
whether runs take real time, with this machine's kernel; NEEDS_CORE, whether the compiled core makes
them."""


def is_live(engine: str) -> bool:
    """Return whether an engine's runs share this machine's time, so that one goes on at a time."""
    return engine == "live" or (engine in OTHERS and OTHERS[engine][1].IS_LIVE)


def other(study: StudyFile) -> ModuleType | None:
    """Return who makes a study's runs; None where the engines of scenarios do."""
    found = OTHERS.get(study.engine)
    return None if found is None else found[1]
