"""Dataset of a study, with selections, estimates and statistics over its runs."""

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
from skyhop.study.keys import Spread
from skyhop.study.metric_kinds import FlowsMetric, StatisticMetric
from skyhop.study.metrics import QUEUES, WARNINGS, MetricInfo, MetricSet

POOLED_STATS = ("pooled_mean", "pooled_sd")
"""Statistics over the pooled bins of all runs, for metrics with `pool = true`."""


def is_stat(name: str, metric: MetricInfo) -> bool:
    """Return whether calls of a metric may have this name as their `stat`."""
    return is_statistic(name) or (name in POOLED_STATS and bool(metric.pooling_columns))


@dataclass(frozen=True)
class Estimate:
    """Estimate of a metric over the runs of one selection."""

    values: FloatArray
    """Value of each run, shape (n,): the mean over its selected flows."""
    mean: float | None
    """Mean over runs; with the spread "pooled", mean over the bins of all runs."""
    interval: Interval
    """95 % interval of the mean; with the spreads "sd" and "pooled", mean ± standard deviation."""
    sd: float | None = None
    """Standard deviation, with the spreads "sd" and "pooled"."""


class Results:
    """Rows of a study's finished runs.

    Attributes:
        frame: one row per run and TCP flow; columns: axes, seed, run, and those of `metrics`.
        metrics: the metrics of the study.
        failed: axis values and seed of each failed run; failed runs have no rows.
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

    def failed_in(self, selections: Sequence[Selected]) -> list[Mapping[str, object]]:
        """Return axis values and seed of each failed run that one of the selections contains."""
        return [run for run in self.failed if any(_is_in(run, each) for each in selections)]

    def without_failed(
        self, failed: Sequence[Mapping[str, object]], selections: Sequence[Selected]
    ) -> Results:
        """Return the results without the runs that a comparison would pair with a failed run.

        Such runs have the same values as a failed run in all columns that no selection names. So
        both sides of a comparison are means over the same points and seeds.
        """
        named = {name for each in selections for name in each}
        free = [n for n in self.frame.columns if n in self._point_columns() - named - {"run"}]
        missing = {tuple(self._as_cell(name, run[name]) for name in free) for run in failed}
        kept = [row not in missing for row in self.frame.select(free).iter_rows()]
        if not free:
            kept = [False] * self.frame.height
        return Results(self.frame.filter(pl.Series(kept, dtype=pl.Boolean)), self.metrics)

    def _as_cell(self, name: str, value: object) -> object:
        return str(value) if self.frame.schema[name] == pl.String else value

    def selected(self, selected: Selected) -> pl.DataFrame:
        """Return the rows that have, in each column of `selected`, one of the given values."""
        frame = self.frame
        for name, wanted in selected.items():
            values = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
            column = pl.col(name)
            if frame.schema[name] == pl.String:
                frame = frame.filter(column.is_in([str(value) for value in values]))
            elif frame.schema[name].is_float():
                # Numeric axes have float columns, and claims write 1 for 1.0.
                wanted_numbers = pl.Series(values, dtype=pl.Float64, strict=False).to_list()
                frame = frame.filter(column.is_in(wanted_numbers))
            else:
                frame = frame.filter(column.is_in(values))
        return frame

    def values(self, metric: MetricInfo, selected: Selected) -> FloatArray:
        """Return the metric of each selected run, shape (n,): the mean over its selected flows."""
        frame = self.selected(selected)
        if metric.column not in frame.columns or frame.is_empty():
            return np.array([], dtype=np.float64)
        # Points with the same scenario share a run; it counts once at each of these points.
        keys = [name for name in frame.columns if name in self._point_columns()]
        per_run = frame.group_by(keys, maintain_order=True).agg(pl.col(metric.column).mean())
        found = per_run.get_column(metric.column).drop_nulls().cast(pl.Float64).to_numpy()
        return np.asarray(found, dtype=np.float64) * metric.factor

    def bin_moments(self, metric: MetricInfo, selected: Selected) -> FloatArray:
        """Return count, mean and squared deviations of each selected run's bins, shape (n, 3).

        If a run's flows have different bins, the bins of its flows are pooled.
        """
        frame = self.selected(selected)
        columns = list(metric.pooling_columns)
        if not set(columns) <= set(frame.columns) or frame.is_empty():
            return np.zeros((0, 3))
        keys = [name for name in frame.columns if name in self._point_columns()]
        known = frame.drop_nulls(columns)
        if isinstance(metric.definition, FlowsMetric):
            # A metric over several flows of a run has the same value in each flow's row.
            known = known.unique(keys, keep="first", maintain_order=True)
        per_run = known.partition_by(keys, maintain_order=True)
        found = [_together(rows.select(columns).to_numpy()) for rows in per_run]
        return np.array([run for run in found if run[0] > 0]).reshape(-1, 3)

    def estimate(
        self, metric: MetricInfo, selected: Selected, spread: Spread = "interval"
    ) -> Estimate:
        """Return a metric's mean over the selected runs, with the spread around it."""
        values = self.values(metric, selected)
        if spread == "interval":
            return Estimate(values, mean(values), bootstrap_interval(values))
        if spread == "none":
            return Estimate(values, mean(values), Interval(None, None))
        if spread == "sd":
            middle, sd = mean(values), deviation(values)
        else:
            samples = self.bin_moments(metric, selected)
            middle, sd = pooled_mean(samples), pooled_deviation(samples, _ddof(metric))
        if middle is None or sd is None:
            return Estimate(values, middle, Interval(None, None), sd)
        return Estimate(values, middle, Interval(middle - sd, middle + sd), sd)

    def call_values(self, name: str, selected: Selected) -> FloatArray:
        """Return the value of each run that the call `name(axis=value, …)` selects, shape (n,).

        If its `stat` is one of `POOLED_STATS`, return the moments of the runs' bins, shape (n, 3).
        """
        chosen = {key: value for key, value in selected.items() if key != "stat"}
        info = self.metrics.infos[name]
        pools = selected.get("stat") in POOLED_STATS
        return self.bin_moments(info, chosen) if pools else self.values(info, chosen)

    def call_result(self, name: str, selected: Selected, values: FloatArray) -> float:
        """Return the statistic of a call, given its runs' values from `call_values`.

        The keyword `stat` names the statistic over the runs; the default is the mean.

        Raises:
            UnknownValueError: no finished run has a value.
        """
        stat = str(selected.get("stat", "mean"))
        if stat == "pooled_mean":
            found = pooled_mean(values)
        elif stat == "pooled_sd":
            found = pooled_deviation(values, _ddof(self.metrics.infos[name]))
        else:
            found = statistic(values, stat)
        if found is None:
            arguments = ", ".join(f"{key}={value!r}" for key, value in selected.items())
            raise UnknownValueError(f"{name}({arguments}): no finished run has it")
        return found

    def groups(self, by: Sequence[str], where: Selected) -> Iterator[dict[str, object]]:
        """Yield each combination of the columns `by` among the selected rows.

        They are sorted by the first column, then the second, and so on, each in the study's order.
        """
        found = self.selected(where).select(by).unique(maintain_order=True).rows(named=True)
        ranks = {name: {v: rank for rank, v in enumerate(self.levels(name, where))} for name in by}
        yield from sorted(found, key=lambda row: [ranks[name].get(row[name], -1) for name in by])

    def levels(self, name: str, where: Selected) -> list[object]:
        """Return the distinct values of a column among the selected rows, in the study's order."""
        found = self.selected(where).get_column(name).drop_nulls().unique(maintain_order=True)
        return found.to_list()

    def _point_columns(self) -> set[str]:
        """Return the columns that identify a run at a point: the axes, `seed` and `run`."""
        columns = self.frame.columns
        return set(columns[: columns.index("run") + 1])


def _is_in(run: Mapping[str, object], selected: Selected) -> bool:
    return all(_is_among(run[name], wanted) for name, wanted in selected.items() if name in run)


def _is_among(label: object, wanted: object) -> bool:
    """Return whether a point's label is the wanted value, or one of the wanted values."""
    values = wanted if isinstance(wanted, list | tuple) else [wanted]
    # Numeric axes have float columns, and claims write 1 for 1.0.
    return any(label == value or str(label) == str(value) for value in values)


def _ddof(metric: MetricInfo) -> int:
    return metric.definition.ddof if isinstance(metric.definition, StatisticMetric) else 1


def _together(samples: FloatArray) -> FloatArray:
    """Return the moments of the bins of several flows; `samples`: those per flow, (n, 3)."""
    count = float(samples[:, 0].sum())
    sd = pooled_deviation(samples, ddof=0)
    return np.array([count, pooled_mean(samples) or 0.0, count * (sd or 0.0) ** 2])


def dataset(rows: Sequence[Mapping[str, object]], axes: Mapping[str, bool]) -> pl.DataFrame:
    """Return the dataset of rows: axes, seed and run first, then the measured columns.

    The types of columns do not depend on the finished runs: `axes` says which axes are numeric, and
    all measured values are floats, counts included.
    """
    names = dict.fromkeys([*axes, "seed", "run", "flow", "flow_cc"])
    names.update(dict.fromkeys(itertools.chain.from_iterable(rows)))
    names = {name: None for name in names if name not in (WARNINGS, QUEUES)}
    return pl.DataFrame([_series(name, [row.get(name) for row in rows], axes) for name in names])


def _series(name: str, values: list[object], axes: Mapping[str, bool]) -> pl.Series:
    if name in ("seed", "flow"):
        return pl.Series(name, values, dtype=pl.Int64)
    if name in ("run", "flow_cc") or not axes.get(name, True):
        return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)
    return pl.Series(name, values, dtype=pl.Float64, strict=False)
