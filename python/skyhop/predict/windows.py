"""What a predictor may see of a second before it is there: windows of the frame.

A prediction for the second that ends at T, made `horizon_s` ahead, knows the seconds up to
T - horizon_s, and of later ones what orbits and the clock say. Windows across gaps are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.errors import InputError

if TYPE_CHECKING:
    import polars as pl

Target = Literal["latency", "throughput"]
TARGETS: dict[Target, str] = {"latency": "ms", "throughput": "bit/s"}
"""What can be predicted, and its unit."""
LOOK_BACK_S = 30
"""So many seconds are known of the past."""
LONGEST_HORIZON_S = 30
SECOND_NS = 10**9
GRID_PERIOD_S, GRID_OFFSET_S = 15, 12
CLOCKED_NS = 1_420_070_400 * SECOND_NS
"""2015: earlier times are those of files that do not know when they were measured."""
_DAY_S = 86_400
_LEAST_DAYS = 2

GROUPS: dict[str, str] = {
    "history": "what was measured in the seconds before",
    "position": "latitude, longitude, altitude",
    "dish": "the terminal's azimuth and elevation",
    "satellites": "the nearest satellites above 25 degrees, how many, how far",
    "obstruction": "how much of the sky is obstructed",
    "hour": "sine and cosine of the hour of the day",
    "timestamp": "the time in seconds: a tree learns the trace by heart with it",
    "grid": "the phase of the grid of 15 s",
    "serving": "the forecast serving satellite, and its next change",
}
"""Groups of features. The first four and `timestamp` are the paper's; the last two are ours."""
PUBLISHED = ("history", "position", "dish", "satellites")
USUAL = tuple(name for name in GROUPS if name != "timestamp")

_PAST = ("latency_ms", "drop", "rx_bps", "tx_bps", "capacity_bps")
_NOW = {"position": ("lat", "lon", "alt"), "dish": ("azimuth", "elevation"),
        "obstruction": ("obstruction",)}  # fmt: skip
"""Of the last second that is known."""
_OF_NOW = frozenset(name for names in _NOW.values() for name in names)


@dataclass(frozen=True)
class Features:
    """What a model is given, in this order.

    Attributes:
        target: of `TARGETS`.
        column: the frame's column that it is.
        past: columns of the seconds before, the target's own first.
        beside: the other features, by name.
        groups: which groups they are of.
    """

    target: Target
    column: str
    past: tuple[str, ...]
    beside: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Windows:
    """One row per prediction, by node and time.

    Attributes:
        horizon_s: how far ahead.
        end_ns: ends of the seconds that are predicted, shape (n,).
        nodes: of which node, as a number, shape (n,).
        past: shape (n, LOOK_BACK_S, columns), the newest last; NaN where not known, but of the
            target's own column never.
        beside: other features, shape (n, features); NaN where not known.
        truth: what came, shape (n,); NaN where it has not come yet.
        has_grid: whether the second holds a moment of the grid, shape (n,).
    """

    horizon_s: int
    end_ns: IntArray
    nodes: IntArray
    past: FloatArray
    beside: FloatArray
    truth: FloatArray
    has_grid: BoolArray

    def __len__(self) -> int:
        return len(self.end_ns)

    def chosen(self, which: BoolArray) -> Windows:
        """Return some of them."""
        return replace(
            self, end_ns=self.end_ns[which], nodes=self.nodes[which], past=self.past[which],
            beside=self.beside[which], truth=self.truth[which], has_grid=self.has_grid[which],
        )  # fmt: skip


def target_column(frame: pl.DataFrame, target: Target, direction: str) -> str:
    """Return the column that a target is: a throughput is a capacity where one was measured.

    Raises:
        InputError: the data do not have it.
    """
    usage = "rx_bps" if direction == "down" else "tx_bps"
    for name in ("latency_ms",) if target == "latency" else ("capacity_bps", usage):
        if frame[name].null_count() < frame.height:
            return name
    raise InputError(f"the data have no {target}: choose another --target, or other data")


def features_of(
    frame: pl.DataFrame, target: Target, column: str, groups: Sequence[str]
) -> Features:
    """Return the features of groups that the data know anything of.

    Raises:
        InputError: there is no such group.
    """
    for name in groups:
        if name not in GROUPS:
            raise InputError(f'--features: expected of {", ".join(GROUPS)}, not "{name}"')

    def known(names: Sequence[str]) -> list[str]:
        return [name for name in names if frame[name].null_count() < frame.height]

    others = known([name for name in _PAST if name != column]) if "history" in groups else []
    beside: list[str] = []
    used = []
    for group in groups:
        names = known(_columns(group, frame.columns))
        if group == "hour" and _spans_days(frame):
            names = ["hour_sin", "hour_cos"]
        elif group == "timestamp":
            names = ["timestamp_s"]
        beside += names
        used += [group] if names or group == "history" else []
    return Features(target, column, (column, *others), tuple(beside), tuple(used))


def _spans_days(frame: pl.DataFrame) -> bool:
    """Return whether hours come again: of a shorter time they are but the time since it began."""
    from skyhop.telemetry.fields import TIME

    is_clocked = frame["grid_phase_s"].null_count() < frame.height
    ends_ns = frame[TIME]
    return is_clocked and ends_ns[-1] - ends_ns[0] >= _LEAST_DAYS * _DAY_S * SECOND_NS


def _columns(group: str, columns: Sequence[str]) -> Sequence[str]:
    if group in _NOW:
        return _NOW[group]
    if group == "satellites":
        return [name for name in columns if name.startswith("sat_")]
    return {"grid": ["grid_phase_s"],
            "serving": ["serving_el", "serving_changes_in_s"]}.get(group, [])  # fmt: skip


def windows_of(
    frame: pl.DataFrame,
    features: Features,
    horizon_s: int,
    *,
    look_back_s: int = LOOK_BACK_S,
    with_unknown: bool = False,
) -> Windows:
    """Return the windows of a frame for one horizon.

    Args:
        frame: of `sources.read_data`.
        features: what they hold.
        horizon_s: how far ahead, from 1 on.
        look_back_s: how much of the past has to be there and is held.
        with_unknown: also those whose truth is not known, for example because it is yet to come.

    Raises:
        InputError: a feature is not in the frame.
    """
    table = _table(frame, features)
    now = _with_whole_past(table, look_back_s)
    then = np.minimum(now + horizon_s, len(table.end_ns) - 1)
    end_ns = table.end_ns[now] + horizon_s * SECOND_NS
    # Across a gap, or beyond the end, nothing is known of then.
    is_there = (table.end_ns[then] == end_ns) & (table.nodes[then] == table.nodes[now])
    truth = np.where(is_there, table.past[then, 0], np.nan)
    windows = Windows(
        horizon_s=horizon_s,
        end_ns=end_ns,
        nodes=table.nodes[now],
        past=table.past[now[:, None] + np.arange(1 - look_back_s, 1)],
        beside=_beside(table, features, now, np.where(is_there, then, -1), end_ns),
        truth=truth,
        has_grid=(_phase_s(end_ns) == 0) & (end_ns >= CLOCKED_NS),
    )
    is_known = np.asarray(np.isfinite(windows.past[:, :, 0]).all(axis=1))
    return windows.chosen(is_known if with_unknown else is_known & np.isfinite(truth))


@dataclass(frozen=True)
class _Table:
    """A frame as arrays, a row per second."""

    end_ns: IntArray
    nodes: IntArray
    past: FloatArray
    columns: dict[str, FloatArray]


def _table(frame: pl.DataFrame, features: Features) -> _Table:
    names = [name for name in features.beside if name not in OF_CLOCK]
    for name in (*features.past, *names):
        if name not in frame.columns:
            raise InputError(f"a model wants {name}, which no frame has: it is of another skyhop")
    columns = {name: _floats(frame, name) for name in (*features.past, *names)}
    # Numbers of nodes in the order of their rows.
    names_of_nodes = frame["node"].to_numpy()
    changes = names_of_nodes[1:] != names_of_nodes[:-1]
    return _Table(
        end_ns=frame["time_ns"].to_numpy(),
        nodes=np.concatenate(([0], np.cumsum(changes))).astype(np.int64),
        past=np.column_stack([columns[name] for name in features.past]),
        columns=columns,
    )


def _floats(frame: pl.DataFrame, name: str) -> FloatArray:
    values: FloatArray = frame[name].fill_null(np.nan).to_numpy()
    return values


def _with_whole_past(table: _Table, look_back_s: int) -> IntArray:
    """Return the places of seconds before which there is no gap for so long."""
    now = np.arange(look_back_s - 1, len(table.end_ns))
    first = now - (look_back_s - 1)
    lasts_ns = table.end_ns[now] - table.end_ns[first]
    is_whole = (lasts_ns == (look_back_s - 1) * SECOND_NS) & (
        table.nodes[now] == table.nodes[first]
    )
    return np.asarray(now[is_whole])


def _beside(
    table: _Table, features: Features, now: IntArray, then: IntArray, end_ns: IntArray
) -> FloatArray:
    """Return the features beside the past; `then` is -1 where nothing is known of that second."""
    columns = []
    for name in features.beside:
        if name in OF_CLOCK:
            columns.append(OF_CLOCK[name](end_ns))
        elif name in _OF_NOW:
            columns.append(table.columns[name][now])
        else:
            columns.append(np.where(then >= 0, table.columns[name][then], np.nan))
    return np.column_stack(columns) if columns else np.zeros((len(now), 0))


def _phase_s(end_ns: IntArray) -> FloatArray:
    """Return how long before a second's beginning the last moment of the grid was."""
    begin_s = end_ns // SECOND_NS - 1
    return ((begin_s - GRID_OFFSET_S) % GRID_PERIOD_S).astype(np.float64)


def _hour_angle(end_ns: IntArray) -> FloatArray:
    return 2 * np.pi * ((end_ns // SECOND_NS) % _DAY_S) / _DAY_S


OF_CLOCK: dict[str, Callable[[IntArray], FloatArray]] = {
    "grid_phase_s": _phase_s,
    "hour_sin": lambda end_ns: np.sin(_hour_angle(end_ns)),
    "hour_cos": lambda end_ns: np.cos(_hour_angle(end_ns)),
    "timestamp_s": lambda end_ns: end_ns / SECOND_NS,
}
"""Features of the predicted second that its time alone says."""
