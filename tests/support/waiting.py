"""Waiting in tests for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_for(
    is_so: Callable[[], object], seconds: float = 120.0, why: Callable[[], object] | str = ""
) -> None:
    """Wait until a condition holds; fail the test after a timeout.

    Args:
        is_so: condition, called every 20 ms.
        seconds: timeout.
        why: context for the message of the failure.
    """
    limit = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > limit:
            pytest.fail(
                f"condition not true within {seconds:g} s: {why() if callable(why) else why}"
            )
        time.sleep(0.02)
