"""Report of a study: sentences, the verdict on each claim, tables, figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import polars as pl

from skyhop.analysis.study_sentences import study_sentences
from skyhop.analysis.tables import Table
from skyhop.data.reading import run_record
from skyhop.data.records import RunRecord
from skyhop.data.runs import Run
from skyhop.data.scenarios import forces_size
from skyhop.figures.charts import draw_chart
from skyhop.report.latex import latex_table
from skyhop.report.parts import (
    FigureFiles,
    PageFiles,
    ReportFigure,
    draw_figure,
    page_files,
    render,
    write_page,
)
from skyhop.study.charts import ChartSource, chart_of
from skyhop.study.claims import ClaimResult
from skyhop.study.outcome import study_outcome
from skyhop.study.page import study_page
from skyhop.study.panel_kinds import ComparisonPanel, Panel, TablePanel
from skyhop.study.running import StudyRun
from skyhop.study.tables import claims_table, comparison_table, table_of

_RECORDS_KEPT = 8
_CLAIMS_FILE = "claims.tex"


def write_study_report(
    done: StudyRun,
    verdicts: Sequence[ClaimResult],
    output: Path | None = None,
    figures: FigureFiles | None = None,
) -> Path:
    """Write one self-contained HTML file about a study, and its figures and tables as files.

    The numbers of each figure are also written as CSV, tables as CSV and LaTeX, verdicts as LaTeX.

    Args:
        done: outcome of running the study.
        verdicts: results of its claims.
        output: HTML file to write; by default report.html in the study's directory.
        figures: directory of figures and tables, formats and width of the figures; by default
            PNG, SVG and PDF in report-figures/ in the page's directory.

    Returns:
        Path of the HTML file.

    Raises:
        RunError: a file cannot be written.
    """
    output = output or done.directory.root / "report.html"
    wanted = figures or FigureFiles()
    sections = _sections(done, wanted)
    folder = page_files(output, wanted)
    files = {name: content for s in sections for name, content in s.files.items()}
    if verdicts:
        title = f"{done.study.file.title}: claims"
        claims = latex_table(claims_table(verdicts), title, wanted.width)
        files[_CLAIMS_FILE] = claims.encode()
    write_page(output, _html(done, verdicts, sections, folder), folder, files)
    return output


@dataclass(frozen=True)
class _Section:
    """Section of the page with one panel."""

    title: str
    note: str
    table: Table | None
    figure: ReportFigure | None
    files: Mapping[str, bytes]


def _sections(done: StudyRun, wanted: FigureFiles) -> list[_Section]:
    force_size = forces_size(done.study.base)

    @lru_cache(_RECORDS_KEPT)
    def record(run_id: str) -> RunRecord:
        return run_record(Run(done.directory.runs / run_id, force_size=force_size))

    source = ChartSource(done.study, done.results, record)
    if done.results.frame.is_empty():
        return []
    panels = enumerate(done.study.file.panel, start=1)
    return [
        _section(panel, f"{place}-{_slug(panel.title)}", source, wanted) for place, panel in panels
    ]


def _section(panel: Panel, name: str, source: ChartSource, wanted: FigureFiles) -> _Section:
    if isinstance(panel, TablePanel | ComparisonPanel):
        made = (
            table_of(panel, source.study, source.results)
            if isinstance(panel, TablePanel)
            else comparison_table(panel, source.study, source.results)
        )
        latex = latex_table(made.table, panel.title, wanted.width).encode()
        files = {f"{name}.csv": _csv(made.data), f"{name}.tex": latex}
        note = " ".join(f"{text.rstrip('.')}." for text in (panel.note, made.table.note) if text)
        return _Section(panel.title, note, made.table, None, files)
    chart = chart_of(panel, source)
    if chart is None:
        return _Section(panel.title, panel.note, None, None, {})
    figure = draw_figure(name, panel.title, partial(draw_chart, chart), wanted)
    files = {**figure.files, f"{name}.csv": _csv(chart.data)}
    return _Section(panel.title, panel.note, None, figure, files)


def _csv(frame: pl.DataFrame) -> bytes:
    return frame.write_csv().encode()


def _html(
    done: StudyRun,
    verdicts: Sequence[ClaimResult],
    sections: Sequence[_Section],
    folder: PageFiles,
) -> str:
    return render(
        "study.html.jinja",
        page=study_page(done, verdicts),
        sentences=study_sentences(study_outcome(done, verdicts)),
        sections=sections,
        folder=folder,
        claims_file=_CLAIMS_FILE,
    )


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48].strip("-") or "panel"
