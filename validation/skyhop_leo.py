"""Write the results of learned senders into docs/results/skyhop-leo.md, from runs of their studies.

    python -m validation skyhop-leo learned=runs/learned learned-measured=runs/measured

Run the study `learned` with --policy "trained untold=CARD.toml", where CARD.toml is the card of the
same training without announcements (--set signal.source=none).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from scipy import stats

from skyhop.errors import RunError
from validation import pages

PAGE = pages.RESULTS / "skyhop-leo.md"
NAMES = {
    "skyhop-leo": "**skyhop-leo**, with announcements",
    "untold": "**skyhop-leo**, no announcements",
    "trained untold": "trained without announcements",
}
"""Names of senders on the page, by their names in the studies."""


@dataclass(frozen=True)
class Figure:
    """Table of the page: column of the results, case of the study, and decimals."""

    title: str
    case: str
    column: str
    decimals: int


FIGURES = (
    Figure("goodput of one flow, Mbit/s", "alone", "used_mbps", 1),
    Figure("delay inflation of one flow", "alone", "inflation", 2),
    Figure("retransmissions of one flow", "alone", "retransmits", 0),
    Figure("goodput of one flow with 0.5 % loss, Mbit/s", "loss", "used_mbps", 1),
    Figure("goodput ratio, lower over higher, of two flows", "next to itself", "ratio", 2),
    Figure("goodput ratio, if the second flow begins a minute later", "after itself", "ratio", 2),
    Figure("share of the goodput next to a CUBIC flow, %", "next to CUBIC", "share_pct", 0),
)


def tables(results: pl.DataFrame) -> Iterator[str]:
    """Yield a table for each figure that has runs."""
    of_first = results.filter(pl.col("flow") == 0)
    for figure in FIGURES:
        runs = of_first.filter(pl.col("case") == figure.case)
        if not runs.is_empty():
            yield table(figure, runs)


def table(figure: Figure, runs: pl.DataFrame) -> str:
    """Return a table of means with their confidence intervals, a row per sender."""
    paths = runs["path"].unique(maintain_order=True).to_list()
    rows = []
    for sender in runs["sender"].unique(maintain_order=True):
        of_sender = runs.filter(pl.col("sender") == sender)
        cells = [cell(figure, of_sender.filter(pl.col("path") == path)) for path in paths]
        rows.append([NAMES.get(sender, sender), *cells])
    return pages.table([figure.title, *paths], rows)


def cell(figure: Figure, runs: pl.DataFrame) -> str:
    """Return the mean and half its 95 % confidence interval (Student's t)."""
    values = runs[figure.column].drop_nulls().to_numpy()
    if len(values) < 2:  # noqa: PLR2004
        return f"{values[0]:.{figure.decimals}f}" if len(values) else ""
    reach = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return f"{values.mean():.{figure.decimals}f} ± {reach:.{figure.decimals}f}"


def main(
    runs: Annotated[
        list[str], typer.Argument(metavar="STUDY=DIR...", help="Output directory of each study.")
    ],
) -> None:
    """Write the tables of the given studies into the page."""
    page = PAGE.read_text("utf-8")
    for entry in runs:
        name, _, directory = entry.partition("=")
        file = Path(directory) / "results.parquet"
        if not file.exists():
            raise RunError(f"{file}: does not exist; run the study first")
        page = pages.with_part(page, name, "\n\n".join(tables(pl.read_parquet(file))))
    PAGE.write_text(page, "utf-8")
