"""Vectors of predictions along a series: what a controller knows that looks ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.predict.frame import whole
from skyhop.predict.model import Model, load_model, nearest_horizon
from skyhop.predict.windows import LONGEST_HORIZON_S, SECOND_NS, windows_of

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from skyhop.data.paths import Path as MeasuredPath

_FEW = 5


def rates_ahead(
    model: Model, series_bps: FloatArray, *, first_end_ns: int | None = None
) -> FloatArray:
    """Return the predicted rates of the next 30 seconds, at the end of each second of a series.

    The row of second t has seen the seconds up to t, and no later one. Before there are 30 seconds
    to look back on, and after any that is not known, the harmonic mean of the last 5 known ones
    stands in for the model. Horizons that the model does not have are taken from the nearest that
    it has.

    Args:
        model: of throughput.
        series_bps: what each second carried, in bit/s, shape (n,); NaN where not known.
        first_end_ns: when the first second ends, in ns of UTC: models that know the grid or the
            hour need it.

    Returns:
        Rates in bit/s, shape (n, 30): column h - 1 is h seconds ahead.

    Raises:
        InputError: the model predicts something else, or is given more than a series has.
    """
    _check_predicts_throughput(model)
    series = np.asarray(series_bps, dtype=np.float64)
    if not len(series):
        return np.zeros((0, LONGEST_HORIZON_S))
    return _along(model, series, _frame_of(model, series, first_end_ns))


def foretold(place: str | Path, path: MeasuredPath, rates_bps: FloatArray) -> FloatArray:
    """Return what a model predicts along a path whose link has these rates: as `rates_ahead`.

    The model is given what is known before a run: the rates of the seconds so far, the path's
    round trips, losses and satellites, and the grid; nothing that a session measures.

    Args:
        place: the model's directory.
        path: the path.
        rates_bps: of the seconds of it, shape (n,).

    Raises:
        InputError: there is no such model, it predicts something else, or is given more than that.
        RunError: it cannot be read.
    """
    from skyhop.predict.sources import of_path_and_rates

    model = load_model(place)
    _check_predicts_throughput(model)
    rates = np.asarray(rates_bps, dtype=np.float64)
    if not len(rates):
        return np.zeros((0, LONGEST_HORIZON_S))
    frame = of_path_and_rates(path, rates, model.card.column)
    model.check_has_features(frame, "a path and the rate of its link")
    return _along(model, rates, frame)


def _check_predicts_throughput(model: Model) -> None:
    if model.card.target != "throughput":
        raise InputError(
            f"{model.directory}: predicts {model.card.target}: give a model of throughput"
        )


def _along(model: Model, series: FloatArray, frame: pl.DataFrame) -> FloatArray:
    ahead = np.repeat(_harmonic_means(series)[:, None], LONGEST_HORIZON_S, axis=1)
    first_ns = int(frame["time_ns"][0])
    for horizon_s in sorted({nearest_horizon(model.horizons, h) for h in _HORIZONS}):
        windows = windows_of(frame, model.features, horizon_s, with_unknown=True)
        made_at = (windows.end_ns - first_ns) // SECOND_NS - horizon_s
        columns = [h - 1 for h in _HORIZONS if nearest_horizon(model.horizons, h) == horizon_s]
        ahead[made_at[:, None], columns] = model.predict(windows)[:, None]
    return ahead


_HORIZONS = range(1, LONGEST_HORIZON_S + 1)


def _frame_of(model: Model, series: FloatArray, first_end_ns: int | None) -> pl.DataFrame:
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
    return whole(pl.DataFrame({"node": ["series"] * len(series), "time_ns": ends,
                               model.card.column: series}))  # fmt: skip


def _harmonic_means(series: FloatArray) -> FloatArray:
    """Return at each second the harmonic mean of the last 5 that are known; 0 where none is."""
    means = np.zeros(len(series))
    known: list[float] = []
    for place, value in enumerate(series):
        if np.isfinite(value):
            known = [*known, float(value)][-_FEW:]
        if known and min(known) > 0:
            means[place] = len(known) / sum(1 / each for each in known)
    return means
