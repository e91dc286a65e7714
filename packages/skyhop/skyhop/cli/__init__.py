"""Command line: one module per command, registered in `commands.py`, and the entry point."""

from __future__ import annotations

import os
import signal
from types import FrameType

from skyhop.cli.terminal import EXIT_INTERRUPTED, print_error


def main() -> None:
    """Run the command line; exit at once on Ctrl-C during the slow import of `commands`."""
    usual = signal.getsignal(signal.SIGINT)
    # If the parent ignores SIGINT (nohup, a background job), keep it ignored.
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from skyhop.cli.commands import run

    signal.signal(signal.SIGINT, usual)
    run()


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Exit at once: KeyboardInterrupt within an import may print a traceback or be swallowed."""
    print_error("interrupted")
    os._exit(EXIT_INTERRUPTED)
