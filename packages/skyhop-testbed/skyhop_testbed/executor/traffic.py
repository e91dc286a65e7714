"""Traffic of a run: bytes received and sent.

For a run in its own network namespace, traffic is the bytes of all devices except the loopback,
with headers. For a run in the host's namespace, it is counted by the run's control group
(`cgroup_traffic`) where this is possible. Otherwise it is the bytes that the run's TCP sockets sent
(retransmissions included) and received, as the kernel counts them per socket. A socket counts until
the kernel has destroyed it, if it was open at one reading at least; sockets that live for less than
the time between two readings may be missing. UDP and ICMP are not counted in this case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from skyhop_testbed.executor.tcp_sockets import IpAddress, TcpSocket, TcpTable

NAMESPACE = "bytes of the run's network devices, with headers"
SOCKETS = "bytes of the run's TCP sockets, without headers; no UDP"

_SOCKET = re.compile(r"socket:\[(\d+)\]")
_LATE = 5
"""Number of readings after which no announcement of a destroyed socket is expected any more."""


@dataclass(frozen=True)
class Traffic:
    """Bytes received and sent."""

    rx_bytes: int = 0
    tx_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Sum of received and sent bytes."""
        return self.rx_bytes + self.tx_bytes

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sums in both directions."""
        return Traffic(self.rx_bytes + other.rx_bytes, self.tx_bytes + other.tx_bytes)


def namespace_traffic(pid: int) -> Traffic:
    """Return the bytes of all devices in a process's network namespace; 0 if it is gone."""
    return device_counters(Path(f"/proc/{pid}/net/dev")) or Traffic()


def device_counters(net_dev: Path, device: str | None = None) -> Traffic | None:
    """Return the bytes of a device, or of all devices but the loopback.

    The result is `None` if the file or the device does not exist.

    Args:
        net_dev: file in the format of /proc/net/dev.
        device: name of the device; `None` for all.
    """
    try:
        text = net_dev.read_text("ascii")
    except (OSError, ValueError):
        return None
    return parse_counters(text, device)


def parse_counters(text: str, device: str | None = None) -> Traffic | None:
    """Return the bytes of a device, or of all devices but the loopback.

    Args:
        text: content of /proc/net/dev.
        device: name of the device; `None` for all. The result is `None` if it does not exist.
    """
    moved = None if device else Traffic()
    for line in text.splitlines()[2:]:
        name, _, counters = line.partition(":")
        if name.strip() == device or (device is None and name.strip() != "lo"):
            numbers = counters.split()
            moved = (moved or Traffic()) + Traffic(int(numbers[0]), int(numbers[8]))
    return moved


class SocketCounters:
    """Byte counts of the TCP sockets of processes, including sockets that have closed.

    Args:
        on_wire: whether to count as a device does: with headers, and without connections that stay
            within this machine.
        apart: addresses of peers whose bytes count in `apart` instead.
    """

    def __init__(self, *, on_wire: bool = False, apart: Collection[IpAddress] = ()) -> None:
        self._on_wire, self._peers_apart = on_wire, apart
        self._known: dict[int, tuple[TcpSocket, int]] = {}
        """Last counters of each socket by its cookie, and for how many readings it was not listed.
        """
        self._gone = self._gone_apart = Traffic()
        self.total = Traffic()
        """Bytes of all sockets so far."""
        self.apart = Traffic()
        """Bytes of the sockets to the peers in the argument `apart` so far."""

    @property
    def has_open(self) -> bool:
        """Whether a counted socket may still send or receive."""
        return bool(self._known)

    def update(
        self, listed: Iterable[TcpSocket], destroyed: Iterable[TcpSocket], inodes: Collection[int]
    ) -> None:
        """Count the sockets of one reading.

        Args:
            listed: all sockets of the network namespace.
            destroyed: the sockets that were destroyed since the previous reading, read after
                `listed`.
            inodes: inodes of the processes' sockets, read after `listed`.
        """
        known = {cookie: (last, unlisted + 1) for cookie, (last, unlisted) in self._known.items()}
        for each in listed:
            if each.inode in inodes or each.cookie in known:
                known[each.cookie] = each, 0
        final = [each for each in destroyed if known.pop(each.cookie, None)]
        late = [cookie for cookie, (_, unlisted) in known.items() if unlisted > _LATE]
        final += [known.pop(cookie)[0] for cookie in late]
        self._known = known
        gone, gone_apart = self._sums(final)
        self._gone, self._gone_apart = self._gone + gone, self._gone_apart + gone_apart
        total, apart = self._sums(last for last, _ in known.values())
        self.total, self.apart = self._gone + total, self._gone_apart + apart

    def _sums(self, sockets: Iterable[TcpSocket]) -> tuple[Traffic, Traffic]:
        """Return the bytes of sockets: those that count, and those of the peers apart."""
        total = apart = Traffic()
        for each in sockets:
            if each.peer in self._peers_apart:
                apart += self._bytes(each)
            else:
                total += self._bytes(each)
        return total, apart

    def _bytes(self, each: TcpSocket) -> Traffic:
        if not self._on_wire:
            return Traffic(each.rx_bytes, each.tx_bytes)
        if each.is_local:
            return Traffic()
        return Traffic(each.rx_bytes + each.rx_header_bytes, each.tx_bytes + each.tx_header_bytes)


class ProcessSockets:
    """Byte counts of the TCP sockets of processes, for a reader that reads nothing else."""

    def __init__(self) -> None:
        self._table: TcpTable | None = None
        self._counters = SocketCounters()

    def read(self, pids: list[int]) -> Traffic:
        """Read the counters of the processes' sockets.

        Return the total bytes since the first call.
        """
        if self._table is None:
            self._table = TcpTable()
        listed = self._table.sockets()
        destroyed = self._table.destroyed()
        self._counters.update(listed, destroyed, inodes_of(pids))
        return self._counters.total


def inodes_of(pids: Iterable[int]) -> set[int]:
    """Return the inodes of the processes' sockets."""
    return {inode for pid in pids for inode in _inodes(pid)}


def _inodes(pid: int) -> Iterator[int]:
    try:
        names = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for name in names:
        try:
            found = _SOCKET.match(str(name.readlink()))
        except OSError:
            continue
        if found:
            yield int(found[1])
