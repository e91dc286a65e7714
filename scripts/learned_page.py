"""Write the results of learned senders into docs/results/skyhop-leo.md, from runs of their studies.

.venv/bin/python scripts/learned_page.py learned=runs/learned learned-measured=runs/measured

Run the study `learned` with --policy "trained untold=CARD.toml", where CARD.toml is the card of the
same training without announcements (--set signal.source=none).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from scipy import stats

from skyhop.cli.terminal import print_error

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "skyhop-leo.md"
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
    lines = [f"| {figure.title} | {' | '.join(paths)} |", f"|---|{'---|' * len(paths)}"]
    for sender in runs["sender"].unique(maintain_order=True):
        of_sender = runs.filter(pl.col("sender") == sender)
        cells = [cell(figure, of_sender.filter(pl.col("path") == path)) for path in paths]
        lines.append(f"| {NAMES.get(sender, sender)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(figure: Figure, runs: pl.DataFrame) -> str:
    """Return the mean and half its 95 % confidence interval (Student's t)."""
    values = runs[figure.column].drop_nulls().to_numpy()
    if len(values) < 2:  # noqa: PLR2004
        return f"{values[0]:.{figure.decimals}f}" if len(values) else ""
    reach = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return f"{values.mean():.{figure.decimals}f} ± {reach:.{figure.decimals}f}"


def fill_in(page: str, made: Mapping[str, str]) -> str:
    """Return the page with the text between the marks of each name replaced."""
    for name, text in made.items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page, count = mark.subn(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page)
        if count != 1:
            raise SystemExit(f"{PAGE}: has no mark <!-- {name} -->")
    return page


def main() -> int:
    """Write the tables of the given studies into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "runs", nargs="+", metavar="STUDY=DIR", help="output directory of each study"
    )
    given = dict(entry.split("=", 1) for entry in parser.parse_args().runs)
    made = {}
    for name, directory in given.items():
        file = Path(directory) / "results.parquet"
        if not file.exists():
            print_error(f"{file}: does not exist; run the study first")
            return 1
        made[name] = "\n\n".join(tables(pl.read_parquet(file)))
    PAGE.write_text(fill_in(PAGE.read_text("utf-8"), made), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
