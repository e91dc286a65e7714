"""The data frame that predictors are trained on: one row per second and node.

`time_ns` is the second's end in UTC, as in telemetry; a value that is not known is null. Satellites
and the grid are of the second itself: orbits are known ahead, so a predictor may see those of the
second that it predicts. All else it may see of seconds before (`windows`).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import TIME

SECOND_NS = 10**9
LAGS = 30
"""So many seconds before stand in the columns `latency_1` to `latency_30` and `rx_1` to `rx_30`."""
NEAREST = 10
"""So many satellites, the nearest first, have columns of their own."""
_KEYS = ("node", TIME)
MEASURED = ("latency_ms", "drop", "rx_bps", "tx_bps", "capacity_bps")
"""What a second brings, known when it is over."""
POSITION = ("lat", "lon", "alt")
DISH = ("azimuth", "elevation")
SATELLITES = (
    *(f"sat_{k}_{what}" for k in range(1, NEAREST + 1) for what in ("sin", "cos", "el", "dist")),
    "sat_count", "sat_dist_min", "sat_dist_mean", "sat_dist_max",
)  # fmt: skip
"""Of those above 25 degrees: sine and cosine of the azimuth, elevation (deg), distance (m)."""
GRID = ("grid_phase_s",)
SERVING = ("serving_el", "serving_changes_in_s")
OBSTRUCTION = ("obstruction",)
COLUMNS = (*_KEYS, *POSITION, *DISH, *MEASURED, *SATELLITES, *GRID, *SERVING, *OBSTRUCTION)
_LAGGED = {"latency": "latency_ms", "rx": "rx_bps"}
_MOST_ROWS = 20_000_000
_LARGEST = 1e30


def whole(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as the frame has them: all columns, by node and time, each second once.

    Args:
        rows: with `node`, `time_ns` (ends of seconds) and any of the other columns.

    Raises:
        InputError: there is none.
    """
    if rows.is_empty():
        raise InputError("the data have no seconds")
    frame = rows.select(
        pl.col("node").cast(pl.String),
        pl.col(TIME).cast(pl.Int64),
        *(
            # What is no number is not known.
            pl.col(name).cast(pl.Float64).fill_nan(None)
            if name in rows.columns
            else pl.lit(None, pl.Float64).alias(name)
            for name in COLUMNS[len(_KEYS) :]
        ),
    )
    return frame.unique(_KEYS, keep="last", maintain_order=True).sort(_KEYS)


def with_lags(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with `latency_k` and `rx_k`, what was so k seconds before.

    Null over gaps.
    """
    lagged = []
    for name, column in _LAGGED.items():
        for lag in range(1, LAGS + 1):
            then = pl.col(TIME).shift(lag).over("node") == pl.col(TIME) - lag * SECOND_NS
            value = pl.col(column).shift(lag).over("node")
            lagged.append(pl.when(then).then(value).otherwise(None).alias(f"{name}_{lag}"))
    return frame.with_columns(lagged)


def write_frame(frame: pl.DataFrame, file: Path) -> None:
    """Write a frame as Parquet, its lags with it for whoever reads it without skyhop.

    Raises:
        InputError: a directory is in the file's place.
        RunError: it cannot be written.
    """
    from skyhop.data.files import write_file

    content = io.BytesIO()
    with_lags(frame).write_parquet(content)
    write_file(file, content.getvalue())


def read_frame(file: Path) -> pl.DataFrame:
    """Read a frame.

    Raises:
        InputError: it is none, or damaged.
        RunError: it cannot be read.
    """
    table = parquet(file)
    if not is_frame(table.schema_arrow.names):
        raise InputError(f"{file}: is no frame of skyhop predict: it lacks columns of it")
    rows = _rows(table, file)
    for name in COLUMNS[len(_KEYS) :]:
        wrong = pl.col(name).is_infinite() | (pl.col(name).abs() > _LARGEST)
        if rows.select(wrong.any()).item():
            raise InputError(f"{file}: {name} has values that are no measurement")
    times = rows[TIME]
    if times.null_count() or rows["node"].null_count():
        raise InputError(f"{file}: rows without a time or a node")
    if (times % SECOND_NS != 0).any() or times.min() < 0:  # type: ignore[operator]
        raise InputError(f"{file}: {TIME} are no ends of seconds")
    return whole(rows)


def is_frame(columns: Sequence[str]) -> bool:
    """Return whether a table with these columns is a frame."""
    return set(COLUMNS) <= set(columns)


def parquet(file: Path) -> Any:
    """Open a Parquet file.

    Raises:
        InputError: it is none.
        RunError: it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(pa.BufferReader(file.read_bytes()))
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise _damaged(file, error) from None
    except OSError as error:
        raise RunError(f"{file}: cannot read: {error.strerror or error}") from None


def _rows(table: Any, file: Path) -> pl.DataFrame:
    import pyarrow as pa

    if table.metadata.num_rows > _MOST_ROWS:
        raise InputError(f"{file}: more than {_MOST_ROWS:,} seconds: split it")
    try:
        read = table.read(columns=list(COLUMNS), use_threads=False)
        read.validate(full=True)
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            kind = {"node": pa.string(), TIME: pa.int64()}.get(name, pa.float64())
            columns[name] = read[name].cast(kind)
        return pl.DataFrame(pl.from_arrow(pa.table(columns)))
    except (pa.ArrowException, OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> InputError:
    return InputError(f"{file}: is damaged ({' '.join(str(error).split())[:200]}): make it again")
