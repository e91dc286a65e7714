"""The report of a study: its question, the verdict on each claim, tables, figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import polars as pl

from skyhop.analysis.tables import Table
from skyhop.data.figure_files import FIGURE_KINDS
from skyhop.data.files import write_files
from skyhop.data.reading import run_record
from skyhop.data.records import RunRecord
from skyhop.figures.charts import draw_chart
from skyhop.figures.style import figure_bytes
from skyhop.report.parts import ReportFigure, figures_directory, render
from skyhop.runs import Run
from skyhop.study.charts import ChartSource, chart_of
from skyhop.study.claims import ClaimResult
from skyhop.study.file import ComparisonPanel, Panel, TablePanel
from skyhop.study.page import study_page
from skyhop.study.running import StudyRun
from skyhop.study.tables import comparison_table, table_of

_RECORDS_KEPT = 8


def write_study_report(
    done: StudyRun, verdicts: Sequence[ClaimResult], output: Path | None = None
) -> Path:
    """Write one self-contained HTML file about a study, and its figures and tables beside it.

    Each figure is there as PNG, SVG and PDF, with its numbers as CSV; so is each table.

    Args:
        done: the study as it was run.
        verdicts: what became of its claims.
        output: the page; report.html in the study's directory where not given.

    Returns:
        The page's path.

    Raises:
        RunError: it cannot be written.
    """
    output = output or done.directory.root / "report.html"
    sections = _sections(done)
    folder = figures_directory(output)
    contents = {
        f"{folder.name}/{name}": content for s in sections for name, content in s.files.items()
    }
    contents[output.name] = _html(done, verdicts, sections, folder.name).encode()
    stale = _stale(folder, contents)
    write_files(output.parent, contents)
    for file in stale:
        file.unlink()
    return output


@dataclass(frozen=True)
class _Section:
    """One panel on the page."""

    title: str
    note: str
    table: Table | None
    figure: ReportFigure | None
    files: Mapping[str, bytes]


def _sections(done: StudyRun) -> list[_Section]:
    @lru_cache(_RECORDS_KEPT)
    def record(run_id: str) -> RunRecord:
        return run_record(Run(done.directory.runs / run_id))

    source = ChartSource(done.study, done.results, record)
    if done.results.frame.is_empty():
        return []
    panels = enumerate(done.study.file.panel, start=1)
    return [_section(panel, f"{place}-{_slug(panel.title)}", source) for place, panel in panels]


def _section(panel: Panel, name: str, source: ChartSource) -> _Section:
    if isinstance(panel, TablePanel | ComparisonPanel):
        made = (
            table_of(panel, source.study, source.results)
            if isinstance(panel, TablePanel)
            else comparison_table(panel, source.study, source.results)
        )
        files = {f"{name}.csv": _csv(made.data)}
        return _Section(panel.title, panel.note, made.table, None, files)
    chart = chart_of(panel, source)
    if chart is None:
        return _Section(panel.title, panel.note, None, None, {})
    drawn = draw_chart(chart)
    files = {f"{name}.{kind}": figure_bytes(drawn, kind) for kind in FIGURE_KINDS}
    files[f"{name}.csv"] = _csv(chart.data)
    figure = ReportFigure(f"{name}.png", panel.title, files[f"{name}.png"])
    return _Section(panel.title, panel.note, None, figure, files)


def _csv(frame: pl.DataFrame) -> bytes:
    return frame.write_csv().encode()


def _html(
    done: StudyRun, verdicts: Sequence[ClaimResult], sections: Sequence[_Section], folder: str
) -> str:
    return render(
        "study.html.jinja",
        page=study_page(done, verdicts),
        sections=sections,
        folder=folder,
        files=sorted(name for section in sections for name in section.files),
    )


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48].strip("-") or "panel"


def _stale(folder: Path, kept: Mapping[str, bytes]) -> list[Path]:
    """List the files of an earlier report that this one does not have."""
    ours = re.compile(r"\d+-[a-z0-9-]+\.(png|svg|pdf|csv)")
    found = folder.iterdir() if folder.is_dir() else []
    return [f for f in found if ours.fullmatch(f.name) and f"{folder.name}/{f.name}" not in kept]
