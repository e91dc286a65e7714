"""Playback of films at the rate of a path, in virtual time; sessions begin at different times."""

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
class PlaybackOptions:
    """Options of sessions: film, QoE model, player and prediction errors.

    Attributes:
        film: name of a film that comes with skyhop, or a file.
        top: bitrate of the top track to which the film is scaled; None for its own bitrates.
        qoe: QoE model that planning controllers optimise, and that scores sessions.
        playing: options of the player: `start_track`, `buffer_cap`, `wait_step`, `abandon`.
        environment: options of the transport: `payload_share` of the rate, `delay` per chunk.
        relative_sd: error of the future rates that mpc-l and mpc-o know: standard deviation of
            each second's error, relative to the true rate.
        mean_error: mean of these errors, relative to the true rate: 0.1 is 10 % too high.
        compat: "pensieve" plays like Pensieve's simulator: waits in steps of 500 ms, a trace
            that pauses during the delay of each request, and a score without the first chunk.
        without_first: whether the score excludes the first chunk, as in Pensieve's published sums.
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
        """Read the film.

        Raises:
            InputError: there is no such film, or its file is wrong.
        """
        return _core.Film.read(self.film, self.top)

    def to_json(self) -> str:
        """Return the options as JSON, the form that the Rust core takes."""
        content = {
            "playing": dict(self.playing) or None,
            "environment": dict(self.environment) or None,
            "oracle": self._oracle() or None,
            "compat": self.compat,
            "without_first": self.without_first,
        }
        return json.dumps({key: value for key, value in content.items() if value is not None})

    def _oracle(self) -> dict[str, float]:
        errors = {"relative_sd": self.relative_sd, "mean_error": self.mean_error}
        return {key: value for key, value in errors.items() if value is not None}


@dataclass(frozen=True)
class Predictions:
    """Predicted rates: for each time `at_s` of the trace, the rates (bit/s) of the following steps.

    The shapes of times and rates are (n,) and (n, steps); a step lasts `every_s` seconds.
    """

    at_s: FloatArray
    every_s: float
    rates_bps: FloatArray


@dataclass(frozen=True)
class Sessions:
    """Results of sessions that were played.

    Attributes:
        chunks: one row per session and chunk; times in ns since the start of the session.
        sessions: one row per session: `session`, `offset_s`, and sums and means over its chunks.
    """

    chunks: pl.DataFrame
    sessions: pl.DataFrame


def rate_trace(path: Path | str | os.PathLike[str], name: str | None = None) -> _core.RateTrace:
    """Return the rate of a path over time. Error messages name the path's file, or `name`.

    Raises:
        InputError: the file holds no path, or the path has no rate.
    """
    origin = name or ("the path" if isinstance(path, Path) else os.fspath(path))
    frames = (path if isinstance(path, Path) else read_path(path)).frames
    t_s = frames["t_ns"].to_numpy() / _NS
    rates = frames["rate_bps"].cast(float).to_numpy()
    is_up = frames["delay_ns"].is_not_null().to_numpy()
    if not np.isfinite(rates).any():
        raise InputError(
            f"{origin}: has no rate: import a path with measured throughput (skyhop path import)"
        )
    rates = np.where(is_up & np.isfinite(rates), rates, 0.0)
    # The duration of the last state is unknown; assume the duration of the state before it.
    end_s = float(t_s[-1] + (t_s[-1] - t_s[-2] if len(t_s) > 1 else 1.0))
    return _core.RateTrace(origin, t_s.tolist(), rates.tolist(), end_s)


def offsets_s(trace: _core.RateTrace, count: int | None, every: str | None) -> FloatArray:
    """Return start times of sessions in s: `count` times spread evenly, or one per `every`.

    Raises:
        InputError: the trace is shorter than `every`.
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


def predict_rates(
    path: Path, trace: _core.RateTrace, model: str, options: PlaybackOptions
) -> Predictions:
    """Predict the throughput along a path with a trained model.

    Args:
        path: path of the trace.
        trace: the path's rate over time.
        model: output directory of `skyhop predict train`.
        options: options of the sessions that use the predictions.

    Raises:
        InputError: there is no such model, it predicts something else, or it has inputs that are
            unknown for a path.
    """
    from skyhop import predict

    film = options.read_film()
    # The trace repeats at its end, and a session with stalls takes longer than its film.
    until_s = trace.length_s + _MOST_LENGTHS * film.chunk_s * film.chunks
    rates = np.array([trace.mean_bps(second, second + 1.0) for second in range(int(until_s))])
    ahead = predict.rates_along_path(model, path, rates)
    share = options.environment.get("payload_share", PAYLOAD_SHARE)
    return Predictions(np.arange(1, len(ahead) + 1, dtype=np.float64), 1.0, ahead * share)


_MOST_LENGTHS = 4.0
"""Upper limit on a session for which rates are predicted, in durations of the film."""
PAYLOAD_SHARE = 0.95
"""Default share of the path's rate that is payload (`environment.payload_share`)."""


def play(
    trace: _core.RateTrace,
    controller: str,
    options: PlaybackOptions | None = None,
    *,
    offsets: Sequence[float] | FloatArray = (0.0,),
    seed: int = 1,
    predictions: Predictions | None = None,
) -> Sessions:
    """Play a film over a trace, once from each offset; the trace repeats after its end.

    Args:
        trace: rate over time.
        controller: a controller's name, or a JSON object with its `kind` and parameters.
        options: options of the sessions.
        offsets: start time of each session, in s of the trace.
        seed: seed of the first session's controller; later sessions count up from it.
        predictions: future rates for mpc-l and mpc-o.

    Raises:
        InputError: film, controller or an option is wrong.
    """
    options = options or PlaybackOptions()
    starts = np.asarray(offsets, dtype=np.float64)
    future = None
    if predictions is not None:
        future = (predictions.at_s.tolist(), predictions.every_s, predictions.rates_bps.tolist())
    played = _core.play_over_rate(
        options.read_film(), controller, options.qoe, trace, starts.tolist(),
        [seed + number for number in range(len(starts))], options.to_json(), future,
    )  # fmt: skip
    sessions = _frame(played.summaries())
    numbers = pl.int_range(len(starts), dtype=pl.Int64, eager=True).alias("session")
    labelled = sessions.insert_column(0, numbers).insert_column(1, pl.Series("offset_s", starts))
    return Sessions(_frame(played.chunks()), labelled)


def optimum(
    trace: _core.RateTrace, options: PlaybackOptions | None = None, *, offsets: FloatArray
) -> FloatArray:
    """Return an upper bound on the QoE per chunk for a session from each offset, shape (n,).

    Raises:
        InputError: film or an option is wrong.
    """
    options = options or PlaybackOptions()
    bounds = _core.optimum_over_rate(
        options.read_film(), options.qoe, trace, offsets.tolist(), options.to_json()
    )
    return np.asarray(bounds, dtype=np.float64)


def film_series(chunks: pl.DataFrame) -> FilmSeries:
    """Return the time series of a session's chunks for figures."""

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
