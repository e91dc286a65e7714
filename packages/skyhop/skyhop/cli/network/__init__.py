"""`skyhop network`: networks of satellites and many sites; one module per command."""

from __future__ import annotations

from skyhop.cli.network import animate, export
from skyhop.cli.options import group

app = group(
    "Look at networks of satellites: loads of a run's links, and latency and availability over "
    "a constellation."
)

app.command("animate", help=animate.HELP)(animate.animate)
app.command("export", help=export.HELP)(export.export)
