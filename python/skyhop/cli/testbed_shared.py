"""What the commands of `skyhop testbed` have in common: credentials, instants, what they print."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.terminal import print_rows

if TYPE_CHECKING:
    from skyhop.testbed.client import Testbed

As = Annotated[
    Path | None,
    typer.Option(
        "--as",
        metavar="FILE",
        help="Your credential; else $SKYHOP_TESTBED, else ~/.config/skyhop/testbed.json.",
    ),
]

_TABLE_TIME = "%Y-%m-%d %H:%M:%S"


def opened(credential: Path | None) -> Testbed:
    """Return the testbed of a credential's file."""
    from skyhop.testbed.client import Testbed

    return Testbed.of_file(credential)


def when(time_ns: int | None) -> str:
    """Return a time as tables have it."""
    if not time_ns:
        return ""
    return dt.datetime.fromtimestamp(time_ns / 1e9, dt.UTC).strftime(_TABLE_TIME)


def instant_ns(text: str | None, default_ns: int) -> int:
    """Return an instant of the command line: ISO 8601, UTC where no zone is given."""
    from skyhop.errors import InputError

    if text is None:
        return default_ns
    try:
        value = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f'"{text}" is no instant, such as "2026-12-01T10:00:00Z"') from None
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return round(value.timestamp() * 1e9)


def now_ns() -> int:
    """Return the time."""
    import time

    return time.time_ns()


def print_found(rows: list[dict[str, Any]], as_json: bool, empty: str) -> None:
    """Print rows, or that there are none."""
    if rows or as_json:
        print_rows(rows, as_json=as_json)
    else:
        print(empty)


def print_made(made: object, said: str, as_json: bool) -> None:
    """Print what a command did: in words, or as JSON."""
    print(json.dumps(made, indent=2) if as_json else said)
