"""Comparison of paths: round trips over time, their distribution, and a table of statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyhop.analysis.comparison import Ecdf
from skyhop.analysis.path_statistics import path_statistics, round_trips
from skyhop.analysis.styles import Style, style_of_index
from skyhop.analysis.tables import Column, Table, three_digits
from skyhop.analysis.timeline import Line, Mark, Panel, Stroke, from_zero
from skyhop.data.records import PathRecord

_LOGARITHMIC_FROM = 10
"""Ratio of the largest to the smallest RTT from which the scale is logarithmic."""


@dataclass(frozen=True)
class PathComparison:
    """Round trips of several paths, over time and as distributions weighted by time."""

    title: str
    end_s: float
    panel: Panel
    shares: Sequence[tuple[str, Ecdf]]
    """Distribution of RTTs of each path, with the name of the path."""
    unit: str
    note: str


def compare_paths(paths: Mapping[str, PathRecord]) -> PathComparison:
    """Compare paths by name; the time of each path counts from its own start."""
    marks: list[Mark] = []
    shares = []
    for place, (name, path) in enumerate(paths.items()):
        stroke = _stroke(style_of_index(place))
        marks.append(Line(*path.curve(path.delay_ms + path.delay_back_ms), stroke, name))
        shares.append((name, _shares(path, stroke)))
    known = np.concatenate([curve.values for _, curve in shares])
    is_log = len(known) > 0 and known.max() > _LOGARITHMIC_FROM * known.min() > 0
    # A logarithmic axis has no zero: it covers the range of the data.
    span = None if is_log or not len(known) else from_zero(float(known.max()))
    ends = dict.fromkeys(
        f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"
        for path in paths.values()
    )
    return PathComparison(
        title="; ".join(ends),
        end_s=max(path.duration_s for path in paths.values()),
        panel=Panel("RTT without queueing", "ms", marks, span, is_log=is_log),
        shares=shares,
        unit="ms",
        note="shares: of the time in which there is a path",
    )


def _stroke(style: Style) -> Stroke:
    return Stroke(style.colour, 1.4, style.dash, 0.95, style.marker)


def _shares(path: PathRecord, stroke: Stroke) -> Ecdf:
    """Return the distribution of round trips, weighted by time."""
    rtt_ms, held_s = round_trips(path)
    up = np.isfinite(rtt_ms) & (held_s > 0)
    order = np.argsort(rtt_ms[up])
    shares = np.cumsum(held_s[up][order])
    return Ecdf(rtt_ms[up][order], shares / shares[-1] if len(shares) else shares, stroke)


def comparison_rows(paths: Mapping[str, PathRecord]) -> list[dict[str, Any]]:
    """Return a row per path: name, origin, and statistics, without nested objects."""
    return [
        {
            "path": name,
            "constellation": path.header.get("constellation"),
            "relay": path.header.get("relay"),
            "start": path.header.get("start"),
            **_flat(path_statistics(path)),
        }
        for name, path in paths.items()
    ]


def _flat(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested statistics with joined keys; statistics that a path lacks are None."""
    flat: dict[str, Any] = {}
    for name, value in figures.items():
        if name in ("rtt_ms", "rate_mbps"):
            parts = ("min", "p5", "p50", "p95", "p99", "max", "mean")
            stem, unit = name.split("_")
            flat |= {f"{stem}_{part}_{unit}": (value or {}).get(part) for part in parts}
        elif isinstance(value, Mapping):
            flat |= {f"{name}_{part}": number for part, number in value.items()}
        else:
            flat[name] = value
    return flat


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the paths' statistics; it includes the ends if the paths differ in them."""
    columns = [Column("path", "path", "", str, numeric=False)]
    for end in ("from", "to"):
        if len({row[end] for row in rows}) > 1:
            columns.append(Column(end, end, "", str, numeric=False))
    columns += [
        Column("rtt_mean_ms", "RTT mean", "ms", three_digits),
        Column("rtt_p5_ms", "RTT p5", "ms", three_digits),
        Column("rtt_p95_ms", "RTT p95", "ms", three_digits),
        Column("rtt_max_ms", "RTT max", "ms", three_digits),
        Column("handovers_per_hour_end", "end handovers", "per hour", three_digits),
        Column("outage_share", "down", "%", lambda share: three_digits(100 * share)),
        Column("stretch_great_circle", "over light", "times", three_digits),
    ]
    cells = [[column.text(row) for column in columns] for row in rows]
    return Table([("", len(columns))], columns, cells)
