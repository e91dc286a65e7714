"""`skyhop video watch`: play a film in a browser over a live run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.options import Force, Scenario, Sets
from skyhop.cli.packages import Command
from skyhop.cli.video import Film, Qoe, Top

WATCH_HELP = """\
Play a film in a real browser, with dash.js, over a live run of a scenario.

The film's server runs at the far end of the path, Chromium at the near end. The film is encoded on
the spot: a small picture, padded to the sizes of the film's chunks. The bitrate controller is one
of skyhop's or of dash.js: dash.js, dash.js-throughput, dash.js-bola. The run directory has the same
table of chunks as a film in the simulator.

Needs chromium, ffmpeg and dash.js; the error for a missing one names the command that installs it.

Examples:

  skyhop video watch any-program -o runs/film --set "link.back.rate=8 Mbit/s" --chunks 20

  skyhop video watch any-program -o runs/own --controller dash.js --cc bbr
"""


def watch(
    scenario: Scenario,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="The run directory.")
    ] = None,
    controller: Annotated[
        str, typer.Option("--controller", metavar="NAME", help="Bitrate controller.")
    ] = "robust-mpc",
    film: Film = "pensieve",
    top: Top = None,
    qoe: Qoe = "pensieve-linear",
    chunks: Annotated[
        int | None,
        typer.Option("--chunks", min=1, help="Play only the first N chunks of the film."),
    ] = None,
    buffer_cap_s: Annotated[
        float | None,
        typer.Option(
            "--buffer-cap",
            metavar="S",
            min=1.0,
            max=3600.0,
            help="Largest playback buffer, in seconds.",
        ),
    ] = None,
    cc: Annotated[
        str | None,
        typer.Option(
            "--cc",
            metavar="NAME|FILE.c",
            help="Congestion control of the film's server (default: cubic).",
            autocompletion=completion.congestion_controls,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the controller's random numbers.")
    ] = 1,
    downloads: Annotated[
        int,
        typer.Option(
            "--downloads", min=0, max=100, help="Number of concurrent downloads; they use CUBIC."
        ),
    ] = 0,
    sets: Sets = None,
    force: Force = False,
) -> None:
    """Play a film in a browser over a live run."""
    from skyhop.cli.runs import print_how_to_report, print_runs, print_warnings
    from skyhop.cli.stopping import stop_on_signals
    from skyhop_lab.browser.watching import WatchOptions, watch

    stop_on_signals()
    wish = WatchOptions(film, top, controller, qoe, chunks, buffer_cap_s, seed, downloads)
    run = watch(scenario, output, wish, sets=sets or [], cc=cc, force=force)
    print_runs([run.directory])
    print_warnings([run.directory])
    if output is not None:
        print_how_to_report(output)


WATCH = Command(watch, WATCH_HELP)
