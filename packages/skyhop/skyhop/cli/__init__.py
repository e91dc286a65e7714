"""Command line: one module per command, registered in `commands.py`, and the entry point."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from skyhop.cli.terminal import EXIT_FAILED, EXIT_INTERRUPTED, print_error


def main() -> None:
    """Run the command line; exit at once on Ctrl-C during the slow import of `commands`."""
    usual = signal.getsignal(signal.SIGINT)
    # If the parent ignores SIGINT (nohup, a background job), keep it ignored.
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    try:
        from skyhop.cli.commands import run
    except OSError as error:
        # The disk may be full, or the working directory gone.
        print_error(f"cannot start: {error.filename or 'the disk'}: {error.strerror or error}")
        sys.exit(EXIT_FAILED)
    signal.signal(signal.SIGINT, usual)
    run()


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Exit at once: KeyboardInterrupt within an import may print a traceback or be swallowed."""
    print_error("interrupted")
    os._exit(EXIT_INTERRUPTED)
