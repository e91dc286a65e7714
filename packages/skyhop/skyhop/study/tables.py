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
from skyhop.analysis.tables import Column, Table, three_digits
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

    Columns of each metric: mean, spread, published value, and ratio of mean to published value.
    """
    infos = [study.metrics.infos[name] for name in panel.metrics]
    rows = [
        {**at, **_figures(infos, study, results, {**panel.where, **at}, panel.spread)}
        for at in results.groups(panel.by, panel.where)
    ]
    shown = [{**row, **_intervals(row, [f"{info.name}_" for info in infos])} for row in rows]
    columns = [Column(name, _title(name), "", str, numeric=False) for name in panel.by]
    groups = [("", len(columns))]
    for info in infos:
        own = [
            c
            for c in _columns(info, panel.spread)
            if any(row.get(c.key) is not None for row in shown)
        ]
        if len(own) == 1:
            # A metric with a single column needs no heading above it.
            own = [Column(info.name, info.title, info.unit, three_digits)]
        named = len(own) > 1
        groups.append((f"{info.title} ({info.unit or 'ratio'})" if named else "", len(own)))
        columns += own
    cells = [[column.text(row) for column in columns] for row in shown]
    return DataTable(Table(groups, columns, cells), pl.DataFrame(rows, infer_schema_length=None))


def _columns(info: MetricInfo, spread: Spread) -> list[Column]:
    if spread == "interval":
        spread_column = [Column(f"{info.name}_interval", "95 % interval", "", str)]
    else:
        title = "sd" if spread == "sd" else "sd of all bins"
        spread_column = [Column(f"{info.name}_sd", title, "", three_digits)]
    return [
        Column(f"{info.name}", "ours", "", three_digits),
        *spread_column,
        Column(f"{info.name}_published", "published", "", three_digits),
        Column(f"{info.name}_published_sd", "published sd", "", three_digits),
        Column(f"{info.name}_ratio", "ours / published", "", three_digits),
    ]


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
        if spread != "interval":
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
    shown = [{**row, **_intervals(row, [""])} for row in rows]
    cells = [[column.text(row) for column in columns] for row in shown]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return DataTable(Table([("", len(columns))], columns, cells), frame)


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
        Column("interval", "95 % interval", info.unit, str),
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
        "low": interval.low,
        "high": interval.high,
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
        "low": interval.low,
        "high": interval.high,
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


def _intervals(row: Mapping[str, object], prefixes: Sequence[str]) -> dict[str, str | None]:
    """Return the intervals of a row as text, by key: each prefix, then "interval"."""
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
