"""Lookup of the published value that belongs to a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from skyhop.study.file import StudyFile


def published_value(
    study: StudyFile,
    metric: str,
    at: Mapping[str, object],
    stat: Literal["mean", "sd"] = "mean",
) -> float | None:
    """Return the published value of a metric at these values of the axes; None if there is none.

    A value that was published for some axes applies at every value of the other axes.
    """
    for published in study.published:
        if (published.metric, published.stat) != (metric, stat) or not set(published.by) <= set(at):
            continue
        for row in published.values:
            if all(at[name] == value for name, value in zip(published.by, row, strict=False)):
                return float(row[-1])
    return None
