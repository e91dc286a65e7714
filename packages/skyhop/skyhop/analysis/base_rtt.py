"""Base RTT of a flow (without queueing) for each second of a run, from the run's scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyhop._core import PATH_LINK
from skyhop.analysis.network_links import is_network
from skyhop.analysis.network_routes import base_rtt_of_network_by_second
from skyhop.data.arrays import FloatArray
from skyhop.data.quantities import seconds
from skyhop.data.records import RunRecord


@dataclass(frozen=True)
class _LinkRtt:
    """RTT of a link over time: linear between points, a step at two points with the same time.

    The RTT is NaN while the link is down.
    """

    t_s: FloatArray
    rtt_ms: FloatArray

    def until(self, t_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the integral of the RTT (ms s) and the time with a path (s) up to times `t_s`."""
        lengths_s, left, right = np.diff(self.t_s), self.rtt_ms[:-1], self.rtt_ms[1:]
        there = np.isfinite(left) & np.isfinite(right)
        left, right = np.where(there, left, 0.0), np.where(there, right, 0.0)
        areas = np.concatenate([[0.0], np.cumsum(lengths_s * (left + right) / 2)])
        times_s = np.concatenate([[0.0], np.cumsum(lengths_s * there)])
        at = np.clip(np.searchsorted(self.t_s, t_s, side="right") - 1, 0, len(lengths_s) - 1)
        into_s = np.clip(t_s, self.t_s[0], self.t_s[-1]) - self.t_s[at]
        slope = (right - left)[at] / np.maximum(lengths_s[at], 1e-12)
        return areas[at] + into_s * (left[at] + slope * into_s / 2), times_s[at] + into_s * there[
            at
        ]


def base_rtt_by_second(record: RunRecord, flow: int) -> FloatArray | None:
    """Return the mean base RTT (ms) in each second of a run, shape (n,), NaN without a path.

    None if the run directory does not determine the base RTT. This is so without a copy of the
    run's path, for a flow over a link with its own computed or imported path, of which runs keep no
    copy, and for some flows of a network (`base_rtt_of_network_by_second`).
    """
    entry = entry_of(record.scenario, flow)
    if is_network(record):
        found = base_rtt_of_network_by_second(record, flow)
        extra = "0 s" if entry is None else entry[1].get("extra_rtt", "0 s")
        return None if found is None else found + seconds(extra) * 1e3
    if entry is None:
        return None
    place, keys = entry
    count = max(int(np.ceil(record.duration_s - 1e-9)), 1)
    begins_s = np.arange(count, dtype=np.float64)
    sums, held_s = np.zeros(count), np.zeros(count)
    extra_ms = seconds(keys.get("extra_rtt", "0 s")) * 1e3
    for since_s, until_s, via in _routes(record, place, keys):
        from_s = np.clip(begins_s, since_s, until_s)
        to_s = np.clip(np.minimum(begins_s + 1, record.duration_s), since_s, until_s)
        rtts_ms = np.full(count, extra_ms)
        for name in via:
            rtt = _link_rtt(record, name)
            if rtt is None:
                return None
            (area, there_s), (before, before_s) = rtt.until(to_s), rtt.until(from_s)
            with np.errstate(invalid="ignore", divide="ignore"):
                rtts_ms = rtts_ms + (area - before) / (there_s - before_s)
        known = np.isfinite(rtts_ms)
        sums += np.where(known, rtts_ms, 0.0) * (to_s - from_s)
        held_s += np.where(known, to_s - from_s, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(held_s > 0, sums / held_s, np.nan)


def rises_of_base_rtt(record: RunRecord, flow: int, part: float) -> FloatArray:
    """Return the times (s) at which a flow's base RTT rises by more than the share `part`.

    The mean of each second is compared with that of the last second before it that had a path. The
    result is empty if the base RTT is not known.
    """
    base_ms = base_rtt_by_second(record, flow)
    if base_ms is None:
        return np.array([], dtype=np.float64)
    seconds_known = np.flatnonzero(np.isfinite(base_ms))
    known_ms = base_ms[seconds_known]
    rises = known_ms[1:] > known_ms[:-1] * (1 + part)
    return np.asarray(seconds_known[1:][rises], dtype=np.float64)


def entry_of(scenario: Mapping[str, Any], flow: int) -> tuple[int, Mapping[str, Any]] | None:
    """Return the index (from 0) and the keys of the `[[flow]]` entry that defines a flow."""
    first = 0
    for place, keys in enumerate(scenario.get("flow", [])):
        first += int(keys.get("count", 1))
        if flow < first:
            return place, keys
    return None


def _routes(
    record: RunRecord, place: int, keys: Mapping[str, Any]
) -> list[tuple[float, float, Sequence[str]]]:
    """Return start (s), end (s) and links of each route that the flows of an entry take."""
    turns = [(0.0, keys.get("via", [PATH_LINK]))]
    changes = [c for c in record.scenario.get("change", []) if c.get("flow") == place]
    turns += sorted(((seconds(c["at"]), c["via"]) for c in changes), key=lambda turn: turn[0])
    ends_s = [since_s for since_s, _ in turns[1:]] + [record.duration_s]
    return [(since_s, until_s, via) for (since_s, via), until_s in zip(turns, ends_s, strict=True)]


def _link_rtt(record: RunRecord, name: str) -> _LinkRtt | None:
    if name == PATH_LINK:
        if record.path is None:
            return None
        # The run's copy of the path includes the scenario's changes.
        t_s, rtt_ms = record.path.curve(record.path.delay_ms + record.path.delay_back_ms)
        return _held(t_s, rtt_ms, record.duration_s)
    link = record.scenario.get("links", {}).get(name, {})
    path = link.get("path", {})
    if path.get("kind", "fixed") != "fixed":
        return None
    pieces = [(0.0, link.get("rtt") or path.get("rtt") or "0 s")]
    changes = [c for c in record.scenario.get("change", []) if c.get("link") == name and "rtt" in c]
    pieces += sorted(
        ((seconds(c["at"]) + seconds(c.get("outage", "0 s")), c["rtt"]) for c in changes),
        key=lambda piece: piece[0],
    )
    starts_s = np.array([at_s for at_s, _ in pieces])
    rtts_ms = np.array([seconds(rtt) * 1e3 for _, rtt in pieces])
    # A step has two points with the same time: the value before it and the value after it.
    t_s = np.insert(starts_s, range(1, len(pieces)), starts_s[1:])
    return _held(t_s, np.repeat(rtts_ms, 2)[: len(t_s)], record.duration_s)


def _held(t_s: FloatArray, rtt_ms: FloatArray, until_s: float) -> _LinkRtt:
    """Return the RTT, with its last value extended to the end of the run."""
    return _LinkRtt(
        np.append(t_s, max(until_s, float(t_s[-1])) + 1.0), np.append(rtt_ms, rtt_ms[-1])
    )
