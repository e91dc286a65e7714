"""Answers which sender and which queue serve which reader, from the runs of three studies.

The runs are rows of docs/results/data/which-sender.csv, which scripts/reproduce.py updates after it
has run one of the studies. This script writes docs/results/which-sender.md and its figures from
that file alone. With `--check` it only compares the page with the file.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from skyhop.analysis.charts import HeatChart, Levels
from skyhop.analysis.statistics import Interval, cohens_d, stratified_effect, stratified_interval
from skyhop.cli.terminal import print_error, print_note
from skyhop.data.arrays import FloatArray
from skyhop.data.files import write_file
from skyhop.study.results import Results

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "results"
PAGE = PLACE / "which-sender.md"
RUNS = PLACE / "data" / "which-sender.csv"
PROVENANCE_FILE = PLACE / "data" / "which-sender.toml"

STUDIES = {
    "leo-beyond": "computed",
    "leo-beyond-upload": "computed",
    "leo-beyond-measured": "measured",
}
"""Studies from which the page is made, and whether their paths are computed or measured."""
COLUMNS = {
    "goodput": ("used", 2),
    "inflation": ("inflation", 4),
    "inflation_p95": ("inflation_p95", 4),
    "share": ("share", 2),
}
"""Columns of the data file: for each, the studies' metric and the number of decimals."""
KEYS = ("study", "path", "queue", "rival", "sender", "seed")

DEPLOYABLE = ("CUBIC", "BBR", "BBRv3", "Reno", "Hybla", "Vegas")
"""Senders in mainline Linux, and BBRv3, whose authors publish the kernel in which they run it."""
TRAFFIC = ("CUBIC", "BBR", "BBRv3")
"""Senders of most traffic in the Internet, which a gateway's queue has to serve."""
ALONE, NEXT_TO_CUBIC = "none", "CUBIC"
LIKE = "access"
"""Computed path that is most similar to the measured paths."""
FLOOR = 0.8
"""Goodput, as a fraction of the best sender's, that a sender needs for its delay to count."""
LOSS_OF_QUEUE = 0.95
"""Goodput, as a fraction of FIFO's, that a queue needs to count for the operator."""
HIGHEST_DELAY = 3.0
"""Delay inflation from which the heat map's colours do not change any more."""
WIDTH = 120
PAIR = ("BBR", "CUBIC")
"""The two senders that every table compares."""

Kind = Literal["computed", "measured"]
Place = tuple[str, str]
"""Path and queue in which runs took place."""


@dataclass(frozen=True)
class Provenance:
    """Build that ran a study, and the date of the run."""

    build: str
    date: str


@dataclass(frozen=True)
class Question:
    """Quantity by which senders are compared."""

    key: str
    title: str
    column: str
    unit: str
    rival: str
    better: Literal["more", "less", "even"]
    note: str

    def score(self, values: FloatArray) -> FloatArray:
        """Return values converted to a scale on which more is better."""
        if self.better == "even":
            return -abs(values - 50.0)
        return values if self.better == "more" else -values

    def shown(self, values: FloatArray) -> FloatArray:
        """Return values in the form that readers see; shares become their distance from half."""
        return abs(values - 50.0) if self.better == "even" else values


GOODPUT = Question(
    "goodput",
    "Goodput of a sender alone",
    "goodput",
    "Mbit/s",
    ALONE,
    "more",
    "Mean goodput of one flow, without its first 20 s. More is better.",
)
DELAY = Question(
    "delay",
    "Delay of a sender alone",
    "inflation_p95",
    "times the base RTT",
    ALONE,
    "less",
    "95th percentile of the smoothed round trip over the base round trip: 1 is an empty queue. "
    f"Less is better. Senders with less than {100 * FLOOR:.0f} % of the best goodput on a path are "
    "in the table, but do not count as best.",
)
FAIRNESS = Question(
    "fairness",
    "Share next to a CUBIC flow",
    "share",
    "%",
    NEXT_TO_CUBIC,
    "even",
    "A sender's part of both goodputs when the second flow is CUBIC. 50 is even; more takes from "
    "CUBIC, less gives way. The best is nearest to 50 in each run.",
)
POWER = Question(
    "power",
    "Goodput per delay of a sender alone",
    "power",
    "Mbit/s",
    ALONE,
    "more",
    "Goodput divided by mean delay inflation.",
)
QUESTIONS = (GOODPUT, DELAY, FAIRNESS)


class Runs:
    """Runs in the data file, and the build and date of each study."""

    def __init__(self, frame: pl.DataFrame, made: Mapping[str, Provenance]) -> None:
        self.frame = frame
        self.made = made

    @cached_property
    def _values(self) -> dict[tuple[str, str, str, str], dict[str, FloatArray]]:
        found = {}
        keys = ["path", "queue", "rival", "sender"]
        for key, rows in self.frame.group_by(keys, maintain_order=True):
            columns = {name: rows[name].to_numpy() for name in COLUMNS}
            columns["power"] = columns["goodput"] / columns["inflation"]
            path, queue, rival, sender = map(str, key)
            found[path, queue, rival, sender] = columns
        return found

    def values(self, question: Question, place: Place, sender: str) -> FloatArray:
        """Return the values of a sender's runs at a place, shape (n,); empty without runs."""
        columns = self._values.get((*place, question.rival, sender))
        values = np.array([]) if columns is None else columns[question.column]
        known: FloatArray = values[np.isfinite(values)]
        return known

    def levels(self, column: str, **where: str) -> list[str]:
        """Return the distinct values of a column, in file order, of rows that match `where`."""
        rows = self.frame.filter(*(pl.col(name) == value for name, value in where.items()))
        return rows[column].unique(maintain_order=True).to_list()

    @cached_property
    def senders(self) -> list[str]:
        """Names of all senders, deployable ones first."""
        every = self.levels("sender")
        return [s for s in DEPLOYABLE if s in every] + [s for s in every if s not in DEPLOYABLE]

    def paths(self, kind: Kind) -> list[str]:
        """Return the paths of all studies whose paths are of a kind."""
        studies = [study for study, of in STUDIES.items() if of == kind]
        return [path for study in studies for path in self.levels("path", study=study)]

    def queues(self, path: str) -> list[str]:
        """Return the queues that were run on a path."""
        return self.levels("queue", path=path)


def is_upload(path: str) -> bool:
    """Return whether the measured direction of a path is towards the satellite."""
    return path.startswith("uplink") or path.endswith(", up")


def is_access(path: str) -> bool:
    """Return whether a path ends at a home: a terminal, or a measurement at one."""
    return not is_upload(path) and path.startswith(("access", "Victoria", "Iowa", "Lagos", "LeoCC"))


def is_download(path: str) -> bool:
    """Return whether a path is not an upload."""
    return not is_upload(path)


@dataclass(frozen=True)
class Ranked:
    """Senders in the order of a question over some places, the best first."""

    question: Question
    places: Sequence[Place]
    strata: Mapping[str, Sequence[FloatArray]]
    """Values of each sender at each place."""

    @property
    def best(self) -> str:
        """Name of the best sender."""
        return next(iter(self.strata))

    def mean(self, sender: str) -> float:
        """Return a sender's mean over the places."""
        return float(np.mean([self.question.shown(v).mean() for v in self.strata[sender]]))

    def interval(self, sender: str) -> Interval:
        """Return the 95 % interval of a sender's mean.

        Places are not a random sample, so differences between them do not widen the interval.
        """
        return stratified_interval([self.question.shown(v) for v in self.strata[sender]])

    def runs(self, sender: str) -> int:
        """Return the number of a sender's runs."""
        return sum(map(len, self.strata[sender]))

    def difference(self, first: str, second: str) -> Difference:
        """Return the difference: the first sender's mean minus the second's."""
        shown = self.question.shown
        return difference(
            [shown(v) for v in self.strata[first]], [shown(v) for v in self.strata[second]]
        )


LEAST = 0.05
"""Smallest difference of two senders that matters to a reader, as a fraction of the mean."""


@dataclass(frozen=True)
class Difference:
    """Difference of two means with its 95 % interval."""

    value: float
    interval: Interval
    d: float | None
    """Cohen's d: the difference divided by the standard deviation over seeds."""

    @property
    def sign(self) -> int:
        """Sign of the difference; 0 if the interval contains zero or is unknown."""
        low, high = self.interval.low, self.interval.high
        if low is None or high is None or low <= 0 <= high:
            return 0
        return 1 if self.value > 0 else -1

    def matters(self, mean: float) -> bool:
        """Return whether the difference is beyond chance and more than `LEAST` of a mean."""
        return self.sign != 0 and abs(self.value) > LEAST * abs(mean)


def difference(first: Sequence[FloatArray], second: Sequence[FloatArray]) -> Difference:
    """Return the difference of two senders' means; the strata of both are the same places."""
    value = float(np.mean([v.mean() for v in first]) - np.mean([v.mean() for v in second]))
    # The mean over all strata, with the second sender's negated, is half of the difference.
    half = stratified_interval([*first, *(-v for v in second)])
    ends = (None if end is None else 2 * end for end in (half.low, half.high))
    return Difference(value, Interval(*ends), stratified_effect(first, second))


def rank(
    runs: Runs,
    question: Question,
    places: Sequence[Place],
    senders: Iterable[str],
    *,
    floor: bool = True,
) -> Ranked:
    """Order senders by a question over places; senders without runs at some place are left out.

    Args:
        runs: the data.
        question: the quantity by which senders are compared.
        places: paths with queues.
        senders: names of senders.
        floor: whether senders with less goodput than `FLOOR` are left out of comparisons of delay.
    """
    strata = {s: [runs.values(question, place, s) for place in places] for s in senders}
    strata = {s: values for s, values in strata.items() if all(map(len, values)) and values}
    if floor and question.better == "less":
        means = {s: np.mean([runs.values(GOODPUT, p, s).mean() for p in places]) for s in strata}
        least = FLOOR * max(means.values(), default=0.0)
        strata = {s: values for s, values in strata.items() if means[s] >= least}
    ordered = sorted(
        strata, key=lambda s: -float(np.mean([question.score(v).mean() for v in strata[s]]))
    )
    return Ranked(question, places, {s: strata[s] for s in ordered})


@dataclass(frozen=True)
class Reader:
    """Kind of reader of the page, and the runs that answer the reader's question."""

    who: str
    need: str
    question: Question
    is_path: Callable[[str], bool]
    where: str
    """Description of the computed paths, for the page."""
    queue: str = "FIFO"

    def places(self, runs: Runs, kind: Kind) -> list[Place]:
        """Return the places, of computed or measured paths, that matter to the reader."""
        paths = filter(self.is_path, runs.paths(kind))
        return [(path, self.queue) for path in paths if self.queue in runs.queues(path)]


READERS = (
    Reader(
        "CDN edge",
        "serves downloads over unknown paths and queues",
        GOODPUT,
        is_download,
        "computed paths of 100 Mbit/s",
    ),
    Reader(
        "Home upload",
        "sends files over a lossy uplink",
        GOODPUT,
        is_upload,
        "computed uplinks of 20 Mbit/s with 0, 0.5 and 2 % loss",
    ),
    Reader(
        "Video call",
        "shares a home's queue with a download, whose sender makes the delay",
        DELAY,
        is_access,
        "computed Starlink access paths of 100 Mbit/s without and with 0.5 % loss",
    ),
)
RESEARCHER = Reader(
    "Researcher",
    "needs the baseline that a new sender has to beat",
    POWER,
    lambda _: True,
    "computed paths",
)


def recommendations(runs: Runs) -> Iterator[str]:
    """Yield one list item per kind of reader."""
    for reader in READERS:
        yield recommendation(runs, reader)
    yield from operator(runs)
    yield researcher(runs)


def recommendation(runs: Runs, reader: Reader) -> str:
    """Return the item for a reader: the best deployable sender, its value, and the next best."""
    places = reader.places(runs, "computed")
    ranked = rank(runs, reader.question, places, DEPLOYABLE)
    if not ranked.strata:
        return item(f"**{reader.who}**: the data has no runs.")
    best = ranked.best
    found = quantity(ranked, best)
    others = list(ranked.strata)[1:]
    measured = rank(runs, reader.question, reader.places(runs, "measured"), DEPLOYABLE)
    is_open = differs(measured, best)
    lead = "computed paths say" if is_open else "use"
    say = f"; measured paths say **{measured.best}**" if is_open else ""
    text = (
        f"**{reader.who}** ({reader.need}): {lead} **{best}**{say}. {best} has {found} over "
        f"{len(places)} {reader.where} behind {reader.queue} ({ranked.runs(best)} runs)"
    )
    text += f"; next is {others[0]} with {quantity(ranked, others[0])}." if others else "."
    below = [head_to_head(runs, reader.question, places), over_measured(measured, best)]
    return item(text, below)


def differs(measured: Ranked, best: str) -> bool:
    """Return whether a sender other than `best` is the best over measured paths."""
    if not measured.strata or measured.best == best:
        return False
    if best not in measured.strata:
        return True
    return measured.difference(measured.best, best).matters(measured.mean(best))


def over_measured(measured: Ranked, best: str) -> str:
    """Return the text on measured paths: the value of `best` there, and of a better sender."""
    if not measured.strata:
        return ""
    places = measured.places
    what = f"{len(places)} measured paths" if len(places) > 1 else f"the measured {places[0][0]}"
    runs = f"{measured.runs(measured.best)} runs"
    lead = f"Over {what} ({runs})"
    if not differs(measured, best):
        also = "it is best" if measured.best == best else "no sender is better by more than 5 %"
        return f"{lead} {also}: {best} has {quantity(measured, best)}."
    own = quantity(measured, best) if best in measured.strata else "too little goodput to count"
    other = f"{measured.best} has {quantity(measured, measured.best)}"
    return f"**{lead} it differs**: {other}, {best} {own}."


def head_to_head(runs: Runs, question: Question, places: Sequence[Place]) -> str:
    """Return the line that compares BBR with CUBIC over some places."""
    both = rank(runs, question, places, PAIR, floor=False)
    if len(both.strata) < len(PAIR):
        return ""
    apart = both.difference(*PAIR)
    unit = f" {question.unit}" if question.unit in ("Mbit/s", "%") else ""
    return f"BBR against CUBIC: {signed(apart.value)}{unit} {bounds(apart.interval, plus=True)}."


def queues_by_delay(runs: Runs, paths: Sequence[str], senders: Sequence[str]) -> list[str]:
    """Return queues that were run on all paths, in order of delay.

    Queues with too little goodput are left out. Delay and goodput are means of the senders over the
    paths.
    """
    queues = [q for q in runs.levels("queue") if all(q in runs.queues(p) for p in paths)]
    if "FIFO" not in queues or not paths:
        return []
    carried = {q: overall(queue_strata(runs, GOODPUT, paths, q, senders)) for q in queues}
    delays = {q: overall(queue_strata(runs, DELAY, paths, q, senders)) for q in queues}
    enough = [q for q in queues if carried[q] >= LOSS_OF_QUEUE * carried["FIFO"]]
    return sorted(enough, key=lambda q: delays[q])


def operator(runs: Runs) -> Iterator[str]:
    """Yield the recommended queue: the one with the least delay of the senders of most traffic."""
    paths = [p for p in runs.paths("computed") if is_download(p)]
    senders = [s for s in TRAFFIC if s in runs.senders]
    ordered = queues_by_delay(runs, paths, senders)
    if not ordered:
        return
    carried = {q: queue_strata(runs, GOODPUT, paths, q, senders) for q in (*ordered, "FIFO")}
    delays = {q: queue_strata(runs, DELAY, paths, q, senders) for q in (*ordered, "FIFO")}
    best, following = ordered[0], ordered[1:2]

    def delay(queue: str) -> str:
        return f"{number(overall(delays[queue]))} {bounds(stratified_interval(delays[queue]))}"

    count = sum(map(len, delays[best]))
    text = (
        f"**Gateway operator** (chooses the queue, for the senders of most traffic): use "
        f"**{best}**. The 95th percentile of the round trip is {delay(best)} times the base with "
        f"it and {delay('FIFO')} with FIFO, as the mean of {listed(senders)} over {len(paths)} "
        f"computed paths, {count} runs each; goodput is {overall(carried[best]):.1f} in place of "
        f"{overall(carried['FIFO']):.1f} Mbit/s."
    )
    text += f" Next is {following[0]} with {delay(following[0])}." if following else ""
    below = []
    shares = {q: [runs.values(FAIRNESS, (p, q), "BBR") for p in paths] for q in (best, "FIFO")}
    if all(map(len, shares[best])) and all(map(len, shares["FIFO"])):
        halves = [f"{overall(v):.0f} % {bounds(stratified_interval(v))}" for v in shares.values()]
        below.append(
            f"BBR against CUBIC: BBR takes {halves[0]} of both with {best}, {halves[1]} with FIFO."
        )
    below.append(measured_queue(runs, best, senders))
    every = [s for s in DEPLOYABLE if s in runs.senders]
    others = queues_by_delay(runs, paths, every)
    if others[0] != best:
        gone = best not in others
        why = f", because {best} costs more than 5 % of their goodput" if gone else ""
        below.append(f"As the mean of all {len(every)} deployable senders it is {others[0]}{why}.")
    yield item(text, below)


def measured_queue(runs: Runs, best: str, senders: Sequence[str]) -> str:
    """Return the text on whether a queue shortens the delay over measured paths too.

    The text is empty if measured paths have no runs with other queues than FIFO.
    """
    paths = [p for p in runs.paths("measured") if is_download(p)]
    tried = [q for q in runs.levels("queue") if paths and all(q in runs.queues(p) for p in paths)]
    if "FIFO" not in tried or len(tried) == 1:
        return ""
    queue = best if best in tried else next(q for q in tried if q != "FIFO")
    now, before = (queue_strata(runs, DELAY, paths, q, senders) for q in (queue, "FIFO"))
    sign = difference(now, before).sign
    word = {-1: "is the same", 0: "differs: no change beyond chance", 1: "differs"}[sign]
    lead = strong(f"Over measured paths it {word}", sign >= 0)
    only = "" if best in tried else f" (only {listed(tried)} ran)"
    values = [
        f"{name} has {number(overall(strata))} {bounds(stratified_interval(strata))}"
        for name, strata in ((queue, now), ("FIFO", before))
    ]
    return f"{lead}{only}: {', '.join(values)} times the base RTT."


def queue_strata(
    runs: Runs, question: Question, paths: Sequence[str], queue: str, senders: Sequence[str]
) -> list[FloatArray]:
    """Return the values of each sender on each path behind a queue."""
    found = [runs.values(question, (path, queue), sender) for path in paths for sender in senders]
    return [values for values in found if len(values)]


def overall(strata: Sequence[FloatArray]) -> float:
    """Return the mean of the strata's means; infinite if there are none."""
    return float(np.mean([values.mean() for values in strata])) if strata else float("inf")


def researcher(runs: Runs) -> str:
    """Return the item for researchers: deployable baseline and best research sender.

    Both are compared by goodput per delay.
    """
    places = RESEARCHER.places(runs, "computed")
    baseline = rank(runs, POWER, places, DEPLOYABLE)
    research = rank(runs, POWER, places, [s for s in runs.senders if s not in DEPLOYABLE])
    if not baseline.strata or not research.strata:
        return item("**Researcher**: the data has no runs.")
    every = rank(runs, POWER, places, runs.senders)
    apart = every.difference(research.best, baseline.best)
    text = (
        f"**Researcher** (needs the baseline that a new sender has to beat): compare with "
        f"**{baseline.best}**, the deployable sender with the most goodput per delay: "
        f"{quantity(baseline, baseline.best)} over {len(places)} computed paths behind FIFO, "
        f"{baseline.runs(baseline.best)} runs. The best research sender is {research.best}, with "
        f"{quantity(research, research.best)}: {signed(apart.value)} "
        f"{bounds(apart.interval, plus=True)}."
    )
    below = [head_to_head(runs, POWER, places)]
    there = [
        place
        for place in RESEARCHER.places(runs, "measured")
        if all(len(runs.values(POWER, place, s)) for s in (research.best, baseline.best))
    ]
    measured = rank(runs, POWER, there, runs.senders)
    if not measured.strata:
        return item(text, below)
    own = rank(runs, POWER, there, DEPLOYABLE)
    theirs = rank(runs, POWER, there, [s for s in runs.senders if s not in DEPLOYABLE])
    is_same = own.best == baseline.best and theirs.best == research.best
    lead = "it is the same" if is_same else "it differs"
    below.append(
        f"{strong(f'Over measured paths {lead}', not is_same)}: {own.best} has "
        f"{quantity(own, own.best)}, {theirs.best} {quantity(theirs, theirs.best)}."
    )
    return item(text, below)


def contradictions(runs: Runs) -> list[str]:
    """Return a sentence for each answer that is different over measured paths.

    Two answers are compared; a difference counts if it is beyond chance and larger than 5 %. The
    first answer is which deployable sender is best over all download paths of a kind. The second is
    the sign of BBR against CUBIC: on each measured path, compared with the computed access path, or
    with all computed paths if there is no access path.
    """
    return [text for question in QUESTIONS for text in _contradictions(runs, question)]


def _contradictions(runs: Runs, question: Question) -> Iterator[str]:
    computed, measured = (
        [(path, "FIFO") for path in runs.paths(kind) if is_download(path)]
        for kind in ("computed", "measured")
    )
    there = rank(runs, question, computed, DEPLOYABLE)
    here = rank(runs, question, measured, DEPLOYABLE)
    if not there.strata or not here.strata:
        return
    if here.best != there.best:
        gone = there.best not in here.strata
        if gone or here.difference(here.best, there.best).matters(here.mean(there.best)):
            yield (
                f"{question.title}: {there.best} is the best deployable sender over computed "
                f"paths, {here.best} over measured ones ({quantity(here, here.best)}"
                + (")." if gone else f"; {there.best} has {quantity(here, there.best)}).")
            )
    alike = [place for place in computed if place[0] == LIKE] or computed
    both = rank(runs, question, alike, PAIR, floor=False)
    if len(both.strata) < len(PAIR):
        return
    apart = both.difference(*PAIR)
    turned = []
    for place in measured:
        pair = rank(runs, question, [place], PAIR, floor=False)
        own = pair.difference(*PAIR) if len(pair.strata) == len(PAIR) else None
        if own is None or not own.matters(pair.mean("CUBIC")):
            continue
        if own.sign * apart.sign < 0:
            turned.append(f"{place[0]} ({signed(own.value)} {bounds(own.interval, plus=True)})")
    if turned:
        reference = "the computed access path" if alike[0][0] == LIKE else "computed paths"
        what = (
            "distance from an even share" if question.better == "even" else question.title.lower()
        )
        yield (
            f"BBR against CUBIC, {what}: {signed(apart.value)} {bounds(apart.interval, plus=True)} "
            f"over {reference}, but the opposite over {listed(turned)}."
        )


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
which has one row per run; do not edit. {made}"""
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


def collect(study: str, results: Results) -> pl.DataFrame:
    """Return the rows for the data file that a study's results yield."""
    first = results.frame.filter(pl.col("flow") == 0)
    infos = results.metrics.infos
    columns = [
        (pl.col(infos[metric].column) * infos[metric].factor).round(digits).alias(name)
        for name, (metric, digits) in COLUMNS.items()
    ]
    alone = pl.col("rival") == ALONE
    return first.select(pl.lit(study).alias("study"), *KEYS[1:], *columns).with_columns(
        share=pl.when(alone).then(None).otherwise(pl.col("share"))
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


def read() -> Runs:
    """Read the data file; if it does not exist, there are no rows."""
    schema: dict[str, pl.DataType] = dict.fromkeys(KEYS, pl.String())
    schema |= {"seed": pl.Int64(), **dict.fromkeys(COLUMNS, pl.Float64())}
    frame = pl.read_csv(RUNS, schema=schema) if RUNS.exists() else pl.DataFrame(schema=schema)
    table = tomllib.loads(PROVENANCE_FILE.read_text("utf-8")) if PROVENANCE_FILE.exists() else {}
    return Runs(frame, {s: Provenance(m["build"], m["date"].isoformat()) for s, m in table.items()})


def write_all(runs: Runs) -> None:
    """Write the page and its figures."""
    from skyhop.figures.charts import draw_chart
    from skyhop.figures.style import png_bytes

    for name, chart in heat_charts(runs).items():
        write_file(PLACE / f"which-sender-{name}.png", png_bytes(draw_chart(chart)))
    write_file(PAGE, page(runs).encode())


def quantity(ranked: Ranked, sender: str) -> str:
    """Return a sender's mean with its interval and unit, as text."""
    unit = f" {ranked.question.unit}" if ranked.question.better != "even" else " points from even"
    return f"{number(ranked.mean(sender))} {bounds(ranked.interval(sender))}{unit}"


def number(value: float) -> str:
    """Return a number as text, with three digits or one decimal."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"  # noqa: PLR2004


def signed(value: float) -> str:
    """Return a number as text, with its sign."""
    return ("+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else "") + number(abs(value))


def bounds(interval: Interval, *, plus: bool = False) -> str:
    """Return an interval in brackets; `plus` adds signs, for intervals of differences."""
    if interval.low is None or interval.high is None:
        return "[no interval]"
    write = signed if plus else number
    return f"[{write(interval.low)}, {write(interval.high)}]"


def listed(texts: Sequence[str]) -> str:
    """Join texts by commas and a final "and"."""
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def strong(text: str, is_strong: bool = True) -> str:
    """Return a text in bold if `is_strong`."""
    return f"**{text}**" if is_strong else text


def item(text: str, below: Sequence[str] = ()) -> str:
    """Return a list item with a nested list below it; empty nested items are left out."""
    lines = [wrapped(f"- {text}")]
    # Python's Markdown treats items with less than four spaces as part of the same list.
    lines += [textwrap.indent(wrapped(f"- {own}", WIDTH - 4), "    ") for own in below if own]
    return "\n".join(lines)


def wrapped(text: str, width: int = WIDTH) -> str:
    """Wrap paragraphs and list items to a line width."""
    return "\n\n".join(
        textwrap.fill(
            " ".join(part.split()),
            width,
            subsequent_indent="  " if part.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in text.strip("\n").split("\n\n")
    )


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
