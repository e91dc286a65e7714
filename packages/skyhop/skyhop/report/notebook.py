"""HTML of runs, paths and studies for notebooks: a few facts and a table, without pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skyhop.analysis.path_statistics import path_statistics
from skyhop.analysis.run_tables import run_tables
from skyhop.analysis.tables import Column, Table, three_digits
from skyhop.data.paths import Path
from skyhop.data.reading import path_record
from skyhop.data.run_headers import run_header
from skyhop.data.runs import Run
from skyhop.report.parts import render

if TYPE_CHECKING:
    from skyhop.analysis.portrait import Portraits
    from skyhop.data.constellations import Constellation
    from skyhop.data.pairs import AllPairs
    from skyhop.study import StudyRun

_NAMED = 12
"""Largest number of sites that are named."""


def run_html(run: Run) -> str:
    """Return a run as HTML: name and engine, its flows, lines about its link, its warnings.

    Raises:
        InputError: a file of the run is missing, damaged, or lacks a key.
    """
    head = run_header(run)
    tables = run_tables([head])
    engine, seed = head.summary["engine"], head.summary["seed"]
    return _shown(
        f"{head.name}: {three_digits(head.duration_s)} s, engine {engine}, seed {seed}",
        [*tables.links, f"in {run.directory}"],
        head.summary.get("warnings") or [],
        tables.flows,
    )


def path_html(path: Path) -> str:
    """Return a path as HTML: its ends, its origin, and its statistics."""
    header = path.header
    found = path_statistics(path_record(path))
    made = [str(header[key]) for key in ("constellation", "relay", "handover") if header.get(key)]
    begins = f", from {header['start']} on" if header.get("start") else ""
    return _shown(
        f"{found['from']} \N{EN DASH} {found['to']}: {three_digits(found['duration_s'])} s{begins}",
        [", ".join(made) or str(header["source"]), *_likeness(found)],
        path.notes,
    )


def constellation_html(constellation: Constellation) -> str:
    """Return a constellation as HTML: its number of satellites and its epoch."""
    count = constellation.satellites.height
    lines = [f"epoch {constellation.epoch}", constellation.account or ""]
    return _shown(f"{constellation.name}: {count:,} satellites", lines)


def pairs_html(pairs: AllPairs) -> str:
    """Return the routes between all pairs as HTML: their sites and steps."""
    title = f"{len(pairs.sites):,} sites, {len(pairs.times_ns):,} steps"
    over = pairs.header["constellation"]
    return _shown(f"All pairs over {over}: {title}", [_few(pairs.sites)], pairs.notes)


def portraits_html(found: Portraits) -> str:
    """Return portraits of access links as HTML: the inputs, and a table of all rows."""
    from skyhop.analysis.portrait_tables import portraits_table

    names = ", ".join(one.name for one in found.portraits)
    lines = [one.text for one in (*found.portraits, *found.references)]
    judged = [one.text for one in found.judgements]
    return _shown(f"Access link: {names}", [*lines, *judged], (), portraits_table(found))


def study_html(done: StudyRun) -> str:
    """Return a study that was run as HTML: its runs, its claims, and its warnings."""
    from skyhop.study.claims import judge
    from skyhop.study.page import shown_warnings, verdict_text

    frame, file = done.results.frame, done.study.file
    count = frame.get_column("run").n_unique() if "run" in frame.columns else len(frame)
    columns = [Column(name, name, "", str, numeric=False) for name in ("claim", "verdict")]
    verdicts = judge(done.study.claims, done.results)
    rows = [[verdict.claim.text, verdict_text(verdict)] for verdict in verdicts]
    failed = [f"{len(done.failures):,} runs failed"] if done.failures else []
    return _shown(
        f"{file.title}: {count:,} of {done.study.run_count:,} runs",
        [file.question, *failed, f"in {done.directory.root}"],
        shown_warnings(done),
        Table([], columns, rows) if rows else None,
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _likeness(found: dict[str, Any]) -> list[str]:
    rtt_ms, lines = found["rtt_ms"], []
    if rtt_ms is not None:
        texts = {key: three_digits(value) for key, value in rtt_ms.items() if value is not None}
        lines.append(f"RTT {', '.join(f'{key} {text}' for key, text in texts.items())} ms")
    handovers = sum(found["handovers"].values())
    lines.append(
        f"{found['frames']:,} frames, {handovers:,} handovers, {found['outages']:,} outages "
        f"({three_digits(found['outage_s'])} s in all)"
    )
    return lines


def _shown(
    title: str, lines: Sequence[str], warnings: Sequence[str] = (), table: Table | None = None
) -> str:
    known = [line for line in lines if line]
    return render("notebook.html.jinja", title=title, lines=known, warnings=warnings, content=table)
