"""Functions that draw a figure directly from runs or a path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath

from skyhop.analysis.comparison import compare
from skyhop.analysis.flow_groups import FlowKey
from skyhop.analysis.flows import FlowStyle
from skyhop.analysis.path_timeline import path_timeline
from skyhop.analysis.run_timeline import run_timeline
from skyhop.data.figure_files import FigureWidth
from skyhop.data.paths import Path, read_path
from skyhop.data.reading import path_record, read_runs, run_record
from skyhop.data.records import PathRecord, RunRecord
from skyhop.data.runs import Run
from skyhop.figures.comparison import draw_comparison
from skyhop.figures.style import Sheet, save
from skyhop.figures.timeline import draw_timeline


def run_figure(
    source: RunRecord | Run | FilePath | str,
    output: str | os.PathLike[str] | None = None,
    *,
    styles: Mapping[int, FlowStyle] | None = None,
    width: FigureWidth = "page",
    panel: str | None = None,
) -> Sheet:
    """Draw each flow, its application, the probes and the link of a run over time.

    Args:
        source: a run, a run directory, or its record as `read_runs` returns it.
        output: PNG, SVG or PDF file to write the figure to; by default none is written.
        styles: style of each flow by its id; by default, styles are chosen for this run alone.
        width: target of the figure: a page, or "one-column" or "two-column" of a paper.
        panel: quantity whose panel to draw alone, such as "goodput"; by default all.

    Raises:
        InputError: `source` is not a run directory, there is no such panel, or `output` has another
            suffix.
        RunError: `output` cannot be written.
    """
    if isinstance(source, Run):
        source = run_record(source)
    run = source if isinstance(source, RunRecord) else read_runs([source])[0]
    timeline = run_timeline(run, styles)
    timeline = timeline if panel is None else timeline.with_one_panel(panel)
    return _saved(draw_timeline(timeline, width), output)


def comparison_figure(
    runs: Sequence[RunRecord],
    *,
    styles: Mapping[FlowKey, FlowStyle] | None = None,
    width: FigureWidth = "page",
    panel: str | None = None,
) -> Sheet:
    """Draw goodput over time, mean goodput, and the ECDFs of goodput and srtt of every flow."""
    return draw_comparison(compare(runs, styles), width, panel)


def path_figure(
    source: PathRecord | Path | FilePath | str,
    output: str | os.PathLike[str] | None = None,
    *,
    until_s: float | None = None,
    width: FigureWidth = "page",
    panel: str | None = None,
) -> Sheet:
    """Draw one-way delay, number of hops and events of a path.

    Args:
        source: a path, or a path file.
        output: PNG, SVG or PDF file to write the figure to; by default none is written.
        until_s: end of the time axis in s; by default the end of the path.
        width: target of the figure: a page, or "one-column" or "two-column" of a paper.
        panel: quantity whose panel to draw alone, such as "one-way delay"; by default all.

    Raises:
        InputError: `source` is not a path, there is no such panel, or `output` has another suffix.
        RunError: `output` cannot be written.
    """
    if isinstance(source, FilePath | str):
        source = read_path(source)
    path = source if isinstance(source, PathRecord) else path_record(source)
    timeline = path_timeline(path, until_s)
    timeline = timeline if panel is None else timeline.with_one_panel(panel)
    return _saved(draw_timeline(timeline, width), output)


def _saved(figure: Sheet, output: str | os.PathLike[str] | None) -> Sheet:
    if output is not None:
        save(figure, FilePath(output))
    return figure
