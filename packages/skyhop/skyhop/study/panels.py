"""Checks of a study file's panels and published values, before any run starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skyhop.data.near_names import did_you_mean
from skyhop.errors import InputError
from skyhop.study.axes import axis_labels, check_choice
from skyhop.study.file import StudyFile
from skyhop.study.key_errors import entry
from skyhop.study.maps import place_of
from skyhop.study.metric_kinds import BinsMetric
from skyhop.study.metrics import MetricSet
from skyhop.study.panel_kinds import (
    BarsPanel,
    BoxPanel,
    CdfPanel,
    ComparisonPanel,
    LinesPanel,
    MapPanel,
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
        where = f"{origin}: {entry('published', place)}"
        metrics.find(published.metric, f"{where}.metric")
        for row, values in enumerate(published.values):
            at = f"{where}.{entry('values', row)}"
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
        where = f"{origin}: {entry('panel', place)}"
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
        if isinstance(panel, MapPanel):
            _check_places(study, panel, where)
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


def _check_places(study: StudyFile, panel: MapPanel, origin: str) -> None:
    """Check that the groups and marks of a map lie on its axes."""
    names = {axis.name: [str(label) for label in axis_labels(axis)] for axis in study.axis}
    for axis in (panel.x, panel.y):
        if axis not in names:
            raise InputError(f"{origin}: expected an axis of the study, not `{axis}`")
    check_choice(study, {panel.y: panel.groups} if panel.groups else {}, f"{origin}.groups")
    for place, mark in enumerate(panel.marks):
        for key, value, axis in (("x", mark.x, panel.x), ("y", mark.y, panel.y)):
            if value is not None:
                where = f"{origin}.{entry('marks', place)}.{key}"
                try:
                    place_of(value, names[axis])
                except InputError as error:
                    raise InputError(f"{where}: {error}") from None


_METRIC_KEYS = ("metrics", "metric", "bins_of")
_AXIS_KEYS = ("by", "each", "x", "y", "hue")


def _metric_names(panel: Panel) -> Iterator[tuple[str, str]]:
    return _named(panel, ("x", "y") if isinstance(panel, ScatterPanel) else _METRIC_KEYS)


def _column_names(panel: Panel) -> Iterator[tuple[str, str]]:
    return _named(panel, ("hue",) if isinstance(panel, ScatterPanel) else _AXIS_KEYS)


def _named(panel: Panel, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that a panel gives in these keys, each with its key."""
    for key in keys:
        names: str | list[str] | None = getattr(panel, key, None)
        for name in [names] if isinstance(names, str) else names or ():
            yield key, name


def _check_column(study: StudyFile, name: str, origin: str) -> None:
    known = [*(axis.name for axis in study.axis), "seed", "flow", "flow_cc"]
    if name not in known:
        hint = did_you_mean(name, known)
        raise InputError(f"{origin}: no axis `{name}`{hint}; expected one of {', '.join(known)}")


def _needs_series(panel: Panel) -> bool:
    return isinstance(panel, SeriesPanel | TransferPanel) or (
        isinstance(panel, BoxPanel | CdfPanel) and panel.metric is None
    )
