"""The figure of a path: delay, hops and what happened, over time."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skyhop.plot.events import draw_strip, mark_panels, strip_height_in
from skyhop.plot.records import ArrowTable, FloatArray, PathRecord, read_path
from skyhop.plot.style import GREY, label_time, label_y, new_figure, side_legend
from skyhop.plot.writing import save

_DELAY_COLOUR, _BACK_COLOUR, _HOPS_COLOUR = "#0072B2", "#E69F00", "#444444"

_THIN_FROM = 3000
"""With more points than this the line is thinner."""

_BANDS_FROM = 8000
"""With more points than this a line would be a blot: bins are drawn in its place."""

_BINS = 800
_SHARES = (0.01, 0.5, 0.99)


def path_figure(
    source: PathRecord | ArrowTable | Path | str,
    output: Path | str | None = None,
    *,
    until_s: float | None = None,
) -> Figure:
    """Draw one-way delay, number of hops and events of a path.

    Args:
        source: a path file, a table with its columns and metadata, or what `read_path` returned.
        output: a PNG file to write the figure to, where one is wanted.
        until_s: where to stop, in seconds; by default where the path ends.

    Raises:
        ReportError: if `source` is not a path, or `output` cannot be a PNG file.
        OSError: if `output` cannot be written.

    """
    path = source if isinstance(source, PathRecord) else read_path(source)
    end_s = min(path.duration_s, until_s) if until_s else path.duration_s
    events = path.events.until(max(end_s, 1e-9))
    strip_in = strip_height_in(events, end_s)
    has_hops, has_rate = np.isfinite(path.hops).any(), np.isfinite(path.rate_mbps).any()
    heights = [strip_in, 2.3] + [1.0] * bool(has_hops) + [1.3] * bool(has_rate)
    figure, (strip, delay, *others) = new_figure(sum(heights) + 0.75, heights)
    figure.suptitle(_title(path), x=0.01, ha="left", fontsize=11)
    draw_strip(strip, events, end_s)
    _draw_delay(delay, path, end_s)
    if has_hops:
        _draw_hops(others[0], path)
    if has_rate:
        rate_mbps = path.rate_mbps
        _draw_curve(others[-1], path, rate_mbps, end_s, colour=_DELAY_COLOUR, label="rate")
        label_y(others[-1], "rate", "Mbit/s")
        if len(path.rate_mbps) > _BANDS_FROM:
            side_legend(others[-1])
    panels = [delay, *others]
    mark_panels(panels, events, end_s)
    for ax in panels[:-1]:
        ax.tick_params(labelbottom=False)
    label_time(panels[-1], end_s)
    figure.align_ylabels(panels)
    if output is not None:
        save(figure, output)
    return figure


def _draw_delay(ax: Axes, path: PathRecord, end_s: float) -> None:
    forward, back = path.delay_ms, path.delay_back_ms
    back_differs = _differ(path, forward, back, end_s)
    if back_differs:
        _draw_curve(ax, path, back, end_s, colour=_BACK_COLOUR, label="back")
    label = "forward" if back_differs else "delay"
    _draw_curve(ax, path, forward, end_s, colour=_DELAY_COLOUR, label=label)
    mean = _mean_while_connected(path, end_s)
    if mean is not None:
        ax.axhline(mean, color=GREY, linewidth=0.9, linestyle=(0, (5, 4)),
                   label=f"mean {mean:.1f} ms")  # fmt: skip
        _zoom(ax, forward[np.isfinite(forward) & (path.t_s <= end_s)])
    label_y(ax, "one-way delay", "ms")
    side_legend(ax)


def _draw_curve(
    ax: Axes, path: PathRecord, values: FloatArray, end_s: float, *, colour: str, label: str
) -> None:
    """Draw a line, or where there are far more values than pixels their median and their range."""
    if len(values) <= _BANDS_FROM:
        width = 1.0 if len(values) > _THIN_FROM else 1.4
        ax.plot(*path.curve(values), color=colour, linewidth=width, label=label)
        return
    middles_s, quantiles = _quantiles_of_bins(path.t_s, values, end_s)
    low, median, high = quantiles.T
    ax.fill_between(middles_s, low, high, color=colour, alpha=0.25, linewidth=0,
                    label=f"{label}, 1 % to 99 %", step="mid")  # fmt: skip
    ax.step(middles_s, median, where="mid", color=colour, linewidth=1.2, label=f"{label}, median")


def _quantiles_of_bins(
    t_s: FloatArray, values: FloatArray, end_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return equal bins' middles (s) and the quantiles `_SHARES` of what is in them, (n, 3)."""
    edges_s = np.linspace(0, end_s, _BINS + 1)
    places = np.searchsorted(t_s, edges_s)
    quantiles = np.full((_BINS, len(_SHARES)), np.nan)
    for place, (begin, end) in enumerate(itertools.pairwise(places)):
        known = values[begin:end][np.isfinite(values[begin:end])]
        if len(known):
            quantiles[place] = np.quantile(known, _SHARES)
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


def _draw_hops(ax: Axes, path: PathRecord) -> None:
    t_s = np.append(path.t_s, path.duration_s)
    ax.step(t_s, np.append(path.hops, path.hops[-1]), where="post", color=_HOPS_COLOUR,
            linewidth=1.1)  # fmt: skip
    low, high = np.nanmin(path.hops), np.nanmax(path.hops)
    # A constant number of hops would be shown between fractions of one.
    ax.set_ylim(low - 1, high + 1)
    label_y(ax, "hops", "", whole=True)


def _zoom(ax: Axes, values: FloatArray) -> None:
    """Show at least 2 ms: a path that hardly changes must not fill a panel with noise."""
    low, high = float(values.min()), float(values.max())
    margin = max(0.08 * (high - low), (2.0 - (high - low)) / 2)
    ax.set_ylim(max(low - margin, 0), high + margin)


def _title(path: PathRecord) -> str:
    header = path.header
    start = str(header.get("start") or "").split(".")[0]
    origin = header.get("constellation") or header.get("source")
    about = ", ".join(str(part) for part in (origin, header.get("relay"), start) if part)
    ends = f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"
    return f"{ends}   ({about})" if about else ends
