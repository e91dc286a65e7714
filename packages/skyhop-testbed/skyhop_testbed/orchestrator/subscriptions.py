"""Events that wake streaming calls when a node or a run changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager


class Subscriptions:
    """Events that are set when a node or a run changes; `notify` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._nodes: dict[str, set[asyncio.Event]] = {}
        self._runs: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    def notify(self, nodes: set[str], runs: set[str]) -> None:
        """Wake the calls that wait for one of these nodes or runs."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake, frozenset(nodes), frozenset(runs))

    def _wake(self, nodes: frozenset[str], runs: frozenset[str]) -> None:
        for names, waiting in ((nodes, self._nodes), (runs, self._runs)):
            for name in names:
                for event in waiting.get(name, ()):
                    event.set()

    def close(self) -> None:
        """Wake all calls, so that they end."""
        self.closed = True
        for waiting in (self._nodes, self._runs):
            for events in waiting.values():
                for event in events:
                    event.set()

    def of_node(self, name: str) -> contextlib.AbstractContextManager[asyncio.Event]:
        """Give an event that changes of a node set."""
        return _subscribed(self._nodes, name)

    def of_run(self, name: str) -> contextlib.AbstractContextManager[asyncio.Event]:
        """Give an event that changes of a run set."""
        return _subscribed(self._runs, name)


@contextmanager
def _subscribed(waiting: dict[str, set[asyncio.Event]], name: str) -> Iterator[asyncio.Event]:
    event = asyncio.Event()
    waiting.setdefault(name, set()).add(event)
    try:
        yield event
    finally:
        waiting[name].discard(event)
        if not waiting[name]:
            del waiting[name]
