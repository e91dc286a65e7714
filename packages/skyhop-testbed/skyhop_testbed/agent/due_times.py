"""Times at which the main loop's periodic work is due."""

from __future__ import annotations

from skyhop_testbed.clock import Clock

_S = 1_000_000_000


class DueTimes:
    """Next time of each kind of periodic work, by name; unknown work is due at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}

    def is_due(self, name: str, every_s: float, *, at_second: bool = False) -> bool:
        """Return whether work is due; if it is, set its next time.

        Args:
            name: the work.
            every_s: interval in s.
            at_second: whether the work is due at the next full second of UTC instead.
        """
        now = self._clock.now_ns() / _S if at_second else self._clock.monotonic_s()
        # If the clock was set back, the next due time is far ahead; periodic work must not stop
        # until then.
        if name in self._due and now < self._due[name] and self._due[name] - now < 2 * every_s:
            return False
        self._due[name] = (now // 1 + 1) if at_second else now + every_s
        return True

    def set_due(self, name: str) -> None:
        """Make work due at once."""
        self._due.pop(name, None)
