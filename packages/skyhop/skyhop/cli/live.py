"""`skyhop live`: run a scenario in real time on the real TCP stack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.options import Csv, Force, ForceSize, Json, Scenario, Sets, with_size
from skyhop.cli.runs import check_form, print_result, print_whereabouts
from skyhop.cli.stopping import stop_on_signals
from skyhop.data.progress import progress_bar

HELP = """\
Run a scenario in real time on this machine's own TCP stack.

Its flows run between two network namespaces joined by the scenario's path and link. Instead of the
flows, any program can run, given after "--"; {server} in its arguments and $SKYHOP_SERVER are the
address of the far end.

Works without root if user namespaces are allowed, and changes nothing outside its namespaces.

Examples:

  skyhop live scenario.toml -o runs/cubic

  skyhop live scenario.toml -o runs/bbr --set flow.0.cc=bbr

  skyhop live scenario.toml --server-cmd "iperf3 -s -1" --cc bbr -- iperf3 -c {server}

  skyhop live scenario.toml -o runs/page --internet -- curl -O https://example.org/
"""


def live(
    scenario: Scenario,
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- PROGRAM ...]", help="A program to run over the path instead of TCP flows."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="The run directory.")
    ] = None,
    sets: Sets = None,
    server_cmd: Annotated[
        str | None,
        typer.Option(
            "--server-cmd", metavar="COMMAND", help="Server command, started first at the far end."
        ),
    ] = None,
    cc: Annotated[
        str | None,
        typer.Option(
            "--cc",
            metavar="NAME|FILE.c",
            help="Congestion control of the program (default: cubic).",
            autocompletion=completion.congestion_controls,
        ),
    ] = None,
    internet: Annotated[
        bool,
        typer.Option("--internet", help="Let the program reach the Internet through the path."),
    ] = False,
    force: Force = False,
    force_size: ForceSize = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Run a scenario live."""
    from skyhop.engines import Observer, Program, live
    from skyhop.errors import InputError, InterruptedRunError, ProgramError

    check_form(as_json=as_json, as_csv=as_csv)
    if server_cmd is not None and not program:
        raise InputError(
            "--server-cmd needs a program: add it after --, for example -- iperf3 -c {server}"
        )
    if internet and not program:
        raise InputError("--internet needs a program: add it after --, for example -- curl URL")
    if cc is not None and not program:
        raise InputError(
            "--cc is for programs: set a flow's congestion control by --set flow.0.cc=NAME"
        )
    stop_on_signals()
    with progress_bar("computing the path") as path, progress_bar("running") as run:
        try:
            result = live(
                scenario,
                output,
                sets=with_size(sets, force_size=force_size),
                program=Program(program, server_cmd, internet) if program else None,
                cc=cc,
                force=force,
                # A program writes to the terminal itself: show no progress bar of the run.
                observer=Observer(path) if program else Observer(path, run),
            )
        except (InterruptedRunError, ProgramError) as stop:
            if stop.run is not None and output is not None:
                print_result(stop.run, as_json=as_json, as_csv=as_csv, has_program=bool(program))
            raise
    print_result(result, as_json=as_json, as_csv=as_csv, has_program=bool(program))
    print_whereabouts(result, output)
