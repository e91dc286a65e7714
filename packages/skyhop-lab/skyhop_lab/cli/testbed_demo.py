"""`skyhop testbed demo`: a complete testbed on this machine, for two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from skyhop.cli.stopping import stop_on_signals
from skyhop.cli.terminal import print_rows, shown_text


def demo(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Directory for the results."),
    ] = Path("testbed-demo"),
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="State directory to keep; by default the state is removed at the end.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short demo of half a minute.")] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the testbed running until Ctrl-C, to see the web pages."),
    ] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the web pages in a browser.")
    ] = False,
) -> None:
    """Run a complete testbed on this machine: three emulated sites, an orchestrator, a server.

    Shows a scheduled run, a triggered run, and a run that yields to the traffic of its host's
    owner. The demo changes nothing outside its own namespaces, leaves nothing behind, and needs no
    root if the system allows user namespaces.

    Example: skyhop testbed demo --keep --open
    """
    from skyhop_lab.testbed_demo.story import Options, run_demo

    stop_on_signals()
    run_demo(
        Options(
            output=output,
            state=state,
            is_quick=quick,
            keep=keep,
            on_page=_open if open_page else lambda _address: None,
            say=_say,
            show=_show,
        )
    )


def _say(line: str) -> None:
    print("\n".join(map(shown_text, line.split("\n"))), flush=True)


def _show(rows: list[dict[str, Any]]) -> None:
    print_rows(rows, as_json=False)


def _open(address: str) -> None:
    import webbrowser

    webbrowser.open(address)
