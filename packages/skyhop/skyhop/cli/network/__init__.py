"""`skyhop network`: networks of satellites and many sites; one module per command."""

from __future__ import annotations

from skyhop.cli.network import animate, export, map_, pairs, without
from skyhop.cli.options import group

app = group(
    "Look at networks of satellites: loads of a run's links, and latency and availability over "
    "a constellation."
)

app.command("map", help=map_.HELP)(map_.map_)
app.command("pairs", help=pairs.HELP)(pairs.pairs)
app.command("without", help=without.HELP)(without.without)
app.command("animate", help=animate.HELP)(animate.animate)
app.command("export", help=export.HELP)(export.export)
