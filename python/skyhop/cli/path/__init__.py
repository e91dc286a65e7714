"""`skyhop path`: compute, import, export and look at paths; one file per command."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from skyhop.cli.path import animate, compare, compute, export, import_, look, stats


class ComputeUnlessNamed(TyperGroup):
    """A group whose first word may be left out: it is `compute` then."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `compute` where no subcommand is named."""
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
app.command("ground", help=look.GROUND_HELP)(look.ground)
app.command("sky", help=look.SKY_HELP)(look.sky)
app.command("animate", help=animate.HELP)(animate.animate)
app.command("compare", help=compare.HELP)(compare.compare)
