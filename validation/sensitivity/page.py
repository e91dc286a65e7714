"""Maps, for the headline claim of each paper, on which links it holds.

The runs are rows of docs/results/data/sensitivity.csv, which `reproduce` updates after it has run
one of the studies. This command writes docs/results/sensitivity.md and its figures from that file
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import polars as pl
import typer

from skyhop.analysis.charts import MapCells, MapChart, named
from skyhop.analysis.sentence_words import listed
from skyhop.analysis.statistics import stratified_interval
from skyhop.cli.terminal import print_note
from skyhop.data.files import write_file
from skyhop.errors import RunError
from skyhop.study.maps import map_cells, map_chart
from skyhop.study.results import Results
from validation import pages
from validation.provenance import Provenance, write_provenance
from validation.sensitivity.data import (
    DATA,
    PROVENANCE_FILE,
    Cells,
    Figure,
    Mapped,
    collect,
    figures,
    read,
)
from validation.which_sender.answers import bounds, number

PAGE = pages.RESULTS / "sensitivity.md"
STUDIES = tuple(figure.study for figure in figures())


@dataclass(frozen=True)
class Drawn:
    """Figure with the chart of its study's runs."""

    figure: Figure
    mapped: Mapped
    chart: MapChart

    @property
    def picture(self) -> str:
        """File name of the picture."""
        return f"{self.figure.study}.png"

    @property
    def maps(self) -> list[MapCells]:
        """All maps of the chart, row by row."""
        return [cells for line in self.chart.maps for cells in line]


def draw(cells: Cells, figure: Figure) -> Drawn | None:
    """Return a figure with its chart; `None` if the study has no runs."""
    mapped = Mapped.of(figure.study)
    panel, infos = mapped.panel, mapped.study.metrics.infos
    rows, columns = mapped.labels(panel.y), mapped.labels(panel.x)

    def one(metric: str, by: str) -> MapCells:
        title = named(infos[metric].title, infos[metric].unit)
        return map_cells(
            f"{by}: {title}" if by else title, rows, columns, panel.turn,
            lambda row, column: cells.values(figure.study, metric, by, str(row), str(column)),
        )  # fmt: skip

    maps = [[one(metric, by) for metric in panel.metrics] for by in mapped.by]
    pooled = f"each cell: the mean of {cells.seeds(figure.study)} runs"
    chart = map_chart(panel, columns, rows, maps, pooled)
    return Drawn(figure, mapped, chart) if chart else None


def every_figure(cells: Cells) -> list[Drawn]:
    """Return the figures whose studies have runs."""
    found = [draw(cells, figure) for figure in figures()]
    return [drawn for drawn in found if drawn is not None]


def page(cells: Cells) -> str:
    """Return the page: per paper the claim, its map, links drawn from measurements, and why."""
    return pages.render(
        "sensitivity",
        figures=[
            (drawn, list(counts(drawn)), list(links(cells, drawn))) for drawn in every_figure(cells)
        ],
        studies=listed(list(studies_texts(cells))),
    )


def studies_texts(cells: Cells) -> Iterator[str]:
    """Yield the text on each study that has runs: its page, build and date."""
    for study in STUDIES:
        if study in cells.studies():
            made = cells.made[study]
            yield f"[{study}](../../studies/{study}.toml) (build {made.build}, {made.date})"


def counts(drawn: Drawn) -> Iterator[str]:
    """Yield, for each map, a sentence on the number of cells of the plane in which a claim holds.

    The plane are the rows before the first group.
    """
    chart = drawn.chart
    end = chart.row_breaks[0] if chart.row_breaks else len(chart.rows.names)
    for cells in drawn.maps:
        grid, is_sure = cells.grid[:end], cells.is_sure[:end]
        is_known = np.isfinite(grid)
        holds = int((is_known & is_sure & (grid >= chart.turn)).sum())
        fails = int((is_known & is_sure & (grid < chart.turn)).sum())
        within = int(is_known.sum()) - holds - fails
        chance = f", and {within} within chance" if within else ""
        yield (
            f"{cells.title}: {number(chart.turn)} or more in {holds} of {int(is_known.sum())} "
            f"cells of the plane, less in {fails}{chance}."
        )


def links(cells: Cells, drawn: Drawn) -> Iterator[str]:
    """Yield, for each link that is drawn from measurements, its place and the value of each map.

    A value is the mean over the columns in which the link was run, with its 95 % interval.
    """
    panel = drawn.mapped.panel
    columns = drawn.mapped.labels(panel.x)
    keys = [(metric, by) for by in drawn.mapped.by for metric in panel.metrics]
    for link, lies in drawn.figure.links.items():
        texts = []
        for own, key in zip(drawn.maps, keys, strict=True):
            every = [cells.values(drawn.figure.study, *key, link, column) for column in columns]
            strata = [values for values in every if len(values)]
            mean = float(np.mean([values.mean() for values in strata]))
            texts.append(f"{own.title} {number(mean)} {bounds(stratified_interval(strata))}")
        yield f"**{link}** ({lies}): {'; '.join(texts)}."


def renew(study: str, results: Results, made: Provenance) -> None:
    """Replace a study's rows in the data file, then write the page and its figures again."""
    old = read()
    frames = {name: old.frame.filter(pl.col("study") == name) for name in STUDIES}
    frames[study] = collect(study, results)
    frame = pl.concat([f for f in frames.values() if not f.is_empty()], how="vertical_relaxed")
    DATA.parent.mkdir(parents=True, exist_ok=True)
    write_file(DATA, frame.write_csv().encode())
    builds: Mapping[str, Provenance] = {**old.made, study: made}
    write_provenance(PROVENANCE_FILE, DATA.name, builds)
    write_all(read())


def write_all(cells: Cells) -> None:
    """Write the page and its figures."""
    for drawn in every_figure(cells):
        write_file(pages.RESULTS / drawn.picture, picture_bytes(drawn))
    write_file(PAGE, page(cells).encode())


def picture_bytes(drawn: Drawn) -> bytes:
    """Return the picture of a figure as a PNG."""
    from skyhop.figures.charts import draw_chart
    from skyhop.figures.style import png_bytes

    return png_bytes(draw_chart(drawn.chart))


def main(
    check: Annotated[
        bool, typer.Option("--check", help="Only compare the page with the data.")
    ] = False,
) -> None:
    """Write the page and its figures, or compare the page with the data."""
    cells = read()
    if cells.frame.is_empty():
        raise RunError(f"{DATA} has no runs: run reproduce {' '.join(STUDIES)} first")
    if not check:
        write_all(cells)
        print_note(str(PAGE))
    elif not PAGE.exists() or PAGE.read_text("utf-8") != page(cells):
        raise RunError(f"{PAGE} is not what {DATA.name} gives: run sensitivity")
