"""Runs behind docs/results/which-sender.md: data file, questions, rankings of senders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from skyhop.analysis.statistics import Interval, stratified_effect, stratified_interval
from skyhop.data.arrays import FloatArray
from skyhop.study.results import Results
from validation.pages import RESULTS
from validation.provenance import Provenance, read_provenance

RUNS = RESULTS / "data" / "which-sender.csv"
PROVENANCE_FILE = RESULTS / "data" / "which-sender.toml"

STUDIES = {
    "leo-beyond": "computed",
    "leo-beyond-upload": "computed",
    "leo-beyond-access": "modelled",
    "leo-beyond-measured": "measured",
}
"""Studies from which the page is made, and the kind of their paths."""

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

ALONE, NEXT_TO_CUBIC = "none", "CUBIC"
FLOOR = 0.8
"""Goodput, as a fraction of the best sender's, that a sender needs for its delay to count."""

PAIR = ("BBR", "CUBIC")
"""The two senders that every table compares."""

Kind = Literal["computed", "modelled", "measured"]
KINDS: tuple[Kind, ...] = ("computed", "modelled", "measured")
"""Kinds of paths: from orbits alone, drawn from an access profile, or from a path file."""

Place = tuple[str, str]
"""Path and queue in which runs took place."""


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

    @property
    def research(self) -> list[str]:
        """Names of the senders that are not deployable."""
        return [s for s in self.senders if s not in DEPLOYABLE]

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
    """Return whether a path ends at a home: a terminal, or a measurement or model of one."""
    begins = ("access", "Victoria", "Iowa", "OneWeb", "Lagos", "LeoCC", "Starlink")
    return not is_upload(path) and path.startswith(begins)


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


def read() -> Runs:
    """Read the data file; if it does not exist, there are no rows."""
    schema: dict[str, pl.DataType] = dict.fromkeys(KEYS, pl.String())
    schema |= {"seed": pl.Int64(), **dict.fromkeys(COLUMNS, pl.Float64())}
    frame = pl.read_csv(RUNS, schema=schema) if RUNS.exists() else pl.DataFrame(schema=schema)
    return Runs(frame, read_provenance(PROVENANCE_FILE))
