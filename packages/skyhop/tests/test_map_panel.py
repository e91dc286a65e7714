"""Maps of where a claim holds: places on their axes, cells within chance, and what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from skyhop.analysis.charts import MapChart
from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.figures.maps import draw_maps
from skyhop.study import load_study
from skyhop.study.maps import is_on_one_side, map_cells, map_chart, place_of
from skyhop.study.panel_kinds import MapPanel, Mark
from small_study import content

ROWS = ["100 %", "50 %", "20 %", "Victoria"]
COLUMNS = ["5 ms", "15 ms", "60 ms"]
MEANS = np.array([[0.9, 0.9, 0.8], [1.2, 1.1, 0.9], [2.0, 1.4, 0.7], [np.nan, 1.3, np.nan]])


def values(row: object, column: object) -> FloatArray:
    """Return two runs per cell: sure ones near the mean, and those of 0.9 on both sides of 1."""
    mean = MEANS[ROWS.index(str(row)), COLUMNS.index(str(column))]
    spread = 0.2 if mean == 0.9 else 0.01
    return mean + spread * np.array([-1.0, 1.0]) if np.isfinite(mean) else np.array([])


def chart(*marks: Mark) -> MapChart:
    cells = map_cells("gain", ROWS, COLUMNS, 1.0, values)
    found = map_chart(panel(*marks), COLUMNS, ROWS, [[cells]], "two runs")
    assert found is not None
    return found


def panel(*marks: Mark) -> MapPanel:
    return MapPanel(
        kind="map", title="", metrics=["gain"], x="queue", y="rate", turn=1, groups=["Victoria"],
        marks=list(marks),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "place"),
    [("15 ms", 1), ("10 ms", 0.5), ("37.5 ms", 1.5), ("5 ms", 0), ("60 ms", 2)],
)
def test_a_place_is_a_value_of_the_axis_or_lies_between_two_of_them(
    value: str, place: float
) -> None:
    assert place_of(value, COLUMNS) == pytest.approx(place)


@pytest.mark.parametrize("value", ["61 ms", "10 s", "Lagos", 10])
def test_a_place_outside_the_axis_or_in_another_unit_is_an_error(value: object) -> None:
    with pytest.raises(InputError, match=r"expected one of 5 ms, 15 ms, 60 ms, or a number"):
        place_of(value, COLUMNS)


def test_axes_of_bare_numbers_have_places_too() -> None:
    assert place_of(3, ["1", "2", "4"]) == pytest.approx(1.5)


def test_cells_know_which_means_are_on_one_side_of_the_turn() -> None:
    cells = map_cells("gain", ROWS, COLUMNS, 1.0, values)
    np.testing.assert_allclose(cells.grid, MEANS)
    known = np.isfinite(MEANS)
    assert (cells.is_sure[known] == (MEANS[known] != 0.9)).all()
    assert is_on_one_side(np.array([0.9]), 1.0), "a single run has no interval"


def drawn(found: MapChart) -> Axes:
    return draw_maps(found, "page").axes[0]


def lines(ax: Axes) -> set[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return the black lines of a map, by their x and y."""
    black = [line for line in ax.lines if line.get_color() == "black"]
    return {(tuple(np.asarray(o.get_xdata())), tuple(np.asarray(o.get_ydata()))) for o in black}


def test_a_line_separates_cells_where_the_claim_turns() -> None:
    ax = drawn(chart())
    assert lines(ax) == {
        ((-0.5, 0.5), (0.5, 0.5)),
        ((0.5, 1.5), (0.5, 0.5)),
        ((1.5, 1.5), (0.5, 1.5)),
        ((1.5, 1.5), (1.5, 2.5)),
    }, "none to the group below, whose links have no place on the axis"


def test_a_link_without_a_place_on_the_abscissa_is_one_cell() -> None:
    ax = drawn(chart())
    written = {text.get_text(): text.get_position() for text in ax.texts}
    assert written["1.30"] == (1.0, 3)
    assert written["0.900?"][1] in (0, 1), "a mean within chance has a question mark"
    shown = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(shown[3], 1.3)


def test_marks_are_diamonds_or_lines_at_their_place() -> None:
    found = chart(
        Mark(name="A", x="10 ms", y="35 %"), Mark(name="B", y="80 %"), Mark(name="C", x="5 ms")
    )
    assert [(mark.column, mark.row) for mark in found.marks] == [
        (0.5, 1.5), (None, pytest.approx(0.4)), (0.0, None),
    ]  # fmt: skip
    ax = drawn(found)
    assert {"A", "B", "C"} <= {text.get_text() for text in ax.texts}
    (diamond,) = [line for line in ax.lines if line.get_marker() == "D"]
    assert (diamond.get_xdata()[0], diamond.get_ydata()[0]) == (0.5, 1.5)


def test_a_chart_without_any_run_is_no_chart() -> None:
    cells = map_cells("gain", ROWS, COLUMNS, 1.0, lambda *_: np.array([]))
    assert map_chart(panel(), COLUMNS, ROWS, [[cells]], "") is None


MAP: dict[str, Any] = {
    "kind": "map", "title": "", "metrics": ["goodput"], "x": "loss", "y": "cc", "turn": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"marks": [{"name": "a", "x": "2 %"}]}, r"panel 1\.marks 1\.x: no place for '2 %'"),
        ({"marks": [{"name": "a"}]}, "expected `x`, `y` or both"),
        ({"groups": ["vegas"]}, r"panel 1\.groups: cc has no value 'vegas'"),
        ({"x": "seed"}, "panel 1: expected an axis of the study, not `seed`"),
        ({"metrics": ["goodputt"]}, "goodputt"),
        ({"by": "los"}, "no axis `los` .did you mean loss"),
    ],
)
def test_wrong_maps_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_study(content(panel=[{**MAP, **change}]))
