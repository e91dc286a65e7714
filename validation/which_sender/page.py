"""Answers which sender and which queue serve which reader, from the runs of four studies.

The runs are rows of docs/results/data/which-sender.csv, which `reproduce` updates after it has run
one of the studies. This command writes docs/results/which-sender.md and its figures from that file
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
import polars as pl
import typer

from skyhop.analysis.charts import HeatChart, Levels
from skyhop.analysis.sentence_words import listed
from skyhop.analysis.statistics import cohens_d, stratified_interval
from skyhop.cli.terminal import print_note
from skyhop.data.arrays import FloatArray
from skyhop.data.files import write_file
from skyhop.errors import RunError
from skyhop.study.results import Results
from validation import pages
from validation.provenance import Provenance, write_provenance
from validation.which_sender.answers import (
    behind_fifo,
    bounds,
    contradictions,
    item,
    number,
    overall,
    queue_strata,
    recommendations,
    signed,
)
from validation.which_sender.runs import (
    DELAY,
    DEPLOYABLE,
    GOODPUT,
    KINDS,
    PAIR,
    PROVENANCE_FILE,
    QUESTIONS,
    RUNS,
    STUDIES,
    Difference,
    Kind,
    Place,
    Question,
    Runs,
    collect,
    difference,
    is_download,
    is_upload,
    rank,
    read,
)

PAGE = pages.RESULTS / "which-sender.md"
HIGHEST_DELAY = 3.0
"""Delay inflation from which the heat map's colours do not change any more."""
MARKS: Mapping[Kind, str] = {"modelled": "\N{DOUBLE DAGGER}", "measured": "\N{DAGGER}"}
"""Mark of the paths of each kind in the head of a table."""
DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def page(runs: Runs) -> str:
    """Return the page: recommendations, contradictions, figures, tables."""
    found = contradictions(runs)
    return pages.render(
        "which-sender",
        recommendations=recommendations(runs),
        research=listed(runs.research),
        contradictions=map(item, found),
        has_others=any(map(runs.paths, KINDS[1:])),
        is_delay_contradicted=any(DELAY.title.lower() in text.lower() for text in found),
        studies=listed(list(studies_texts(runs))),
        questions=QUESTIONS,
        tables=tables(runs),
    )


def studies_texts(runs: Runs) -> Iterator[str]:
    """Yield the text on each study that has runs: number of runs and seeds, build and date."""
    for study in STUDIES:
        rows = runs.frame.filter(pl.col("study") == study)
        if not rows.is_empty():
            made = runs.made[study]
            yield (
                f"[{study}](../../studies/{study}.toml) ({rows.height:,} runs, "
                f"{rows['seed'].n_unique()} seeds, build {made.build}, {made.date})"
            )


def tables(runs: Runs) -> Iterator[tuple[Question, str, str, str]]:
    """Yield question, queue, direction and text of each table that has paths."""
    ways = {"downloads": is_download, "uploads": is_upload}
    every = [path for kind in KINDS for path in runs.paths(kind)]
    for question in QUESTIONS:
        for queue in runs.levels("queue"):
            for what, wanted in ways.items():
                paths = [path for path in every if wanted(path) and queue in runs.queues(path)]
                if paths:
                    places = [(path, queue) for path in paths]
                    yield question, queue, what, table(runs, question, places)


def table(runs: Runs, question: Question, places: Sequence[Place]) -> str:
    """Return a table: senders by paths, then BBR against CUBIC."""
    marks = {path: mark for kind, mark in MARKS.items() for path in runs.paths(kind)}
    head = ["sender", *(f"{path}{marks.get(path, '')}" for path, _ in places), "±"]
    best = {
        (place, is_own): next(iter(rank(runs, question, [place], senders).strata), "")
        for place in places
        for is_own, senders in ((True, DEPLOYABLE), (False, runs.research))
    }
    rows = []
    for sender in runs.senders:
        strata = [runs.values(question, place, sender) for place in places]
        if not any(map(len, strata)):
            continue
        is_own = sender in DEPLOYABLE
        cells = []
        for place, values in zip(places, strata, strict=True):
            text = number(float(values.mean())) if len(values) else DASH
            mark = "**" if is_own else "*"
            cells.append(f"{mark}{text}{mark}" if best[place, is_own] == sender else text)
        rows.append([sender, *cells, number(max(map(half_width, strata)))])
    found = [pair_at(runs, question, place) for place in places]
    compared: Mapping[str, Callable[[Difference], str]] = {
        f"BBR {MINUS} CUBIC": lambda apart: signed(apart.value),
        "95 % interval": lambda apart: bounds(apart.interval, plus=True),
        "Cohen's d": lambda apart: DASH if apart.d is None else signed(apart.d),
    }
    for name, write in compared.items():
        rows.append([name, *(DASH if apart is None else write(apart) for apart in found), ""])
    return pages.table(head, rows)


def pair_at(runs: Runs, question: Question, place: Place) -> Difference | None:
    """Return BBR's mean minus CUBIC's at a place; `None` if one of them was not run there."""
    first, second = (runs.values(question, place, sender) for sender in PAIR)
    if not len(first) or not len(second):
        return None
    apart = difference([first], [second])
    return Difference(apart.value, apart.interval, cohens_d(first, second))


def half_width(values: FloatArray) -> float:
    """Return half the width of the mean's 95 % interval; 0 if it is unknown."""
    if not len(values):
        return 0.0
    found = stratified_interval([values])
    return 0.0 if found.low is None or found.high is None else (found.high - found.low) / 2


def heat_charts(runs: Runs) -> dict[str, HeatChart]:
    """Return the heat map of each question, and of queues, by the end of the file name."""
    charts = {question.key: heat_chart(runs, question) for question in QUESTIONS}
    queues = runs.levels("queue")
    paths = [path for path in runs.paths("computed") if is_download(path)]
    grid = np.full((len(runs.senders), len(queues)), np.nan)
    for row, sender in enumerate(runs.senders):
        for column, queue in enumerate(queues):
            strata = queue_strata(runs, DELAY, paths, queue, [sender])
            grid[row, column] = overall(strata) if strata else np.nan
    title = "95th percentile of delay inflation, mean over computed download paths"
    charts["queue"] = chart_of(runs, title, queues, grid)
    return charts


def heat_chart(runs: Runs, question: Question) -> HeatChart:
    """Return the heat map of a question, behind FIFO: senders by paths, in groups by kind."""
    groups = [behind_fifo(runs, kind) for kind in KINDS]
    places = [place for group in groups for place in group]
    cells = [[runs.values(question, place, s) for place in places] for s in runs.senders]
    grid = np.array([[v.mean() if len(v) else np.nan for v in row] for row in cells])
    title = f"{question.title} ({question.unit})"
    if question is DELAY:
        title += f", colours up to {HIGHEST_DELAY:.0f}"
    if question is GOODPUT:
        # Rates differ between paths, so colours compare senders on the same path.
        grid = 100 * grid / np.nanmax(grid, axis=0)
        title = "Goodput alone, % of the best sender's on the same path"
    ends = np.cumsum([len(group) for group in groups if group])
    breaks = [int(end) for end in ends[:-1]]
    top = HIGHEST_DELAY if question is DELAY else None
    paths = [path for path, _ in places]
    return chart_of(runs, f"{title}, behind FIFO", paths, grid, breaks=breaks, top=top)


def chart_of(
    runs: Runs,
    title: str,
    columns: Sequence[str],
    grid: FloatArray,
    *,
    breaks: Sequence[int] = (),
    top: float | None = None,
) -> HeatChart:
    """Return a heat map with a line between deployable and research senders."""
    count = sum(sender in DEPLOYABLE for sender in runs.senders)
    rows = [count] if 0 < count < len(runs.senders) else []
    return HeatChart(
        what=title,
        unit="",
        columns=Levels(list(columns), ""),
        rows=runs.senders,
        grid=grid,
        data=pl.DataFrame(),
        pooled="",
        row_breaks=rows,
        column_breaks=list(breaks),
        top=top,
    )


def renew(study: str, results: Results, made: Provenance) -> None:
    """Replace a study's rows in the data file, then write the page and its figures again."""
    old = read()
    frames = {name: old.frame.filter(pl.col("study") == name) for name in STUDIES}
    frames[study] = collect(study, results)
    builds = {**old.made, study: made}
    frame = pl.concat([f for f in frames.values() if not f.is_empty()], how="vertical_relaxed")
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    write_file(RUNS, frame.write_csv().encode())
    write_provenance(PROVENANCE_FILE, RUNS.name, builds)
    write_all(read())


def write_all(runs: Runs) -> None:
    """Write the page and its figures."""
    from skyhop.figures.charts import draw_chart
    from skyhop.figures.style import png_bytes

    for name, chart in heat_charts(runs).items():
        write_file(pages.RESULTS / f"which-sender-{name}.png", png_bytes(draw_chart(chart)))
    write_file(PAGE, page(runs).encode())


def main(
    check: Annotated[
        bool, typer.Option("--check", help="Only compare the page with the data.")
    ] = False,
) -> None:
    """Write the page and its figures, or compare the page with the data."""
    runs = read()
    if runs.frame.is_empty():
        raise RunError(f"{RUNS} has no runs: run reproduce {' '.join(STUDIES)} first")
    if not check:
        write_all(runs)
        print_note(str(PAGE))
    elif not PAGE.exists() or PAGE.read_text("utf-8") != page(runs):
        raise RunError(f"{PAGE} is not what {RUNS.name} gives: run which-sender")
