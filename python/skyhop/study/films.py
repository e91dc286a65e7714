"""Studies with engine = "video": their runs play a film over what was measured, in virtual time.

Each node's first half trains the model of whoever looks ahead; sessions play over the second
halves, one after another, as the seeds count up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from skyhop import _core
from skyhop.data.files import Scratch
from skyhop.data.quantities import mbps_or_none, seconds
from skyhop.errors import InputError
from skyhop.study.file import Duration
from skyhop.study.metrics import WARNINGS, MetricInfo, MetricSet
from skyhop.study.prediction import find_data, resolved_of

if TYPE_CHECKING:
    from skyhop.data.arrays import FloatArray
    from skyhop.predict import Data
    from skyhop.video.playing import Predictions

LAYOUT = 2
"""Counts up when sessions change, so that finished runs are made again."""
IS_LIVE, NEEDS_CORE = False, True

_SHARE = 0.5
"""Of each node's seconds: before it is learned from, after it is played over."""
_GAP_S = 60
_HORIZONS = (1, 2, 3, 5, 8, 12, 16, 20, 25, 30)
"""Of models that look ahead; the seconds between take the nearest."""


class Video(BaseModel):
    """What a run plays; axes set its keys."""

    model_config = ConfigDict(extra="forbid")

    data: str
    """Seconds of throughput, as `skyhop predict` takes them."""
    direction: Literal["down", "up"] = "down"
    film: str = "six-tracks"
    top: str | None = None
    """The bitrate of the film's top track, or "median": the median of what is played over."""
    qoe: str = "pensieve-linear"
    controller: str = "robust-mpc"
    every: Duration = "3 min"
    """From one session's beginning to the next one's, as seeds count up."""
    model: str | None = None
    """Which kind of model tells the controller of the rate ahead; the truth does without."""
    relative_sd: float | None = Field(None, ge=0, le=10)
    """How wrong the truth is that it is told instead, each second."""


def _qoe_metrics() -> tuple[MetricInfo, ...]:
    names = [entry.name for entry in _core.list_qoes()]
    return tuple(MetricInfo(_of_qoe(name), _of_qoe(name), f"QoE ({name})", "") for name in names)


def _of_qoe(name: str) -> str:
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
"""Of every session, however it was played."""
METRICS: tuple[MetricInfo, ...] = (
    *SESSION_METRICS,
    MetricInfo("qoe_bound", "qoe_bound", "the most that can be reached", ""),
)


def by_every_qoe(
    film: _core.Film, tracks: list[int], stalls_ns: list[int]
) -> dict[str, float | None]:
    """Return what chunks in these tracks, each after such a stall, are worth by every QoE."""
    found: dict[str, float | None] = {}
    for entry in _core.list_qoes():
        try:
            found[_of_qoe(entry.name)] = _core.score_chunks(film, entry.name, tracks, stalls_ns)
        except InputError:
            # It is a table of another film's tracks.
            found[_of_qoe(entry.name)] = None
    return found


def resolve(base: Mapping[str, Any], sets: Sequence[str], origin: str) -> Video:
    """Return what a run does: the study's [video] with what axes set.

    Raises:
        InputError: a key is wrong.
    """
    return resolved_of(Video, base, sets, f"{origin}: video")


def data_of(asked: Video) -> Sequence[str]:
    """Return which data a run needs: rates, and a film that is not one of skyhop's."""
    return [asked.data, *own_films(asked.film)]


def own_films(film: str) -> list[str]:
    """Return a film's name where it is a file or a directory of the user's."""
    return [] if film in [entry.name for entry in _core.list_films()] else [film]


def rows_of(metrics: MetricSet, asked: Video, seed: int, beside: Path) -> list[dict[str, Any]]:
    """Play the session of a seed, and return the run's row.

    Raises:
        InputError: data or a library are missing, or the data are too short for so many sessions.
        RunError: training failed.
    """
    from skyhop.video import playing

    rates, trace = _played_over(str(find_data(asked.data, beside)), asked.direction)
    length_s = seconds(asked.every)
    offset_s = (seed - 1) * length_s
    if offset_s + length_s > trace.length_s:
        raise InputError(
            f"{asked.data}: has {trace.length_s:g} s to play over, "
            f"too few for {seed} x {asked.every}"
        )
    top = f"{_top_bps(asked.top, rates):.0f} bit/s" if asked.top else None
    manner = playing.Manner(
        asked.film, top, asked.qoe, relative_sd=asked.relative_sd, without_first=False
    )
    told = None
    if asked.model is not None:
        told = _told(str(find_data(asked.data, beside)), asked.direction, asked.model)
    offsets = np.array([offset_s])
    played = playing.play(
        trace, asked.controller, manner, offsets=offsets, seed=seed, predictions=told
    )
    bound = playing.optimum(trace, manner, offsets=offsets)
    film = manner.read_film()
    tracks, stalls = (played.chunks[name].to_list() for name in ("track", "stall_ns"))
    row: dict[str, Any] = {"flow": None, "qoe_bound": float(bound[0])}
    row |= by_every_qoe(film, tracks, stalls)
    row |= {
        info.column: played.sessions[info.column][0]
        for info in SESSION_METRICS
        if info.column not in row
    }
    return [{**metrics.with_expressions(row), WARNINGS: []}]


def _top_bps(top: str, rates: FloatArray) -> float:
    """Return what the film's top track has: a rate, or the median of what is played over."""
    if top == "median":
        return float(np.median(rates))
    mbps = mbps_or_none(top)
    if mbps is None:
        raise InputError(f'video.top: expected a rate, or "median", not "{top}"')
    return 1e6 * mbps


@lru_cache(8)
def _data(file: str, direction: str) -> Data:
    from skyhop import predict

    return predict.read_data([file], predict.Options(direction=direction))  # type: ignore[arg-type]


@lru_cache(8)
def _played_over(file: str, direction: str) -> tuple[FloatArray, _core.RateTrace]:
    """Return the rates (bit/s) of the seconds to play over, shape (n,), and the trace of them."""
    rates = np.concatenate([series[begin:] for series, begin in _series(file, direction)])
    starts = np.arange(len(rates), dtype=np.float64)
    return rates, _core.RateTrace(file, starts.tolist(), rates.tolist(), float(len(rates)))


def _series(file: str, direction: str) -> list[tuple[FloatArray, int]]:
    """Return of each node what each second carried, and from which on it is played over.

    Seconds that are not known are left out: those beside them follow each other.
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
        raise InputError(f"{file}: no node has so much that half of it is more than {_GAP_S} s")
    return found


def _rate_alone(file: str, direction: str) -> Data:
    """Return seconds of which nothing is known but what they carried, as of a player's."""
    from skyhop.predict.frame import whole
    from skyhop.predict.windows import target_column

    data = _data(file, direction)
    column = target_column(data.frame, "throughput", direction)
    return replace(data, frame=whole(data.frame.select("node", "time_ns", column)))


@lru_cache(4)
def _told(file: str, direction: str, kind: str) -> Predictions:
    """Return what a model, trained on the first halves, predicts along what is played over."""
    from skyhop import predict
    from skyhop.video.playing import PAYLOAD_SHARE, Predictions

    plan = predict.Plan("throughput", _HORIZONS, ("history",), train_share=_SHARE)
    with Scratch() as place:
        (model,) = predict.train(_rate_alone(file, direction), [kind], place, plan)
        # What came right before is known, too.
        ahead = [
            predict.rates_ahead(model, series)[begin:] for series, begin in _series(file, direction)
        ]
    # Headers take their part, as of the trace; a second's own is known at its end.
    rates = np.maximum(np.concatenate(ahead), 0.0) * PAYLOAD_SHARE
    return Predictions(np.arange(1, len(rates) + 1, dtype=np.float64), 1.0, rates)


def resolved_dict(asked: Video) -> dict[str, Any]:
    """Return what a run does, as it is written down."""
    content: dict[str, Any] = json.loads(asked.model_dump_json())
    return content
