"""Tables of a study's report: ours beside what was published, and who differs from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from skyhop.analysis.statistics import Difference, bootstrap_interval, differences, effect_size
from skyhop.analysis.tables import Column, Table, three_digits
from skyhop.data.arrays import FloatArray
from skyhop.study.file import ComparisonPanel, TablePanel
from skyhop.study.metrics import MetricInfo
from skyhop.study.plan import Study
from skyhop.study.published import published_value
from skyhop.study.results import Results


@dataclass(frozen=True)
class MadeTable:
    """A table for the page, and its numbers unrounded."""

    table: Table
    data: pl.DataFrame


def table_of(panel: TablePanel, study: Study, results: Results) -> MadeTable:
    """Return a row per combination of the axes `by`: mean, interval, published, ratio."""
    infos = [study.metrics.infos[name] for name in panel.metrics]
    rows = [
        {**at, **_figures(infos, study, results, {**panel.where, **at})}
        for at in results.groups(panel.by, panel.where)
    ]
    shown = [{**row, **_intervals(row, [f"{info.name}_" for info in infos])} for row in rows]
    columns = [Column(name, _title(name), "", str, numeric=False) for name in panel.by]
    groups = [("", len(columns))]
    for info in infos:
        own = [c for c in _columns(info) if any(row[c.key] is not None for row in shown)]
        if len(own) == 1:
            # Nothing stands beside it: its name needs no heading above.
            own = [Column(info.name, info.title, info.unit, three_digits)]
        named = len(own) > 1
        groups.append((f"{info.title} ({info.unit or 'ratio'})" if named else "", len(own)))
        columns += own
    cells = [[column.text(row) for column in columns] for row in shown]
    return MadeTable(Table(groups, columns, cells), pl.DataFrame(rows, infer_schema_length=None))


def _columns(info: MetricInfo) -> list[Column]:
    return [
        Column(f"{info.name}", "ours", "", three_digits),
        Column(f"{info.name}_interval", "95 % interval", "", str),
        Column(f"{info.name}_published", "published", "", three_digits),
        Column(f"{info.name}_ratio", "ours / published", "", three_digits),
    ]


def _figures(
    infos: Sequence[MetricInfo], study: Study, results: Results, chosen: Mapping[str, object]
) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for info in infos:
        estimate = results.estimate(info, chosen)
        published = published_value(study.file, info.name, chosen)
        figures[info.name] = estimate.mean
        figures[f"{info.name}_low"] = estimate.interval.low
        figures[f"{info.name}_high"] = estimate.interval.high
        figures[f"{info.name}_published"] = published
        known = estimate.mean is not None and published
        figures[f"{info.name}_ratio"] = (
            (estimate.mean or 0.0) / published if known and published else None
        )
    return figures


def comparison_table(panel: ComparisonPanel, study: Study, results: Results) -> MadeTable:
    """Return a row per value of the axis: its mean, and how it differs from the reference's."""
    info = study.metrics.infos[panel.metric]
    rows: list[dict[str, object]] = []
    for at in results.groups(panel.each, panel.where) if panel.each else [{}]:
        chosen = {**panel.where, **at}
        samples = {
            str(level): results.values(info, {**chosen, panel.by: level})
            for level in results.levels(panel.by, chosen)
        }
        if str(panel.against) not in samples:
            continue
        rows.append({**at, **_reference(panel, samples)})
        rows += [
            {**at, **_difference(d, samples)} for d in differences(samples, str(panel.against))
        ]
    unit = info.unit
    columns = [
        *(Column(name, _title(name), "", str, numeric=False) for name in panel.each),
        Column("name", _title(panel.by), "", str, numeric=False),
        Column("runs", "runs", "", str),
        Column("mean", info.title, unit, three_digits),
        Column("interval", "95 % interval", unit, str),
        Column("difference", "difference", unit, three_digits),
        Column("t", "Welch's t", "", three_digits),
        Column("degrees", "degrees", "", three_digits),
        Column("p", "p", "Bonferroni", _probability),
        Column("d", "Cohen's d", "", three_digits),
        Column("effect", "effect", "", str, numeric=False),
    ]
    shown = [{**row, **_intervals(row, [""])} for row in rows]
    cells = [[column.text(row) for column in columns] for row in shown]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return MadeTable(Table([("", len(columns))], columns, cells), frame)


def _reference(panel: ComparisonPanel, samples: Mapping[str, FloatArray]) -> dict[str, object]:
    values = samples[str(panel.against)]
    interval = bootstrap_interval(values)
    return {
        "name": f"{panel.against} (reference)",
        "runs": len(values),
        "mean": float(values.mean()) if len(values) else None,
        "low": interval.low,
        "high": interval.high,
        **dict.fromkeys(("difference", "t", "degrees", "p", "d", "effect")),
    }


def _difference(difference: Difference, samples: Mapping[str, FloatArray]) -> dict[str, object]:
    interval = bootstrap_interval(samples[difference.name])
    return {
        "name": difference.name,
        "runs": difference.count,
        "mean": difference.mean,
        "low": interval.low,
        "high": interval.high,
        "difference": difference.difference,
        "t": difference.t,
        "degrees": difference.degrees,
        "p": difference.p,
        "d": difference.cohens_d,
        "effect": effect_size(difference.cohens_d) or None,
    }


def _intervals(row: Mapping[str, object], prefixes: Sequence[str]) -> dict[str, str | None]:
    """Return the intervals of a row as text, by the beginnings of their names."""
    found: dict[str, str | None] = {}
    for prefix in prefixes:
        ends = [end for side in ("low", "high") if isinstance(end := row[prefix + side], float)]
        text = " to ".join(map(three_digits, ends)) or None
        found[f"{prefix}interval"] = text
    return found


def _title(name: str) -> str:
    return name.replace("_", " ")


def _probability(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"  # noqa: PLR2004
