"""The report of a study: its question, the verdict on each claim, tables, figures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import polars as pl

import skyhop
from skyhop.plot.panels import PanelSource, draw_panel
from skyhop.plot.records import RunRecord, read_runs
from skyhop.plot.style import figure_bytes
from skyhop.plot.writing import write_files
from skyhop.report.parts import ReportFigure, Table, figures_directory, render
from skyhop.report.study_tables import comparison_table, table_of
from skyhop.report.summary import three_digits
from skyhop.report.toml import scenario_toml
from skyhop.study.claims import ClaimResult, Finding
from skyhop.study.file import ComparisonPanel, Panel, TablePanel
from skyhop.study.plan import Study, core_digest, describe
from skyhop.study.running import FailedRun, StudyRun

_RECORDS_KEPT = 8
_FINDINGS_SHOWN = 40
_FAILURES_SHOWN = 10
_KINDS: tuple[Literal["png", "svg", "pdf"], ...] = ("png", "svg", "pdf")


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
        OSError: it cannot be written.
    """
    output = output or done.directory.root / "report.html"
    sections = _sections(done)
    folder = figures_directory(output)
    contents = {
        f"{folder.name}/{name}": content for s in sections for name, content in s.files.items()
    }
    contents[output.name] = _page(done, verdicts, sections, folder.name).encode()
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
        return read_runs([done.directory.runs / run_id])[0]

    source = PanelSource(done.study, done.results, record)
    if done.results.frame.is_empty():
        return []
    panels = enumerate(done.study.file.panel, start=1)
    return [_section(panel, f"{place}-{_slug(panel.title)}", source) for place, panel in panels]


def _section(panel: Panel, name: str, source: PanelSource) -> _Section:
    if isinstance(panel, TablePanel | ComparisonPanel):
        made = (
            table_of(panel, source.study, source.results)
            if isinstance(panel, TablePanel)
            else comparison_table(panel, source.study, source.results)
        )
        files = {f"{name}.csv": _csv(made.data)}
        return _Section(panel.title, panel.note, made.table, None, files)
    drawn = draw_panel(panel, source)
    if drawn is None:
        return _Section(panel.title, panel.note, None, None, {})
    files = {f"{name}.{kind}": figure_bytes(drawn.figure, kind) for kind in _KINDS}
    files[f"{name}.csv"] = _csv(drawn.data)
    figure = ReportFigure(f"{name}.png", panel.title, files[f"{name}.png"])
    return _Section(panel.title, panel.note, None, figure, files)


def _csv(frame: pl.DataFrame) -> bytes:
    return frame.write_csv().encode()


def _page(
    done: StudyRun, verdicts: Sequence[ClaimResult], sections: Sequence[_Section], folder: str
) -> str:
    study = done.study
    return render(
        "study.html.jinja",
        title=study.file.title,
        question=study.file.question,
        facts=_facts(done, verdicts),
        notes=study.file.notes,
        failures=[_failure(failure) for failure in done.failures[:_FAILURES_SHOWN]],
        failure_count=len(done.failures),
        claims=[_claim(result) for result in verdicts],
        sections=sections,
        command=_command(done),
        study_text=_study_text(study),
        folder=folder,
        files=sorted(name for section in sections for name in section.files),
    )


def _facts(done: StudyRun, verdicts: Sequence[ClaimResult]) -> list[tuple[str, str]]:
    study, frame = done.study, done.results.frame
    seeds = frame.get_column("seed").unique().sort().to_list() if frame.height else []
    held = sum(result.verdict == "holds" for result in verdicts)
    facts = [
        ("beside", study.file.source),
        ("claims", f"{held} of {len(verdicts)} hold" if verdicts else ""),
        ("runs", f"{frame.get_column('run').n_unique():,} of {study.run_count:,}"),
        ("seeds", ", ".join(map(str, seeds[:6])) + (" …" if len(seeds) > 6 else "")),  # noqa: PLR2004
        ("engine", study.file.engine),
        ("skyhop", f"{skyhop.__version__}, core {core_digest()}"),
    ]
    return [(name, text) for name, text in facts if text]


def _failure(failure: FailedRun) -> tuple[str, str]:
    return str(failure), failure.scenario


def _claim(result: ClaimResult) -> dict[str, Any]:
    findings = [
        {
            "at": describe(finding.at) if finding.at else "",
            "verdict": finding.verdict,
            "numbers": _numbers(finding),
        }
        for finding in result.findings[:_FINDINGS_SHOWN]
    ]
    return {
        "text": result.claim.text,
        "check": result.claim.check,
        "note": result.claim.note,
        "verdict": result.verdict,
        "class": result.verdict.replace(" ", "-"),
        "findings": findings,
        "more": len(result.findings) - len(findings),
    }


def _numbers(finding: Finding) -> str:
    if finding.why:
        return finding.why
    return "; ".join(
        f"{three_digits(c.left)} against {three_digits(c.right)}"
        + ("" if c.holds else " (does not hold)" if len(finding.comparisons) > 1 else "")
        for c in finding.comparisons
    )


def _command(done: StudyRun) -> str:
    file = Path(done.study.origin).name if Path(done.study.origin).is_file() else "study.toml"
    return f"skyhop study run {shlex.quote(file)} -o {shlex.quote(done.directory.root.name)}"


def _study_text(study: Study) -> str:
    """Return the study file as it was written, else its content as TOML."""
    file = Path(study.origin)
    if file.is_file():
        return file.read_text("utf-8")
    return scenario_toml(study.file.model_dump(mode="json", by_alias=True, exclude_defaults=True))


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48].strip("-") or "panel"


def _stale(folder: Path, kept: Mapping[str, bytes]) -> list[Path]:
    """List the files of an earlier report that this one does not have."""
    ours = re.compile(r"\d+-[a-z0-9-]+\.(png|svg|pdf|csv)")
    found = folder.iterdir() if folder.is_dir() else []
    return [f for f in found if ours.fullmatch(f.name) and f"{folder.name}/{f.name}" not in kept]
