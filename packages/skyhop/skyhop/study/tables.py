"""Tables of a study's report: results next to published values, comparisons, and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from skyhop.analysis.statistics import (
    Difference,
    Test,
    bootstrap_interval,
    differences,
    effect_size,
    mean,
    standardised,
)
from skyhop.analysis.tables import Column, Table, plus_minus, three_digits
from skyhop.data.arrays import FloatArray
from skyhop.study.claims import ClaimResult
from skyhop.study.keys import Spread
from skyhop.study.metrics import MetricInfo
from skyhop.study.page import numbers_text, verdict_text
from skyhop.study.panel_kinds import ComparisonPanel, TablePanel
from skyhop.study.plan import Study
from skyhop.study.published import published_value
from skyhop.study.results import Results
from skyhop.study.run_ids import describe


@dataclass(frozen=True)
class DataTable:
    """Table for the page, and its unrounded numbers as a data frame."""

    table: Table
    data: pl.DataFrame


def table_of(panel: TablePanel, study: Study, results: Results) -> DataTable:
    """Return a table with a row per combination of the axes `by`.

    A metric has a column with its mean and spread. Where values were published, it also has
    columns with these, and with the ratio of the mean to the published value.
    """
    infos = [study.metrics.infos[name] for name in panel.metrics]
    rows = [
        {**at, **_figures(infos, study, results, {**panel.where, **at}, panel.spread)}
        for at in results.groups(panel.by, panel.where)
    ]
    columns = [Column(name, _title(name), "", str, numeric=False) for name in panel.by]
    groups = [("", len(columns))]
    for info in infos:
        own = [c for c in _columns(info) if any(row.get(c.key) is not None for row in rows)]
        if len(own) <= 1:
            # A metric with a single column needs no heading above it.
            own = [Column(info.name, info.title, info.unit, three_digits)]
        named = len(own) > 1
        groups.append((f"{info.title} ({info.unit or 'ratio'})" if named else "", len(own)))
        columns += own
    cells = [[_cell(column, row) for column in columns] for row in rows]
    note = (
        _SPREAD_NOTES[panel.spread]
        if any(_reach(row, i.name) for row in rows for i in infos)
        else ""
    )
    table = Table(groups, columns, cells, note)
    return DataTable(table, pl.DataFrame(rows, infer_schema_length=None))


_INTERVAL_NOTE = "±: to the farther end of the mean's 95 % interval"
_SPREAD_NOTES: Mapping[Spread, str] = {
    "interval": _INTERVAL_NOTE,
    "sd": "±: standard deviation over runs",
    "pooled": "mean ± standard deviation over the bins of all runs",
    "none": "±: published standard deviation",
}


def _columns(info: MetricInfo) -> list[Column]:
    return [
        Column(info.name, "ours", "", three_digits),
        Column(f"{info.name}_published", "published", "", three_digits),
        Column(f"{info.name}_ratio", "ratio", "", three_digits),
    ]


def _cell(column: Column, row: Mapping[str, object]) -> str:
    """Return the text of a value and, if known, of its spread: 138.2 ± 0.3."""
    value, reach = row.get(column.key), _reach(row, column.key)
    if isinstance(value, float) and reach is not None:
        return plus_minus(value, reach)
    return column.text(row)


def _reach(row: Mapping[str, object], key: str) -> float | None:
    """Return the standard deviation of a value, or how far its interval reaches from it."""
    value, sd = row.get(key), row.get(f"{key}_sd")
    if isinstance(sd, float):
        return sd
    ends = [row.get(f"{key}_{side}") for side in ("low", "high")]
    known = [
        abs(end - value) for end in ends if isinstance(end, float) and isinstance(value, float)
    ]
    return max(known, default=None)


def _figures(
    infos: Sequence[MetricInfo],
    study: Study,
    results: Results,
    chosen: Mapping[str, object],
    spread: Spread,
) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for info in infos:
        estimate = results.estimate(info, chosen, spread)
        published = published_value(study.file, info.name, chosen)
        figures[info.name] = estimate.mean
        figures[f"{info.name}_low"] = estimate.interval.low
        figures[f"{info.name}_high"] = estimate.interval.high
        if spread in ("sd", "pooled"):
            figures[f"{info.name}_sd"] = estimate.sd
        figures[f"{info.name}_published"] = published
        published_sd = published_value(study.file, info.name, chosen, "sd")
        if any(given.stat == "sd" for given in study.file.published):
            figures[f"{info.name}_published_sd"] = published_sd
        known = estimate.mean is not None and published
        figures[f"{info.name}_ratio"] = (
            (estimate.mean or 0.0) / published if known and published else None
        )
    return figures


def comparison_table(panel: ComparisonPanel, study: Study, results: Results) -> DataTable:
    """Return a table with a row per axis value: mean, and difference from the reference value."""
    info = study.metrics.infos[panel.metric]
    rows: list[dict[str, object]] = []
    for at in results.groups(panel.each, panel.where) if panel.each else [{}]:
        chosen = {**panel.where, **at}
        levels = {str(level): level for level in results.levels(panel.by, chosen)}
        samples = {
            name: results.values(info, {**chosen, panel.by: level})
            for name, level in levels.items()
        }
        # The column of a numeric axis holds 1.0 if the study file has 1.
        against = next(map(str, results.levels(panel.by, {**chosen, panel.by: panel.against})), "")
        if not against:
            continue
        found = {
            name: published_value(study.file, info.name, {**chosen, panel.by: level}, "sd")
            for name, level in levels.items()
        }
        rows.append({**at, **_reference(panel, samples[against])})
        for difference in differences(samples, against):
            sds = found[difference.name], found[against]
            rows.append({**at, **_difference(panel, difference, samples, sds)})
    columns = [
        *(Column(name, _title(name), "", str, numeric=False) for name in panel.each),
        *_comparison_columns(panel, info),
    ]
    if all(row["d_published"] is None for row in rows):
        rows = [{k: v for k, v in row.items() if k not in _PUBLISHED_SD_COLUMNS} for row in rows]
        columns = [column for column in columns if column.key not in _PUBLISHED_SD_COLUMNS]
    cells = [[_cell(column, row) for column in columns] for row in rows]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.rename({"mean_low": "low", "mean_high": "high"}, strict=False)
    note = _INTERVAL_NOTE if any(_reach(row, "mean") is not None for row in rows) else ""
    return DataTable(Table([("", len(columns))], columns, cells, note), frame)


_TESTS = {"welch": ["Welch's t"], "student": ["Student's t"], "both": ["Welch's t", "Student's t"]}
_PUBLISHED_SD_COLUMNS = ("d_published", "effect_published")


def _comparison_columns(panel: ComparisonPanel, info: MetricInfo) -> list[Column]:
    tests = []
    for title, prefix in zip(_TESTS[panel.test], ("", "student_"), strict=False):
        tests += [
            Column(f"{prefix}t", title, "", three_digits),
            Column(f"{prefix}degrees", "degrees", "", three_digits),
            Column(f"{prefix}p", "p", "Bonferroni", _probability),
        ]
    return [
        Column("name", _title(panel.by), "", str, numeric=False),
        Column("runs", "runs", "", str),
        Column("mean", info.title, info.unit, three_digits),
        Column("difference", "difference", info.unit, three_digits),
        *tests,
        Column("d", "Cohen's d", "", three_digits),
        Column("effect", "effect", "", str, numeric=False),
        Column("d_published", "d by published sd", "", three_digits),
        Column("effect_published", "effect", "by published sd", str, numeric=False),
    ]


def _reference(panel: ComparisonPanel, values: FloatArray) -> dict[str, object]:
    interval = bootstrap_interval(values)
    return {
        "name": f"{panel.against} (reference)",
        "runs": len(values),
        "mean": mean(values),
        "mean_low": interval.low,
        "mean_high": interval.high,
        "difference": None,
        **_test_values(panel, None, None),
        **dict.fromkeys(("d", "effect", *_PUBLISHED_SD_COLUMNS)),
    }


def _difference(
    panel: ComparisonPanel,
    difference: Difference,
    samples: Mapping[str, FloatArray],
    published_sds: tuple[float | None, float | None],
) -> dict[str, object]:
    interval = bootstrap_interval(samples[difference.name])
    own_sd, reference_sd = published_sds
    by_published = None
    differs_by = difference.difference
    if differs_by is not None and own_sd is not None and reference_sd is not None:
        by_published = standardised(differs_by, (own_sd, reference_sd))
    return {
        "name": difference.name,
        "runs": difference.count,
        "mean": difference.mean,
        "mean_low": interval.low,
        "mean_high": interval.high,
        "difference": differs_by,
        **_test_values(panel, difference.welch, difference.student),
        "d": difference.cohens_d,
        "effect": effect_size(difference.cohens_d) or None,
        "d_published": by_published,
        "effect_published": effect_size(by_published) or None,
    }


def _test_values(
    panel: ComparisonPanel, welch: Test | None, student: Test | None
) -> dict[str, float | None]:
    """Return the results of a panel's tests; keys of the second test have a prefix."""
    shown = {"welch": [welch], "student": [student], "both": [welch, student]}[panel.test]
    found: dict[str, float | None] = {}
    for test, prefix in zip(shown, ("", "student_"), strict=False):
        found[f"{prefix}t"] = None if test is None else test.t
        found[f"{prefix}degrees"] = None if test is None else test.degrees
        found[f"{prefix}p"] = None if test is None else test.p
    return found


def claims_table(verdicts: Sequence[ClaimResult]) -> Table:
    """Return a table with a row per claim: verdict, and its numbers or its reason."""
    columns = [
        Column(name, name, "", str, numeric=False) for name in ("claim", "verdict", "what came out")
    ]
    rows = [[v.claim.text, verdict_text(v), comparisons_text(v)] for v in verdicts]
    return Table([("", len(columns))], columns, rows)


def comparisons_text(result: ClaimResult) -> str:
    """Return the numbers of each comparison of a claim as text; empty if it was not evaluated."""
    if result.why_unchecked:
        return ""
    return "; ".join(
        (f"{describe(finding.at)}: " if finding.at else "") + numbers_text(finding)
        for finding in result.findings
    )


def _title(name: str) -> str:
    return name.replace("_", " ")


def _probability(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"  # noqa: PLR2004
