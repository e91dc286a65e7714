"""Context that the agent's parts share: identity, directories, database, link and schedule."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop_testbed.agent.agent_db import AgentDb, OutboxEntry
from skyhop_testbed.agent.allowance import Allowance
from skyhop_testbed.agent.identity import Identity
from skyhop_testbed.agent.link import Link
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.reach import Reach
from skyhop_testbed.agent.reports import Report
from skyhop_testbed.agent.schedule import Schedule
from skyhop_testbed.clock import Clock
from skyhop_testbed.executor.user_network import Availability
from skyhop_testbed.free_space import SpaceOf, space_of

if TYPE_CHECKING:
    from skyhop_testbed.agent.run_signals import RunSignals

_STA_NANO, _STA_UNSYNC = 0x2000, 0x40
_WITHOUT_NTP_NS = 16_000_000_000
"""Error in ns at which the kernel calls its clock unsynchronised (NTP_PHASE_LIMIT)."""


@dataclass
class Node:
    """Shared context of the agent's parts."""

    identity: Identity
    state: Path
    db: AgentDb
    link: Link
    say: Callable[[str], None]
    clock: Clock
    kernel: str | None = None
    """Path of the kernel service's socket."""
    signals: RunSignals | None = None
    """Sockets on which the programs of runs read signals."""
    reach: Reach | None = None
    """Addresses near this node; `None` opens and closes nothing but what is not public."""
    internet: Availability | None = None
    """Whether the network `internet` is available; `None` for yes."""
    schedule: Schedule = field(default_factory=Schedule)
    policy: Policy = field(default_factory=Policy)
    space_of: SpaceOf = space_of
    """Function that returns the space of the disk with the node's directory."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Event that is set when the agent ends; executors of runs continue without it."""
    restarts: bool = False
    """Whether the agent ends to be started again, in another version."""
    waking: threading.Event = field(default_factory=threading.Event)
    """Event that wakes the main loop before its next full second."""
    fetching: defaultdict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock)
    )
    """Locks by name of a file in the input cache: one thread downloads the file, others wait for
    it.
    """
    store_telemetry: Callable[[], None] = lambda: None
    """Function that writes the newest samples to the store `telemetry`."""

    def __post_init__(self) -> None:
        """Open the allowance, whose limits are those of the present policy."""
        self.allowance = Allowance(self.db, self.clock, lambda: self.policy, self.say)

    @property
    def name(self) -> str:
        """Name of the node at its orchestrator."""
        return self.identity.node

    @property
    def runs(self) -> Path:
        """Directory of all runs, with a directory per run."""
        return self.state / "runs"

    @property
    def inputs(self) -> Path:
        """Cache of input files of jobs, named by their digests."""
        return self.state / "inputs"

    @property
    def telemetry(self) -> Path:
        """Telemetry store, which holds the terminal's last days."""
        return self.state / "telemetry"

    def internet_lacks(self) -> str | None:
        """Return what this machine lacks for the network `internet`; `None` if nothing."""
        return None if self.internet is None else self.internet.unavailable_reason()

    def report(self, report: Report) -> None:
        """Queue a report that does not announce a change of a run's state."""
        self.db.add(OutboxEntry(self.clock.now_ns(), report))

    def guarded(self, what: str, do: Callable[[], None]) -> None:
        """Call a function, and log its exception instead of raising it."""
        try:
            do()
        except Exception as error:
            self.say(f"{what}: {type(error).__name__}: {error}")


def boot_id() -> str:
    """Return the kernel's boot id, which differs at every boot; empty if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


class _Timex(ctypes.Structure):
    """First fields of `struct timex` (adjtimex(2)), and padding for the other fields."""

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
    """Return the kernel's estimate of the clock offset in ms; `None` if unsynchronized."""
    clock = _read_clock()
    if clock is None or clock.status & _STA_UNSYNC:
        return None
    return float(clock.offset) / (1e6 if clock.status & _STA_NANO else 1e3)


def clock_error_ns() -> int:
    """Return the kernel's upper limit on the clock's error in ns, 16 s for a clock without NTP."""
    clock = _read_clock()
    return _WITHOUT_NTP_NS if clock is None else int(clock.maxerror) * 1000


def _read_clock() -> _Timex | None:
    """Return the kernel's estimates about its clock; `None` if they cannot be read."""
    clock = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(clock))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else clock
