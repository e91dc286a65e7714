"""Signals that the tests inherit as ignored, as in `make test &` (SIGINT) and `nohup` (SIGHUP).

Processes that tests start would inherit this too, and not end when a test interrupts them.
"""

from __future__ import annotations

import signal


def restore() -> None:
    """Handle these signals, so that child processes start with their default action."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # The tests themselves go on when the terminal closes.
        signal.signal(signal.SIGHUP, lambda *_: None)
