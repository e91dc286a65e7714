"""Signal handling of runs: an interrupted run keeps its measurements."""

from __future__ import annotations

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_on_signals() -> None:
    """Raise KeyboardInterrupt once on SIGINT (Ctrl-C), SIGTERM and SIGHUP (closed terminal)."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Stop the run; ignore further signals meanwhile, because they would lose the measurements."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
