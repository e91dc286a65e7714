"""What the figure of a path shows: delay, hops and what happened, over time."""

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
)
from skyhop.data.arrays import FloatArray
from skyhop.data.records import PathRecord

_DELAY_COLOUR, _BACK_COLOUR, _HOPS_COLOUR = "#0072B2", "#E69F00", "#444444"

_THIN_FROM = 3000
"""With more points than this the line is thinner."""

_BANDS_FROM = 8000
"""With more points than this a line would be a blot: bins are drawn in its place."""

_BINS = 800
_SHARES = (0.01, 0.5, 0.99)


def path_timeline(path: PathRecord, until_s: float | None = None) -> Timeline:
    """Return one-way delay, number of hops, rate where it was measured, and events of a path.

    Args:
        path: the path.
        until_s: where to stop, in seconds; by default where the path ends.
    """
    end_s = min(path.duration_s, until_s) if until_s else path.duration_s
    panels = [_delay(path, end_s)]
    if np.isfinite(path.hops).any():
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
    span = None
    if mean is not None:
        marks.append(Level(mean, f"mean {mean:.1f} ms"))
        span = _zoomed(forward[np.isfinite(forward) & (path.t_s <= end_s)])
    return Panel("one-way delay", "ms", marks, span)


def _hops(path: PathRecord) -> Panel:
    t_s = np.append(path.t_s, path.duration_s)
    hops = np.append(path.hops, path.hops[-1])
    low, high = float(np.nanmin(path.hops)), float(np.nanmax(path.hops))
    marks = [Line(t_s, hops, Stroke(_HOPS_COLOUR, 1.1), step="post")]
    # A constant number of hops would be shown between fractions of one.
    return Panel("hops", "", marks, (low - 1, high + 1), whole=True)


def _rate(path: PathRecord, end_s: float) -> Panel:
    # A single line needs no name beside the panel's.
    label = "rate" if len(path.rate_mbps) > _BANDS_FROM else ""
    return Panel("rate", "Mbit/s", _curve(path, path.rate_mbps, end_s, _DELAY_COLOUR, label), None)


def _curve(
    path: PathRecord, values: FloatArray, end_s: float, colour: str, label: str
) -> list[Mark]:
    """Return a line, or where there are far more values than pixels their median and range."""
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
    """Return equal bins' middles (s) and the quantiles `_SHARES` of what is in them, (n, 3)."""
    edges_s = np.linspace(0, end_s, _BINS + 1)
    starts = np.searchsorted(t_s, edges_s)
    quantiles = np.full((_BINS, len(_SHARES)), np.nan)
    for index, (begin, end) in enumerate(itertools.pairwise(starts)):
        known = values[begin:end][np.isfinite(values[begin:end])]
        if len(known):
            quantiles[index] = np.quantile(known, _SHARES)
    return (edges_s[1:] + edges_s[:-1]) / 2, quantiles


def _differ(path: PathRecord, forward: FloatArray, back: FloatArray, end_s: float) -> bool:
    """Tell whether the two directions are worth two curves."""
    if len(forward) <= _BANDS_FROM:
        return not np.allclose(forward, back, atol=0.001, equal_nan=True)
    # A round trip that was halved changes there before it changes back: look at the level alone.
    medians = [_quantiles_of_bins(path.t_s, values, end_s)[1][:, 1] for values in (forward, back)]
    apart = np.abs(medians[0] - medians[1])
    return bool(np.nanmedian(apart) > 0.02 * np.nanmedian(medians[0]))


def _mean_while_connected(path: PathRecord, end_s: float) -> float | None:
    """Return the mean delay in ms, each frame for as long as it holds; None without a path."""
    begins = np.minimum(path.t_s, end_s)
    held_s = np.diff(np.append(begins, end_s))
    held_s[np.isnan(path.delay_ms)] = 0
    total_s = float(held_s.sum())
    return float(np.nansum(path.delay_ms * held_s)) / total_s if total_s > 0 else None


def _zoomed(values: FloatArray) -> tuple[float, float]:
    """Show at least 2 ms: a path that hardly changes must not fill a panel with noise."""
    low, high = float(values.min()), float(values.max())
    margin = max(0.08 * (high - low), (2.0 - (high - low)) / 2)
    return max(low - margin, 0), high + margin


def _title(path: PathRecord) -> str:
    header = path.header
    start = str(header.get("start") or "").split(".")[0]
    origin = header.get("constellation") or header.get("source")
    about = ", ".join(str(part) for part in (origin, header.get("relay"), start) if part)
    ends = f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"
    return f"{ends}   ({about})" if about else ends
