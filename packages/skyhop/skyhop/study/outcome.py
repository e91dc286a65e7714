"""Numbers for the summary sentences of a study's page: best and worst level, claims, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from skyhop.analysis.statistics import stratified_interval
from skyhop.analysis.study_sentences import RankedValues, StudyOutcome
from skyhop.data.arrays import FloatArray
from skyhop.study.claims import ClaimResult
from skyhop.study.expression import parse_expression
from skyhop.study.metrics import MetricInfo
from skyhop.study.panel_kinds import ScatterPanel, SeriesPanel
from skyhop.study.plan import Study
from skyhop.study.results import Results
from skyhop.study.running import StudyRun


def study_outcome(done: StudyRun, verdicts: Sequence[ClaimResult]) -> StudyOutcome:
    """Return the numbers from which a study's summary sentences are written."""
    frame = done.results.frame
    finished = 0
    if frame.height:
        points = frame.columns[: frame.columns.index("run") + 1]
        finished = frame.select(points).n_unique()
    counts = [result.verdict for result in verdicts]
    return StudyOutcome(
        ranked=_ranked(done.study, done.results) if frame.height else None,
        holding=counts.count("holds"),
        failing=counts.count("does not hold"),
        undecided=counts.count("cannot be told"),
        within_chance=sum(result.within_chance for result in verdicts),
        finished=finished,
        planned=max(done.study.run_count, finished + len(done.failures)),
        failed=len(done.failures),
        warnings=len(done.warnings),
    )


def _ranked(study: Study, results: Results) -> RankedValues | None:
    """Return the highest and lowest level for the page's first metric and axis with data."""
    for name, axes, where in _shown(study):
        info = study.metrics.infos.get(name)
        if info is None or not _is_known(info, results):
            continue
        for axis in [*axes, *(axis.name for axis in study.file.axis)]:
            if axis in results.frame.columns and axis not in where:
                found = _extremes(study, results, info, axis, where)
                if found is not None and found.count > 1:
                    return found
    return None


def _shown(study: Study) -> Iterator[tuple[str, list[str], Mapping[str, object]]]:
    """Yield the metrics in the page's order, with the axes and selection of the panel."""
    for panel in study.file.panel:
        given = [getattr(panel, key, None) for key in ("hue", "by", "x")]
        axes = [name for item in given for name in (item if isinstance(item, list) else [item])]
        names = getattr(panel, "metrics", None) or [getattr(panel, "metric", None)]
        if isinstance(panel, ScatterPanel):
            axes, names = [panel.hue], [panel.y]
        elif isinstance(panel, SeriesPanel):
            names = []
        for name in names:
            if name is not None:
                yield name, [axis for axis in axes if axis is not None], panel.where
    for claim in study.file.claim:
        if claim.check is not None:
            for name, _ in parse_expression(claim.check, "claim").calls():
                yield name, [], {}
    yield "goodput", [], {}


def _is_known(info: MetricInfo, results: Results) -> bool:
    columns = results.frame.columns
    return info.column in columns and results.frame.get_column(info.column).is_not_null().any()


def _extremes(
    study: Study, results: Results, info: MetricInfo, axis: str, where: Mapping[str, object]
) -> RankedValues | None:
    """Compare the levels of an axis at those values of other axes for which all have runs."""
    others = [
        other.name
        for other in study.file.axis
        if other.name != axis
        and other.name in results.frame.columns
        and results.frame.get_column(other.name).n_unique() > 1
    ]
    by_level = {
        str(level): _by_stratum(results, info, others, {**where, axis: level})
        for level in results.levels(axis, where)
    }
    by_level = {level: strata for level, strata in by_level.items() if strata}
    if not by_level:
        return None
    shared = set.intersection(*(set(strata) for strata in by_level.values()))
    if not shared:
        return None
    means = {
        level: float(np.mean([np.mean(list(strata[key].values())) for key in shared]))
        for level, strata in by_level.items()
    }
    highest, lowest = max(means, key=lambda x: means[x]), min(means, key=lambda x: means[x])
    strata = [(by_level[highest][key], by_level[lowest][key]) for key in sorted(shared, key=str)]
    return RankedValues(
        metric=info.title,
        unit=info.unit,
        axis=axis,
        count=len(means),
        averaged=tuple(
            name for place, name in enumerate(others) if len({key[place] for key in shared}) > 1
        ),
        highest=highest,
        highest_value=means[highest],
        lowest=lowest,
        lowest_value=means[lowest],
        interval=_interval([_differences(*pair) for pair in strata]),
    )


_Stratum = tuple[object, ...]


def _by_stratum(
    results: Results, info: MetricInfo, others: Sequence[str], selected: Mapping[str, object]
) -> dict[_Stratum, dict[object, float]]:
    """Return the metric (mean over flows) by the values of the other axes, then by seed."""
    frame = results.selected(selected).filter(pl.col(info.column).is_not_null())
    found: dict[_Stratum, dict[object, float]] = {}
    grouped = frame.group_by([*others, "seed"], maintain_order=True).agg(pl.col(info.column).mean())
    for *stratum, seed, value in grouped.rows():
        found.setdefault(tuple(stratum), {})[seed] = float(value) * info.factor
    return found


def _differences(higher: Mapping[object, float], lower: Mapping[object, float]) -> FloatArray:
    """Return the differences between runs with the same seed, shape (n,)."""
    return np.array([value - lower[seed] for seed, value in higher.items() if seed in lower])


def _interval(differences: Sequence[FloatArray]) -> tuple[float, float] | None:
    found = stratified_interval(differences)
    return None if found.low is None or found.high is None else (found.low, found.high)
