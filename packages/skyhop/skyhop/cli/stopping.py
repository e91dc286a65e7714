"""Signals that stop a command: a run keeps its measurements, a service ends in the normal way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from skyhop.cli.terminal import print_note

_NAMES = {
    signal.SIGINT: "Ctrl-C (SIGINT)",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "a closed terminal (SIGHUP)",
}
_IGNORED_BY_PARENTS = (signal.SIGINT, signal.SIGHUP)
"""Signals that a parent process may ignore: a shell for its background jobs, and nohup."""

_received: list[signal.Signals] = []
"""Signal that has stopped this command, if one has."""


def stop_on_signals(stop: Callable[[], object] | None = None) -> None:
    """Stop at the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (closed terminal), and ignore more.

    More signals would lose the measurements. SIGINT and SIGHUP stay ignored if the parent process
    ignores them.

    Args:
        stop: function that stops the command; by default the handler raises KeyboardInterrupt.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        for each in _NAMES:
            signal.signal(each, signal.SIG_IGN)
        _received.append(signal.Signals(number))
        if stop is None:
            raise KeyboardInterrupt
        stop()

    for number in _NAMES:
        if number not in _IGNORED_BY_PARENTS or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)


@contextmanager
def until_signal() -> Iterator[None]:
    """Run a service in a block that a signal ends in the normal way; then print which signal.

    The signal raises KeyboardInterrupt in the block, unless the block calls `stop_on_signals` with
    a function of its own.
    """
    _received.clear()
    stop_on_signals()
    with suppress(KeyboardInterrupt):
        yield
    if _received:
        print_note(f"ended by {_NAMES[_received[0]]}")
