"""Engine "video" of studies: each run plays a film over measured rates, in virtual time.

A model predicts rates for the controller; it is trained on the first half of each node's data.
Sessions play over the second halves, joined one after another. The session of a seed starts `every`
later than that of the preceding seed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from skyhop import _core
from skyhop.data.files import Scratch
from skyhop.data.quantities import mbps_or_none, seconds
from skyhop.errors import InputError
from skyhop.study.keys import Duration, StrictModel
from skyhop.study.metrics import MetricInfo
from skyhop.study.table_runs import TableKind, find_data, json_values, validated_table

if TYPE_CHECKING:
    from skyhop.data.arrays import FloatArray
    from skyhop.predict import Data
    from skyhop.video.playing import Predictions

_SHARE = 0.5
"""Share of each node's seconds that the model is trained on; sessions play over the rest."""
_GAP_S = 60
"""Time in s between a node's training data and the data that sessions play over."""
_HORIZONS = (1, 2, 3, 5, 8, 12, 16, 20, 25, 30)
"""Horizons in s for which the model is trained; other horizons use the nearest of these."""


class Video(StrictModel):
    """Table [video] of a study file; axes set its keys."""

    data: str
    """File with the throughput of each second, in a format that `skyhop predict` reads."""
    direction: Literal["down", "up"] = "down"
    film: str = "six-tracks"
    top: str | None = None
    """Bitrate of the film's top track; "median" or "2 x median" of the played rates."""
    qoe: str = "pensieve-linear"
    controller: str = "robust-mpc"
    every: Duration = "3 min"
    """Time between the starts of sessions with successive seeds."""
    model: str | None = None
    """Kind of the model that predicts rates; by default controllers get the true future rates."""
    relative_sd: float | None = Field(None, ge=0, le=10)
    """Relative error (standard deviation) that is added to each second's true future rate."""


def _qoe_metrics() -> tuple[MetricInfo, ...]:
    names = [entry.name for entry in _core.list_qoes()]
    return tuple(
        MetricInfo(_qoe_column(name), _qoe_column(name), f"QoE ({name})", "") for name in names
    )


def _qoe_column(name: str) -> str:
    return f"qoe_{name.replace('-', '_')}"


SESSION_METRICS: tuple[MetricInfo, ...] = (
    MetricInfo("bitrate", "mean_bitrate_bps", "mean bitrate", "Mbit/s", 1e-6),
    MetricInfo("startup", "startup_ns", "start-up", "s", 1e-9),
    MetricInfo("stalled", "stall_ns", "stalled", "s", 1e-9),
    MetricInfo("stalls", "stalls", "stalls", ""),
    MetricInfo("switches", "switches", "switches", ""),
    MetricInfo("qoe", "qoe", "QoE", ""),
    *_qoe_metrics(),
)
"""Metrics of every session, in virtual time or in a browser."""
METRICS: tuple[MetricInfo, ...] = (
    *SESSION_METRICS,
    MetricInfo("qoe_bound", "qoe_bound", "the most that can be reached", ""),
)


def scores_by_qoe(
    film: _core.Film, tracks: list[int], stalls_ns: list[int]
) -> dict[str, float | None]:
    """Return the score of a session by every QoE, given each chunk's track and stall in ns."""
    found: dict[str, float | None] = {}
    for entry in _core.list_qoes():
        try:
            found[_qoe_column(entry.name)] = _core.score_chunks(film, entry.name, tracks, stalls_ns)
        except InputError:
            # The QoE is defined by a table for the tracks of another film.
            found[_qoe_column(entry.name)] = None
    return found


def user_films(film: str) -> list[str]:
    """Return the film's name if it is a file or directory of the user; empty if skyhop ships it."""
    return [] if film in [entry.name for entry in _core.list_films()] else [film]


class _VideoKind(TableKind[Video]):
    """Kind of runs that play a film over measured rates."""

    engine = "video"
    table = "video"
    model = Video
    metrics = METRICS
    layout = 2
    needs_core = True

    def resolve(self, base: Mapping[str, Any], sets: Sequence[str], origin: str) -> Video:
        return validated_table(Video, base, sets, f"{origin}: video")

    def config_dict(self, config: Video) -> dict[str, Any]:
        return json_values(config)

    def input_files(self, config: Video) -> Sequence[str]:
        return [config.data, *user_films(config.film)]

    def row(self, config: Video, seed: int, study_dir: Path) -> tuple[dict[str, Any], list[str]]:
        from skyhop.video import playing

        rates, trace = _playback_rates(str(find_data(config.data, study_dir)), config.direction)
        length_s = seconds(config.every)
        offset_s = (seed - 1) * length_s
        if offset_s + length_s > trace.length_s:
            raise InputError(
                f"{config.data}: has {trace.length_s:g} s for sessions, too few for seed {seed} "
                f"with sessions every {config.every}: lower `repeats` or `every`"
            )
        top = f"{_top_bps(config.top, rates):.0f} bit/s" if config.top else None
        options = playing.PlaybackOptions(
            config.film, top, config.qoe, relative_sd=config.relative_sd, without_first=False
        )
        predictions = None
        if config.model is not None:
            predictions = _rate_predictions(
                str(find_data(config.data, study_dir)), config.direction, config.model
            )
        offsets = np.array([offset_s])
        played = playing.play(
            trace, config.controller, options, offsets=offsets, seed=seed, predictions=predictions
        )
        bound = playing.optimum(trace, options, offsets=offsets)
        film = options.read_film()
        tracks, stalls = (played.chunks[name].to_list() for name in ("track", "stall_ns"))
        row: dict[str, Any] = {"qoe_bound": float(bound[0])}
        row |= scores_by_qoe(film, tracks, stalls)
        row |= {
            info.column: played.sessions[info.column][0]
            for info in SESSION_METRICS
            if info.column not in row
        }
        return row, []


VIDEO = _VideoKind()


def _top_bps(top: str, rates: FloatArray) -> float:
    """Return the bitrate in bit/s of the film's top track; `rates` are those of the sessions."""
    times = re.fullmatch(r"(?:(\d+(?:\.\d+)?) x )?median", top)
    if times is not None:
        return float(times[1] or 1) * float(np.median(rates))
    mbps = mbps_or_none(top)
    if mbps is None:
        raise InputError(f'video.top: expected a rate, "median" or "2 x median", not "{top}"')
    return 1e6 * mbps


@lru_cache(8)
def _data(file: str, direction: str) -> Data:
    from skyhop import predict

    return predict.read_data([file], predict.Options(direction=direction))  # type: ignore[arg-type]


@lru_cache(8)
def _playback_rates(file: str, direction: str) -> tuple[FloatArray, _core.RateTrace]:
    """Return the rates in bit/s that sessions play over, shape (n,), and as a trace."""
    rates = np.concatenate([series[begin:] for series, begin in _node_rates(file, direction)])
    starts = np.arange(len(rates), dtype=np.float64)
    return rates, _core.RateTrace(file, starts.tolist(), rates.tolist(), float(len(rates)))


def _node_rates(file: str, direction: str) -> list[tuple[FloatArray, int]]:
    """Return, for each node, the rate of each second in bit/s and the first second of sessions.

    Seconds without a measurement are left out, so that their neighbours become adjacent.
    """
    from skyhop.predict.windows import target_column

    frame = _data(file, direction).frame
    column = target_column(frame, "throughput", direction)
    found = []
    for (_node,), rows in frame.group_by("node", maintain_order=True):
        known = rows.drop_nulls(column)
        rates = known[column].to_numpy().astype(np.float64)
        begin = int(len(rates) * _SHARE) + _GAP_S
        if begin < len(rates):
            found.append((rates, begin))
    if not found:
        raise InputError(f"{file}: no node has enough data: more than {2 * _GAP_S} s are needed")
    return found


def _rates_only(file: str, direction: str) -> Data:
    """Return the data with only the rate of each second, which is what a player knows."""
    from skyhop.predict.frame import complete_frame
    from skyhop.predict.windows import target_column

    data = _data(file, direction)
    column = target_column(data.frame, "throughput", direction)
    return replace(data, frame=complete_frame(data.frame.select("node", "time_ns", column)))


@lru_cache(4)
def _rate_predictions(file: str, direction: str, kind: str) -> Predictions:
    """Train a model on the first halves, and return its predictions for the second halves."""
    from skyhop import predict
    from skyhop.predict.training import Plan, trainer
    from skyhop.video.playing import PAYLOAD_SHARE, Predictions

    plan = Plan("throughput", _HORIZONS, ("history",), train_share=_SHARE)
    with Scratch() as place:
        (model,) = trainer()(_rates_only(file, direction), [kind], place, plan)
        # The first predictions use the seconds right before the first session.
        ahead = [
            predict.rates_ahead(model, series)[begin:]
            for series, begin in _node_rates(file, direction)
        ]
    # Only a part of the rate is payload, as in the trace. A second's rate is known at its end.
    rates = np.maximum(np.concatenate(ahead), 0.0) * PAYLOAD_SHARE
    return Predictions(np.arange(1, len(rates) + 1, dtype=np.float64), 1.0, rates)
