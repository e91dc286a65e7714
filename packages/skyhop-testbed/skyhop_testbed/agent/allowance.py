"""Limits of the testbed's own data on the owner's link: the month's cap and the uploads' rate.

The month's total has the bytes of runs and of the agent itself: uploads, telemetry, reports, and
downloads of input files. It is kept in the agent's database. Results wait while the owner uses the
link, and once the cap is reached until the next month. No run begins then and no telemetry is sent;
reports of runs, of the scavenger and of the node's health go on.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from skyhop_testbed.clock import Clock

if TYPE_CHECKING:
    from skyhop_testbed.agent.agent_db import AgentDb
    from skyhop_testbed.agent.policy import Policy

_S = 1_000_000_000
_SAVE_BYTES, _SAVE_EVERY_S = 1_000_000, 60.0
"""Unsaved bytes, and time since the last save, at which the agent's own bytes are saved. A killed
agent loses at most so many."""
_PIECE_S, _LEAST_PIECE_BYTES, _LARGEST_PIECE_BYTES = 0.25, 16_000, 256_000
"""Time that a piece of an upload takes at the owner's rate, and limits of its size."""


class Pace:
    """Rate limit of all uploads together."""

    def __init__(self, bps: float, clock: Clock) -> None:
        self.bps, self._clock = bps, clock
        self._free_s = clock.monotonic_s()
        self._lock = threading.Lock()

    @property
    def seconds_per_byte(self) -> float:
        """Time in s that a byte takes."""
        return 8 / self.bps

    @property
    def piece_bytes(self) -> int:
        """Size of the pieces between which an upload may pause."""
        wanted = round(_PIECE_S / self.seconds_per_byte)
        return min(max(wanted, _LEAST_PIECE_BYTES), _LARGEST_PIECE_BYTES)

    def wait_for(self, sent_bytes: int) -> None:
        """Wait as long as bytes take at the rate."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._free_s = max(now_s, self._free_s) + sent_bytes * self.seconds_per_byte
            wait_s = self._free_s - now_s
        self._clock.sleep(wait_s)


class Allowance:
    """Month's data of a node, and whether its uploads must wait.

    Args:
        db: the agent's database.
        clock: time and waiting.
        policy: returns the owner's policy.
        say: function for log lines.
    """

    def __init__(
        self, db: AgentDb, clock: Clock, policy: Callable[[], Policy], say: Callable[[str], None]
    ) -> None:
        self._db, self._clock, self._policy, self._say = db, clock, policy, say
        self._lock = threading.Lock()
        self._pace: Pace | None = None
        self._is_owner_active = self._was_used_up = False
        self._agent_bytes = self._unsaved = 0
        self._unsaved_month = ""
        self._saved_s = clock.monotonic_s()

    def update(self, *, is_owner_active: bool, agent_bytes: int) -> bool:
        """Take the values of a second; return whether the cap has been reached or lifted in it.

        Args:
            is_owner_active: whether runs and uploads must give way.
            agent_bytes: bytes of the agent's connections since it started.
        """
        self._is_owner_active = is_owner_active
        moved, self._agent_bytes = agent_bytes - self._agent_bytes, agent_bytes
        month = self.month()
        if month != self._unsaved_month:
            self.save()
        with self._lock:
            self._unsaved_month, self._unsaved = month, self._unsaved + max(0, moved)
            is_due = self._clock.monotonic_s() - self._saved_s >= _SAVE_EVERY_S
        if self._unsaved >= _SAVE_BYTES or is_due:
            self.save()
        before, self._was_used_up = self._was_used_up, self.is_used_up()
        if self._was_used_up and not before:
            self._say(f"{self._used_up_text()}: no run begins, and results and telemetry wait")
        elif before and not self._was_used_up:
            self._say("data cap: there is room again; runs begin and results are sent")
        return before != self._was_used_up

    def save(self) -> None:
        """Save the agent's own bytes."""
        with self._lock:
            month, added, self._unsaved = self._unsaved_month, self._unsaved, 0
            self._saved_s = self._clock.monotonic_s()
        if added:
            self.add(month, added)

    def add(self, month: str, added: int = 0) -> int:
        """Add bytes to the traffic of a month (`YYYY-MM`); return the month's total in bytes."""
        name = f"moved:{month}"
        with self._lock:
            total = int(self._db.get(name) or 0) + added
            if added:
                self._db.put(name, str(total))
            return total + (self._unsaved if month == self._unsaved_month else 0)

    def month(self) -> str:
        """Return the present month, UTC."""
        return dt.datetime.fromtimestamp(self._clock.now_ns() / _S, dt.UTC).strftime("%Y-%m")

    def used_bytes(self) -> int:
        """Return the month's traffic in bytes."""
        return self.add(self.month())

    def left_bytes(self) -> int | None:
        """Return the bytes that are left in this month; `None` without a cap."""
        cap = self._policy().month_bytes
        return None if cap is None else max(0, int(cap) - self.used_bytes())

    def is_used_up(self) -> bool:
        """Return whether the month's cap is reached."""
        return self.left_bytes() == 0

    def held_back(self) -> str | None:
        """Return, as text, why uploads and downloads must wait; `None` if they need not."""
        if self._is_owner_active:
            return "the host's own traffic comes first"
        return self._used_up_text() if self.is_used_up() else None

    def _used_up_text(self) -> str:
        cap = self._policy().month_bytes or 0
        return f"this month's data cap of {cap:,.0f} bytes is used up until the next month (UTC)"

    def pace(self) -> Pace:
        """Return the rate limit of uploads."""
        bps = self._policy().upload_bps
        if self._pace is None or self._pace.bps != bps:
            self._pace = Pace(bps, self._clock)
        return self._pace
