"""Exceptions of skyhop, all subclasses of `SkyhopError`.

`InputError` means that the user's input is wrong (exit code 2), `RunError` that a run failed
although its input is right (exit code 1; for `ProgramError` the program's own status), and
`InterruptedRunError` that the user stopped it (exit code 130). Every message is one line that says
what is wrong, where, and what to do; a `CompileError` puts the compiler's output before it. Text
quoted from files is escaped and shortened, so that a message stays one line.
"""

from __future__ import annotations

from typing import Any

_LONGEST = 400
"""Most characters of a message; the middle of a longer one is left out."""
_TAIL = 150
"""Characters of the end of a long message, which says what to do."""


class SkyhopError(Exception):
    """Base class of all errors that skyhop reports."""

    def __str__(self) -> str:
        return shortened(_in_one_line(super().__str__()))


def shortened(text: str) -> str:
    """Return a message without its middle if it is long."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - _TAIL - 1]}\N{HORIZONTAL ELLIPSIS}{text[-_TAIL:]}"


def described(error: Exception) -> str:
    """Return an error in one line; of an `OSError` the file and the reason, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


def _in_one_line(text: str) -> str:
    """Escape control characters and line breaks, which names in damaged files may contain."""
    if text.isprintable():
        return text
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


class InputError(SkyhopError):
    """Wrong input of the user: a file, a key, a name or a value."""


class CompileError(InputError):
    """Failure to compile a congestion control in C; `messages` is the compiler's output."""

    def __init__(self, message: str, messages: str = "") -> None:
        super().__init__(message)
        self.messages = messages

    def __str__(self) -> str:
        return f"{self.messages}{super().__str__()}"

    @property
    def line(self) -> str:
        """Message of the error in one line, without the compiler's messages."""
        return super().__str__()


class RunError(SkyhopError):
    """Failure of a run although its input is right: disk full, namespaces not allowed, …."""


class ProgramError(RunError):
    """Failure of the program that generates a live run's traffic; `run` has the measurements."""

    def __init__(self, status: int, run: Any) -> None:
        super().__init__(f"the program ended with status {status}")
        self.status = status
        self.run = run


class InterruptedRunError(RunError):
    """Interruption of a run by the user; `run`, a `skyhop.Run`, has the measurements until then."""

    def __init__(self, message: str, run: Any = None) -> None:
        super().__init__(message)
        self.run = run
