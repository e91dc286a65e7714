"""Paths side by side: round trips over time, their spread, and a table of what each is like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyhop.analysis.comparison import Shares
from skyhop.analysis.looks import Look, look_of_place
from skyhop.analysis.path_statistics import path_statistics, round_trips
from skyhop.analysis.tables import Column, Table, three_digits
from skyhop.analysis.timeline import Line, Mark, Panel, Stroke
from skyhop.data.records import PathRecord

_LOGARITHMIC_FROM = 10
"""Round trips that differ by this factor are shown on a logarithmic scale."""


@dataclass(frozen=True)
class PathComparison:
    """Round trips of several paths, over time and as shares of it."""

    title: str
    end_s: float
    panel: Panel
    shares: Sequence[tuple[str, Shares]]
    """With the names of the paths."""
    unit: str
    note: str


def compare_paths(paths: Mapping[str, PathRecord]) -> PathComparison:
    """Compare paths by name, each since its own begin."""
    marks: list[Mark] = []
    shares = []
    for place, (name, path) in enumerate(paths.items()):
        stroke = _stroke(look_of_place(place))
        marks.append(Line(*path.curve(path.delay_ms + path.delay_back_ms), stroke, name))
        shares.append((name, _shares(path, stroke)))
    known = np.concatenate([curve.values for _, curve in shares])
    is_log = len(known) > 0 and known.max() > _LOGARITHMIC_FROM * known.min() > 0
    ends = dict.fromkeys(
        f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"
        for path in paths.values()
    )
    return PathComparison(
        title="; ".join(ends),
        end_s=max(path.duration_s for path in paths.values()),
        panel=Panel("RTT without queueing", "ms", marks, None, is_log=is_log),
        shares=shares,
        unit="ms",
        note="shares: of the time in which there is a path",
    )


def _stroke(look: Look) -> Stroke:
    return Stroke(look.colour, 1.4, look.dash, 0.95, look.marker)


def _shares(path: PathRecord, stroke: Stroke) -> Shares:
    """Return which share of the time round trips stay at or below a value."""
    rtt_ms, held_s = round_trips(path)
    up = np.isfinite(rtt_ms) & (held_s > 0)
    order = np.argsort(rtt_ms[up])
    shares = np.cumsum(held_s[up][order])
    return Shares(rtt_ms[up][order], shares / shares[-1] if len(shares) else shares, stroke)


def comparison_rows(paths: Mapping[str, PathRecord]) -> list[dict[str, Any]]:
    """Return a row per path: its name, how it was made, and its statistics, each by one key."""
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
    """Return nested figures by joined names; what a path may lack is there as None."""
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
    """Return what tells paths apart as a table, a row each; ends where they differ."""
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
