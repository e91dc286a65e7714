"""Metrics of runs: the columns of the dataset, and the metrics that are computed from them.

A row is about one TCP flow or call of one run. A run without flows and calls has one row about its
link and probes. Columns have the names and units of summary.json; metrics have readable units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from skyhop._core import HANDOVER_KINDS, LOSS_REASONS
from skyhop.analysis.statistics import delay_inflation, jain, power
from skyhop.analysis.summary import LATENCY_QUANTILES, bulk_flows, summary_row_values
from skyhop.data.near_names import did_you_mean
from skyhop.data.records import RunRecord
from skyhop.data.run_headers import FLOW_SUMMARY_KEYS
from skyhop.data.runs import Run
from skyhop.errors import InputError
from skyhop.expressions.evaluate import FUNCTIONS
from skyhop.study.blind import grid_error_ms
from skyhop.study.expression import Expression, UnknownValueError, parse_expression
from skyhop.study.file import RESERVED
from skyhop.study.key_errors import entry
from skyhop.study.metric_digest import metrics_digest
from skyhop.study.metric_kinds import (
    ExpressionMetric,
    FlowMetric,
    GridErrorMetric,
    Metric,
    RelativeMetric,
    RunMetric,
    StatisticMetric,
)
from skyhop.study.sampling import measure

_LAYOUT_VERSION = 7
"""Version of the rows' layout; after an increase, metrics of finished runs are computed again."""


WARNINGS = "warnings"
"""Key of a row's list of the warnings of its run; it is not a column of the dataset."""
QUEUES = "queues"
"""Key of the sizes of a run's queues, in its first row; it is not a column of the dataset."""


@dataclass(frozen=True)
class MetricInfo:
    """Metric: a column of the dataset, converted to a readable unit."""

    name: str
    column: str
    title: str
    unit: str
    factor: float = 1.0
    """Factor that converts the column's value to the metric's unit."""
    definition: Metric | None = None
    """Definition in the study file; None for built-in metrics."""
    origin: float = 0.0
    """Least possible value, where axes begin: 0, or 1 for srtt / base RTT and opinion scores."""

    @property
    def pooling_columns(self) -> tuple[str, ...]:
        """Columns with the bins' count, mean and squared deviations; empty without `pool`."""
        if not (isinstance(self.definition, StatisticMetric) and self.definition.pool):
            return ()
        return tuple(f"{self.column}_bins_{what}" for what in ("count", "mean", "squares"))


BUILT_IN: tuple[MetricInfo, ...] = (
    MetricInfo("goodput", "goodput_bps", "goodput", "Mbit/s", 1e-6),
    MetricInfo("srtt", "srtt_mean_us", "mean srtt", "ms", 1e-3),
    MetricInfo("rtt_p95", "rtt_p95_us", "RTT p95", "ms", 1e-3),
    MetricInfo("base_rtt", "base_rtt_mean_us", "mean base RTT", "ms", 1e-3),
    MetricInfo("cwnd", "cwnd_mean_packets", "mean cwnd", "packets"),
    MetricInfo("retransmits", "retransmits", "retransmits", "packets"),
    MetricInfo("retransmit_ratio", "retransmit_ratio", "retransmit ratio", "%", 100),
    MetricInfo("marks", "marks", "marked packets", "packets"),
    MetricInfo("sent", "sent_packets", "sent", "packets"),
    MetricInfo("completion", "completion_s", "completion time", "s"),
    *(
        MetricInfo(f"latency_{q}", f"latency_{q}_us", f"latency {q}", "ms", 1e-3)
        for q in LATENCY_QUANTILES
    ),
    MetricInfo("mos", "mos_mean", "mean MOS", "", origin=1.0),
    MetricInfo("mos_least", "mos_least", "least MOS", "", origin=1.0),
    MetricInfo("jitter", "jitter_mean_us", "mean jitter", "ms", 1e-3),
    *(
        MetricInfo(f"{medium}_{fate}", f"{medium}_{fate}", f"{fate} {medium} frames", "%", 100)
        for medium in ("audio", "video")
        for fate in ("late", "lost")
    ),
    MetricInfo("film_bitrate", "mean_bitrate_bps", "mean bitrate", "Mbit/s", 1e-6),
    MetricInfo("film_stalled", "stall_ns", "stalled", "s", 1e-9),
    MetricInfo("film_stalls", "stalls", "stalls", ""),
    MetricInfo("film_switches", "switches", "switches", ""),
    MetricInfo("film_startup", "startup_ns", "start-up", "s", 1e-9),
    MetricInfo("film_qoe", "qoe", "QoE", ""),
    MetricInfo("completed", "completed", "completed", ""),
    MetricInfo("failed", "failed", "failed", ""),
    MetricInfo("utilisation", "utilisation", "utilisation", "%", 100),
    MetricInfo("backlog", "backlog_mean_bytes", "mean backlog", "kB", 1e-3),
    *(
        MetricInfo(f"drops_{reason}", f"drops_{reason}", f"drops ({reason})", "packets")
        for reason in LOSS_REASONS
    ),
    MetricInfo("link_marks", "link_marks", "marks", "packets"),
    *(
        MetricInfo(f"handovers_{kind}", f"handovers_{kind}", f"handovers ({kind})", "")
        for kind in HANDOVER_KINDS
    ),
    MetricInfo("power", "power_bit", "power (goodput / srtt)", "Mbit", 1e-6),
    MetricInfo("delay_inflation", "delay_inflation", "srtt / base RTT", "", origin=1.0),
    MetricInfo("jain", "jain", "Jain's index", ""),
    MetricInfo("probe_rtt_p50", "probe_rtt_p50_us", "probe RTT p50", "ms", 1e-3),
    MetricInfo("probe_rtt_p95", "probe_rtt_p95_us", "probe RTT p95", "ms", 1e-3),
    MetricInfo("probe_loss", "probe_loss", "probe loss", "%", 100),
    MetricInfo("report_timing_error", "report_timing_error_s", "report timing error", "s"),
    MetricInfo("position_error", "position_error_m", "position error", "km", 1e-3),
)

_SUFFIXES: Mapping[str, str] = {"Mbit/s": "mbps", "%": "pct", "": ""}


@dataclass(frozen=True)
class MetricSet:
    """Metrics of a study: the built-in ones, and those that the study file defines."""

    infos: Mapping[str, MetricInfo]
    definitions: tuple[Metric, ...]

    @property
    def columns(self) -> frozenset[str]:
        """Names of the dataset's columns; axes cannot have these names."""
        return (
            RESERVED
            | {info.column for info in self.infos.values()}
            | {column for info in self.infos.values() for column in info.pooling_columns}
            | set(FLOW_SUMMARY_KEYS) - {"cc"}
        )

    @staticmethod
    def build(
        own: Sequence[Metric], origin: str, built_in: Sequence[MetricInfo] = BUILT_IN
    ) -> MetricSet:
        """Return a set of the built-in metrics and the study's own, after checking the latter.

        Raises:
            InputError: a metric's name is already in use, or its expression is wrong.
        """
        infos = {info.name: info for info in built_in}
        for place, metric in enumerate(own):
            where = f"{origin}: {entry('metric', place)}"
            if metric.name in infos or metric.name in FUNCTIONS or metric.name in RESERVED:
                raise InputError(f"{where}.name: `{metric.name}` is taken: choose another name")
            match metric:
                case ExpressionMetric():
                    names = _row_expression(metric, where).names()
                    _check_names(names, infos, f"{where}.value")
                case RelativeMetric():
                    _check_names({metric.of}, infos, f"{where}.of")
            infos[metric.name] = _info(metric)
        return MetricSet(infos, tuple(own))

    def find(self, name: str, origin: str) -> MetricInfo:
        """Return the metric with this name; `origin` is the key that names it, for errors.

        Raises:
            InputError: there is no such metric; the message lists all metrics.
        """
        if name not in self.infos:
            raise InputError(_no_metric(name, self.infos, origin))
        return self.infos[name]

    @cached_property
    def digest(self) -> str:
        """Hash of the metrics and their layout; if it changes, metrics are computed again."""
        return metrics_digest(_LAYOUT_VERSION, self._run_metrics)

    @property
    def needs_series(self) -> bool:
        """Whether a metric needs the samples of runs, in addition to their summaries."""
        return any(metric.needs_series for metric in self.definitions)

    @property
    def _run_metrics(self) -> list[RunMetric]:
        """Metrics of the study file that can be computed from a single run."""
        return [m for m in self.definitions if not isinstance(m, RelativeMetric)]

    def rows(self, directory: Path, *, force_size: bool = False) -> list[dict[str, Any]]:
        """Measure the run in a directory, and return its rows by column.

        Args:
            directory: the run directory.
            force_size: read the run's tables even if they take much memory.

        Raises:
            InputError: a file of the run is missing or damaged.
        """
        run = Run(directory, force_size=force_size)
        if not self.needs_series:
            return self.rows_of(run.summary)
        from skyhop.data.reading import run_record

        return self.rows_of(run.summary, run_record(run))

    def rows_of(
        self, summary: Mapping[str, Any], record: RunRecord | None = None
    ) -> list[dict[str, Any]]:
        """Return a run's rows, from its summary and, if metrics need them, its samples."""
        rows = [_base_row(row, summary) for row in summary_row_values(summary)]
        rows[0][QUEUES] = _queues(summary)
        for row in rows:
            for metric in self._run_metrics:
                info = self.infos[metric.name]
                match metric:
                    case ExpressionMetric():
                        row[info.column] = self._expression_value(metric, row)
                    case GridErrorMetric():
                        row[info.column] = grid_error_ms(metric, summary)
                    case _ if record is not None:
                        found = measure(metric, record, row["flow"])
                        row |= {info.column: found.value}
                        row |= dict(zip(info.pooling_columns, found.moments, strict=False))
        return rows

    def with_expressions(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with the values of the study's expressions added."""
        whole = dict(row)
        for metric in self._run_metrics:
            if isinstance(metric, ExpressionMetric):
                whole[self.infos[metric.name].column] = self._expression_value(metric, whole)
        return whole

    def _expression_value(self, metric: ExpressionMetric, row: Mapping[str, Any]) -> float | None:
        values = {}
        for info in self.infos.values():
            value = row.get(info.column)
            values[info.name] = None if value is None else value * info.factor
        try:
            return _row_expression(metric, f"metric {metric.name}").number(values)
        except UnknownValueError:
            return None


def _row_expression(metric: ExpressionMetric, origin: str) -> Expression:
    expression = parse_expression(metric.value, f"{origin}.value")
    if expression.is_comparison() or list(expression.calls()):
        raise InputError(f"{origin}.value: expected a number from metrics' names, without calls")
    return expression


def _check_names(names: set[str], infos: Mapping[str, MetricInfo], origin: str) -> None:
    """Check that these metrics exist and can be computed from a single run."""
    for name in sorted(names):
        of_one_run = {
            n: i for n, i in infos.items() if not isinstance(i.definition, RelativeMetric)
        }
        if name not in of_one_run:
            raise InputError(_no_metric(name, of_one_run, origin))


def _no_metric(name: str, known: Iterable[str], origin: str) -> str:
    hint = did_you_mean(name, known)
    return f"{origin}: no metric `{name}`{hint}; expected one of {', '.join(known)}"


def _info(metric: Metric) -> MetricInfo:
    suffix = _SUFFIXES.get(metric.unit, metric.unit)
    column = f"{metric.name}_{suffix}" if suffix else metric.name
    title = metric.title or metric.name.replace("_", " ")
    return MetricInfo(
        metric.name, column, title, metric.unit, definition=metric, origin=_origin(metric)
    )


def _origin(metric: Metric) -> float:
    """Return the origin that the study file gives; by default, that of the metric's series."""
    if metric.origin is not None:
        return metric.origin
    if isinstance(metric, FlowMetric) and metric.series == "srtt_over_base":
        return 0.0 if metric.stat == "sd" else 1.0
    return 0.0


def _queues(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sizes of the queues of each link; the link of the path is named "path"."""
    links = {"path": summary.get("link") or {}, **(summary.get("links") or {})}
    return {
        name: {key: link[key] for key in ("queue", "queue_back") if link.get(key)}
        for name, link in links.items()
    }


def _base_row(row: dict[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    srtt_us, base_us = row["srtt_mean_us"], row["base_rtt_mean_us"]
    shares = np.array([flow["goodput_bps"] for flow in bulk_flows(summary)], dtype=np.float64)
    # The names "cc" and "app" are reserved for axes over congestion controls and applications.
    kept = {key: value for key, value in row.items() if key not in ("engine", "seed", "cc", "app")}
    return {
        "flow_cc": row["cc"],
        **kept,
        "power_bit": power(row["goodput_bps"], srtt_us / 1e6 if srtt_us else None),
        "delay_inflation": delay_inflation(srtt_us, base_us),
        "jain": jain(shares) if len(shares) > 1 else None,
        WARNINGS: list(summary.get("warnings") or []),
    }
