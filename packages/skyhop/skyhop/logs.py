"""Log lines on standard error, for `skyhop -v`, for SKYHOP_LOG and for services of the testbed.

Python's loggers and the compiled core (crates/python/src/log_lines.rs) follow the same directives
and write the same format: UTC time, level, target and message, one line per event. A target is a
logger or a Rust module; of the targets with which a name begins, the longest one applies.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping

from skyhop.errors import InputError

VARIABLE = "SKYHOP_LOG"
"""Environment variable with the directives, which the core and child processes inherit."""
SERVICE = "skyhop=info"
"""Directives of services of the testbed, which run unattended: their steps are always logged."""
_TRACE = 5
_LEVELS = {
    "off": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": _TRACE,
}
_DIRECTIVE = re.compile(r"(?:(?P<target>[\w.:]+)=)?(?P<level>\w+)", re.ASCII)
_BY_VERBOSITY = ("info", "debug", "trace")
_SHOWN = {"WARNING": "WARN", "CRITICAL": "ERROR"}
"""Names of levels that differ between Python and the core."""


def configure(verbosity: int = 0, *, otherwise: str = "") -> None:
    """Log as SKYHOP_LOG says, else as the verbosity says; pass the choice to child processes.

    Args:
        verbosity: number of `-v` on the command line: 1 for info, 2 for debug, 3 for trace, of
            skyhop's own targets only.
        otherwise: directives for this process alone, if neither is given.

    Raises:
        InputError: SKYHOP_LOG is not a list of directives.
    """
    if verbosity and not os.environ.get(VARIABLE):
        level = _BY_VERBOSITY[min(verbosity, len(_BY_VERBOSITY)) - 1]
        os.environ[VARIABLE] = f"skyhop={level}"
    handler = _LineHandler(_levels(os.environ.get(VARIABLE) or otherwise))
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if isinstance(each, _LineHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(min(handler.levels.values()))


def fields(values: Mapping[str, object]) -> str:
    """Return values as the fields of a log line, in the core's format."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def _levels(directives: str) -> Mapping[str, int]:
    """Return the level of each target; that of "" applies to all other names."""
    levels = {"": logging.WARNING}
    for directive in directives.split(",") if directives else ():
        parts = _DIRECTIVE.fullmatch(directive)
        if parts is None or parts["level"].lower() not in _LEVELS:
            raise InputError(
                f"{VARIABLE}: {directive!r}: expected a level ({', '.join(_LEVELS)}) or "
                "TARGET=LEVEL, such as skyhop_live=debug; separate several by commas"
            )
        levels[parts["target"] or ""] = _LEVELS[parts["level"].lower()]
    return levels


class _LineHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Handler that writes each record as one line; an internal error's traceback follows it."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        super().__init__()
        self.levels = levels

    def filter(self, record: logging.LogRecord) -> bool:
        target = max(filter(record.name.startswith, self.levels), key=len)
        return record.levelno >= self.levels[target]

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        level = _SHOWN.get(record.levelname, record.levelname)
        message = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in record.getMessage())
        line = f"{at}.{int(record.created % 1 * 1e6):06}Z {level:>5} {record.name}: {message}"
        if record.exc_info:
            line += "\n" + logging.Formatter().formatException(record.exc_info)
        return line
