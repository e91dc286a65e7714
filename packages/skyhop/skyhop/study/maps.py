"""Maps of where a claim holds: cells of a map panel, and places of links on it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from skyhop.analysis.charts import Levels, MapCells, MapChart, MapMark
from skyhop.analysis.statistics import bootstrap_interval
from skyhop.data.arrays import FloatArray
from skyhop.data.near_names import did_you_mean
from skyhop.errors import InputError
from skyhop.study.panel_kinds import MapPanel

CellValues = Callable[[object, object], FloatArray]
"""Values of the runs of a cell, shape (n,), by the values of `y` and `x`; empty without runs."""

_QUANTITY = re.compile(r"\s*([-+]?[0-9]+(?:\.[0-9]+)?)(.*)")


def map_cells(
    title: str, rows: Sequence[object], columns: Sequence[object], turn: float, values: CellValues
) -> MapCells:
    """Return the means of all cells, and whether each mean is on one side of `turn`."""
    grid = np.full((len(rows), len(columns)), np.nan)
    is_sure = np.zeros(grid.shape, dtype=np.bool_)
    for (row, line), (column, level) in itertools.product(enumerate(rows), enumerate(columns)):
        found = values(line, level)
        if len(found):
            grid[row, column] = found.mean()
            is_sure[row, column] = is_on_one_side(found, turn)
    return MapCells(title, grid, is_sure)


def is_on_one_side(values: FloatArray, turn: float) -> bool:
    """Return whether the 95 % interval of the mean leaves out `turn`; true for a single value."""
    found = bootstrap_interval(values)
    return found.low is None or found.high is None or not found.low <= turn <= found.high


def map_chart(
    panel: MapPanel,
    columns: Sequence[object],
    rows: Sequence[object],
    maps: Sequence[Sequence[MapCells]],
    pooled: str,
) -> MapChart | None:
    """Return the chart of rows of maps; `None` if no cell has a value.

    Args:
        panel: the panel, with the claim's turn, and groups and marks.
        columns: values of the axis `x`.
        rows: values of the axis `y`.
        maps: maps of these rows and columns.
        pooled: note on the runs behind each cell.
    """
    every = [cells for line in maps for cells in line]
    if not any(np.isfinite(cells.grid).any() for cells in every):
        return None
    across = Levels([str(column) for column in columns], panel.x.replace("_", " "))
    down = Levels([str(row) for row in rows], panel.y.replace("_", " "))
    data = pl.DataFrame(
        [
            {
                "map": cells.title,
                panel.y: down.names[row],
                panel.x: across.names[column],
                "mean": float(mean),
                "beyond_chance": bool(cells.is_sure[row, column]),
            }
            for cells in every
            for (row, column), mean in np.ndenumerate(cells.grid)
        ]
    ).fill_nan(None)
    groups = [str(group) for group in panel.groups]
    breaks = [row for row, name in enumerate(down.names) if name in groups]
    marks = [
        MapMark(mark.name, _place(mark.x, across.names), _place(mark.y, down.names))
        for mark in panel.marks
    ]
    pooled += f"; orange: {panel.turn:g} or more; ?: the 95 % interval contains {panel.turn:g}"
    return MapChart(data, pooled, maps, across, down, panel.turn, breaks, marks)


def place_of(value: object, names: Sequence[str]) -> float:
    """Return the place of a value among the names of an axis, as an index.

    A quantity between two neighbouring names of the same unit stands in proportion between them.

    Raises:
        InputError: the value is no name of the axis, and not between two of them.
    """
    if str(value) in names:
        return float(names.index(str(value)))
    wanted = _quantity(value)
    known = [_quantity(name) for name in names]
    for index, (one, other) in enumerate(itertools.pairwise(known)):
        if wanted is None or one is None or other is None:
            continue
        have_one_unit = one[1] == other[1] == wanted[1]
        if have_one_unit and min(one[0], other[0]) <= wanted[0] <= max(one[0], other[0]):
            return index + (wanted[0] - one[0]) / (other[0] - one[0])
    hint = did_you_mean(str(value), list(names))
    raise InputError(
        f"no place for {value!r}{hint}; expected one of {', '.join(names)}, or a number between "
        "two of these next to each other"
    )


def _quantity(value: object) -> tuple[float, str] | None:
    """Return the number and the unit of a quantity; `None` for other texts."""
    found = _QUANTITY.fullmatch(str(value))
    return (float(found[1]), found[2].strip()) if found else None


def _place(value: object, names: Sequence[str]) -> float | None:
    return None if value is None else place_of(value, names)
