"""The agent's own probe: one RTT measurement per second to a target that the node's owner chooses.

The probe is an ICMP echo request, as ping sends it, if the kernel lets this user send one
(net.ipv4.ping_group_range). Otherwise, or if the target has a port, the probe is a TCP SYN,
answered by a SYN-ACK or a reset. A probe without an answer within 0.9 s is lost. No other method
measures the RTT to arbitrary hosts without root.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable

from skyhop.telemetry.fields import Sample
from skyhop_testbed.agent.settings import Probe
from skyhop_testbed.clock import Clock
from skyhop_testbed.executor.traffic import Traffic

_S = 1_000_000_000
_PATIENCE_S = 0.9
_PORT = 443
"""TCP port to probe if ICMP is not permitted and the target names no port."""
_RETENTION_S = 900
_RESOLVE_EVERY_S = 600.0
"""Time after which the target's name is resolved again."""
_RETRY_S = 60.0
_HEADER = struct.Struct("!BBHHH")
"""ICMP echo header: type, code, checksum, identifier, sequence number. The kernel fills in checksum
and identifier."""
_ECHO = {
    socket.AF_INET: (socket.IPPROTO_ICMP, 8, 0),
    socket.AF_INET6: (socket.IPPROTO_ICMPV6, 128, 129),
}
"""Protocol, and ICMP types of request and reply, by address family."""

_MARK_BYTES = 16
_ETHERNET_BYTES, _IP_BYTES = 14, {socket.AF_INET: 20, socket.AF_INET6: 40}
_SYN_BYTES, _TCP_BYTES = 40, 100
"""TCP headers, with options, of a SYN and of all segments of a connection in one direction."""

_Address = tuple[socket.AddressFamily, str]


class Prober:
    """Probe that runs in its own thread.

    Args:
        probe: the target; `None` switches the probe off.
        say: function for log lines.
        clock: time and waiting.
    """

    def __init__(self, probe: Probe | None, say: Callable[[str], None], *, clock: Clock) -> None:
        self._probe, self._say, self._clock = probe, say, clock
        self._found: OrderedDict[int, Sample] = OrderedDict()
        self._address: _Address | None = None
        self._resolve_at = 0.0
        self._trouble: str | None = None
        self._can_ping = probe is not None and probe.port is None
        self._number = 0
        self.moved = Traffic()
        """Bytes of all probes so far, as an Ethernet device counts them."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        """Start the thread, if there is a target."""
        if self._probe is not None:
            self._thread.start()

    def close(self) -> None:
        """Stop the thread, without waiting for it."""
        self._stopped.set()

    def of_second(self, end_ns: int) -> Sample:
        """Return the probe's telemetry fields of the second that ends at `end_ns`.

        Empty without a probe.
        """
        return self._found.get(end_ns, {})

    def _run(self) -> None:
        clock = self._clock
        while not clock.wait(self._stopped, (_S - clock.now_ns() % _S) / _S):
            self.probe_once(clock.now_ns())

    def probe_once(self, now_ns: int) -> None:
        """Probe once, and record the result for the second in which the probe was sent."""
        found = self._send_probe()
        if found is not None:
            self._found[(now_ns // _S + 1) * _S] = found
            while len(self._found) > _RETENTION_S:
                self._found.popitem(last=False)

    def _send_probe(self) -> Sample | None:
        """Send one probe; return its result, or `None` if it could not be sent."""
        assert self._probe is not None, "there is a target"
        address = self._target_address()
        if address is None:
            return None
        try:
            rtt_s = self._round_trip_s(address)
        except PermissionError:
            self._can_ping = False
            self._say(
                "probe: this user may not ping (net.ipv4.ping_group_range): the probe is a TCP "
                f"connection to port {_PORT} instead"
            )
            return None
        self.moved += self._probe_bytes(address[0], is_answered=rtt_s is not None)
        if rtt_s is None:
            return {"probe_loss": 1.0}
        return {"probe_rtt_ms": rtt_s * 1e3, "probe_loss": 0.0}

    def _probe_bytes(self, family: socket.AddressFamily, *, is_answered: bool) -> Traffic:
        header = _ETHERNET_BYTES + _IP_BYTES[family]
        if self._can_ping:
            ping = header + _HEADER.size + _MARK_BYTES
            return Traffic(ping if is_answered else 0, ping)
        # A connection: SYN, ACK and FIN are sent, SYN-ACK and FIN received.
        if is_answered:
            return Traffic(2 * header + _TCP_BYTES, 3 * header + _TCP_BYTES)
        return Traffic(0, header + _SYN_BYTES)

    def _target_address(self) -> _Address | None:
        """Return the target's address. Its name is resolved again every `_RESOLVE_EVERY_S`."""
        assert self._probe is not None, "there is a target"
        if self._clock.monotonic_s() < self._resolve_at:
            return self._address
        try:
            found = socket.getaddrinfo(self._probe.host, None, type=socket.SOCK_DGRAM)
            self._address = (found[0][0], str(found[0][4][0]))
            self._resolve_at = self._clock.monotonic_s() + _RESOLVE_EVERY_S
            trouble = None
        except (OSError, UnicodeError) as error:
            # Resolution failed, but the last known address may still be right.
            self._resolve_at = self._clock.monotonic_s() + _RETRY_S
            trouble = getattr(error, "strerror", None) or str(error)
        if trouble != self._trouble:
            self._say(f"probe: {self._probe.host}: {trouble or 'has an address again'}")
        self._trouble = trouble
        return self._address

    def _round_trip_s(self, address: _Address) -> float | None:
        assert self._probe is not None, "there is a target"
        if not self._can_ping:
            return connect_s(address, self._probe.port or _PORT, self._clock)
        self._number = (self._number + 1) % (1 << 16)
        return ping_s(address, self._number, self._clock)


def ping_s(address: _Address, number: int, clock: Clock) -> float | None:
    """Return the RTT of an ICMP echo request in s; `None` if no reply came in time.

    Raises:
        PermissionError: this user may not send echo requests.
    """
    family, host = address
    protocol, request, answer = _ECHO[family]
    mark = os.urandom(_MARK_BYTES)
    begun = clock.monotonic_s()
    try:
        with socket.socket(family, socket.SOCK_DGRAM, protocol) as icmp:
            icmp.connect((host, 0))
            icmp.send(_HEADER.pack(request, 0, 0, 0, number) + mark)
            while _is_readable(icmp, begun + _PATIENCE_S, clock):
                said = icmp.recv(2048)
                if said[:1] == bytes([answer]) and said[_HEADER.size :] == mark:
                    return clock.monotonic_s() - begun
    except PermissionError:
        raise
    except OSError:
        # The network or the host is unreachable.
        return None
    return None


def _is_readable(stream: socket.socket, until: float, clock: Clock) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(clock.select(selector, until - clock.monotonic_s()))


def connect_s(address: _Address, port: int, clock: Clock) -> float | None:
    """Return the time in s until the peer accepts or refuses a TCP connection; `None` if lost."""
    family, host = address
    begun = clock.monotonic_s()
    try:
        with socket.socket(family, socket.SOCK_STREAM) as stream:
            stream.settimeout(_PATIENCE_S)
            begun = clock.monotonic_s()
            stream.connect((host, port))
            return clock.monotonic_s() - begun
    except ConnectionRefusedError:
        return clock.monotonic_s() - begun
    except OSError:
        return None
