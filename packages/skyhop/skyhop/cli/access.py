"""`skyhop access`: how the access link of a satellite network behaves, from logs and from runs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.access_fit import FIT_HELP, Marks, fit, marks_by_input
from skyhop.cli.figures import Footer, Height, PanelName, Width, figure_file_or_none
from skyhop.cli.options import ForceSize, Json, group

if TYPE_CHECKING:
    from skyhop.analysis.portrait import Portraits

HELP = """\
The access link of a satellite network as it is measured: floor and excess of round trips, capacity
by slot, losses, and what happens at the marks of the grid. skyhop docs access-link has the rows.
"""

PORTRAIT_HELP = """\
Print the portrait of an access link: of logs, path files and runs side by side.

Inputs are logs of round trips (ping, irtt, RIPE Atlas, csv), series of 100 ms with both directions,
packet times (mahimahi, LeoCC), logs of rates, path files, and run directories. A row that an input
cannot tell has a dash. Rows by phase need the marks of the grid: those of UTC if the log shows
them, otherwise those that the log itself shows, or those of --mark.

Examples:

  skyhop access portrait ping.txt

  skyhop access portrait lagos.csv --mark "11.8 s" -o lagos.png

  skyhop access portrait runs/dish --against monday.csv.gz --against tuesday.csv.gz
"""

app = group(HELP)


@app.callback()
def access() -> None:
    """Accept no options: the command has subcommands alone."""


app.command("fit", help=FIT_HELP)(fit)


@app.command("portrait", help=PORTRAIT_HELP)
def portrait(
    inputs: Annotated[
        list[Path], typer.Argument(metavar="INPUT...", help="Logs, path files, run directories.")
    ],
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against", metavar="LOG",
            help="A reference log; repeatable. Print which rows lie within the references' range.",
        ),
    ] = None,
    mark: Marks = None,
    period: Annotated[str, typer.Option(metavar="TIME", help="Time between two marks.")] = "15 s",
    direction: Annotated[
        str | None,
        typer.Option(
            help="Direction of packet times and of a single rate, and of a path or run from its "
            "end from to its end to: up or down.",
            autocompletion=completion.one_of("up", "down"),
        ),
    ] = None,
    as_json: Json = False,
    force_size: ForceSize = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FIGURE", help="Also draw a figure: PNG, SVG or PDF."
        ),
    ] = None,
    panel: PanelName = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:  # fmt: skip
    """Print the portraits of access links."""
    wanted = figure_file_or_none(figure, width, height, footer=footer)

    import skyhop

    found = skyhop.portrait(
        *inputs,
        against=against or (),
        mark=marks_by_input(mark),
        direction=direction,
        period=period,
        force_size=force_size,
    )
    if as_json:
        print(json.dumps(found.document(), indent=2, ensure_ascii=False))
    else:
        _print(found)
    if wanted is not None:
        from skyhop.figures.portrait import draw_portraits

        wanted.write(partial(draw_portraits, found, panel=panel))


def _print(found: Portraits) -> None:
    from skyhop.analysis.portrait_tables import judgement_tables, portrait_tables
    from skyhop.cli.tables import cells_of, print_table, print_wrapped

    for one in found.portraits:
        print_wrapped(one.text)
    for one in found.references:
        print_wrapped(f"reference {one.text}")
    for table in portrait_tables(found):
        print()
        print_table(cells_of(table), keys=(0, 1))
        if table.note:
            print_wrapped(table.note)
    for judgement in found.judgements:
        print()
        print_wrapped(judgement.text)
        for table in judgement_tables(judgement):
            print()
            print_table(cells_of(table), keys=(0, 1))
