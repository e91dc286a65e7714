"""Metrics relative to a reference point: each run is compared with the run of its seed there."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from skyhop.errors import InputError
from skyhop.study.axes import check_choice
from skyhop.study.file import StudyFile
from skyhop.study.key_errors import entry
from skyhop.study.keys import Value
from skyhop.study.metric_kinds import RelativeMetric
from skyhop.study.metrics import MetricSet


def check_relative(study: StudyFile, origin: str) -> None:
    """Check that the keys `to` of metrics name existing axes and values.

    Raises:
        InputError: an axis or a value does not exist.
    """
    for place, metric in enumerate(study.metric):
        if isinstance(metric, RelativeMetric):
            where = f"{origin}: {entry('metric', place)}.to"
            for name in metric.to:
                if name in ("seed", "flow"):
                    raise InputError(f"{where}: {name} is not an axis")
            check_choice(study, metric.to, where)


def with_relative(frame: pl.DataFrame, study: StudyFile, metrics: MetricSet) -> pl.DataFrame:
    """Return the dataset with relative metrics; null where the reference run has no value."""
    for metric in study.metric:
        if isinstance(metric, RelativeMetric):
            values = _relative(frame, metric, study, metrics)
            column = metrics.infos[metric.name].column
            frame = frame.with_columns(pl.Series(column, values, dtype=pl.Float64))
    return frame


def _relative(
    frame: pl.DataFrame, metric: RelativeMetric, study: StudyFile, metrics: MetricSet
) -> list[float | None]:
    info, to = metrics.infos[metric.of], metric.to
    if info.column not in frame.columns:
        return [None] * frame.height
    # Axes that are zipped with an axis of `to` also have another value at the reference point.
    zips = {axis.zip for axis in study.axis if axis.name in to and axis.zip}
    others = [a.name for a in study.axis if a.name not in to and a.zip not in zips]
    keys = frame.select(*others, "seed", "flow").rows()
    values = [
        None if value is None else value * info.factor
        for value in frame.get_column(info.column).to_list()
    ]
    is_reference = _is_reference(frame, to)
    reference = {
        key: value for key, value, at in zip(keys, values, is_reference, strict=True) if at
    }
    return [
        _compared(value, reference.get(key), metric)
        for key, value in zip(keys, values, strict=True)
    ]


def _is_reference(frame: pl.DataFrame, to: Mapping[str, Value]) -> list[bool]:
    """Return for each row whether its axes have the values `to`."""
    wanted = tuple(
        str(value) if frame.schema[name] == pl.String else value for name, value in to.items()
    )
    return [row == wanted for row in frame.select(list(to)).rows()]


def _compared(value: float | None, reference: float | None, metric: RelativeMetric) -> float | None:
    if value is None or reference is None:
        return None
    if metric.by == "difference":
        return value - reference
    return value / reference if reference else None
