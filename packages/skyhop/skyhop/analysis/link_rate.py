"""The link's rate over time, and the note on goodput above it.

TCP delivers data in order: data that waited behind a lost packet becomes readable at once. So
samples of goodput can be above the link's rate. Every figure of goodput says so, with the words of
`burst_note`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from skyhop.analysis.flow_groups import directions
from skyhop.data.arrays import FloatArray
from skyhop.data.quantities import mbps_or_none, seconds_or_none
from skyhop.data.records import FlowSeries, RunRecord

_ABOVE_RATE = 1.02
"""Least ratio of goodput to link rate at which a sample counts as read in a burst."""

BURST_NOTE = "above the link's rate: what waited behind a lost packet is read at once"


def burst_note(above: Iterable[bool]) -> str:
    """Return the note of a figure of goodput in which samples are above the link's rate, or ""."""
    return BURST_NOTE if any(above) else ""


def is_above_rate(run: RunRecord, series: FlowSeries) -> bool:
    """Return whether an application read more bytes in a sample than the link can carry in it."""
    known = np.isfinite(series.goodput_mbps)
    return any_above_rate(run, series.goodput_mbps[known], series.t_s[known])


def any_above_rate(run: RunRecord, goodput_mbps: FloatArray, ends_s: FloatArray) -> bool:
    """Return whether values of goodput are above the greatest rate of the link in their time.

    Args:
        run: the run.
        goodput_mbps: goodput in Mbit/s, (n,).
        ends_s: time of each value in s, ascending: the value counts from the previous time, (n,).

    Returns:
        False if the link's rate is not known.
    """
    rates = _highest_rates(run)
    if rates is None or not len(ends_s):
        return False
    times_s, rates_mbps = rates
    begins_s = np.concatenate(([0.0], ends_s[:-1]))
    first = np.clip(np.searchsorted(times_s, begins_s, side="right") - 1, 0, None)
    last = np.maximum(np.searchsorted(times_s, ends_s, side="right") - 1, first)
    highest = np.array([rates_mbps[a : b + 1].max() for a, b in zip(first, last, strict=True)])
    return bool((goodput_mbps > _ABOVE_RATE * highest).any())


def is_above_every_rate(run: RunRecord, goodput_mbps: FloatArray) -> bool:
    """Return whether values of goodput (Mbit/s) are above the greatest rate of the whole run."""
    rates = _highest_rates(run)
    return rates is not None and bool((goodput_mbps > _ABOVE_RATE * rates[1].max()).any())


def _highest_rates(run: RunRecord) -> tuple[FloatArray, FloatArray] | None:
    """Return times (s) and the link's rates (Mbit/s), the greater of both directions, (n,) each."""
    if not run.has_one_link:
        return None
    steps = link_rate_steps(run.scenario, run.duration_s)
    if steps is None and run.path is not None and len(run.path.t_s):
        # A measured path has a rate of its own.
        steps = run.path.t_s, run.path.rate_mbps
    if steps is None or not np.isfinite(steps[1]).all():
        return None
    return steps[0], steps[1].clip(_back_mbps(run) or 0.0)


def rates_of_flows(run: RunRecord) -> tuple[FloatArray, FloatArray] | None:
    """Return the link's rate over time in the flows' direction; None if they share no direction.

    Times are in s, rates in Mbit/s, shape (n,) each.
    """
    if not run.has_one_link:
        return None
    forward, back_mbps = link_rate_steps(run.scenario, run.duration_s), _back_mbps(run)
    ends = directions(run)
    if back_mbps is None or ends == {"from"}:
        return forward
    if ends != {"to"}:
        return None
    return np.array([0.0, run.duration_s]), np.array([back_mbps, back_mbps])


def _back_mbps(run: RunRecord) -> float | None:
    return mbps_or_none(((run.scenario.get("link") or {}).get("back") or {}).get("rate"))


def link_rate_steps(
    scenario: Mapping[str, Any], end_s: float
) -> tuple[FloatArray, FloatArray] | None:
    """Return the times (s) and values (Mbit/s) of the link's rate; None if it has no rate."""
    link = scenario.get("link")
    first = mbps_or_none(link.get("rate")) if isinstance(link, Mapping) else None
    if first is None:
        return None
    changes = [
        (at_s, rate)
        for change in scenario.get("change") or []
        if (at_s := seconds_or_none(change.get("at"))) is not None
        and (rate := mbps_or_none(change.get("rate"))) is not None
    ]
    steps = [(0.0, first), *sorted(changes)]
    steps.append((max(end_s, steps[-1][0]), steps[-1][1]))
    times_s, rates_mbps = zip(*steps, strict=True)
    return np.array(times_s), np.array(rates_mbps)
