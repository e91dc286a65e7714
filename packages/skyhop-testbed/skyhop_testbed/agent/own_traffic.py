"""Bytes of the testbed itself on this host: runs, the agent, and its requests to the terminal.

Runs in the host's network namespace are counted by their control groups, or else by their TCP
sockets, with headers estimated. Runs in other namespaces are counted by the devices there. The
agent's connections are counted by their sockets, until the kernel has destroyed them. The counters
of a run that has ended are those of its executor's result, which includes the last bytes.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from skyhop_testbed.addresses import host_of, ip_addresses
from skyhop_testbed.executor.cgroup_traffic import GroupCounters
from skyhop_testbed.executor.result import Result
from skyhop_testbed.executor.sandbox import descendant_pids
from skyhop_testbed.executor.tcp_sockets import IpAddress, TcpSocket, TcpTable
from skyhop_testbed.executor.traffic import (
    SocketCounters,
    Traffic,
    inodes_of,
    namespace_traffic,
)
from skyhop_testbed.words import Network

_TRIES = 3
_NARROW_BYTES = 5_000
"""Bytes on the link between its two readings up to which the counters are not read again."""


@dataclass(frozen=True)
class CountedRun:
    """Run whose traffic is counted."""

    key: str
    pid: int
    """Process id of the run's executor."""
    network: str
    directory: Path | None = None
    """Directory of the run, with the files of its executor."""


@dataclass(frozen=True)
class Reading:
    """Bytes of the link and of the testbed, read within a few milliseconds."""

    before: Traffic | None
    """Bytes of the link, read before the others; `None` if unknown."""
    after: Traffic | None
    """Bytes of the link, read after the others."""
    runs: Traffic
    agent: Traffic
    """Bytes of the agent's connections, without those to the terminal."""
    terminal: Traffic
    """Bytes of the agent's requests to the terminal, which pass the interface but not the link."""
    has_lost: bool = False
    """Whether a run has ended without a result, so that its last bytes are unknown."""
    is_approximate: bool = False
    """Whether the bytes of a living run are known without its exact headers."""


class OwnTraffic:
    """Counters of the testbed's own bytes since the agent started.

    Args:
        dish: address of the terminal, HOST:PORT, if the agent sends requests to one.
        probe: returns the bytes of the agent's probe.
    """

    def __init__(self, dish: str | None = None, probe: Callable[[], Traffic] = Traffic) -> None:
        self._agent = SocketCounters(on_wire=True, apart=_addresses(dish))
        self._probe = probe
        self._runs: dict[str, _RunCounters] = {}
        self._ended: list[SocketCounters] = []
        """Sockets of ended runs that may still have bytes under way."""
        self._gone = Traffic()
        self._table: TcpTable | None = None

    def read(self, runs: Sequence[CountedRun], link: Callable[[], Traffic | None]) -> Reading:
        """Read all counters, those of the link first and last.

        They are read again if the link carried much in between.

        Args:
            runs: the runs with a living executor.
            link: reads the link's bytes.
        """
        has_lost = self._end_others({run.key for run in runs})
        for run in runs:
            self._runs.setdefault(run.key, _RunCounters(run)).find()
        if self._table is None:
            self._table = TcpTable()
        destroyed: list[TcpSocket] = []
        for _ in range(_TRIES):
            before = link()
            listed = self._table.sockets()
            destroyed += self._table.destroyed()
            for counted in self._runs.values():
                counted.read()
            probe = self._probe()
            after = link()
            if _bytes_between(before, after) <= _NARROW_BYTES:
                break
        self._agent.update(listed, destroyed, inodes_of([os.getpid()]))
        for each in self._runs.values():
            each.update(listed, destroyed)
        for sockets in self._ended:
            sockets.update(listed, destroyed, ())
        totals = [each.total for each in self._runs.values()]
        return Reading(
            before,
            after,
            _sum([self._gone, *totals, *(each.total for each in self._ended)]),
            self._agent.total + probe,
            self._agent.apart,
            has_lost,
            bool(self._runs),
        )

    def _end_others(self, living: set[str]) -> bool:
        """Take the final counters of runs that have ended; return whether some are unknown."""
        has_lost = False
        for key in [key for key in self._runs if key not in living]:
            ended = self._runs.pop(key)
            has_lost |= not ended.end()
            if ended.sockets.has_open:
                self._ended.append(ended.sockets)
                self._gone += ended.beyond_sockets
            else:
                self._gone += ended.total
        for sockets in [each for each in self._ended if not each.has_open]:
            self._ended.remove(sockets)
            self._gone += sockets.total
        return has_lost


class _RunCounters:
    """Counters of one run."""

    def __init__(self, run: CountedRun) -> None:
        self._run = run
        self._pids: list[int] = []
        self._devices = Traffic()
        self._group = None if run.directory is None else GroupCounters(run.directory)
        self._of_group: Traffic | None = None
        self.sockets = SocketCounters(on_wire=True)

    def find(self) -> None:
        """Find the run's processes, which takes longer than the reading of counters."""
        self._pids = [self._run.pid, *descendant_pids([self._run.pid])]

    def read(self) -> None:
        """Read the counters of devices or of the control group."""
        if self._run.network == Network.HOST:
            if self._group is not None:
                self._of_group = self._group.read() or self._of_group
        elif self._run.network != Network.NONE:
            moved = _of_other_namespace(self._pids)
            self._devices = max(self._devices, moved, key=lambda each: each.bytes)

    def update(self, listed: Iterable[TcpSocket], destroyed: Iterable[TcpSocket]) -> None:
        """Count the sockets, unless the control group counts them too."""
        if self._of_group is not None:
            self.sockets = SocketCounters(on_wire=True)
        elif self._run.network == Network.HOST:
            self.sockets.update(listed, destroyed, inodes_of(self._pids))

    @property
    def beyond_sockets(self) -> Traffic:
        """Bytes of devices or of the control group."""
        return self._of_group or self._devices

    @property
    def total(self) -> Traffic:
        """Bytes of the run so far."""
        return self.sockets.total + self.beyond_sockets

    def end(self) -> bool:
        """Take the executor's final counters; return whether there are any."""
        if self._run.directory is None:
            return False
        if self._of_group is not None and self._group is not None:
            # The map lives as long as the descriptor of this process.
            self._of_group = self._group.read() or self._of_group
            self._group.close()
            return True
        found = Result.read(self._run.directory).traffic
        if found is not None and self._run.network not in (Network.HOST, Network.NONE):
            final = Traffic(found.rx_bytes, found.tx_bytes)
            self._devices = max(self._devices, final, key=lambda each: each.bytes)
        return found is not None


def _of_other_namespace(pids: Iterable[int]) -> Traffic:
    """Return the bytes of all devices in the processes' network namespace; 0 for the host's."""
    try:
        own = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return Traffic()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/ns/net").stat().st_ino == own:
                continue
        except OSError:
            continue
        moved = namespace_traffic(pid)
        if moved.bytes:
            return moved
    return Traffic()


def _addresses(dish: str | None) -> frozenset[IpAddress]:
    """Return the IP addresses of the terminal."""
    with suppress(OSError):
        found = ip_addresses(host_of(dish)) if dish else []
        return frozenset(ipaddress.ip_address(each) for each in found)
    return frozenset()


def _bytes_between(before: Traffic | None, after: Traffic | None) -> int:
    return 0 if before is None or after is None else after.bytes - before.bytes


def _sum(parts: Iterable[Traffic]) -> Traffic:
    total = Traffic()
    for each in parts:
        total += each
    return total
