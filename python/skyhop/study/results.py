"""The dataset of a study, and questions to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from skyhop.analysis.statistics import (
    Interval,
    bootstrap_interval,
    deviation,
    is_statistic,
    mean,
    pooled_deviation,
    pooled_mean,
    statistic,
)
from skyhop.data.arrays import FloatArray
from skyhop.study.expression import Selected, UnknownValueError
from skyhop.study.file import Spread
from skyhop.study.metrics import WARNINGS, MetricInfo, MetricSet

POOLED_STATS = ("pooled_mean", "pooled_sd")
"""Statistics over the bins of all runs, of metrics that keep what that takes."""


def is_stat(name: str, metric: MetricInfo) -> bool:
    """Return whether claims can ask a metric for a statistic of that name."""
    return is_statistic(name) or (name in POOLED_STATS and bool(metric.moments))


@dataclass(frozen=True)
class Estimate:
    """A metric over the runs of one selection."""

    values: FloatArray
    """One per run, shape (n,): the mean over the run's selected flows."""
    mean: float | None
    """Over runs, or over the bins of all runs where they are pooled."""
    interval: Interval
    """The mean's, 95 %; or the mean less and plus the standard deviation."""
    sd: float | None = None
    """The standard deviation, where that was asked for."""


class Results:
    """The rows of a study's finished runs.

    Attributes:
        frame: one row per run and TCP flow: axes, seed, run, and the columns of `metrics`.
        failed: axes and seed of each run that failed, and has no rows.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        metrics: MetricSet,
        failed: Sequence[Mapping[str, object]] = (),
    ) -> None:
        self.frame = frame
        self.metrics = metrics
        self.failed = failed

    def failed_in(self, selected: Selected) -> int:
        """Return how many of the runs of a selection failed."""
        return sum(
            all(_is_among(run[name], wanted) for name, wanted in selected.items() if name in run)
            for run in self.failed
        )

    def selected(self, selected: Selected) -> pl.DataFrame:
        """Return the rows of a selection: column: the value or values to take."""
        frame = self.frame
        for name, wanted in selected.items():
            values = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
            column = pl.col(name)
            if frame.schema[name] == pl.String:
                frame = frame.filter(column.is_in([str(value) for value in values]))
            elif frame.schema[name].is_float():
                # Numbers along an axis are of floating point, and claims write 1 for 1.0.
                wanted_numbers = pl.Series(values, dtype=pl.Float64, strict=False).to_list()
                frame = frame.filter(column.is_in(wanted_numbers))
            else:
                frame = frame.filter(column.is_in(values))
        return frame

    def values(self, metric: MetricInfo, selected: Selected) -> FloatArray:
        """Return the metric of each selected run, shape (n,): the mean over its flows."""
        frame = self.selected(selected)
        if metric.column not in frame.columns or frame.is_empty():
            return np.array([], dtype=np.float64)
        # A scenario that stands at two points is one run, but counts at both.
        keys = [name for name in frame.columns if name in self._point_columns()]
        per_run = frame.group_by(keys, maintain_order=True).agg(pl.col(metric.column).mean())
        found = per_run.get_column(metric.column).drop_nulls().cast(pl.Float64).to_numpy()
        return np.asarray(found, dtype=np.float64) * metric.factor

    def moments(self, metric: MetricInfo, selected: Selected) -> FloatArray:
        """Return what it takes to pool the bins of the selected runs, shape (n, 3), a row per run.

        Flows that were measured each on its own are taken together.
        """
        frame = self.selected(selected)
        columns = list(metric.moments)
        if not set(columns) <= set(frame.columns) or frame.is_empty():
            return np.zeros((0, 3))
        keys = [name for name in frame.columns if name in self._point_columns()]
        known = frame.drop_nulls(columns)
        if metric.own is not None and metric.own.over:
            # What flows amount to together stands in the row of each.
            known = known.unique(keys, keep="first", maintain_order=True)
        per_run = known.partition_by(keys, maintain_order=True)
        found = [_together(rows.select(columns).to_numpy()) for rows in per_run]
        return np.array([run for run in found if run[0] > 0]).reshape(-1, 3)

    def estimate(
        self, metric: MetricInfo, selected: Selected, spread: Spread = "interval"
    ) -> Estimate:
        """Return a metric's mean over the selected runs, and what is to stand beside it."""
        values = self.values(metric, selected)
        if spread == "interval":
            return Estimate(values, mean(values), bootstrap_interval(values))
        if spread == "sd":
            middle, sd = mean(values), deviation(values)
        else:
            samples = self.moments(metric, selected)
            middle, sd = pooled_mean(samples), pooled_deviation(samples, _ddof(metric))
        if middle is None or sd is None:
            return Estimate(values, middle, Interval(None, None), sd)
        return Estimate(values, middle, Interval(middle - sd, middle + sd), sd)

    def values_called(self, name: str, selected: Selected) -> FloatArray:
        """Return what the runs have that `name(axis=value, …)` asks for, shape (n,) or (n, 3).

        Their values, or the moments of their bins where these are pooled.
        """
        chosen = {key: value for key, value in selected.items() if key != "stat"}
        info = self.metrics.infos[name]
        pools = selected.get("stat") in POOLED_STATS
        return self.moments(info, chosen) if pools else self.values(info, chosen)

    def worth(self, name: str, selected: Selected, values: FloatArray) -> float:
        """Return what such a call is worth with what the runs have.

        `stat` chooses the statistic over the runs; the mean where it is not given.

        Raises:
            UnknownValueError: no finished run has it.
        """
        stat = str(selected.get("stat", "mean"))
        if stat == "pooled_mean":
            found = pooled_mean(values)
        elif stat == "pooled_sd":
            found = pooled_deviation(values, _ddof(self.metrics.infos[name]))
        else:
            found = statistic(values, stat)
        if found is None:
            told = ", ".join(f"{key}={value!r}" for key, value in selected.items())
            raise UnknownValueError(f"{name}({told}): no finished run has it")
        return found

    def groups(self, by: Sequence[str], where: Selected) -> Iterator[dict[str, object]]:
        """Yield each combination of the columns `by` among the selected rows.

        They are in the order in which the study lists their values, the first column's foremost.
        """
        found = self.selected(where).select(by).unique(maintain_order=True).rows(named=True)
        ranks = {name: {v: rank for rank, v in enumerate(self.levels(name, where))} for name in by}
        yield from sorted(found, key=lambda row: [ranks[name].get(row[name], -1) for name in by])

    def levels(self, name: str, where: Selected) -> list[object]:
        """Return the values of a column among the selected rows, in their order."""
        found = self.selected(where).get_column(name).drop_nulls().unique(maintain_order=True)
        return found.to_list()

    def _point_columns(self) -> set[str]:
        """Return the columns that tell runs apart: the axes, the seed and the run."""
        columns = self.frame.columns
        return set(columns[: columns.index("run") + 1])


def _is_among(label: object, wanted: object) -> bool:
    """Return whether a point's label is one of the values that are chosen."""
    values = wanted if isinstance(wanted, list | tuple) else [wanted]
    # Numbers along an axis are of floating point, and claims write 1 for 1.0.
    return any(label == value or str(label) == str(value) for value in values)


def _ddof(metric: MetricInfo) -> int:
    return metric.own.ddof if metric.own is not None else 1


def _together(samples: FloatArray) -> FloatArray:
    """Return the moments of samples (n, 3) as those of one, shape (3,)."""
    count = float(samples[:, 0].sum())
    sd = pooled_deviation(samples, ddof=0)
    return np.array([count, pooled_mean(samples) or 0.0, count * (sd or 0.0) ** 2])


def dataset(rows: Sequence[Mapping[str, object]], axes: Mapping[str, bool]) -> pl.DataFrame:
    """Return the dataset of rows: axes, seed and run first, then what was measured.

    A column's type does not depend on which runs there are: axes are numbers or text as `axes`
    says (name: whether it is numeric), figures are floating point, counts too.
    """
    names = dict.fromkeys([*axes, "seed", "run", "flow", "flow_cc"])
    names.update(dict.fromkeys(itertools.chain.from_iterable(rows)))
    names.pop(WARNINGS, None)
    return pl.DataFrame([_series(name, [row.get(name) for row in rows], axes) for name in names])


def _series(name: str, values: list[object], axes: Mapping[str, bool]) -> pl.Series:
    if name in ("seed", "flow"):
        return pl.Series(name, values, dtype=pl.Int64)
    if name in ("run", "flow_cc") or not axes.get(name, True):
        return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)
    return pl.Series(name, values, dtype=pl.Float64, strict=False)
