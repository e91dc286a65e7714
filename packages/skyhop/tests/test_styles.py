"""Styles of congestion controls: the same on all pages, and visible where lines overlap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D

from skyhop.analysis.flows import flow_styles
from skyhop.analysis.styles import GLYPHS, MARKERS, style_of, style_of_index, styles_of
from skyhop.data.reading import read_runs
from skyhop.figures import comparison_figure, run_figure
from skyhop.figures.charts import draw_chart
from skyhop.figures.style import MARKERS as DRAWN
from skyhop.study import Results, load_study
from skyhop.study.axes import numeric_axes
from skyhop.study.charts import ChartSource, chart_of
from skyhop.study.panel_kinds import BarsPanel, LinesPanel
from skyhop.study.results import dataset
from small_study import content
from synthetic_run import SyntheticRun

OURS = ("cubic", "bbr", "satcp", "satpipe", "reno", "vegas", "hybla")
COMPARED = [
    ("cubic", "reno"), ("satpipe", "bbr3"), ("satpipe", "bbr"), ("satpipe", "satcp"),
    ("bbr", "cubic"), ("bbr", "bbr3"), ("bbr", "satcp"),
]  # fmt: skip


def test_our_congestion_controls_differ_in_colour_and_marker() -> None:
    styles = styles_of(OURS)
    assert len({style.colour for style in styles}) == len({style.marker for style in styles}) == 7
    assert {style.dash for style in styles} == {"-"}


def lab(colour: str) -> npt.NDArray[np.float64]:
    """Return the colour in CIELAB (D65), in which distances are perceived differences."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(to_xyz @ linear / (0.9505, 1.0, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("pair", COMPARED)
def test_senders_that_are_compared_have_distant_colours(pair: tuple[str, str]) -> None:
    colours = [lab(style.colour) for style in styles_of(pair)]
    assert np.linalg.norm(colours[0] - colours[1]) > 40


def test_a_name_has_the_same_style_next_to_any_others() -> None:
    alone = {name: style_of(name) for name in (*OURS, "myidea", "leocc", "prague")}
    assert dict(zip(alone, styles_of(alone), strict=True)) == alone
    assert dict(zip([*alone][::-1], styles_of([*alone][::-1]), strict=True)) == alone
    # These colours must not change, because figures of earlier releases are published.
    assert (alone["cubic"].colour, alone["bbr"].colour) == ("#0072B2", "#D55E00")
    assert (alone["myidea"].colour, alone["myidea"].marker) == ("#7F7F00", "left")


@pytest.mark.parametrize("name", ["skyhop:bbr", "skyhop_bbr", "./bbr.c", "/home/me/bbr.c", "BBR"])
def test_the_style_does_not_depend_on_a_modules_origin(name: str) -> None:
    assert style_of(name) == style_of("bbr")


def test_other_names_have_their_own_colours() -> None:
    ours = {style.colour for style in styles_of(OURS)}
    others = styles_of(f"idea{number}" for number in range(60))
    assert not ours & {style.colour for style in others}
    assert len({(style.colour, style.dash, style.marker) for style in others}) == 60


def test_several_flows_of_a_congestion_control_are_shades_of_its_colour() -> None:
    styles = styles_of(["cubic"] * 7)
    assert styles[0] == style_of("cubic")
    assert len({style.colour for style in styles}) == 7
    assert {style.marker for style in styles} == {"circle"}
    assert styles[1].dash != styles[0].dash


def test_every_marker_can_be_drawn_and_written() -> None:
    assert set(DRAWN) == set(GLYPHS) >= set(MARKERS)
    assert len(set(DRAWN.values())) == len(set(GLYPHS.values())) == len(DRAWN)


def test_runs_comparisons_and_studies_have_the_same_styles(tmp_path: Path) -> None:
    for cc in ("bbr", "myidea"):
        SyntheticRun((cc,), duration_s=12.0).write(tmp_path / cc)
    runs = read_runs([tmp_path / "myidea", tmp_path / "bbr"])
    both = comparison_figure(runs)
    drawn = [line_of(ax, "myidea") for ax in (both.axes[1], run_figure(runs[0]).axes[1])]
    study = draw_chart(study_chart({"cubic": [9.0, 8.0], "myidea": [5.0, 6.0]}))
    drawn.append(line_of(study.axes[0], "myidea"))
    expected = style_of("myidea")
    for line in drawn:
        assert to_hex(str(line.get_color())).upper() == expected.colour
        assert line.get_marker() == DRAWN[expected.marker]
        assert line.get_linestyle() == expected.dash


def test_a_studys_bars_without_a_hue_have_their_congestion_controls_colours() -> None:
    panel = BarsPanel(kind="bars", title="", metric="goodput", x="cc")
    chart = chart_of(panel, source_of({"bbr": [9.0, 8.0], "reno": [5.0, 6.0]}))
    assert [bar.hue.style for bar in chart.bars] == styles_of(["bbr", "reno"])
    # Bars of a single congestion control take the styles of their positions.
    panel = BarsPanel(kind="bars", title="", metric="goodput", x="loss", hue="seed")
    chart = chart_of(panel, source_of({"bbr": [9.0, 8.0]}))
    assert [bar.hue.style for bar in chart.bars] == [style_of_index(0), style_of_index(1)]


def test_overlapping_lines_have_markers_at_different_places(tmp_path: Path) -> None:
    for cc in ("cubic", "bbr", "satcp"):
        SyntheticRun((cc,), duration_s=12.0).write(tmp_path / cc)
    runs = read_runs([tmp_path / cc for cc in ("cubic", "bbr", "satcp")])
    # The same numbers under three names give lines that overlap.
    runs = [replace(run, flows=runs[0].flows) for run in runs]
    figure = comparison_figure(runs)
    over_time, shares = figure.axes[1], figure.axes[3]
    for ax in (over_time, shares):
        marked = [line for line in ax.lines if line.get_marker() in DRAWN.values()]
        assert len(marked) == 3
        at = [set(markers_of(line)) for line in marked]
        assert all(len(places) >= 5 for places in at)
        assert not at[0] & at[1]
        assert not at[1] & at[2]


def test_overlapping_means_have_different_widths() -> None:
    figure = draw_chart(study_chart({"cubic": [5.0, 5.0], "bbr": [5.0, 5.0]}))
    lines = [line for line in figure.axes[0].lines if line.get_label() in ("cubic", "bbr")]
    below, above = lines
    assert below.get_linewidth() > above.get_linewidth()
    assert below.get_markersize() > above.get_markersize()


def test_flows_of_one_congestion_control_have_distinct_styles(tmp_path: Path) -> None:
    SyntheticRun(("cubic", "cubic", "bbr"), duration_s=12.0).write(tmp_path / "run")
    styles = list(flow_styles(read_runs([tmp_path / "run"])).values())
    assert [style.label for style in styles] == ["cubic #0", "cubic #1", "bbr"]
    assert len({(style.colour, style.dash) for style in styles}) == 3
    assert styles[0].marker == styles[1].marker != styles[2].marker


def source_of(goodput_mbps: dict[str, list[float]]) -> ChartSource:
    study = load_study(content())
    rows = [
        {"cc": cc, "loss": "1 %", "seed": seed, "run": f"{cc}{seed}", "flow": 0, "flow_cc": cc,
         "goodput_bps": 1e6 * value}
        for cc, values in goodput_mbps.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    results = Results(dataset(rows, numeric_axes(study.file)), study.metrics)
    return ChartSource(study, results, lambda run: pytest.fail(f"reads {run}"))


def study_chart(goodput_mbps: dict[str, list[float]]) -> object:
    panel = LinesPanel(kind="lines", title="", metric="goodput", x="loss", hue="cc")
    return chart_of(panel, source_of(goodput_mbps))


def line_of(ax: Axes, label: str) -> Line2D:
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


def markers_of(line: Line2D) -> list[int]:
    places = line.get_markevery()
    assert isinstance(places, list)
    return places
