"""Waiting in tests for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_for(
    is_so: Callable[[], object], seconds: float = 120.0, why: Callable[[], object] | str = ""
) -> None:
    """Wait until something is so; fail where it does not come to be.

    Args:
        is_so: is asked again and again.
        seconds: how long at most.
        why: what helps to find out what went wrong.
    """
    limit = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > limit:
            pytest.fail(f"not so within {seconds:g} s: {why() if callable(why) else why}")
        time.sleep(0.02)
