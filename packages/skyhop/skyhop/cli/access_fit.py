"""`skyhop access fit`: an access profile from logs of a link."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    from skyhop.analysis.access_profile import AccessProfile

FIT_HELP = """\
Fit an access profile to logs of one link, and write it as TOML for path.access.profile.

Logs of round trips give floors, waits and holes; series of 100 ms and logs of rates give capacity,
delays and losses of each direction; packet times give the frames. Logs of round trips are fitted
together; each other part comes from the first log that tells it. The file ends with its goodness of
fit: for each row of the portrait the least and greatest value of the logs, and the mean of paths
drawn from the profile.

Examples:

  skyhop access fit monday.csv tuesday.csv -o home.toml

  skyhop access fit pings.csv lagos.csv --mark "lagos=11.8 s" --licence "CC BY 4.0" -o both.toml
"""

Marks = Annotated[
    list[str] | None,
    typer.Option(
        "--mark",
        metavar="[INPUT=]TIME",
        help="A moment of the grid by the input's own clock, such as 11.8 s; none: no grid. "
        "Of one input by its name; repeatable.",
    ),
]


def fit(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs of one link.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="PROFILE.toml", help="The profile to write.")
    ],
    mark: Marks = None,
    direction: Annotated[
        str | None,
        typer.Option(
            help="Direction of packet times and of logs with a single rate: up or down.",
            autocompletion=completion.one_of("up", "down"),
        ),
    ] = None,
    propagation: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Round trip of propagation alone on the measured path; the rest of the floor "
            "counts as the ground segment's over computed paths.",
        ),
    ] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the profile describes, in one line.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Where the logs come from.")
    ] = None,
    licence: Annotated[
        str, typer.Option(metavar="TEXT", help="Licence of the logs.")
    ] = "not stated",
    date: Annotated[
        str, typer.Option(metavar="DATE", help="Month or year of the logs.")
    ] = "not stated",
) -> None:
    """Fit a profile and say how well it fits."""
    from skyhop.analysis.access_profile import fit_access

    found = fit_access(
        *logs,
        marks=marks_by_input(mark),
        direction=direction,
        propagation=propagation,
        description=description,
        source=source,
        licence=licence,
        date=date,
    )
    found.write(output)
    _print(found)
    print_note(f"profile: {output}; use it with path.access.profile or skyhop path --access")


def _print(found: AccessProfile) -> None:
    from skyhop.analysis.portrait_tables import judgement_tables
    from skyhop.cli.tables import cells_of, print_table, print_wrapped

    for note in found.notes:
        print_wrapped(note)
    print()
    print_wrapped(found.judgement.text)
    for table in judgement_tables(found.judgement):
        print()
        print_table(cells_of(table), keys=(0, 1))


def marks_by_input(given: Sequence[str] | None) -> dict[str, str]:
    """Return the values of `--mark` by the name of the input; "" is for all inputs."""
    marks = {}
    for text in given or ():
        name, _, time = text.rpartition("=")
        marks[name] = time.strip()
    return marks
