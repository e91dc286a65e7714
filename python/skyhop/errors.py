"""What can go wrong, as one tree of exceptions.

`InputError` is for what the user gave (exit code 2), `RunError` for what happened while it was
used (exit code 1; of `ProgramError` the program's own), `InterruptedRunError` for what the user
stopped (exit code 130). Every message is one line that says what, where and what to do; before that
of a `CompileError` stands what the compiler said. What is quoted from files cannot make it more.
"""

from __future__ import annotations

from typing import Any

_LONGEST = 2000


class SkyhopError(Exception):
    """Anything that skyhop reports about itself or its input."""

    def __str__(self) -> str:
        return _in_one_line(super().__str__())


def _in_one_line(text: str) -> str:
    """Write out what would act on a terminal or begin a line, as names in damaged files do."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\N{HORIZONTAL ELLIPSIS}{text[-_LONGEST // 4 :]}"
    if text.isprintable():
        return text
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


class InputError(SkyhopError):
    """The input was wrong: a file, a key, a name, a value."""


class CompileError(InputError):
    """A congestion control in C does not compile; `messages` is what the compiler printed."""

    def __init__(self, message: str, messages: str = "") -> None:
        super().__init__(message)
        self.messages = messages

    def __str__(self) -> str:
        return f"{self.messages}{super().__str__()}"

    @property
    def line(self) -> str:
        """What skyhop has to say, without the compiler's messages."""
        return super().__str__()


class RunError(SkyhopError):
    """The input was right, but the run failed."""


class ProgramError(RunError):
    """The program that made a live run's traffic failed; what was measured is in `run`."""

    def __init__(self, status: int, run: Any) -> None:
        super().__init__(f"the program ended with status {status}")
        self.status = status
        self.run = run


class InterruptedRunError(RunError):
    """The run was stopped by the user; what was measured until then is in `run`, a `skyhop.Run`."""

    def __init__(self, message: str, run: Any = None) -> None:
        super().__init__(message)
        self.run = run
