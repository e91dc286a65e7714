"""`skyhop signal`: announce handovers on this machine, and print announcements."""

from __future__ import annotations

import json
import math
import os
import socket as sockets
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from skyhop.cli.figures import Footer, Height, Width, figure_file_or_none
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, shown_text

if TYPE_CHECKING:
    from skyhop import _core
    from skyhop.analysis.report_timing import ReportTiming

app = group(
    "Announce handovers to congestion controls in the kernel and to programs.\n\n"
    "Example: sudo skyhop signal serve --source schedule"
)

_SOCKET_OF_ROOT = Path("/run/skyhop-signal.sock")

Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="Unix socket; default: skyhop-signal.sock in $XDG_RUNTIME_DIR, or in /run for root.",
    ),
]


def _default_socket() -> Path:
    directory = os.environ.get("XDG_RUNTIME_DIR")
    if directory:
        return Path(directory) / "skyhop-signal.sock"
    root = os.geteuid() == 0
    return _SOCKET_OF_ROOT if root else Path(f"/tmp/skyhop-signal-{os.getuid()}.sock")


def _socket_to_watch() -> Path:
    """Return the socket that the environment names, this user's if it exists, or that of root.

    The testbed sets `SKYHOP_SIGNAL` for its runs.
    """
    named = os.environ.get("SKYHOP_SIGNAL")
    if named:
        return Path(named)
    own = _default_socket()
    return own if own.exists() or not _SOCKET_OF_ROOT.exists() else _SOCKET_OF_ROOT


@app.command()
def serve(
    source: Annotated[
        str,
        typer.Option(metavar="schedule|path|blind|forecast", help="Source of the handover times."),
    ] = "schedule",
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For path: a path file. For blind: a log or capture."),
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="For blind: interface whose arriving packets to use (needs root)."
        ),
    ] = None,
    period: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="For schedule and blind: time between handovers (default: 15 s)."
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="For schedule: first handover in each UTC minute (default: 12 s)."
        ),
    ] = None,
    elements: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="For forecast: element sets (TLE or OMM), a file or a URL."
        ),
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="PLACE", help="For forecast: location of the terminal.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="For forecast: the other end, to forecast the whole path."
        ),
    ] = None,
    relay: Annotated[
        str | None,
        typer.Option(metavar="RELAY", help="For forecast with --to: bent-pipe, isl or access."),
    ] = None,
    handover: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY", help="For forecast: handover policy (default: max-elevation-grid)."
        ),
    ] = None,
    lead: Annotated[
        str, typer.Option(metavar="TIME", help="Time between an announcement and its handover.")
    ] = "0.5 s",
    error: Annotated[
        str,
        typer.Option(
            metavar="none|report-timing|TIME",
            help="Error added to announced times, for experiments.",
        ),
    ] = "none",
    netns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PID", help="Network namespace of the connections; default: the current."
        ),
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="Announce only to connections to this IPv4 prefix."),
    ] = None,
    socket: Socket = None,
) -> None:
    """Announce handovers to loaded modules and as JSON lines, until Ctrl-C or SIGTERM.

    Source path: the path begins when the service starts. Schedule and forecast depend on the
    machine's clock: if NTP does not synchronise the clock, the service prints a warning, and
    announcements state the possible error. Blind estimates the handover grid once from a log, or
    every 30 s from the busiest conversation that arrives at an interface; with an interface, the
    first announcement takes some minutes. Forecast reads the element sets again when their file
    changes.

    Example: sudo skyhop signal serve --source blind --interface eth0

    Example: sudo skyhop signal serve --source forecast --elements sl.tle --site "Victoria, CA"
    """
    from skyhop import _core
    from skyhop.cli.stopping import until_signal

    given = {
        "file": file, "interface": interface, "period": period, "offset": offset,
        "elements": elements, "site": site, "to": to, "relay": relay, "handover": handover,
    }  # fmt: skip
    _check_options(source, {name for name, value in given.items() if value is not None})
    if source in ("schedule", "blind"):
        _check_error(error, period or "15 s")

    with until_signal():
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
            _forecast(elements, site, to, relay, handover) if source == "forecast" else None,
        )


def _forecast(
    elements: str | None,
    site: str | None,
    to: str | None,
    relay: str | None,
    handover: str | None,
) -> tuple[_core.Scenario, str, _core.FoundPlace, _core.FoundPlace | None]:
    """Return scenario, element-set file and ends of a forecast."""
    from skyhop.data.downloads import download, is_address
    from skyhop.data.places import ambiguity_note, position_of
    from skyhop.data.scenarios import load_scenario
    from skyhop.errors import InputError

    if elements is None or site is None:
        missing = "--elements: a TLE or OMM file" if elements is None else "--site: a place"
        raise InputError(f"--source forecast needs {missing}")
    if relay == "geo":
        raise InputError("--relay geo: geostationary satellites are not handed over")
    path = {
        "from": site,
        "to": to or site,
        "relay": relay or "bent-pipe",
        "handover": handover or "max-elevation-grid",
        # The path of a single terminal is cheap to compute, so it has a finer step.
        "step": "100 ms" if to is None else "1 s",
    }
    file = str(download(elements)) if is_address(elements) else elements
    for note in [ambiguity_note(site), None if to is None else ambiguity_note(to)]:
        if note is not None:
            print_note(note)
    return (
        load_scenario({"path": path}, origin="the forecast"),
        file,
        position_of(site),
        None if to is None else position_of(to),
    )


_OPTIONS = {
    "schedule": {"period", "offset"},
    "path": {"file"},
    "blind": {"file", "interface", "period"},
    "forecast": {"elements", "site", "to", "relay", "handover"},
}
"""Options that each source uses."""


def _check_options(source: str, given: set[str]) -> None:
    """Refuse options that the source does not use, instead of ignoring them.

    Raises:
        InputError: an option is not used; the message names it and the source that uses it.
    """
    from skyhop.errors import InputError

    for name in sorted(given - _OPTIONS.get(source, given)):
        owners = " or ".join(owner for owner, options in _OPTIONS.items() if name in options)
        raise InputError(f"--{name} is for --source {owners}; --source {source} does not use it")
    if {"file", "interface"} <= given:
        raise InputError("--file and --interface: give only one, a log or an interface")


def _check_error(error: str, period: str) -> None:
    """Refuse an error that is so large that an announcement could be about the next handover.

    Raises:
        InputError: the error is at least the period, or the period is not a time.
    """
    from skyhop import _core
    from skyhop.data.quantities import seconds_or_none
    from skyhop.errors import InputError

    off_s = seconds_or_none(error.strip().removeprefix("-")) or 0.0
    if 0 < _core.duration_s("--period", period) <= off_s:
        raise InputError(
            f"--error {error}: is not less than the period of {period}, so that announcements are "
            "useless; give a smaller error"
        )


@app.command()
def unit(
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION ...]", help="Options of skyhop signal serve."),
    ] = None,
) -> None:
    """Print a systemd unit that announces handovers from the start of the machine on.

    It runs skyhop signal serve with the given options as root; file names in them must be
    absolute. skyhop docs how-to/signal explains the installation.

    Example: skyhop signal unit -- --source schedule --lead "0.3 s"
    """
    program = Path(sys.argv[0]).absolute()
    words = [str(program), "signal", "serve", *(options or [])]
    template = Path(__file__).with_name("skyhop-signal.service").read_text("utf-8")
    print(template.replace("@SERVE@", " ".join(map(_systemd_word, words))), end="")


def _systemd_word(word: str) -> str:
    """Quote a word for ExecStart=, so that systemd does not expand any part of it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" \t\"'\\;#") or not word else escaped


@app.command()
def watch(
    socket: Socket = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON lines unchanged.")
    ] = False,
) -> None:
    """Print announcements as they arrive, until the service ends, Ctrl-C or SIGTERM.

    Example: skyhop signal watch --json
    """
    from skyhop.cli.stopping import until_signal
    from skyhop.errors import RunError

    path = socket or _socket_to_watch()
    with until_signal(), sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
        try:
            # Non-blocking, because a stopped (SIGSTOP) service never accepts the connection.
            connection.setblocking(False)
            connection.connect(str(path))
            connection.setblocking(True)
        except BlockingIOError:
            raise RunError(f"{path}: the service does not answer; is it stopped?") from None
        except OSError as error:
            raise RunError(
                f"{path}: {error.strerror or error}; is skyhop signal serve running?"
            ) from error
        with connection.makefile(encoding="utf-8") as lines:
            try:
                for text in _texts(lines, as_json=as_json):
                    print(shown_text(text), flush=True)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise RunError(
                    f"{path}: unexpected data; is it the socket of another program?"
                ) from None


@app.command()
def timing(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Older element sets.")],
    new: Annotated[
        Path, typer.Argument(metavar="NEW", help="Newer element sets of the same constellation.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Figure of the errors.")
    ] = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="UTC",
            help="Time for which to predict positions; default: the median epoch of NEW.",
        ),
    ] = None,
    up_to: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Leave out satellites with errors above this."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two snapshots of element sets: errors of positions predicted from the older one.

    Prints quantiles (over satellites) of the time by which the predicted coverage is early or late
    (SaTCP, section V-B), and the value of T_err that these quantiles suggest.

    Example: skyhop signal timing starlink-morning.tle starlink-noon.tle -o errors.png
    """
    from skyhop import _core
    from skyhop.analysis.report_timing import report_timing

    figure = figure_file_or_none(output, width, height, footer=footer)
    up_to_s = math.inf if up_to is None else _core.duration_s("--up-to", up_to)
    found = report_timing(old, new, at=at, up_to_s=up_to_s)
    if figure is not None:
        from skyhop.analysis.report_timing import timing_view
        from skyhop.figures.report_timing import draw_timing

        figure.write(partial(draw_timing, timing_view(found)))
    _print_timing(found, as_json=as_json)


def _print_timing(found: ReportTiming, *, as_json: bool) -> None:
    from skyhop.analysis.report_timing import SHARES, T_ERR_SHARE
    from skyhop.cli.terminal import print_rows

    quantiles_s = {f"{share:.0%}": round(found.quantile_s(share), 6) for share in SHARES}
    if as_json:
        print(
            json.dumps(
                {
                    "at": found.at,
                    "satellites": len(found.errors_s),
                    "left_out": found.left_out,
                    "age_h": round(found.age_h, 3),
                    "newer_by_h": round(found.newer_by_h, 3),
                    "quantiles_s": quantiles_s,
                    "t_err_s": found.t_err_s,
                }
            )
        )
        return
    print(
        f"{len(found.errors_s)} satellites, predicted for {found.at}: "
        f"elements {found.age_h:.1f} h old against ones {found.newer_by_h:.1f} h newer"
        + (f"; {found.left_out} left out" if found.left_out else "")
    )
    rows = [
        {"satellites": share, "report timing error (s)": f"{error_s:.3f}"}
        for share, error_s in quantiles_s.items()
    ]
    print_rows(rows, as_json=False)
    print(f"T_err = {found.t_err_s:g} s: {T_ERR_SHARE:.0%} of the reports are at most that far off")


_LONGEST_LINE = 65_536


def _texts(lines: TextIO, *, as_json: bool) -> Iterator[str]:
    """Yield the text to print for each line of the service, as lines arrive."""
    period_ns = None
    while line := lines.readline(_LONGEST_LINE):
        message = json.loads(line)
        period_ns = message.get("period_ns", period_ns)
        text = line.rstrip() if as_json else _text(message, period_ns)
        if text is not None:
            yield text


def _text(line: dict[str, object], period_ns: int | None = None) -> str | None:
    """Return a line of the service as text; None for a type of line that is unknown.

    Later versions may add types. An announcement is called useless if its possible error is at
    least the time between handovers.
    """
    if line["type"] == "hello":
        return f"listening to {line['source']}"
    if line["type"] != "handover":
        return None
    outage_ms, error_ms = (float(str(line[key])) / 1e6 for key in ("outage_ns", "error_ns"))
    if period_ns is not None and error_ms * 1e6 >= period_ns:
        return (
            f"no use: a handover at {line['at_utc']} that may be wrong by {error_ms / 1e3:g} s, "
            f"while they are {period_ns / 1e9:g} s apart; does NTP keep the clock?"
        )
    return (
        f"handover ({line['kind']}) at {line['at_utc']}, "
        f"down for {outage_ms:g} ms, wrong by {error_ms:g} ms at most"
    )
