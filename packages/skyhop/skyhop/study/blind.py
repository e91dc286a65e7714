"""Error of the handover grid that blind estimation derives from a run's packet arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyhop.data.quantities import seconds


def grid_error_ms(summary: Mapping[str, Any], period: str, offset_s: float) -> float | None:
    """Return the distance in ms, modulo the period, between the estimated and the true grid.

    None if the run estimated no grid.

    Args:
        summary: content of summary.json of a run with signal.source = "blind".
        period: time between handovers, such as "15 s".
        offset_s: a moment of the true grid, in seconds of UTC.
    """
    found = summary.get("blind")
    if found is None or found["offset_s"] is None:
        return None
    period_s = seconds(period)
    apart_s: float = (found["offset_s"] - offset_s) % period_s
    return 1e3 * min(apart_s, period_s - apart_s)
