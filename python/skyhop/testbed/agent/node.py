"""What all of an agent's parts share: where things are, whom to tell, what is allowed."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from skyhop.testbed.agent.book import Book
from skyhop.testbed.agent.link import Link
from skyhop.testbed.agent.policy import Policy
from skyhop.testbed.agent.schedule import Schedule
from skyhop.testbed.clock import Clock

_STA_NANO, _STA_UNSYNC = 0x2000, 0x40


@dataclass
class Node:
    """A node, as its parts see it."""

    name: str
    state: Path
    book: Book
    link: Link
    say: Callable[[str], None]
    clock: Clock
    kernel: str | None = None
    """The kernel service's socket."""
    schedule: Schedule = field(default_factory=Schedule)
    policy: Policy = field(default_factory=Policy)
    closing: threading.Event = field(default_factory=threading.Event)
    """The agent ends; its runs go on without it."""
    waking: threading.Event = field(default_factory=threading.Event)
    """There is something to decide."""
    fetching: defaultdict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock)
    )
    """By a file's digest: who fetches it has its lock, and others wait for him."""

    @property
    def runs(self) -> Path:
        """Where runs are, a directory each."""
        return self.state / "runs"

    @property
    def inputs(self) -> Path:
        """Where files of jobs are, by their digests."""
        return self.state / "inputs"

    @property
    def telemetry(self) -> Path:
        """Where the terminal's last days are."""
        return self.state / "telemetry"

    def moved(self, month: str, more: int = 0) -> int:
        """Return what runs have moved in a month, with so much more."""
        name = f"moved:{month}"
        total = int(self.book.get(name) or 0) + more
        if more:
            self.book.put(name, str(total))
        return total


def boot_id() -> str:
    """Return what is another at every start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


class _Timex(ctypes.Structure):
    """The beginning of `struct timex` (adjtimex(2)), and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock_offset_ms() -> float | None:
    """Return how wrong the clock is by the kernel's reckoning; `None` where nobody keeps it."""
    clock = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(clock))
    except (OSError, AttributeError):
        return None
    if state < 0 or clock.status & _STA_UNSYNC:
        return None
    return float(clock.offset) / (1e6 if clock.status & _STA_NANO else 1e3)
