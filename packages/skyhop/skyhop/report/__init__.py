"""Reports: one self-contained HTML file about runs or a study, and its figures as files.

>>> from skyhop.report import write_report
>>> write_report(["runs/demo/cubic", "runs/demo/bbr"], "report.html")  # doctest: +SKIP

Names are imported at their first use, because a table of a run needs no drawing library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.analysis.summary import summary_rows
    from skyhop.report.notebook import (
        constellation_html,
        pairs_html,
        path_html,
        run_html,
        study_html,
    )
    from skyhop.report.page import write_figure, write_report, write_terminal_report
    from skyhop.report.parts import FigureFiles, figures_directory
    from skyhop.report.study import write_study_report

__all__ = [
    "FigureFiles",
    "constellation_html",
    "figures_directory",
    "pairs_html",
    "path_html",
    "run_html",
    "study_html",
    "summary_rows",
    "write_figure",
    "write_report",
    "write_study_report",
    "write_terminal_report",
]

_HOMES = {
    "FigureFiles": "report.parts",
    "constellation_html": "report.notebook",
    "figures_directory": "report.parts",
    "pairs_html": "report.notebook",
    "path_html": "report.notebook",
    "run_html": "report.notebook",
    "study_html": "report.notebook",
    "summary_rows": "analysis.summary",
    "write_figure": "report.page",
    "write_report": "report.page",
    "write_study_report": "report.study",
    "write_terminal_report": "report.page",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"skyhop.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skyhop.report' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
