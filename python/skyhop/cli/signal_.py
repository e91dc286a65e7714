"""`skyhop signal`: announce handovers on this machine, and watch the announcements."""

from __future__ import annotations

import json
import os
import signal
import socket as sockets
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from skyhop.cli.terminal import print_note

app = typer.Typer(
    help=(
        "Announce handovers to the congestion controls in the kernel and to any program.\n\n"
        "Example: sudo skyhop signal serve --source schedule"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="The Unix socket: skyhop-signal.sock in $XDG_RUNTIME_DIR, or in /run for root.",
    ),
]


def _default_socket() -> Path:
    directory = os.environ.get("XDG_RUNTIME_DIR")
    if directory:
        return Path(directory) / "skyhop-signal.sock"
    root = os.geteuid() == 0
    return Path("/run/skyhop-signal.sock" if root else f"/tmp/skyhop-signal-{os.getuid()}.sock")


@app.command()
def serve(
    source: Annotated[
        str, typer.Option(metavar="schedule|path|blind", help="Who knows of handovers.")
    ] = "schedule",
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For path: a path file. For blind: a log or capture."),
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For blind: learn from what arrives there, as root."),
    ] = None,
    period: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="For schedule and blind: from one handover to the next, 15 s."
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For schedule: the first of each UTC minute, 12 s."),
    ] = None,
    lead: Annotated[
        str, typer.Option(metavar="TIME", help="How long before it a handover is announced.")
    ] = "0.5 s",
    error: Annotated[
        str, typer.Option(metavar="none|report-timing|TIME", help="Added on purpose.")
    ] = "none",
    netns: Annotated[
        str | None,
        typer.Option(metavar="NAME|PID", help="Whose connections hear it; where not given, ours."),
    ] = None,
    destination: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Only connections to this IPv4 prefix.")
    ] = None,
    socket: Socket = None,
) -> None:
    """Announce handovers until Ctrl-C: to the modules that are loaded, and as JSON lines.

    A path begins when the service does. With schedule the machine's clock counts: where NTP does
    not keep it, a warning says so, and announcements carry the error that the clock may have.
    Blind takes the grid of a log once, or learns it from the busiest conversation that arrives at
    an interface, every 30 s anew; there it takes some minutes until the first announcement.

    Example: sudo skyhop signal serve --source blind --interface eth0
    """
    from skyhop import _core

    given = {"file": file, "interface": interface, "period": period, "offset": offset}
    _check_options(source, {name for name, value in given.items() if value is not None})

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    _core.serve_signal(
        source,
        None if file is None else str(file),
        interface,
        (period or "15 s", offset or "12 s"),
        (lead, error),
        netns,
        destination,
        str(socket or _default_socket()),
        print_note,
    )


_OPTIONS = {
    "schedule": {"period", "offset"},
    "path": {"file"},
    "blind": {"file", "interface", "period"},
}
"""Each source's own options."""


def _check_options(source: str, given: set[str]) -> None:
    """Refuse options that the source does not look at, rather than ignore them.

    Raises:
        InputError: there is one; the message names it and who has it.
    """
    from skyhop.errors import InputError

    for name in sorted(given - _OPTIONS.get(source, given)):
        owners = " or ".join(owner for owner, options in _OPTIONS.items() if name in options)
        raise InputError(f"--{name} is for --source {owners}; --source {source} does not use it")
    if {"file", "interface"} <= given:
        raise InputError("--file and --interface: give either, a log or what to watch")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@app.command()
def watch(
    socket: Socket = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON lines as they come.")
    ] = False,
) -> None:
    """Print announcements as they are made, until the service ends or Ctrl-C.

    Example: skyhop signal watch --json
    """
    from skyhop.errors import RunError

    path = socket or _default_socket()
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError as error:
            raise RunError(
                f"{path}: {error.strerror or error}; is skyhop signal serve running?"
            ) from error
        with connection.makefile(encoding="utf-8") as lines:
            for line in lines:
                text = line.rstrip() if as_json else _text(json.loads(line))
                if text is not None:
                    print(text, flush=True)


def _text(line: dict[str, object]) -> str | None:
    """Return what a line says; None for types that later services may add."""
    if line["type"] == "hello":
        return f"listening to {line['source']}"
    if line["type"] != "handover":
        return None
    outage_ms, error_ms = (float(str(line[key])) / 1e6 for key in ("outage_ns", "error_ns"))
    return (
        f"handover ({line['kind']}) at {line['at_utc']}, "
        f"down for {outage_ms:g} ms, wrong by {error_ms:g} ms at most"
    )
