"""`skyhop path`: compute, import, export and draw paths; one module per command."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from skyhop.cli.path import animate, compare, compute, export, import_, snapshots, stats


class ComputeUnlessNamed(TyperGroup):
    """Command group with the default subcommand `compute`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `compute` if the first word is no subcommand."""
        if not args or args[0] not in self.commands:
            args = ["compute", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=ComputeUnlessNamed,
    help="Compute or import the path between two places.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("compute", help=compute.HELP)(compute.compute)
app.command("import", help=import_.HELP)(import_.import_)
app.command("export", help=export.HELP)(export.export)
app.command("stats", help=stats.HELP)(stats.stats)
app.command("ground", help=snapshots.GROUND_HELP)(snapshots.ground)
app.command("sky", help=snapshots.SKY_HELP)(snapshots.sky)
app.command("animate", help=animate.HELP)(animate.animate)
app.command("compare", help=compare.HELP)(compare.compare)
