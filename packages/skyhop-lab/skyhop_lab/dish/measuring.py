"""Feed of an emulated terminal measured on a real link, with probes and interface counters.

`Meter` stores measurements and aggregates them to seconds. `Prober` is the thread that measures:
fifteen times a second it sends a probe through the link (an ICMP echo or, to HOST:PORT, a UDP
datagram that a reflector there returns) and reads the counters of the interface. A terminal does
not count its own pings as traffic, so the probes' bytes, without link-layer headers, are subtracted
from the counters.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from skyhop.errors import InputError, RunError
from skyhop.telemetry.gps import SECOND_NS
from skyhop_lab.dish.feed import Interruption, Second
from skyhop_testbed.dish.device_pb2 import DishOutage

PROBES = 15
"""Number of probes per second."""

_KEPT_S = 120
_OVERTAKEN_NS = 300_000_000
_ECHO = struct.Struct("!BBHHHQ")
"""ICMP echo: type, code, checksum, identifier, sequence number; the data is the probe's number."""
_NUMBER = struct.Struct("!Q")
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_IP_BYTES, _UDP_BYTES = 20, 8
_LAST_PORT = 65_535


class Meter:
    """Feed of measurements; times are in ns since the feed's start; thread-safe."""

    lag_s = 1
    """Longest time in s to wait for answers after the end of a second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent_ns: dict[int, int] = {}
        self._rtt_ns: dict[int, int] = {}
        self._counted: list[tuple[int, int, int]] = []

    def add_probe(self, probe: int, at_ns: int) -> None:
        """Record that a probe was sent; probes are numbered in the order of sending."""
        with self._lock:
            self._sent_ns[probe] = at_ns
            old = probe - _KEPT_S * PROBES
            self._sent_ns.pop(old, None)
            self._rtt_ns.pop(old, None)

    def add_answer(self, probe: int, at_ns: int) -> None:
        """Record an answer; a second answer to the same probe is ignored."""
        with self._lock:
            if probe in self._sent_ns:
                self._rtt_ns.setdefault(probe, at_ns - self._sent_ns[probe])

    def add_counters(self, received_bytes: int, sent_bytes: int, at_ns: int) -> None:
        """Record the values of the interface's counters."""
        with self._lock:
            self._counted.append((at_ns, received_bytes, sent_bytes))
            del self._counted[: -_KEPT_S * PROBES]

    def is_known(self, index: int) -> bool:
        """Return whether every probe of a second is answered or lost.

        A probe counts as lost when a probe that was sent 0.3 s later has been answered, because
        latency rarely falls by that much at once.
        """
        begin_ns, end_ns = index * SECOND_NS, (index + 1) * SECOND_NS
        with self._lock:
            if not self._counted or self._counted[-1][0] < end_ns:
                return False
            sent_ns = {p: at for p, at in self._sent_ns.items() if begin_ns <= at < end_ns}
            answered_ns = [self._sent_ns[p] for p in self._rtt_ns if p in self._sent_ns]
            overtaken_ns = max(answered_ns, default=0) - _OVERTAKEN_NS
            return bool(sent_ns) and all(
                probe in self._rtt_ns or at_ns <= overtaken_ns for probe, at_ns in sent_ns.items()
            )

    def second(self, index: int) -> Second:
        """Return the measurements of a second; a second without probes counts as an outage."""
        begin_ns, end_ns = index * SECOND_NS, (index + 1) * SECOND_NS
        with self._lock:
            probes = [p for p, at_ns in self._sent_ns.items() if begin_ns <= at_ns < end_ns]
            back_ns = [self._rtt_ns.get(p) for p in probes]
            sent_ns = [self._sent_ns[p] for p in probes]
            received_bytes, sent_bytes = (
                self._between(begin_ns, end_ns, column) for column in (1, 2)
            )
        known_ns = [rtt_ns for rtt_ns in back_ns if rtt_ns is not None and rtt_ns < SECOND_NS]
        return Second(
            drop_rate=1 - len(known_ns) / len(probes) if probes else 1.0,
            latency_ms=sum(known_ns) / len(known_ns) / 1e6 if known_ns else None,
            downlink_bps=8.0 * received_bytes,
            uplink_bps=8.0 * sent_bytes,
            interruptions=_interruptions(sent_ns, back_ns, begin_ns, end_ns),
        )

    def _between(self, begin_ns: int, end_ns: int, column: int) -> float:
        return max(self._at(end_ns, column) - self._at(begin_ns, column), 0.0)

    def _at(self, at_ns: int, column: int) -> float:
        """Return a counter at a time, interpolated linearly between readings."""
        if not self._counted:
            return 0.0
        place = bisect_left(self._counted, (at_ns, 0, 0))
        if place in {0, len(self._counted)}:
            return self._counted[min(place, len(self._counted) - 1)][column]
        before, after = self._counted[place - 1], self._counted[place]
        share = (at_ns - before[0]) / max(after[0] - before[0], 1)
        return before[column] + share * (after[column] - before[column])


def _interruptions(
    sent_ns: list[int], back_ns: list[int | None], begin_ns: int, end_ns: int
) -> tuple[Interruption, ...]:
    """Return the periods within a second in which two or more consecutive probes were lost.

    A period begins with its first lost probe and ends with the next answered one.
    """
    if not sent_ns:
        return (Interruption(begin_ns, end_ns, DishOutage.NO_PINGS),)
    found: list[Interruption] = []
    first_ns, lost = begin_ns, 0
    for place, (at_ns, rtt_ns) in enumerate(
        sorted(zip(sent_ns, back_ns, strict=True), key=lambda probe: probe[0])
    ):
        if rtt_ns is None:
            # If a second's first probe is lost, the period starts with the second, so that
            # consecutive lost seconds join without a gap.
            first_ns, lost = (first_ns if lost or not place else at_ns), lost + 1
            continue
        if lost > 1 or (lost and first_ns == begin_ns):
            found.append(Interruption(first_ns, at_ns, DishOutage.NO_PINGS))
        lost = 0
    if lost:
        found.append(Interruption(first_ns, end_ns, DishOutage.NO_PINGS))
    return tuple(found)


class Counters:
    """Byte counters of an interface in the network namespace of the calling thread.

    Raises:
        InputError: there is no such interface.
    """

    def __init__(self, interface: str) -> None:
        self._directory = Path("/sys/class/net") / interface / "statistics"
        if "/" in interface or not interface or not self._read_proc(interface):
            raise InputError(f"--interface {interface}: there is no such interface here")
        self._interface = interface

    def read(self) -> tuple[int, int]:
        """Return the bytes received and sent so far; 0 if the interface no longer exists."""
        return self._read_proc(self._interface) or (0, 0)

    def _read_proc(self, interface: str) -> tuple[int, int] | None:
        # /sys shows the namespace in which it was mounted, /proc that of the reading thread.
        text = Path("/proc/thread-self/net/dev").read_text("ascii", errors="replace")
        for line in text.splitlines():
            name, colon, counts = line.partition(":")
            if colon and name.strip() == interface:
                numbers = counts.split()
                return int(numbers[0]), int(numbers[8])
        return None


class _Pings:
    """Probes as ICMP echoes, over an unprivileged socket if allowed, else over a raw socket."""

    packet_bytes = _IP_BYTES + _ECHO.size

    def __init__(self, host: str) -> None:
        try:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
            self._skipped = 0
        except PermissionError:
            self.socket = _raw_socket(host)
            self._skipped = _IP_BYTES
        self._host = host
        self._identifier = id(self) & 0xFFFF

    def send(self, probe: int) -> None:
        packet = _ECHO.pack(_ECHO_REQUEST, 0, 0, self._identifier, probe & 0xFFFF, probe)
        checked = _ECHO.pack(
            _ECHO_REQUEST, 0, _checksum(packet), self._identifier, probe & 0xFFFF, probe
        )
        self.socket.sendto(checked, (self._host, 0))

    def receive(self) -> int | None:
        packet = self.socket.recv(2048)[self._skipped :]
        if len(packet) < _ECHO.size:
            return None
        kind, _, _, identifier, _, probe = _ECHO.unpack(packet[: _ECHO.size])
        ours = identifier == self._identifier or not self._skipped
        return int(probe) if kind == _ECHO_REPLY and ours else None


class _Datagrams:
    """Probes as UDP datagrams to a reflector that returns them."""

    packet_bytes = _IP_BYTES + _UDP_BYTES + _NUMBER.size

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((host, port))

    def send(self, probe: int) -> None:
        self.socket.send(_NUMBER.pack(probe))

    def receive(self) -> int | None:
        packet = self.socket.recv(2048)
        return int(_NUMBER.unpack(packet)[0]) if len(packet) == _NUMBER.size else None


class Prober:
    """Thread that probes a link and reads its counters until it is stopped.

    Args:
        meter: feed that stores the measurements.
        target: HOST for pings, HOST:PORT for UDP.
        counters: counters of the interface towards the target.
        clock: function that returns the time in ns since the meter's start.

    Raises:
        InputError: the target is malformed, or there is no such host.
        RunError: this user is not allowed to ping.
    """

    def __init__(
        self, meter: Meter, target: str, counters: Counters, clock: Callable[[], int]
    ) -> None:
        self._meter, self._counters, self._clock = meter, counters, clock
        self._probes = _probes(target)
        self._probes.socket.setblocking(False)
        self._sent = self._received = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)

    def start(self) -> None:
        """Start the thread of measurements."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopped.set()
        self._thread.join()
        self._probes.socket.close()

    def _run(self) -> None:
        probe, next_ns = 0, self._clock()
        with selectors.DefaultSelector() as ready:
            ready.register(self._probes.socket, selectors.EVENT_READ)
            while not self._stopped.is_set():
                now_ns = self._clock()
                if now_ns >= next_ns:
                    self._measure(probe, now_ns)
                    probe += 1
                    # Probes that were due while the machine stalled are skipped.
                    next_ns = max(next_ns, now_ns - SECOND_NS // PROBES) + SECOND_NS // PROBES
                if ready.select(max(next_ns - self._clock(), 0) / SECOND_NS):
                    self._receive()

    def _measure(self, probe: int, now_ns: int) -> None:
        received_bytes, sent_bytes = self._counters.read()
        size = self._probes.packet_bytes
        self._meter.add_counters(
            received_bytes - size * self._received, sent_bytes - size * self._sent, now_ns
        )
        self._meter.add_probe(probe, now_ns)
        # A probe that cannot be sent, for example without a route, counts as lost.
        with suppress(OSError):
            self._probes.send(probe)
            self._sent += 1

    def _receive(self) -> None:
        with suppress(OSError):
            probe = self._probes.receive()
            if probe is not None:
                self._received += 1
                self._meter.add_answer(probe, self._clock())


def _probes(target: str) -> _Pings | _Datagrams:
    host, colon, port = target.partition(":")
    if colon and not (port.isascii() and port.isdecimal() and 0 < int(port[:9]) <= _LAST_PORT):
        raise InputError(f'--probe "{target}": expected HOST, or HOST:PORT for UDP')
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0]
    except (OSError, UnicodeError):
        raise InputError(f'--probe "{target}": there is no such host') from None
    return _Datagrams(str(found), int(port)) if colon else _Pings(str(found))


def _raw_socket(host: str) -> socket.socket:
    try:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    except PermissionError:
        raise RunError(
            f"--probe {host}: this user may not ping: run it as root, allow it by "
            "net.ipv4.ping_group_range, or probe HOST:PORT where something sends UDP back"
        ) from None


def _checksum(packet: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    while total > 0xFFFF:  # noqa: PLR2004 (16 bits)
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
