"""The tiers of the test suite, and what a test of each may do.

- `logic` (no marker): the code alone, in this process. Sockets, processes and sleep fail the test.
- `integration`: commands, services and live runs as users have them. The tests assert counts, order
  and conservation, never speed.
- `soak`: what takes long, draws new random cases or measures time. `make test` leaves it out.
"""

from __future__ import annotations

import multiprocessing.process
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

_PROCESS_EVENTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
"""The interpreter's audit events (PEP 578) of what starts a process."""


class NotLogicError(RuntimeError):
    """A test without a marker starts a process or sleeps."""


class Guard:
    """What a logic test may not do: raises from the calls themselves while one runs."""

    def __init__(self) -> None:
        self._is_on = False
        self._sleep = time.sleep
        self._start: Callable[[Any], None] = multiprocessing.process.BaseProcess.start

    def install(self) -> None:
        """Put the checks into this process; an audit hook stays for good."""
        sys.addaudithook(self._on_audit)
        time.sleep = self._checked_sleep
        multiprocessing.process.BaseProcess.start = self._checked_start()  # type: ignore[method-assign]

    def set(self, is_on: bool) -> None:
        """Begin or end the checks."""
        self._is_on = is_on

    def is_on(self) -> bool:
        """Return whether a test of logic runs."""
        return self._is_on

    def _on_audit(self, event: str, _arguments: object) -> None:
        if self._is_on and event in _PROCESS_EVENTS:
            self._refuse("starts a process")

    def _checked_sleep(self, seconds: float, /) -> None:
        if self._is_on and seconds > 0:
            self._refuse("sleeps")
        self._sleep(seconds)

    def _checked_start(self) -> Callable[[Any], None]:
        def start(process: Any) -> None:
            if self._is_on:
                self._refuse("starts a process")
            self._start(process)

        return start

    @staticmethod
    def _refuse(what: str) -> None:
        raise NotLogicError(f"a test of logic {what}: mark it integration, or hand it a clock")


guard = Guard()


def is_soak() -> bool:
    """Return whether `make soak` runs, with new seeds and more random cases."""
    return "SKYHOP_SOAK" in os.environ


def tier(item: pytest.Item) -> str:
    """Return the tier that a test's markers say."""
    for name in ("soak", "integration"):
        if item.get_closest_marker(name):
            return name
    return "logic"


def sort_into_tiers(items: list[pytest.Item]) -> None:
    """Give each test its tier's limits: no sockets in logic, more time and `alone` in soak.

    Raises:
        pytest.UsageError: a test that wants the machine for itself is not of the soak tier.
    """
    for item in items:
        of_tier = tier(item)
        if of_tier == "logic":
            item.add_marker(pytest.mark.disable_socket)
        elif of_tier == "soak" and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))
        if item.get_closest_marker("alone") and of_tier != "soak":
            raise pytest.UsageError(f"{item.nodeid}: alone is for soak tests")
