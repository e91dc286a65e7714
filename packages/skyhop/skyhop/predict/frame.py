"""Data frame on which predictors are trained: one row per second and node.

`time_ns` is the end of the second in UTC, as in telemetry; unknown values are null. Orbits are
known in advance, so a predictor may use the satellites and the grid phase of the second that it
predicts. From all other columns, it may use only earlier seconds (`windows`).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from skyhop import _core
from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import TIME

SECOND_NS = 10**9
LAGS = 30
"""Number of lagged columns in files, `latency_1` to `latency_30` and `rx_1` to `rx_30`."""
NEAREST = 10
"""Number of satellites, the nearest ones, that have columns of their own."""
_KEYS = ("node", TIME)
MEASURED = ("latency_ms", "drop", "rx_bps", "tx_bps", "capacity_bps")
"""Columns of measurements, whose values are known at the end of their second."""
POSITION = ("lat", "lon", "alt")
DISH = ("azimuth", "elevation")
SATELLITES = (
    *(f"sat_{k}_{what}" for k in range(1, NEAREST + 1) for what in ("sin", "cos", "el", "dist")),
    "sat_count", "sat_dist_min", "sat_dist_mean", "sat_dist_max",
)  # fmt: skip
"""Columns about satellites above 25 degrees of elevation.

Columns of a single satellite: sine and cosine of azimuth, elevation (deg), and distance (m).
"""
GRID = ("grid_phase_s",)
SERVING = ("serving_el", "serving_changes_in_s")
OBSTRUCTION = ("obstruction",)
COLUMNS = (*_KEYS, *POSITION, *DISH, *MEASURED, *SATELLITES, *GRID, *SERVING, *OBSTRUCTION)
_LAGGED = {"latency": "latency_ms", "rx": "rx_bps"}
_MOST_ROWS = 20_000_000
_LARGEST = 1e30


def complete_frame(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as a frame with all columns, ordered by node and time, one row per second.

    Args:
        rows: rows with `node`, `time_ns` (ends of seconds) and any of the other columns.

    Raises:
        InputError: there are no rows.
    """
    if rows.is_empty():
        raise InputError("the data have no seconds")
    frame = rows.select(
        pl.col("node").cast(pl.String),
        pl.col(TIME).cast(pl.Int64),
        *(
            # NaN counts as unknown.
            pl.col(name).cast(pl.Float64).fill_nan(None)
            if name in rows.columns
            else pl.lit(None, pl.Float64).alias(name)
            for name in COLUMNS[len(_KEYS) :]
        ),
    )
    return frame.unique(_KEYS, keep="last", maintain_order=True).sort(_KEYS)


def with_lags(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with the columns `latency_k` and `rx_k`: the values k seconds earlier.

    They are null if there is a gap in between.
    """
    lagged = []
    for name, column in _LAGGED.items():
        for lag in range(1, LAGS + 1):
            is_known = pl.col(TIME).shift(lag).over("node") == pl.col(TIME) - lag * SECOND_NS
            value = pl.col(column).shift(lag).over("node")
            lagged.append(pl.when(is_known).then(value).otherwise(None).alias(f"{name}_{lag}"))
    return frame.with_columns(lagged)


def write_frame(frame: pl.DataFrame, file: Path) -> None:
    """Write a frame as Parquet, with lagged columns for readers other than skyhop.

    Raises:
        InputError: `file` is a directory.
        RunError: the file cannot be written.
    """
    from skyhop.data.files import write_file

    content = io.BytesIO()
    with_lags(frame).write_parquet(content)
    write_file(file, content.getvalue())


def read_frame(file: Path) -> pl.DataFrame:
    """Read and check a frame written by `write_frame`.

    Raises:
        InputError: the file is not a frame, or is damaged.
        RunError: the file cannot be read.
    """
    table = parquet(file)
    if not is_frame(table.columns):
        raise InputError(f"{file}: is no frame of skyhop predict: it lacks columns of it")
    rows = _rows(table, file)
    if rows.is_empty():
        raise InputError(f"{file}: has no seconds")
    for name in COLUMNS[len(_KEYS) :]:
        wrong = pl.col(name).is_infinite() | (pl.col(name).abs() > _LARGEST)
        if rows.select(wrong.any()).item():
            raise InputError(f"{file}: {name} has values that are no measurement")
    times = rows[TIME]
    if times.null_count() or rows["node"].null_count():
        raise InputError(f"{file}: rows without a time or a node")
    if (times % SECOND_NS != 0).any() or times.min() < 0:  # type: ignore[operator]
        raise InputError(f"{file}: {TIME} are no ends of seconds")
    return complete_frame(rows)


def is_frame(columns: Sequence[str]) -> bool:
    """Return whether the names of columns include all those of a frame."""
    return set(COLUMNS) <= set(columns)


def parquet(file: Path) -> _core.ParquetFile:
    """Open a Parquet file.

    Raises:
        InputError: the file is not Parquet.
        RunError: the file cannot be read.
    """
    try:
        return _core.ParquetFile(file)
    except ValueError as error:
        raise _damaged(file, error) from None
    except OSError as error:
        raise RunError(f"{file}: cannot read: {error.strerror or error}") from None


def _rows(table: _core.ParquetFile, file: Path) -> pl.DataFrame:
    if table.rows > _MOST_ROWS:
        raise InputError(f"{file}: more than {_MOST_ROWS:,} seconds: split it")
    types = {"node": pl.String, TIME: pl.Int64}
    try:
        read = pl.DataFrame(table.read(list(COLUMNS), None))
        return read.select(pl.col(name).cast(types.get(name, pl.Float64)) for name in COLUMNS)
    except (ValueError, pl.exceptions.PolarsError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> InputError:
    return InputError(f"{file}: is damaged ({' '.join(str(error).split())[:200]}): make it again")
