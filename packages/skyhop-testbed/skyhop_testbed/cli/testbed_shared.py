"""Shared parts of the `skyhop testbed` commands: credentials, times and output."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.terminal import print_rows

if TYPE_CHECKING:
    from skyhop_testbed.client import Testbed

As = Annotated[
    Path | None,
    typer.Option(
        "--as",
        metavar="FILE",
        help="Your credential; default: $SKYHOP_TESTBED, else ~/.config/skyhop/testbed.json.",
    ),
]

_TABLE_TIME = "%Y-%m-%d %H:%M:%S"


def opened(credential: Path | None) -> Testbed:
    """Return a client for the testbed of a credential file, or of the default one."""
    from skyhop_testbed.client import Testbed

    return Testbed.of_file(credential)


def when(time_ns: int | None) -> str:
    """Return a time in UTC for tables; "" for None and 0."""
    if not time_ns:
        return ""
    return dt.datetime.fromtimestamp(time_ns / 1e9, dt.UTC).strftime(_TABLE_TIME)


def instant_ns(text: str | None, default_ns: int) -> int:
    """Parse a time of the command line: ISO 8601, UTC without a time zone; return ns."""
    from skyhop.errors import InputError

    if text is None:
        return default_ns
    try:
        value = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f'"{text}": expected a time such as "2026-12-01T10:00:00Z"') from None
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return round(value.timestamp() * 1e9)


def now_ns() -> int:
    """Return the present time in ns since 1970."""
    import time

    return time.time_ns()


def print_found(rows: list[dict[str, Any]], as_json: bool, empty: str) -> None:
    """Print rows as a table or JSON; for an empty table print `empty`."""
    if rows or as_json:
        print_rows(rows, as_json=as_json)
    else:
        print(empty)


def print_outcome(result: object, text: str, as_json: bool) -> None:
    """Print the result of a command, as text or JSON."""
    print(json.dumps(result, indent=2) if as_json else text)
