"""Terminal output of all commands: tables, notes, errors."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# At the top, because `print_error` may run in a signal handler, in the middle of another import.
from skyhop.errors import CompileError, shortened

if TYPE_CHECKING:
    from skyhop.errors import SkyhopError

EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of SIGINT, as shells have it."""

_UNSHOWN = ("Cc", "Cs", "Cf", "Zl", "Zp")
"""Unicode categories that would control a terminal: controls, surrogates, formats, line ends."""
_HARMLESS = "\t\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}\N{SOFT HYPHEN}"
"""Characters of these categories that are printed, because scripts and tables need them."""


def print_error(message: str) -> None:
    """Print one line to standard error; the middle of a long message is left out."""
    print(f"skyhop: {shown_text(shortened(' '.join(message.split())))}", file=sys.stderr)


def is_directory_gone() -> bool:
    """Return whether the working directory has been removed."""
    try:
        Path.cwd()
    except OSError:
        return True
    return False


def print_failure(error: SkyhopError) -> None:
    """Print an error in one line, after the compiler's messages if it has any."""
    if isinstance(error, CompileError):
        sys.stderr.write(error.messages)
        print_error(error.line)
    else:
        print_error(str(error))


def print_note(message: str) -> None:
    """Print a line that is not part of the command's output, to standard error."""
    print("\n".join(map(shown_text, message.split("\n"))), file=sys.stderr)


def shown_text(text: str) -> str:
    """Escape characters that would control a terminal, for example in names from damaged files."""
    return "".join(c.encode("unicode_escape").decode() if _acts(c) else c for c in text)


def _acts(character: str) -> bool:
    return character not in _HARMLESS and unicodedata.category(character) in _UNSHOWN


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str = "") -> None:
    """Print rows as a table, or as JSON for other programs."""
    if as_json:
        print(json.dumps(list(rows), indent=2, ensure_ascii=False))
        return
    from skyhop.cli.tables import Cells, print_table

    columns = []
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        numeric = all(isinstance(value, int | float) for value in values if value is not None)
        heading, _, unit = name.replace("_", " ").rstrip(")").partition(" (")
        columns.append(Cells(heading, unit, [_cell(v) for v in values], numeric))
    print_table(columns, title=title)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
