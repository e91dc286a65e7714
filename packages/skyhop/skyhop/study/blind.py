"""Error of the handover grid that blind estimation derives from a run's packet arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyhop.data.quantities import seconds
from skyhop.study.metric_kinds import GridErrorMetric


def grid_error_ms(metric: GridErrorMetric, summary: Mapping[str, Any]) -> float | None:
    """Return the distance in ms, modulo the period, between the estimated and the true grid.

    None if the run estimated no grid.

    Args:
        metric: the metric, which has the true grid.
        summary: content of summary.json of a run with signal.source = "blind".
    """
    found = summary.get("blind")
    if found is None or found["offset_s"] is None:
        return None
    period_s = seconds(metric.period)
    apart_s: float = (found["offset_s"] - seconds(metric.offset)) % period_s
    return 1e3 * min(apart_s, period_s - apart_s)
