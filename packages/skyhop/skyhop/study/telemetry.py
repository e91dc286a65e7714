"""Engine "telemetry" of studies: each run describes measured data, without a simulation.

Data are latencies and rates of seconds, or traceroutes. A run describes all of them, the part of
them that its seed names (`blocks`), or the rate in one window (`at`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from skyhop.data.quantities import mbps_or_none, seconds
from skyhop.errors import InputError
from skyhop.study.keys import Duration, Length, StrictModel
from skyhop.study.metrics import MetricInfo
from skyhop.study.table_runs import TableKind, find_data, json_values, validated_table

if TYPE_CHECKING:
    import polars as pl

    from skyhop.data.arrays import FloatArray

SECOND_NS = 10**9
_SEGMENTS = ("S1", "S2", "S3", "S4", "S5", "S6")

METRICS: tuple[MetricInfo, ...] = (
    MetricInfo("seconds", "seconds", "seconds with a latency", ""),
    MetricInfo("latency_median", "latency_median", "median latency", "ms"),
    MetricInfo("latency_p99", "latency_p99", "99th percentile of the latency", "ms"),
    MetricInfo("latency_max", "latency_max", "longest latency", "ms"),
    MetricInfo("spikes", "spikes", "spikes", ""),
    MetricInfo("spikes_on_steps", "spikes_on_steps", "spikes of a multiple of 15 s", ""),
    MetricInfo("spike_starts", "spike_starts", "spikes that start on the grid", "%"),
    MetricInfo("spike_ends", "spike_ends", "spikes that end on the grid", "%"),
    MetricInfo("loss", "loss", "loss", "%"),
    MetricInfo("loss_at_edges", "loss_at_edges", "loss where spikes start or end", "%"),
    MetricInfo("rate", "rate", "rate in the window", "Mbit/s"),
    *(MetricInfo(f"{s.lower()}_share", f"{s.lower()}_share", f"share of {s}", "%")
      for s in _SEGMENTS),
    MetricInfo("s2_low", "s2_low", "share of S2, lower end of its 95 % interval", "%"),
)  # fmt: skip
"""Metrics of the rows; each row has those of its `describes`."""


class Telemetry(StrictModel):
    """Table [telemetry] of a study file; axes set its keys."""

    data: str
    """Latencies and rates in a format that `skyhop predict` reads, or traceroutes."""
    describes: Literal["latency", "spikes", "rate", "route"] = "latency"
    """Result: quantiles of the latency, its spikes, the rate in a window, or shares of segments."""
    direction: Literal["down", "up"] = "down"
    idle_below: str | None = None
    """Rate such as "1 Mbit/s": only seconds that use less in both directions count."""
    blocks: int | None = Field(None, ge=2, le=1000)
    """Number of equal blocks of time; the run of a seed describes the block of its number."""
    at: Duration | None = None
    """Start of the window, from the first second of the data."""
    window: Length = "10 s"
    """Length of the window."""


class _TelemetryKind(TableKind[Telemetry]):
    """Kind of runs that describe measured data."""

    engine = "telemetry"
    table = "telemetry"
    model = Telemetry
    metrics = METRICS
    layout = 1
    needs_core = False

    def resolve(self, base: Mapping[str, Any], sets: Sequence[str], origin: str) -> Telemetry:
        found = validated_table(Telemetry, base, sets, f"{origin}: telemetry")
        if (found.at is None) == (found.describes == "rate"):
            raise InputError(f'{origin}: telemetry.at goes with describes = "rate", and needs it')
        if found.idle_below is not None and mbps_or_none(found.idle_below) is None:
            raise InputError(f'{origin}: telemetry.idle_below: expected a rate, "1 Mbit/s"')
        return found

    def config_dict(self, config: Telemetry) -> dict[str, Any]:
        return json_values(config)

    def input_files(self, config: Telemetry) -> Sequence[str]:
        return [config.data]

    def row(
        self, config: Telemetry, seed: int, study_dir: Path
    ) -> tuple[dict[str, Any], list[str]]:
        file = str(find_data(config.data, study_dir))
        if config.describes == "route":
            return _shares(file), []
        frame = _frame(file, config.direction)
        if config.describes == "rate":
            return _rate(frame, config), []
        if config.blocks is not None:
            if seed > config.blocks:
                raise InputError(
                    f"telemetry.blocks: {config.blocks} blocks have no block {seed}: lower "
                    "`repeats`"
                )
            first, last = (frame.height * edge // config.blocks for edge in (seed - 1, seed))
            frame = frame.slice(first, last - first)
        return (_latency if config.describes == "latency" else _spikes)(frame, config), []


TELEMETRY = _TelemetryKind()


@lru_cache(4)
def _frame(file: str, direction: str) -> pl.DataFrame:
    from skyhop import predict

    options = predict.Options(direction=direction)  # type: ignore[arg-type]
    return predict.read_data([file], options).frame


def _column(frame: pl.DataFrame, name: str) -> FloatArray:
    values: FloatArray = frame[name].cast(float).fill_null(np.nan).to_numpy()
    return values


def _latency(frame: pl.DataFrame, config: Telemetry) -> dict[str, Any]:
    latency_ms = _column(frame, "latency_ms")
    counted = np.isfinite(latency_ms)
    if config.idle_below is not None:
        most_bps = 1e6 * (mbps_or_none(config.idle_below) or 0.0)
        counted &= (_column(frame, "rx_bps") < most_bps) & (_column(frame, "tx_bps") < most_bps)
    latency_ms = latency_ms[counted]
    if not len(latency_ms):
        raise InputError(f"{config.data}: has no latency in the seconds that count")
    median, p99 = np.percentile(latency_ms, (50, 99))
    return {
        "seconds": len(latency_ms),
        "latency_median": float(median),
        "latency_p99": float(p99),
        "latency_max": float(latency_ms.max()),
    }


def _spikes(frame: pl.DataFrame, config: Telemetry) -> dict[str, Any]:
    from skyhop.analysis.spikes import NEAR_GRID_S, PERIOD_S, Series, find_spikes

    loss = _column(frame, "drop")
    series = Series(
        frame["time_ns"].to_numpy(), _column(frame, "latency_ms"), loss, 1.0, config.data
    )
    spikes = find_spikes(series).spikes
    steps = [spike.length_s / PERIOD_S for spike in spikes]
    near = 2 * NEAR_GRID_S / PERIOD_S
    at_edges = [spike.loss_at_edges for spike in spikes if spike.loss_at_edges is not None]

    def share(flags: Sequence[bool]) -> float | None:
        return 100 * sum(flags) / len(flags) if flags else None

    return {
        "seconds": int(np.isfinite(series.latency_ms).sum()),
        "spikes": len(spikes),
        "spikes_on_steps": sum(s > 0.5 and abs(s - round(s)) <= near for s in steps),  # noqa: PLR2004
        "spike_starts": share([spike.starts_on_grid for spike in spikes]),
        "spike_ends": share([spike.ends_on_grid for spike in spikes]),
        "loss": 100 * float(np.nanmean(loss)) if np.isfinite(loss).any() else None,
        "loss_at_edges": 100 * float(np.mean(at_edges)) if at_edges else None,
    }


def _rate(frame: pl.DataFrame, config: Telemetry) -> dict[str, Any]:
    from skyhop.predict.windows import target_column

    rate_bps = _column(frame, target_column(frame, "throughput", config.direction))
    first_ns = int(frame["time_ns"][0]) - SECOND_NS
    begin_s = (frame["time_ns"].to_numpy() - first_ns) / SECOND_NS - 1
    at_s = seconds(config.at or "0 s")
    within = (begin_s >= at_s) & (begin_s < at_s + seconds(config.window))
    if not np.isfinite(rate_bps[within]).any():
        raise InputError(f"{config.data}: has no rate in the {config.window} after {config.at}")
    return {"rate": float(np.nanmean(rate_bps[within])) / 1e6}


def _shares(file: str) -> dict[str, Any]:
    from skyhop.analysis.dissection import dissect
    from skyhop.telemetry.traces import read_traces

    pieces = dissect(read_traces(Path(file))).pieces
    row: dict[str, Any] = {f"{piece.name.lower()}_share": 100 * piece.share for piece in pieces}
    return row | {"s2_low": next((100 * p.share_low for p in pieces if p.name == "S2"), None)}
