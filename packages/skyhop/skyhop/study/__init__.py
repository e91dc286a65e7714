"""Studies: many runs from one file, with their statistics and a report.

>>> from skyhop.study import load_study, run_study
>>> done = run_study(load_study("studies/satcp-table1.toml"), "runs/table1")  # doctest: +SKIP
>>> done.results.frame  # a polars frame  # doctest: +SKIP

Each name is imported at its first use, so that `import skyhop` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.study.plan import Study, load_study
    from skyhop.study.results import Results
    from skyhop.study.running import FailedRun, StudyRun, run_study

__all__ = ["FailedRun", "Results", "Study", "StudyRun", "load_study", "run_study"]

_HOMES = {
    "FailedRun": "running",
    "Results": "results",
    "Study": "plan",
    "StudyRun": "running",
    "load_study": "plan",
    "run_study": "running",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"skyhop.study.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skyhop.study' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
