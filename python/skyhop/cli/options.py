"""What several commands have: options, arguments, commands of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completing

Scenario = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO.toml",
        help="A scenario file, or a name of skyhop list examples.",
        autocompletion=completing.examples,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as flow.0.cc=bbr."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Use the output directory even if it is not empty.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table: all columns.")]
Each = Annotated[bool, typer.Option("--each", help="Show repeats one by one, not their means.")]
ForceSize = Annotated[
    bool,
    typer.Option("--force-size", help="Go on where it takes more memory or time than is usual."),
]
PathFile = Annotated[Path, typer.Argument(help="A path file (Parquet).")]


def with_size(sets: list[str] | None, *, force_size: bool) -> list[str]:
    """Return a scenario's overrides with that of `--force-size`."""
    return [*(sets or []), *(["run.force_size=true"] if force_size else [])]


def group(help_text: str) -> typer.Typer:
    """Return a command that has commands of its own."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
