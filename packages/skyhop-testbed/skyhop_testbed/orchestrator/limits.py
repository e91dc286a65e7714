"""Rate limiter of all callers: users of the API and the web pages, log-ins, wrong credentials."""

from __future__ import annotations

import threading
from collections import deque

from skyhop_testbed.clock import Clock
from skyhop_testbed.orchestrator.request_context import TooOftenError

_MINUTE_S = 60.0
_MOST_KNOWN = 10_000


class RateLimiter:
    """Sliding-window rate limiter: counts each caller's requests within the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def check(self, who: str, limit: float) -> None:
        """Count one request of a caller.

        Raises:
            TooOftenError: the caller has sent `limit` requests within the last minute.
        """
        now = self._clock.monotonic_s()
        with self._lock:
            if len(self._recent) > _MOST_KNOWN:
                begin = now - _MINUTE_S
                self._recent = {name: t for name, t in self._recent.items() if t[-1] > begin}
            times = self._recent.setdefault(who, deque())
            while times and times[0] <= now - _MINUTE_S:
                times.popleft()
            if len(times) >= limit:
                raise TooOftenError(f"more than {limit:g} requests per minute: wait a minute")
            times.append(now)
