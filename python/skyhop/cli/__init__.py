"""The command line: one file per command, commands.py all of them, and here how it starts."""

from __future__ import annotations

import os
import signal
from types import FrameType

from skyhop.cli.terminal import EXIT_INTERRUPTED, print_error


def main() -> None:
    """Run the command line: see commands.py, which takes a moment to load."""
    usual = signal.getsignal(signal.SIGINT)
    # Where Ctrl-C is ignored, it stays so.
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from skyhop.cli.commands import run

    signal.signal(signal.SIGINT, usual)
    run()


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End at once: an exception in the middle of an import may be shown, or be lost, there."""
    print_error("interrupted")
    os._exit(EXIT_INTERRUPTED)
