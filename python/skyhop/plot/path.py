"""The figure of a path: delay, hops and what happened, over time."""

from __future__ import annotations

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
        others[-1].plot(*path.curve(path.rate_mbps), color=_DELAY_COLOUR, linewidth=1.2)
        label_y(others[-1], "rate", "Mbit/s")
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
    t_s, delay_ms = path.curve(path.delay_ms)
    back_differs = not np.allclose(path.delay_ms, path.delay_back_ms, atol=0.001, equal_nan=True)
    if back_differs:
        ax.plot(*path.curve(path.delay_back_ms), color=_BACK_COLOUR, linewidth=1.1,
                label="back")  # fmt: skip
    width = 1.0 if len(t_s) > _THIN_FROM else 1.4
    ax.plot(t_s, delay_ms, color=_DELAY_COLOUR, linewidth=width,
            label="forward" if back_differs else "delay")  # fmt: skip
    mean = _mean_while_connected(path, end_s)
    if mean is not None:
        ax.axhline(mean, color=GREY, linewidth=0.9, linestyle=(0, (5, 4)),
                   label=f"mean {mean:.1f} ms")  # fmt: skip
        _zoom(ax, delay_ms[np.isfinite(delay_ms) & (t_s <= end_s)])
    label_y(ax, "one-way delay", "ms")
    side_legend(ax)


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
    parts = [path.header.get("constellation"), path.header.get("relay"), path.header.get("start")]
    about = ", ".join(str(part) for part in parts if part)
    ends = f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"
    return f"{ends}   ({about})" if about else ends
