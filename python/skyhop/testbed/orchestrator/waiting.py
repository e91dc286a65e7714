"""Waiting in the orchestrator's loop, as an argument: tests hand in a wait that they end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

Wait = Callable[[asyncio.Event, float], Awaitable[None]]
"""Waits until an event is set, and no longer than so many seconds."""


async def wait_in_loop(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, and no longer than `seconds` of the loop's own clock."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
