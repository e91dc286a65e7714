"""Figures straight from runs and paths: the view model made and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath

import pyarrow as pa

from skyhop.analysis.comparison import compare
from skyhop.analysis.flows import FlowKey, FlowStyle
from skyhop.analysis.path_timeline import path_timeline
from skyhop.analysis.run_timeline import run_timeline
from skyhop.data.figure_files import FigureWidth
from skyhop.data.paths import Path, read_path
from skyhop.data.reading import path_record, read_runs
from skyhop.data.records import PathRecord, RunRecord
from skyhop.figures.comparison import draw_comparison
from skyhop.figures.style import Sheet, save
from skyhop.figures.timeline import draw_timeline


def run_figure(
    source: RunRecord | FilePath | str,
    *,
    styles: Mapping[int, FlowStyle] | None = None,
    width: FigureWidth = "page",
) -> Sheet:
    """Draw what each flow, its application, the probes and the link did over time.

    Args:
        source: a run directory, or what `read_runs` returned for it.
        styles: how to draw each flow, by its id; by default chosen for this run alone.
        width: where the figure goes: a page, or "one-column" or "two-column" of a paper.

    Raises:
        InputError: `source` is not a run directory.
    """
    run = source if isinstance(source, RunRecord) else read_runs([source])[0]
    return draw_timeline(run_timeline(run, styles), width)


def comparison_figure(
    runs: Sequence[RunRecord],
    *,
    styles: Mapping[FlowKey, FlowStyle] | None = None,
    width: FigureWidth = "page",
) -> Sheet:
    """Draw goodput over time, mean goodput, and the spread of goodput and srtt of every flow."""
    return draw_comparison(compare(runs, styles), width)


def path_figure(
    source: PathRecord | Path | pa.Table | FilePath | str,
    output: FilePath | str | None = None,
    *,
    until_s: float | None = None,
    width: FigureWidth = "page",
) -> Sheet:
    """Draw one-way delay, number of hops and events of a path.

    Args:
        source: a path, its file, or a table with its frames and its header as metadata.
        output: a PNG, SVG or PDF file to write the figure to, where one is wanted.
        until_s: where to stop, in seconds; by default where the path ends.
        width: where the figure goes: a page, or "one-column" or "two-column" of a paper.

    Raises:
        InputError: `source` is not a path, or `output` is not the name of such a file.
        RunError: `output` cannot be written.
    """
    if isinstance(source, FilePath | str):
        source = read_path(source)
    path = source if isinstance(source, PathRecord) else path_record(source)
    figure = draw_timeline(path_timeline(path, until_s), width)
    if output is not None:
        save(figure, output)
    return figure
