"""Runs behind docs/results/sensitivity.md: the data file, and the map panel of each study."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import polars as pl

from skyhop.data.arrays import FloatArray
from skyhop.study import load_study
from skyhop.study.axes import axis_labels
from skyhop.study.catalogue import find_study
from skyhop.study.panel_kinds import MapPanel
from skyhop.study.plan import Study
from skyhop.study.results import Results
from validation.pages import RESULTS
from validation.provenance import Provenance, read_provenance

DATA = RESULTS / "data" / "sensitivity.csv"
PROVENANCE_FILE = RESULTS / "data" / "sensitivity.toml"
FIGURES_FILE = Path(__file__).with_name("figures.toml")
KEYS = ("study", "metric", "by", "row", "column")
DIGITS = 4
"""Significant digits of the values in the data file."""


@dataclass(frozen=True)
class Figure:
    """Headline claim of a paper, and the study that maps it: an entry of figures.toml."""

    study: str
    paper: str
    """File name of the paper's page in docs/results/reproduced, without suffix."""
    name: str
    """Name of the paper."""
    claim: str
    published: str
    decides: str
    """Paragraph on the properties of a link that decide the claim."""
    links: Mapping[str, str]
    """Rows of the map that are drawn from access profiles, and where each link lies."""


@cache
def figures() -> tuple[Figure, ...]:
    """Read figures.toml; figures are in the order of the page."""
    entries = tomllib.loads(FIGURES_FILE.read_text("utf-8"))["figure"]
    return tuple(Figure(**entry) for entry in entries)


def map_panel(study: Study) -> MapPanel:
    """Return the map panel of a study; a study of the page has one."""
    (panel,) = [panel for panel in study.file.panel if isinstance(panel, MapPanel)]
    return panel


@dataclass(frozen=True)
class Mapped:
    """Study of a figure, and its map panel."""

    study: Study
    panel: MapPanel

    @classmethod
    def of(cls, name: str) -> Mapped:
        """Load a study by name."""
        study = load_study(find_study(name))
        return cls(study, map_panel(study))

    def labels(self, axis: str) -> list[str]:
        """Return the values of an axis that the panel shows, in the order of the study."""
        (found,) = [own for own in self.study.file.axis if own.name == axis]
        wanted = self.panel.where.get(axis)
        labels = [str(label) for label in axis_labels(found)]
        kept = labels if wanted is None else wanted if isinstance(wanted, list) else [wanted]
        return [label for label in labels if label in [str(value) for value in kept]]

    @property
    def by(self) -> list[str]:
        """Values that have maps of their own; one empty text without such an axis."""
        return self.labels(self.panel.by) if self.panel.by else [""]


class Cells:
    """Runs in the data file, and the build and date of each study."""

    def __init__(self, frame: pl.DataFrame, made: Mapping[str, Provenance]) -> None:
        self.frame = frame
        self.made = made

    @cached_property
    def _values(self) -> dict[tuple[str, ...], FloatArray]:
        groups = self.frame.group_by(KEYS, maintain_order=True)
        return {tuple(map(str, key)): rows["value"].to_numpy() for key, rows in groups}

    def values(self, *key: str) -> FloatArray:
        """Return the values of a cell's runs, shape (n,), by the columns `KEYS`; empty without."""
        return self._values.get(key, np.array([], dtype=np.float64))

    def studies(self) -> Sequence[str]:
        """Return the studies that have runs."""
        return self.frame["study"].unique(maintain_order=True).to_list()

    def seeds(self, study: str) -> int:
        """Return the number of seeds of a study."""
        return self.frame.filter(pl.col("study") == study)["seed"].n_unique()


def collect(name: str, results: Results) -> pl.DataFrame:
    """Return the rows for the data file that a study's results yield."""
    panel = Mapped.of(name).panel
    rows = results.selected(panel.where)
    frames = []
    for metric in panel.metrics:
        info = results.metrics.infos[metric]
        by = pl.col(panel.by).cast(pl.String) if panel.by else pl.lit("")
        frames.append(
            rows.select(
                study=pl.lit(name),
                metric=pl.lit(metric),
                by=by,
                row=pl.col(panel.y).cast(pl.String),
                column=pl.col(panel.x).cast(pl.String),
                seed="seed",
                value=pl.col(info.column) * info.factor,
            )
            .group_by(*KEYS, "seed", maintain_order=True)
            .agg(pl.col("value").mean().round_sig_figs(DIGITS))
            .drop_nulls("value")
        )
    return pl.concat(frames)


def read() -> Cells:
    """Read the data file; if it does not exist, there are no rows."""
    schema: dict[str, pl.DataType] = dict.fromkeys(KEYS, pl.String())
    schema |= {"seed": pl.Int64(), "value": pl.Float64()}
    frame = pl.read_csv(DATA, schema=schema) if DATA.exists() else pl.DataFrame(schema=schema)
    frame = frame.with_columns(pl.col("by").fill_null(""))
    return Cells(frame, read_provenance(PROVENANCE_FILE))
