"""Rate predictions for the next 30 s at each second of a series, for planning controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.predict.frame import complete_frame
from skyhop.predict.model import Model, load_model, nearest_horizon
from skyhop.predict.windows import LONGEST_HORIZON_S, SECOND_NS, windows_of

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from skyhop.data.paths import Path as MeasuredPath

_MEAN_SECONDS = 5
"""Number of seconds of the harmonic mean that replaces a missing prediction."""


def rates_ahead(
    model: Model, series_bps: FloatArray, *, first_end_ns: int | None = None
) -> FloatArray:
    """Return the predicted rates of the next 30 seconds, at the end of each second of a series.

    The row of second t depends only on the seconds up to t. If one of the last 30 seconds is
    unknown, the harmonic mean of the last 5 known seconds replaces the model's predictions. For a
    horizon that the model lacks, its nearest horizon is used.

    Args:
        model: a model of throughput.
        series_bps: rate of each second in bit/s, shape (n,); NaN where not known.
        first_end_ns: end of the first second, in ns since 1970 (UTC); required by models that use
            the grid's phase or the hour.

    Returns:
        Rates in bit/s, shape (n, 30): column h - 1 is h seconds ahead.

    Raises:
        InputError: the model predicts latency, or needs features that a series does not have.
    """
    _check_predicts_throughput(model)
    series = np.asarray(series_bps, dtype=np.float64)
    if not len(series):
        return np.zeros((0, LONGEST_HORIZON_S))
    return _predict_along(model, series, _frame_of_series(model, series, first_end_ns))


def rates_along_path(place: str | Path, path: MeasuredPath, rates_bps: FloatArray) -> FloatArray:
    """Return a model's rate predictions along a path, given the rates of its link.

    The result is as from `rates_ahead`. Features of the model are the rates of earlier seconds, the
    path's RTTs, losses and satellites, and the handover grid. No feature is measured by a session
    over the path.

    Args:
        place: directory of the model.
        path: the path.
        rates_bps: rates of the link in the path's seconds, in bit/s, shape (n,).

    Raises:
        InputError: there is no such model, it predicts latency, or it needs other features.
        RunError: the model cannot be read.
    """
    from skyhop.predict.sources import frame_of_path

    model = load_model(place)
    _check_predicts_throughput(model)
    rates = np.asarray(rates_bps, dtype=np.float64)
    if not len(rates):
        return np.zeros((0, LONGEST_HORIZON_S))
    frame = frame_of_path(path, rates, model.card.column)
    model.check_has_features(frame, "a path and the rate of its link")
    return _predict_along(model, rates, frame)


def _check_predicts_throughput(model: Model) -> None:
    if model.card.target != "throughput":
        raise InputError(
            f"{model.directory}: predicts {model.card.target}: give a model of throughput"
        )


def _predict_along(model: Model, series: FloatArray, frame: pl.DataFrame) -> FloatArray:
    ahead = np.repeat(_harmonic_means(series)[:, None], LONGEST_HORIZON_S, axis=1)
    first_ns = int(frame["time_ns"][0])
    for horizon_s in sorted({nearest_horizon(model.horizons, h) for h in _HORIZONS}):
        windows = windows_of(frame, model.features, horizon_s, with_unknown=True)
        made_at = (windows.end_ns - first_ns) // SECOND_NS - horizon_s
        columns = [h - 1 for h in _HORIZONS if nearest_horizon(model.horizons, h) == horizon_s]
        ahead[made_at[:, None], columns] = model.predict(windows)[:, None]
    return ahead


_HORIZONS = range(1, LONGEST_HORIZON_S + 1)


def _frame_of_series(model: Model, series: FloatArray, first_end_ns: int | None) -> pl.DataFrame:
    import polars as pl

    clocked = [
        name for name in model.card.beside if name.startswith(("grid_phase", "hour", "time"))
    ]
    others = [
        name
        for name in (*model.card.past, *model.card.beside)
        if name not in (*clocked, model.card.column)
    ]
    if others:
        raise InputError(
            f"{model.directory}: the model is given {', '.join(others[:5])} too: train one of "
            "these rates alone, with --features history,grid or history"
        )
    if clocked and first_end_ns is None:
        raise InputError(f"{model.directory}: the model knows the time: say when the series begins")
    begin_ns = SECOND_NS if first_end_ns is None else first_end_ns // SECOND_NS * SECOND_NS
    ends = begin_ns + np.arange(len(series)) * SECOND_NS
    return complete_frame(pl.DataFrame({"node": ["series"] * len(series), "time_ns": ends,
                               model.card.column: series}))  # fmt: skip


def _harmonic_means(series: FloatArray) -> FloatArray:
    """Return for each second the harmonic mean of the last 5 known values; 0 if there are none."""
    means = np.zeros(len(series))
    known: list[float] = []
    for place, value in enumerate(series):
        if np.isfinite(value):
            known = [*known, float(value)][-_MEAN_SECONDS:]
        if known and min(known) > 0:
            means[place] = len(known) / sum(1 / each for each in known)
    return means
