"""Tables of portraits: a row per quantity, a column per input; comparisons with reference logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skyhop.analysis.portrait import Judgement, Portraits
from skyhop.analysis.portrait_rows import LINES, SECTIONS, Row
from skyhop.analysis.tables import MISSING, Column, Table, short_number, three_digits


def portrait_tables(found: Portraits) -> Iterator[Table]:
    """Yield the table of each section of which at least one input has a row."""
    for section in SECTIONS:
        rows = [row for row in found.rows if row.section == section]
        if rows:
            yield _table(found, section, rows, [(row.title,) for row in rows])


def portraits_table(found: Portraits) -> Table:
    """Return one table of all rows, with the section of each."""
    titles = [(row.section, row.title) for row in found.rows]
    return _table(found, "row", found.rows, titles)


def judgement_tables(judgement: Judgement) -> Iterator[Table]:
    """Yield a table per section: value of each row, range of the references, and the verdict."""
    for section in SECTIONS:
        verdicts = [one for one in judgement.verdicts if one.row.section == section]
        columns = [
            *(_words(title) for title in (section, "unit")),
            *(_number(title) for title in ("value", "least", "greatest")),
            _words("verdict"),
        ]
        rows = [
            [
                one.row.title,
                one.row.unit,
                *(_text(one.row, value) for value in (one.value, one.low, one.high)),
                "within" if one.matches else "outside",
            ]
            for one in verdicts
        ]
        if rows:
            yield Table([("", len(columns))], columns, rows)


def _table(
    found: Portraits, head: str, rows: Sequence[Row], titles: Sequence[tuple[str, ...]]
) -> Table:
    columns = [*([_words("section")] * (len(titles[0]) - 1)), _words(head), _words("unit")]
    columns += [_number(one.name) for one in found.portraits]
    cells = [
        [*title, row.unit, *(_text(row, one.values.get(row.key)) for one in found.portraits)]
        for row, title in zip(rows, titles, strict=True)
    ]
    if any(row.section == LINES.section for row in rows):
        notes = [
            f"{LINES.title} of {one.name}: {' '.join(f'{line:g}' for line in one.lines_hz)} "
            f"{LINES.unit}"
            for one in found.portraits
            if one.lines_hz
        ]
        return Table([("", len(columns))], columns, cells, "; ".join(notes))
    return Table([("", len(columns))], columns, cells)


def _words(title: str) -> Column:
    return Column(title, title, "", str, numeric=False)


def _number(title: str) -> Column:
    return Column(title, title, "", str)


def _text(row: Row, value: float | None) -> str:
    if value is None:
        return MISSING
    return short_number(value) if row.is_count else three_digits(value)
