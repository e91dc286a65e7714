"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completion

Scenario = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO.toml",
        help="A scenario file, or a name of skyhop list examples.",
        autocompletion=completion.examples,
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
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV with all columns instead of a table.")]
Each = Annotated[
    bool, typer.Option("--each", help="Show each repeat (seed) instead of the means over repeats.")
]
ForceSize = Annotated[
    bool,
    typer.Option(
        "--force-size", help="Continue even if much more memory or time than usual is needed."
    ),
]
PathFile = Annotated[Path, typer.Argument(help="A path file (Parquet).")]


def with_size(sets: list[str] | None, *, force_size: bool) -> list[str]:
    """Return the overrides of a scenario; with `force_size`, add `run.force_size`."""
    return [*(sets or []), *(["run.force_size=true"] if force_size else [])]


def group(help_text: str) -> typer.Typer:
    """Return a command group, to which subcommands are added."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
