"""Metrics relative to another point of the same axes: runs beside those with their seeds there."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from skyhop.errors import InputError
from skyhop.study.axes import check_choice
from skyhop.study.file import Metric, StudyFile, Value
from skyhop.study.metrics import MetricSet


def check_relative(study: StudyFile, origin: str) -> None:
    """Check that metrics are relative to values that axes have.

    Raises:
        InputError: they are not.
    """
    for place, metric in enumerate(study.metric):
        where = f"{origin}: metric.{place}.to"
        for name in metric.to or {}:
            if name in ("seed", "flow"):
                raise InputError(f"{where}: {name} is not an axis")
        check_choice(study, metric.to or {}, where)


def with_relative(frame: pl.DataFrame, study: StudyFile, metrics: MetricSet) -> pl.DataFrame:
    """Return the dataset with the metrics that compare runs; null where there is nothing beside."""
    for metric in study.metric:
        if metric.to is not None:
            values = _relative(frame, metric, metric.to, study, metrics)
            column = metrics.infos[metric.name].column
            frame = frame.with_columns(pl.Series(column, values, dtype=pl.Float64))
    return frame


def _relative(
    frame: pl.DataFrame,
    metric: Metric,
    to: Mapping[str, Value],
    study: StudyFile,
    metrics: MetricSet,
) -> list[float | None]:
    info = metrics.infos[metric.of or ""]
    if info.column not in frame.columns:
        return [None] * frame.height
    # What goes in step with an axis is elsewhere, too, where that one is.
    zips = {axis.zip for axis in study.axis if axis.name in to and axis.zip}
    others = [a.name for a in study.axis if a.name not in to and a.zip not in zips]
    keys = frame.select(*others, "seed", "flow").rows()
    values = [
        None if value is None else value * info.factor
        for value in frame.get_column(info.column).to_list()
    ]
    there = _is_there(frame, to)
    beside = {key: value for key, value, at in zip(keys, values, there, strict=True) if at}
    return [
        _compared(value, beside.get(key), metric) for key, value in zip(keys, values, strict=True)
    ]


def _is_there(frame: pl.DataFrame, to: Mapping[str, Value]) -> list[bool]:
    """Return which rows are at these values of axes."""
    wanted = tuple(
        str(value) if frame.schema[name] == pl.String else value for name, value in to.items()
    )
    return [row == wanted for row in frame.select(list(to)).rows()]


def _compared(value: float | None, beside: float | None, metric: Metric) -> float | None:
    if value is None or beside is None:
        return None
    if metric.by == "difference":
        return value - beside
    return value / beside if beside else None
