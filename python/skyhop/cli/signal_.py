"""`skyhop signal`: announce handovers on this machine, and watch the announcements."""

from __future__ import annotations

import json
import math
import os
import signal
import socket as sockets
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, shown_text

if TYPE_CHECKING:
    from skyhop import _core
    from skyhop.analysis.report_timing import ReportTiming

app = group(
    "Announce handovers to the congestion controls in the kernel and to any program.\n\n"
    "Example: sudo skyhop signal serve --source schedule"
)

_SOCKET_OF_ROOT = Path("/run/skyhop-signal.sock")

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
    return _SOCKET_OF_ROOT if root else Path(f"/tmp/skyhop-signal-{os.getuid()}.sock")


def _socket_to_watch() -> Path:
    """Return the service's socket: the user's own where there is one, else root's."""
    own = _default_socket()
    return own if own.exists() or not _SOCKET_OF_ROOT.exists() else _SOCKET_OF_ROOT


@app.command()
def serve(
    source: Annotated[
        str, typer.Option(metavar="schedule|path|blind|forecast", help="What knows of handovers.")
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
    elements: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="For forecast: TLE or OMM, a file or an address."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="PLACE", help="For forecast: where the terminal is.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="For forecast: the other end, for the whole path."),
    ] = None,
    relay: Annotated[
        str | None,
        typer.Option(metavar="RELAY", help="For forecast with --to: bent-pipe, isl or access."),
    ] = None,
    handover: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="For forecast: max-elevation-grid, or another."),
    ] = None,
    lead: Annotated[
        str, typer.Option(metavar="TIME", help="How long before it a handover is announced.")
    ] = "0.5 s",
    error: Annotated[
        str, typer.Option(metavar="none|report-timing|TIME", help="Added on purpose.")
    ] = "none",
    netns: Annotated[
        str | None,
        typer.Option(metavar="NAME|PID", help="Whose connections; by default this namespace's."),
    ] = None,
    destination: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Only connections to this IPv4 prefix.")
    ] = None,
    socket: Socket = None,
) -> None:
    """Announce handovers until Ctrl-C: to the modules that are loaded, and as JSON lines.

    A path begins when the service does. With schedule and forecast the machine's clock matters:
    where NTP does not keep it, a warning says so, and announcements carry the error that the clock
    may have. Blind takes the grid of a log once, or learns it from the busiest conversation that
    arrives at an interface, every 30 s anew; there it takes some minutes until the first
    announcement. A forecast reads its element sets again when the file changes.

    Example: sudo skyhop signal serve --source blind --interface eth0

    Example: sudo skyhop signal serve --source forecast --elements sl.tle --site "Victoria, CA"
    """
    from skyhop import _core

    given = {
        "file": file, "interface": interface, "period": period, "offset": offset,
        "elements": elements, "site": site, "to": to, "relay": relay, "handover": handover,
    }  # fmt: skip
    _check_options(source, {name for name, value in given.items() if value is not None})
    if source in ("schedule", "blind"):
        _check_error(error, period or "15 s")

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
        _forecast(elements, site, to, relay, handover) if source == "forecast" else None,
    )


def _forecast(
    elements: str | None,
    site: str | None,
    to: str | None,
    relay: str | None,
    handover: str | None,
) -> tuple[_core.Scenario, str, _core.FoundPlace, _core.FoundPlace | None]:
    """Return what the service needs to know of a forecast."""
    from skyhop.data.downloads import downloaded, is_address
    from skyhop.data.places import position_of, taken_as
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
        # A terminal alone costs next to nothing: its handovers are told apart more finely.
        "step": "100 ms" if to is None else "1 s",
    }
    file = str(downloaded(elements)) if is_address(elements) else elements
    for note in [taken_as(site), None if to is None else taken_as(to)]:
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


def _check_error(error: str, period: str) -> None:
    """Refuse an error after which nobody knows which handover is meant.

    Raises:
        InputError: it is as long as the time between handovers, or the period is no time.
    """
    from skyhop import _core
    from skyhop.data.quantities import seconds_or_none
    from skyhop.errors import InputError

    off_s = seconds_or_none(error.strip().removeprefix("-")) or 0.0
    if 0 < _core.duration_s("--period", period) <= off_s:
        raise InputError(
            f"--error {error}: is as long as the period of {period}, so that an announcement tells "
            "nothing; expected less"
        )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@app.command()
def unit(
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION ...]", help="The options of skyhop signal serve."),
    ] = None,
) -> None:
    """Print a systemd unit that announces from the machine's start on.

    It runs skyhop signal serve with the given options, as root; files in them need their whole
    names. docs/signal.md says how to install it.

    Example: skyhop signal unit -- --source schedule --lead "0.3 s"
    """
    program = Path(sys.argv[0]).absolute()
    words = [str(program), "signal", "serve", *(options or [])]
    template = Path(__file__).with_name("skyhop-signal.service").read_text("utf-8")
    print(template.replace("@SERVE@", " ".join(map(_systemd_word, words))), end="")


def _systemd_word(word: str) -> str:
    """Return a word as it stands in ExecStart=: nothing in it is expanded."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" \t\"'\\;#") or not word else escaped


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

    path = socket or _socket_to_watch()
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
        try:
            # A service that is stopped accepts nobody, and is not waited for.
            connection.setblocking(False)
            connection.connect(str(path))
            connection.setblocking(True)
        except BlockingIOError:
            raise RunError(f"{path}: the service there does not answer; is it stopped?") from None
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
                    f"{path}: says what skyhop signal serve does not say; is it another program's?"
                ) from None


@app.command()
def timing(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The older element sets.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The newer ones, of the same fleet.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="A figure of the errors.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="UTC", help="Predict for then; else for the median epoch of NEW."),
    ] = None,
    up_to: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Leave out satellites that are further off."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two snapshots of element sets: how wrong are predictions from the older.

    Per satellite the time by which its predicted coverage is early or late (SaTCP, section V-B),
    as quantiles, and the T_err that they suggest.

    Example: skyhop signal timing starlink-morning.tle starlink-noon.tle -o errors.png
    """
    from skyhop import _core
    from skyhop.analysis.report_timing import report_timing

    up_to_s = math.inf if up_to is None else _core.duration_s("--up-to", up_to)
    found = report_timing(old, new, at=at, up_to_s=up_to_s)
    if output is not None:
        from skyhop.analysis.report_timing import timing_view
        from skyhop.figures import save
        from skyhop.figures.report_timing import draw_timing

        save(draw_timing(timing_view(found)), output)
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
    """Yield what is to be printed of the service's lines, as they come."""
    period_ns = None
    while line := lines.readline(_LONGEST_LINE):
        said = json.loads(line)
        period_ns = said.get("period_ns", period_ns)
        text = line.rstrip() if as_json else _text(said, period_ns)
        if text is not None:
            yield text


def _text(line: dict[str, object], period_ns: int | None = None) -> str | None:
    """Return what a line says; None for types that later services may add.

    An announcement that may be wrong by the time between handovers is told as what it is.
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
