"""Gaps in a link's deliveries, and their begin and end relative to a grid of handovers.

SatPipe (Zhao, Zhang and Lee, INFOCOM 2025, Section III, Figures 5 to 8) examines the largest delays
between two packets, and compares delays near Starlink's reconfigurations with those near other
times.
"""

from __future__ import annotations

import random

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.quantities import moment_s, seconds
from skyhop.data.records import RunRecord
from skyhop.study.metric_kinds import GapMetric
from skyhop.study.series import link_of


def gaps_near_grid(metric: GapMetric, record: RunRecord, flow_id: int) -> FloatArray:
    """Return begin, end or length (`edge`) in ms of the largest gaps near the grid, shape (n,).

    A gap counts if both of its ends lie within `window` of the same moment of the grid. Times are
    those of the receiver's clock; the error of the clock is drawn with the run's seed, uniformly
    within ± `clock`.
    """
    link, start_s = link_of(record, flow_id), _start_s(record)
    if link is None or start_s is None or len(link.t_s) < 2:  # noqa: PLR2004
        return np.array([], dtype=np.float64)
    begins_s, ends_s = _silences(link.t_s, link.delivered_bytes)
    first_s = moment_s(metric.from_ or "0 s", 0.0, record.duration_s)
    last_s = moment_s(metric.until or "100 %", 0.0, record.duration_s)
    kept = (begins_s >= first_s) & (ends_s <= last_s)
    lengths_s = (ends_s - begins_s)[kept]

    clock_s = seconds(metric.clock)
    wrong_s = random.Random(int(record.scenario["run"]["seed"])).uniform(-clock_s, clock_s)
    period_s, window_s = seconds(metric.period), seconds(metric.window)
    since_s = begins_s[kept] + (start_s + wrong_s - seconds(metric.offset)) + period_s / 2
    phases_s = since_s % period_s - period_s / 2

    near = (phases_s >= -window_s) & (phases_s + lengths_s <= window_s)
    phases_s, lengths_s = phases_s[near], lengths_s[near]
    largest = np.argsort(-lengths_s, kind="stable")[: metric.largest]
    edges = {"begin": phases_s, "end": phases_s + lengths_s, "length": lengths_s}
    return np.asarray(1e3 * edges[metric.edge][largest], dtype=np.float64)


def _silences(t_s: FloatArray, delivered: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return begins and ends in s of gaps: periods of samples without any delivery."""
    came = np.flatnonzero(delivered > 0)
    # The time of a sample is the end of its interval.
    begins_s, ends_s = t_s[came[:-1]], t_s[came[1:] - 1]
    silent = np.diff(came) > 1
    return begins_s[silent], ends_s[silent]


def _start_s(record: RunRecord) -> float | None:
    """Return the begin of a run in s since midnight UTC; None if its path has no start time."""
    start = None if record.path is None else record.path.header.get("start")
    if not start:
        return None
    # Seconds since midnight, because a float of seconds since 1970 loses the nanoseconds.
    at = np.datetime64(str(start).removesuffix("Z"), "ns")
    return float((at - at.astype("datetime64[D]")) / np.timedelta64(1, "ns")) / 1e9
