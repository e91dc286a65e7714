"""Timeline of a path: delay, hops, rate and events."""

from __future__ import annotations

import itertools

import numpy as np

from skyhop.analysis.timeline import (
    Band,
    Level,
    Line,
    Mark,
    Panel,
    Stroke,
    Timeline,
    event_strip,
    from_zero,
    highest_of,
)
from skyhop.data.arrays import FloatArray
from skyhop.data.records import PathRecord

_DELAY_COLOUR, _BACK_COLOUR, _HOPS_COLOUR = "#0072B2", "#E69F00", "#444444"

_THIN_FROM = 3000
"""Number of points above which the line is thinner."""

_BANDS_FROM = 8000
"""Number of points above which bins are drawn, because a line would be a solid area."""

_BINS = 800
_SHARES = (0.01, 0.5, 0.99)


def path_timeline(path: PathRecord, until_s: float | None = None) -> Timeline:
    """Return the timeline of a path: one-way delay, number of hops, measured rate, and events.

    Args:
        path: the path.
        until_s: end of the timeline in s; by default the end of the path.
    """
    end_s = min(path.duration_s, until_s) if until_s else path.duration_s
    panels = [_delay(path, end_s)]
    # A path without satellites has one hop, which says nothing.
    if np.isfinite(path.hops).any() and (path.header.get("constellation") or path.hops.max() > 1):
        panels.append(_hops(path))
    if np.isfinite(path.rate_mbps).any():
        panels.append(_rate(path, end_s))
    strip = event_strip(path.events.within(0.0, max(end_s, 1e-9)), end_s)
    return Timeline("path", _title(path), end_s, strip, panels)


def _delay(path: PathRecord, end_s: float) -> Panel:
    forward, back = path.delay_ms, path.delay_back_ms
    marks: list[Mark] = []
    back_differs = _differ(path, forward, back, end_s)
    if back_differs:
        marks += _curve(path, back, end_s, _BACK_COLOUR, "back")
    marks += _curve(path, forward, end_s, _DELAY_COLOUR, "forward" if back_differs else "delay")
    mean = _mean_while_connected(path, end_s)
    if mean is not None:
        marks.append(Level(mean, f"mean {mean:.1f} ms"))
    within = path.t_s <= end_s
    highest = max(highest_of(forward[within]), highest_of(back[within]))
    return Panel("one-way delay", "ms", marks, from_zero(highest))


def _hops(path: PathRecord) -> Panel:
    t_s = np.append(path.t_s, path.duration_s)
    hops = np.append(path.hops, path.hops[-1])
    marks = [Line(t_s, hops, Stroke(_HOPS_COLOUR, 1.1), step="post")]
    return Panel("hops", "", marks, (0.0, highest_of(path.hops) + 1), is_count=True)


def _rate(path: PathRecord, end_s: float) -> Panel:
    # A single line needs no label in addition to the panel's title.
    label = "rate" if len(path.rate_mbps) > _BANDS_FROM else ""
    marks = _curve(path, path.rate_mbps, end_s, _DELAY_COLOUR, label)
    return Panel("rate", "Mbit/s", marks, from_zero(highest_of(path.rate_mbps)))


def _curve(
    path: PathRecord, values: FloatArray, end_s: float, colour: str, label: str
) -> list[Mark]:
    """Return a line; or, for far more values than pixels, the median and range per bin."""
    if len(values) <= _BANDS_FROM:
        width = 1.0 if len(values) > _THIN_FROM else 1.4
        return [Line(*path.curve(values), Stroke(colour, width), label)]
    middles_s, quantiles = _quantiles_of_bins(path.t_s, values, end_s)
    low, median, high = quantiles.T
    return [
        Band(middles_s, low, high, colour, 0.25, f"{label}, 1 % to 99 %", step="mid"),
        Line(middles_s, median, Stroke(colour, 1.2), f"{label}, median", step="mid"),
    ]


def _quantiles_of_bins(
    t_s: FloatArray, values: FloatArray, end_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the middles (s) of equal bins, and the quantiles `_SHARES` in each, shape (n, 3)."""
    edges_s = np.linspace(0, end_s, _BINS + 1)
    starts = np.searchsorted(t_s, edges_s)
    quantiles = np.full((_BINS, len(_SHARES)), np.nan)
    for index, (begin, end) in enumerate(itertools.pairwise(starts)):
        known = values[begin:end][np.isfinite(values[begin:end])]
        if len(known):
            quantiles[index] = np.quantile(known, _SHARES)
    return (edges_s[1:] + edges_s[:-1]) / 2, quantiles


def _differ(path: PathRecord, forward: FloatArray, back: FloatArray, end_s: float) -> bool:
    """Return whether the two directions differ enough for two curves."""
    if len(forward) <= _BANDS_FROM:
        return not np.allclose(forward, back, atol=0.001, equal_nan=True)
    # Of a halved RTT, the delay forward changes earlier than the delay back: compare medians.
    medians = [_quantiles_of_bins(path.t_s, values, end_s)[1][:, 1] for values in (forward, back)]
    apart = np.abs(medians[0] - medians[1])
    return bool(np.nanmedian(apart) > 0.02 * np.nanmedian(medians[0]))


def _mean_while_connected(path: PathRecord, end_s: float) -> float | None:
    """Return the mean delay in ms, weighted by the duration of frames; None without a path."""
    begins = np.minimum(path.t_s, end_s)
    held_s = np.diff(np.append(begins, end_s))
    held_s[np.isnan(path.delay_ms)] = 0
    total_s = float(held_s.sum())
    return float(np.nansum(path.delay_ms * held_s)) / total_s if total_s > 0 else None


def _title(path: PathRecord) -> str:
    header = path.header
    if header.get("source") == "fixed":
        # Its ends have no names, and its start has no meaning.
        return "Fixed path"
    start = str(header.get("start") or "").split(".")[0]
    origin = header.get("constellation") or header.get("source")
    about = ", ".join(str(part) for part in (origin, header.get("relay"), start) if part)
    ends = f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"
    return f"{ends}   ({about})" if about else ends
