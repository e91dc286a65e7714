"""Tiers of the test suite, and the restrictions of each.

- `logic` (no marker): code in this process. Sockets, processes and sleep fail the test.
- `integration`: commands, services and live runs as users have them. The tests assert counts, order
  and conservation, never speed.
- `soak`: long tests, tests with new random cases, and measurements of time; not in `make test`.
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
"""Audit events (PEP 578) of the start of a process."""


class NotLogicError(RuntimeError):
    """Raised when a test without a marker starts a process or sleeps."""


class Guard:
    """Checks of logic tests: while one runs, forbidden calls raise an exception."""

    def __init__(self) -> None:
        self._is_on = False
        self._sleep = time.sleep
        self._start: Callable[[Any], None] = multiprocessing.process.BaseProcess.start

    def install(self) -> None:
        """Install the checks in this process; an audit hook cannot be removed."""
        sys.addaudithook(self._on_audit)
        time.sleep = self._checked_sleep
        multiprocessing.process.BaseProcess.start = self._checked_start()  # type: ignore[method-assign]

    def set(self, is_on: bool) -> None:
        """Switch the checks on or off."""
        self._is_on = is_on

    def is_on(self) -> bool:
        """Whether a test of logic is running."""
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
    def _refuse(action: str) -> None:
        raise NotLogicError(
            f"a test of logic {action}: mark it integration, or pass a clock to the code"
        )


guard = Guard()


def is_soak() -> bool:
    """Whether `make soak` runs, with new seeds and more random cases."""
    return "SKYHOP_SOAK" in os.environ


def tier(item: pytest.Item) -> str:
    """Return the tier of a test by its markers."""
    for name in ("soak", "integration"):
        if item.get_closest_marker(name):
            return name
    return "logic"


def sort_into_tiers(items: list[pytest.Item]) -> None:
    """Set each test's limits by its tier: no sockets in logic, a longer timeout in soak.

    Raises:
        pytest.UsageError: a test with the marker `alone` is not of the soak tier.
    """
    for item in items:
        of_tier = tier(item)
        if of_tier == "logic":
            item.add_marker(pytest.mark.disable_socket)
        elif of_tier == "soak" and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))
        if item.get_closest_marker("alone") and of_tier != "soak":
            raise pytest.UsageError(f"{item.nodeid}: alone is for soak tests")
