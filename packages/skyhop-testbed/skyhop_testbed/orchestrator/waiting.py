"""Functions with which the orchestrator's event loop waits; tests pass others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

Wait = Callable[[asyncio.Event, float], Awaitable[None]]
"""Function that waits for an event, but at most for a number of seconds."""


async def wait_in_loop(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most `seconds` of the event loop's clock."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
