"""Films over the rate of a path, in virtual time: many sessions, each from another moment on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from skyhop import _core
from skyhop.data.arrays import FloatArray
from skyhop.data.paths import Path, read_path
from skyhop.data.quantities import seconds
from skyhop.data.records import FilmSeries
from skyhop.errors import InputError

_REALS = ("predicted_bps", "mean_bitrate_bps", "qoe")
_NS = 1e9


@dataclass(frozen=True)
class Manner:
    """How films are played.

    Attributes:
        film: one that comes with skyhop, or a file.
        top: the bitrate of its top track, where it is to be another than the film's.
        qoe: what controllers plan with, and what sessions are scored by.
        playing: of the player: `start_track`, `buffer_cap`, `wait_step`, `abandon`.
        environment: of what carries chunks: `payload_share` of the rate, `delay` of each.
        relative_sd: how wrong the rate is that mpc-l and mpc-o look ahead at: the standard
            deviation of each second's error, relative to the truth.
        mean_error: the mean of these errors, likewise: 0.1 is a tenth too high.
        compat: "pensieve" plays as Pensieve's simulator does: waits in steps of 500 ms, a trace
            that stands still in the delay of each request, and a score without the first chunk.
        without_first: whether the first chunk does not count, as in Pensieve's published sums.
    """

    film: str = "pensieve"
    top: str | None = None
    qoe: str = "pensieve-linear"
    playing: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    relative_sd: float | None = None
    mean_error: float | None = None
    compat: str = "none"
    without_first: bool = False

    def read_film(self) -> _core.Film:
        """Return the film.

        Raises:
            InputError: there is none, or it is wrong.
        """
        return _core.Film.read(self.film, self.top)

    def options(self) -> str:
        """Return the core's options."""
        options = {
            "playing": dict(self.playing) or None,
            "environment": dict(self.environment) or None,
            "oracle": self._oracle() or None,
            "compat": self.compat,
            "without_first": self.without_first,
        }
        return json.dumps({key: value for key, value in options.items() if value is not None})

    def _oracle(self) -> dict[str, float]:
        errors = {"relative_sd": self.relative_sd, "mean_error": self.mean_error}
        return {key: value for key, value in errors.items() if value is not None}


@dataclass(frozen=True)
class Predictions:
    """What a model predicted: at moments of the trace (s), rates (bit/s) of the steps from then on.

    Shapes (n,) and (n, steps); a step takes `every_s`.
    """

    at_s: FloatArray
    every_s: float
    rates_bps: FloatArray


@dataclass(frozen=True)
class Sessions:
    """Sessions that are over.

    Attributes:
        chunks: a row per session and chunk; times in ns since the session's beginning.
        sessions: a row per session: `session`, `offset_s`, and what its chunks amount to.
    """

    chunks: pl.DataFrame
    sessions: pl.DataFrame


def rate_trace(path: Path | str | os.PathLike[str], name: str | None = None) -> _core.RateTrace:
    """Return the rate of a path over time; errors call it by its file, or by `name`.

    Raises:
        InputError: the file is no path's, or its path has no rate.
    """
    origin = name or ("the path" if isinstance(path, Path) else os.fspath(path))
    frames = (path if isinstance(path, Path) else read_path(path)).frames
    t_s = frames["t_ns"].to_numpy() / _NS
    rates = frames["rate_bps"].to_numpy(zero_copy_only=False).astype(np.float64)
    is_up = frames["delay_ns"].is_valid().to_numpy(zero_copy_only=False)
    if not np.isfinite(rates).any():
        raise InputError(
            f"{origin}: says nothing of the rate: import measured throughput (skyhop path import)"
        )
    rates = np.where(is_up & np.isfinite(rates), rates, 0.0)
    # The last state holds as long as the one before it, where nothing says how long.
    end_s = float(t_s[-1] + (t_s[-1] - t_s[-2] if len(t_s) > 1 else 1.0))
    return _core.RateTrace(origin, t_s.tolist(), rates.tolist(), end_s)


def offsets_s(trace: _core.RateTrace, count: int | None, every: str | None) -> FloatArray:
    """Return when sessions begin: `count` of them evenly over the trace, or one `every` so long.

    Raises:
        InputError: the trace is shorter than that.
    """
    if every is not None:
        step_s = seconds(every)
        if not 0 < step_s <= trace.length_s:
            raise InputError(
                f"every {every}: expected more than 0 s and at most {trace.length_s:g} s, as long "
                "as the trace"
            )
        return np.arange(int(trace.length_s / step_s + 1e-9), dtype=np.float64) * step_s
    return np.arange(count or 1, dtype=np.float64) * trace.length_s / (count or 1)


def foretold(path: Path, trace: _core.RateTrace, model: str, manner: Manner) -> Predictions:
    """Return what a model of throughput predicts along a path's rate.

    Args:
        path: whose rate it is.
        trace: that rate.
        model: a directory of `skyhop predict train`.
        manner: of the sessions that are told.

    Raises:
        InputError: there is no such model, it predicts something else, or is given more than what
            is known of a path beforehand.
    """
    from skyhop import predict

    film = manner.read_film()
    # The trace begins again once it is over, and films take longer than they last.
    until_s = trace.length_s + _PATIENCE * film.chunk_s * film.chunks
    rates = np.array([trace.mean_bps(second, second + 1.0) for second in range(int(until_s))])
    ahead = predict.foretold(model, path, rates)
    share = manner.environment.get("payload_share", PAYLOAD_SHARE)
    return Predictions(np.arange(1, len(ahead) + 1, dtype=np.float64), 1.0, ahead * share)


_PATIENCE = 4.0
"""So many times its own length a film may take."""
PAYLOAD_SHARE = 0.95
"""Of a rate, where `environment` says nothing else."""


def play(
    trace: _core.RateTrace,
    controller: str,
    manner: Manner | None = None,
    *,
    offsets: Sequence[float] | FloatArray = (0.0,),
    seed: int = 1,
    predictions: Predictions | None = None,
) -> Sessions:
    """Play a film over a trace, once from each offset (s); the trace begins again once over.

    Args:
        trace: the rate over time.
        controller: its name, or a JSON table with its `kind` and parameters.
        manner: how.
        offsets: when each session begins, in seconds of the trace.
        seed: the first session's, of what its controller draws; the others' follow it.
        predictions: what mpc-l and mpc-o are told of the rate ahead.

    Raises:
        InputError: film, controller or an option is wrong.
    """
    manner = manner or Manner()
    starts = np.asarray(offsets, dtype=np.float64)
    told = None
    if predictions is not None:
        told = (predictions.at_s.tolist(), predictions.every_s, predictions.rates_bps.tolist())
    played = _core.play_over_rate(
        manner.read_film(), controller, manner.qoe, trace, starts.tolist(),
        [seed + number for number in range(len(starts))], manner.options(), told,
    )  # fmt: skip
    sessions = _frame(played.summaries())
    numbered = pl.int_range(len(starts), dtype=pl.Int64, eager=True).alias("session")
    placed = sessions.insert_column(0, numbered).insert_column(1, pl.Series("offset_s", starts))
    return Sessions(_frame(played.chunks()), placed)


def optimum(
    trace: _core.RateTrace, manner: Manner | None = None, *, offsets: FloatArray
) -> FloatArray:
    """Return a bound that no session from each offset can pass, per chunk, shape (n,).

    Raises:
        InputError: film or an option is wrong.
    """
    manner = manner or Manner()
    bounds = _core.optimum_over_rate(
        manner.read_film(), manner.qoe, trace, offsets.tolist(), manner.options()
    )
    return np.asarray(bounds, dtype=np.float64)


def film_series(chunks: pl.DataFrame) -> FilmSeries:
    """Return a session's chunks as figures take them."""

    def of(name: str, scale: float) -> FloatArray:
        return np.asarray(chunks[name].to_numpy(), dtype=np.float64) / scale

    return FilmSeries(
        arrived_s=of("arrived_ns", _NS),
        bitrate_mbps=of("bitrate_bps", 1e6),
        buffer_s=of("buffer_ns", _NS),
        stall_s=of("stall_ns", _NS),
    )


def _frame(columns: Mapping[str, bytes]) -> pl.DataFrame:
    arrays = {
        name: np.frombuffer(content, np.float64 if name in _REALS else np.int64)
        for name, content in columns.items()
    }
    frame = pl.DataFrame(arrays)
    return frame.with_columns(pl.col(name).fill_nan(None) for name in _REALS if name in arrays)
