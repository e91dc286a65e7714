"""Answers which sender and which queue serve which reader, from the runs of three studies.

The runs are rows of docs/results/data/which-sender.csv, which scripts/reproduce.py updates after it
has run one of the studies. This script writes docs/results/which-sender.md and its figures from
that file alone. With `--check` it only compares the page with the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from skyhop.analysis.charts import HeatChart, Levels
from skyhop.analysis.sentence_words import listed
from skyhop.analysis.statistics import cohens_d, stratified_interval
from skyhop.cli.terminal import print_error, print_note
from skyhop.data.arrays import FloatArray
from skyhop.data.files import write_file
from skyhop.study.results import Results
from which_sender_answers import contradictions, overall, queue_strata, recommendations
from which_sender_runs import (
    DELAY,
    DEPLOYABLE,
    GOODPUT,
    PAIR,
    PLACE,
    PROVENANCE_FILE,
    QUESTIONS,
    RUNS,
    STUDIES,
    Difference,
    Place,
    Provenance,
    Question,
    Runs,
    collect,
    difference,
    is_download,
    is_upload,
    rank,
    read,
)
from which_sender_text import bounds, item, number, signed, wrapped

PAGE = PLACE / "which-sender.md"

HIGHEST_DELAY = 3.0
"""Delay inflation from which the heat map's colours do not change any more."""


def page(runs: Runs) -> str:
    """Return the page: recommendations, contradictions, figures, tables."""
    lines = [wrapped(HEAD), "", *recommendations(runs), ""]
    lines += ["## Who is deployable\n", wrapped(CRITERION.format(research=research_text(runs))), ""]
    lines += ["## Where measured paths contradict computed ones\n"]
    found = contradictions(runs)
    lines += contradiction_texts(runs, found)
    lines += ["\n## Runs\n", wrapped(RUNS_TEXT.format(made=provenance_text(runs)))]
    for question in QUESTIONS:
        lines += [f"\n## {question.title}\n", wrapped(question.note) + "\n"]
        lines += [f"![{question.title}, behind FIFO](which-sender-{question.key}.png)\n"]
        lines += [wrapped(PICTURED)]
    lines += ["\n## Delay by queue\n", wrapped(BY_QUEUE) + "\n"]
    lines += ["![95th percentile of delay inflation by queue](which-sender-queue.png)\n"]
    lines += ["## Tables\n", wrapped(TABLES) + "\n"]
    for question in QUESTIONS:
        lines += tables(runs, question)
    return "\n".join(lines).rstrip("\n") + "\n"


HEAD = """\
# Which sender serves whom

Which congestion control, and which queue, serves which reader best over satellite paths. Numbers
are means with their 95 % intervals.
"""

RUNS_TEXT = """\
`scripts/which_sender.py` writes this page from [data/which-sender.csv](data/which-sender.csv),
which has one row per run; do not edit. Intervals are over seeds. A seed over a measured path only
changes when the flow starts, so that its interval says nothing about other minutes of the path.
{made}"""

CRITERION = """\
Recommendations name **deployable** senders only: those in mainline Linux (Reno, CUBIC, BBR, Hybla,
Vegas), and BBRv3, whose authors publish the kernel that they run in production. The others are
**research** senders: {research}. BBRv2 is among them because BBRv3 has replaced its kernel. SaTCP,
SatPipe, LeoCC and skyhop-leo get announcements of handovers here, which no network sends today."""

WHY = """\
Why: measured round trips change from packet to packet, computed ones only with the geometry. When a
round trip falls, packets arrive closer together than the link sends them. A sender that takes the
greatest rate of ten round trips, such as BBR, then overestimates the link and keeps a queue (study
[measured](../../studies/measured.toml)). Measured base round trips also contain the queues that
other traffic made at the time."""

PICTURED = """\
Deployable senders above the line, research senders below it; computed paths left of the line,
measured ones right of it. A dash: not run."""

BY_QUEUE = """\
The same quantity as in "Delay of a sender alone", as means over the computed download paths."""

TABLES = """\
Cells are means over the seeds; the column ± has the widest half of a 95 % interval of its row.
**Bold** is the best deployable sender of a column, *italics* the best research sender; † is a
measured path. Cohen's d
puts the difference of BBR and CUBIC into standard deviations of runs with other seeds, which are
small in a simulator: the difference itself says more."""


def provenance_text(runs: Runs) -> str:
    """Return the text on studies, their paths, seeds, builds and dates."""
    texts = []
    for study in STUDIES:
        rows = runs.frame.filter(pl.col("study") == study)
        if rows.is_empty():
            continue
        made = runs.made[study]
        texts.append(
            f"[{study}](../../studies/{study}.toml) ({rows.height:,} runs, "
            f"{rows['seed'].n_unique()} seeds, build {made.build}, {made.date})"
        )
    return (
        f"The runs are of the studies {listed(texts)}; [their claims](reproduced/skyhop.md) have "
        "verdicts of their own."
    )


def research_text(runs: Runs) -> str:
    """Return the text with the names of the research senders."""
    return listed([s for s in runs.senders if s not in DEPLOYABLE])


def contradiction_texts(runs: Runs, found: Sequence[str]) -> Iterator[str]:
    """Yield the paragraph about contradictions."""
    if not runs.paths("measured"):
        yield "The data has no measured paths."
    elif not found:
        yield "No answer differs by more than chance."
    else:
        yield from map(item, found)
        if any(DELAY.title.lower() in text.lower() for text in found):
            yield f"\n{wrapped(WHY)}"


def tables(runs: Runs, question: Question) -> Iterator[str]:
    """Yield the tables of a question: one per queue, downloads and uploads separately."""
    for queue in runs.levels("queue"):
        for what, wanted in (("downloads", is_download), ("uploads", is_upload)):
            paths = [
                path
                for kind in ("computed", "measured")
                for path in runs.paths(kind)
                if wanted(path) and queue in runs.queues(path)
            ]
            if paths:
                unit = f" ({question.unit})" if question.unit else ""
                yield f"### {question.title}{unit}: {queue}, {what}\n"
                yield from table(runs, question, [(path, queue) for path in paths])
                yield ""


def table(runs: Runs, question: Question, places: Sequence[Place]) -> Iterator[str]:
    """Yield the lines of a table: senders by paths, then BBR against CUBIC."""
    measured = set(runs.paths("measured"))
    heads = [f"{path}†" if path in measured else path for path, _ in places]
    yield f"| sender | {' | '.join(heads)} | ± |"
    yield "|---" * (2 + len(places)) + "|"
    research = [s for s in runs.senders if s not in DEPLOYABLE]
    best = {
        place: [
            next(iter(rank(runs, question, [place], of).strata), "")
            for of in (DEPLOYABLE, research)
        ]
        for place in places
    }
    for sender in runs.senders:
        if not any(len(runs.values(question, place, sender)) for place in places):
            continue
        cells, widest = [], 0.0
        for place in places:
            values = runs.values(question, place, sender)
            text = number(float(values.mean())) if len(values) else "\N{EN DASH}"
            marks = {0: f"**{text}**", 1: f"*{text}*"}
            own = int(sender not in DEPLOYABLE)
            cells.append(marks[own] if best[place][own] == sender else text)
            widest = max(widest, half_width(values))
        yield f"| {sender} | {' | '.join(cells)} | {number(widest)} |"
    found = [pair_at(runs, question, place) for place in places]
    rows: Mapping[str, Callable[[Difference], str]] = {
        "BBR \N{MINUS SIGN} CUBIC": lambda apart: signed(apart.value),
        "95 % interval": lambda apart: bounds(apart.interval, plus=True),
        "Cohen's d": lambda apart: "\N{EN DASH}" if apart.d is None else signed(apart.d),
    }
    for name, write in rows.items():
        cells = ["\N{EN DASH}" if apart is None else write(apart) for apart in found]
        yield f"| {name} | {' | '.join(cells)} | |"


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
    """Return the heat map of a question, behind FIFO: senders by computed and measured paths."""
    groups = [
        [p for p in runs.paths(kind) if "FIFO" in runs.queues(p)]
        for kind in ("computed", "measured")
    ]
    paths = [path for group in groups for path in group]
    cells = [[runs.values(question, (p, "FIFO"), s) for p in paths] for s in runs.senders]
    grid = np.array([[v.mean() if len(v) else np.nan for v in row] for row in cells])
    title = f"{question.title} ({question.unit})"
    if question is DELAY:
        title += f", colours up to {HIGHEST_DELAY:.0f}"
    if question is GOODPUT:
        # Rates differ between paths, so colours compare senders on the same path.
        grid = 100 * grid / np.nanmax(grid, axis=0)
        title = "Goodput alone, % of the best sender's on the same path"
    breaks = [len(groups[0])] if all(groups) else []
    top = HIGHEST_DELAY if question is DELAY else None
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
        title=title,
        columns=Levels(list(columns), ""),
        rows=runs.senders,
        grid=grid,
        data=pl.DataFrame(),
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
    texts = [f'[{s}]\nbuild = "{m.build}"\ndate = {m.date}\n' for s, m in builds.items()]
    head = "# Build and date of the runs in which-sender.csv, by study.\n\n"
    write_file(PROVENANCE_FILE, (head + "\n".join(texts)).encode())
    write_all(read())


def write_all(runs: Runs) -> None:
    """Write the page and its figures."""
    from skyhop.figures.charts import draw_chart
    from skyhop.figures.style import png_bytes

    for name, chart in heat_charts(runs).items():
        write_file(PLACE / f"which-sender-{name}.png", png_bytes(draw_chart(chart)))
    write_file(PAGE, page(runs).encode())


def main() -> int:
    """Write the page and its figures, or compare the page with the data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare the page with the data")
    arguments = parser.parse_args()
    runs = read()
    if runs.frame.is_empty():
        print_error(f"{RUNS} has no runs: run scripts/reproduce.py {' '.join(STUDIES)} first")
        return 1
    if not arguments.check:
        write_all(runs)
        print_note(str(PAGE))
        return 0
    is_same = PAGE.exists() and PAGE.read_text("utf-8") == page(runs)
    if not is_same:
        print_error(f"{PAGE} is not what {RUNS.name} gives: run scripts/which_sender.py")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
