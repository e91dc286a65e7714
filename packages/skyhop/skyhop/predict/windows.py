"""Windows of the frame: the features of each prediction.

A prediction for the second that ends at T is made at T - horizon_s, and uses the seconds up to that
time. From the predicted second, it uses only features that orbits and the clock determine. Windows
across gaps are left out.
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
"""Quantities that can be predicted, with their units."""
LOOK_BACK_S = 30
"""Length of the past in a window, in seconds."""
LONGEST_HORIZON_S = 30
SECOND_NS = 10**9
GRID_PERIOD_S, GRID_OFFSET_S = 15, 12
EARLIEST_UTC_NS = 1_420_070_400 * SECOND_NS
"""Earliest time that counts as UTC, 2015; earlier times are from files with relative times."""
_DAY_S = 86_400
_LEAST_DAYS = 2

GROUPS: dict[str, str] = {
    "history": "measurements of the past 30 s",
    "position": "latitude, longitude, altitude",
    "dish": "the terminal's azimuth and elevation",
    "satellites": "the nearest satellites above 25 degrees, their number and distances",
    "obstruction": "the obstructed share of the sky",
    "hour": "sine and cosine of the hour of the day",
    "timestamp": "the time in seconds: a tree memorises the trace with it",
    "grid": "the phase of the grid of 15 s",
    "serving": "the forecast serving satellite, and its next change",
}
"""Groups of features. The first four and `timestamp` are T3P's; the last two are skyhop's."""
PUBLISHED = ("history", "position", "dish", "satellites")
USUAL = tuple(name for name in GROUPS if name != "timestamp")

_PAST = ("latency_ms", "drop", "rx_bps", "tx_bps", "capacity_bps")
_NOW = {"position": ("lat", "lon", "alt"), "dish": ("azimuth", "elevation"),
        "obstruction": ("obstruction",)}  # fmt: skip
"""Columns, by group, whose values are taken from the last known second."""
_NOW_COLUMNS = frozenset(name for names in _NOW.values() for name in names)


@dataclass(frozen=True)
class Features:
    """Features of a model, in the order of its inputs.

    Attributes:
        target: predicted quantity, from `TARGETS`.
        column: column of the frame with the target's values.
        past: columns whose values in the past 30 s are features, the target's column first.
        covariates: the other features, with one value per prediction.
        groups: groups of features, from `GROUPS`, that have values.
    """

    target: Target
    column: str
    past: tuple[str, ...]
    covariates: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Windows:
    """Inputs and true values of n predictions, ordered by node and time.

    Attributes:
        horizon_s: the horizon in seconds.
        end_ns: ends of the predicted seconds, shape (n,).
        nodes: numbers of the nodes, in the order of the frame, shape (n,).
        past: values of the past columns, shape (n, LOOK_BACK_S, columns), the newest second last;
            NaN if not known. The values of the target's own column are always known.
        covariates: other features, shape (n, features); NaN if not known.
        truth: true values, shape (n,); NaN if not known, such as in the future.
        has_grid: whether a predicted second contains a moment of the 15 s grid, shape (n,).
    """

    horizon_s: int
    end_ns: IntArray
    nodes: IntArray
    past: FloatArray
    covariates: FloatArray
    truth: FloatArray
    has_grid: BoolArray

    def __len__(self) -> int:
        return len(self.end_ns)

    def select(self, mask: BoolArray) -> Windows:
        """Return the windows where the mask, shape (n,), is true."""
        return replace(
            self, end_ns=self.end_ns[mask], nodes=self.nodes[mask], past=self.past[mask],
            covariates=self.covariates[mask], truth=self.truth[mask],
            has_grid=self.has_grid[mask],
        )  # fmt: skip


def target_column(frame: pl.DataFrame, target: Target, direction: str) -> str:
    """Return the column of a target; for throughput, the capacity if that was measured.

    Raises:
        InputError: the data do not have the target.
    """
    usage = "rx_bps" if direction == "down" else "tx_bps"
    for name in ("latency_ms",) if target == "latency" else ("capacity_bps", usage):
        if frame[name].null_count() < frame.height:
            return name
    raise InputError(f"the data have no {target}: choose another --target, or other data")


def features_of(
    frame: pl.DataFrame, target: Target, column: str, groups: Sequence[str]
) -> Features:
    """Return the features of groups, without columns for which the data have no values.

    Raises:
        InputError: there is no such group.
    """
    for name in groups:
        if name not in GROUPS:
            raise InputError(f'--features: expected of {", ".join(GROUPS)}, not "{name}"')

    def known(names: Sequence[str]) -> list[str]:
        return [name for name in names if frame[name].null_count() < frame.height]

    others = known([name for name in _PAST if name != column]) if "history" in groups else []
    covariates: list[str] = []
    used = []
    for group in groups:
        names = known(_columns(group, frame.columns))
        if group == "hour" and _spans_days(frame):
            names = ["hour_sin", "hour_cos"]
        elif group == "timestamp":
            names = ["timestamp_s"]
        covariates += names
        used += [group] if names or group == "history" else []
    return Features(target, column, (column, *others), tuple(covariates), tuple(used))


def _spans_days(frame: pl.DataFrame) -> bool:
    """Return whether the data cover two days; in less, the hour is only elapsed time."""
    from skyhop.telemetry.fields import TIME

    is_utc = frame["grid_phase_s"].null_count() < frame.height
    ends_ns = frame[TIME]
    return is_utc and ends_ns[-1] - ends_ns[0] >= _LEAST_DAYS * _DAY_S * SECOND_NS


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
        frame: frame of `sources.read_data`.
        features: the features of the windows.
        horizon_s: the horizon in seconds, at least 1.
        look_back_s: length in s of the past, which must have no gap.
        with_unknown: also return windows whose true value is not known, such as in the future.

    Raises:
        InputError: a feature is not in the frame.
    """
    table = _table(frame, features)
    now = _with_whole_past(table, look_back_s)
    then = np.minimum(now + horizon_s, len(table.end_ns) - 1)
    end_ns = table.end_ns[now] + horizon_s * SECOND_NS
    # The predicted second may be in a gap or after the end of the data.
    is_known_then = (table.end_ns[then] == end_ns) & (table.nodes[then] == table.nodes[now])
    truth = np.where(is_known_then, table.past[then, 0], np.nan)
    windows = Windows(
        horizon_s=horizon_s,
        end_ns=end_ns,
        nodes=table.nodes[now],
        past=table.past[now[:, None] + np.arange(1 - look_back_s, 1)],
        covariates=_covariates(table, features, now, np.where(is_known_then, then, -1), end_ns),
        truth=truth,
        has_grid=(_phase_s(end_ns) == 0) & (end_ns >= EARLIEST_UTC_NS),
    )
    is_known = np.asarray(np.isfinite(windows.past[:, :, 0]).all(axis=1))
    return windows.select(is_known if with_unknown else is_known & np.isfinite(truth))


@dataclass(frozen=True)
class _Table:
    """Frame as arrays, with a row per second."""

    end_ns: IntArray
    nodes: IntArray
    past: FloatArray
    columns: dict[str, FloatArray]


def _table(frame: pl.DataFrame, features: Features) -> _Table:
    names = [name for name in features.covariates if name not in CLOCK_FEATURES]
    for name in (*features.past, *names):
        if name not in frame.columns:
            raise InputError(f"a model needs {name}, which no frame has: it is of another skyhop")
    columns = {name: _floats(frame, name) for name in (*features.past, *names)}
    # Nodes are numbered in the order of their rows.
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
    """Return the rows of seconds whose past `look_back_s` seconds have no gap."""
    now = np.arange(look_back_s - 1, len(table.end_ns))
    first = now - (look_back_s - 1)
    length_ns = table.end_ns[now] - table.end_ns[first]
    is_whole = (length_ns == (look_back_s - 1) * SECOND_NS) & (
        table.nodes[now] == table.nodes[first]
    )
    return np.asarray(now[is_whole])


def _covariates(
    table: _Table, features: Features, now: IntArray, then: IntArray, end_ns: IntArray
) -> FloatArray:
    """Return the covariates of predictions, shape (n, features).

    Args:
        table: the frame.
        features: the features.
        now: rows of the last known seconds, shape (n,).
        then: rows of the predicted seconds, shape (n,); -1 if the frame does not have the second.
        end_ns: ends of the predicted seconds, shape (n,).
    """
    columns = []
    for name in features.covariates:
        if name in CLOCK_FEATURES:
            columns.append(CLOCK_FEATURES[name](end_ns))
        elif name in _NOW_COLUMNS:
            columns.append(table.columns[name][now])
        else:
            columns.append(np.where(then >= 0, table.columns[name][then], np.nan))
    return np.column_stack(columns) if columns else np.zeros((len(now), 0))


def _phase_s(end_ns: IntArray) -> FloatArray:
    """Return the time in s from the last moment of the grid to the start of each second."""
    begin_s = end_ns // SECOND_NS - 1
    return ((begin_s - GRID_OFFSET_S) % GRID_PERIOD_S).astype(np.float64)


def _hour_angle(end_ns: IntArray) -> FloatArray:
    return 2 * np.pi * ((end_ns // SECOND_NS) % _DAY_S) / _DAY_S


CLOCK_FEATURES: dict[str, Callable[[IntArray], FloatArray]] = {
    "grid_phase_s": _phase_s,
    "hour_sin": lambda end_ns: np.sin(_hour_angle(end_ns)),
    "hour_cos": lambda end_ns: np.cos(_hour_angle(end_ns)),
    "timestamp_s": lambda end_ns: end_ns / SECOND_NS,
}
"""Features that depend only on the time of the predicted second."""
