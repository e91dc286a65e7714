"""Checks of a study file's panels and published values, before any run starts."""

from __future__ import annotations

from skyhop.errors import InputError
from skyhop.study.axes import check_choice
from skyhop.study.file import StudyFile
from skyhop.study.metric_kinds import BinsMetric
from skyhop.study.metrics import MetricSet
from skyhop.study.panel_kinds import (
    BarsPanel,
    BoxPanel,
    CdfPanel,
    ComparisonPanel,
    HeatmapPanel,
    LinesPanel,
    Panel,
    ScatterPanel,
    SeriesPanel,
    TablePanel,
    TransferPanel,
)


def check_published(study: StudyFile, metrics: MetricSet, origin: str) -> None:
    """Check that published values name existing metrics, axes and values of the study.

    Raises:
        InputError: a name or value does not exist, or a row has the wrong number of values.
    """
    for place, published in enumerate(study.published):
        where = f"{origin}: published.{place}"
        metrics.find(published.metric, f"{where}.metric")
        for row, values in enumerate(published.values):
            at = f"{where}.values.{row}"
            if len(values) != len(published.by) + 1:
                expected = ", ".join([*published.by, published.metric])
                raise InputError(f"{at}: expected {len(published.by) + 1} values: {expected}")
            check_choice(study, dict(zip(published.by, values, strict=False)), at)
            if isinstance(values[-1], str | bool):
                raise InputError(f"{at}: expected a number at the end, not {values[-1]!r}")


def check_panels(study: StudyFile, metrics: MetricSet, origin: str) -> None:
    """Check that panels name existing metrics and axes, and that the study keeps their data.

    Raises:
        InputError: a name does not exist, or a panel needs bins or samples that are not kept.
    """
    for place, panel in enumerate(study.panel):
        where = f"{origin}: panel.{place}"
        check_choice(study, panel.where, f"{where}.where")
        for key, name in _metric_names(panel):
            metrics.find(name, f"{where}.{key}")
        for key, name in _column_names(panel):
            _check_column(study, name, f"{where}.{key}")
        if isinstance(panel, ComparisonPanel):
            check_choice(study, {panel.by: panel.against}, f"{where}.against")
        if isinstance(panel, TablePanel | BarsPanel | LinesPanel) and panel.spread == "pooled":
            _check_pooled(panel, metrics, where)
        if isinstance(panel, BoxPanel | CdfPanel) and panel.bins_of is not None:
            _check_bins(panel.bins_of, metrics, f"{where}.bins_of")
        if _needs_series(panel) and study.keep == "rows":
            raise InputError(f'{where}: needs samples of runs; expected keep = "series"')


def _check_pooled(panel: Panel, metrics: MetricSet, origin: str) -> None:
    for key, name in _metric_names(panel):
        if not metrics.infos[name].pooling_columns:
            raise InputError(
                f'{origin}.{key}: `{name}` keeps no bins: spread = "pooled" needs a metric '
                "with `pool = true`"
            )


def _check_bins(name: str, metrics: MetricSet, origin: str) -> None:
    own = metrics.infos[name].definition
    if not isinstance(own, BinsMetric):
        raise InputError(
            f'{origin}: `{name}` has no bins; expected a metric of kind "samples", "transient", '
            '"flows" or "gap"'
        )


def _metric_names(panel: Panel) -> list[tuple[str, str]]:
    match panel:
        case TablePanel():
            return [("metrics", name) for name in panel.metrics]
        case ScatterPanel():
            return [("x", panel.x), ("y", panel.y)]
        case ComparisonPanel() | BarsPanel() | LinesPanel() | HeatmapPanel():
            return [("metric", panel.metric)]
        case BoxPanel() | CdfPanel():
            named = (("metric", panel.metric), ("bins_of", panel.bins_of))
            return [(key, name) for key, name in named if name is not None]
        case SeriesPanel() | TransferPanel():
            return []


def _column_names(panel: Panel) -> list[tuple[str, str]]:
    match panel:
        case TablePanel():
            return [("by", name) for name in panel.by]
        case ComparisonPanel():
            return [("by", panel.by), *(("each", name) for name in panel.each)]
        case HeatmapPanel():
            return [("x", panel.x), ("y", panel.y)]
        case BarsPanel() | BoxPanel() | LinesPanel():
            return [("x", panel.x), *([("hue", panel.hue)] if panel.hue else [])]
        case ScatterPanel() | TransferPanel():
            return [("hue", panel.hue)] if panel.hue else []
        case CdfPanel() | SeriesPanel():
            return [("hue", panel.hue)]


def _check_column(study: StudyFile, name: str, origin: str) -> None:
    known = [*(axis.name for axis in study.axis), "seed", "flow", "flow_cc"]
    if name not in known:
        raise InputError(f"{origin}: no axis `{name}`; expected one of {', '.join(known)}")


def _needs_series(panel: Panel) -> bool:
    return isinstance(panel, SeriesPanel | TransferPanel) or (
        isinstance(panel, BoxPanel | CdfPanel) and panel.metric is None
    )
