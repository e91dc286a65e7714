"""The agent's own probe: once a second to a target that the node's owner has chosen.

It is an echo request where the kernel lets this user send one (net.ipv4.ping_group_range), as ping
does, and otherwise, or where the target has a port, how long connecting over TCP takes: an answer
is a SYN-ACK or a reset. What has not come within the second is lost. Without root there is nothing
else that tells a round trip to any host.
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
from skyhop.testbed.agent.settings import Probe
from skyhop.testbed.clock import Clock

_S = 1_000_000_000
_PATIENCE_S = 0.9
_PORT = 443
"""Connected to where no echo request may be sent and the target has no port."""
_KEPT_S = 900
_RESOLVE_EVERY_S = 600.0
"""So long an address counts that a name stands for."""
_RETRY_S = 60.0
_HEADER = struct.Struct("!BBHHH")
"""Of ICMP's echo: type, code, checksum, identifier, number. The kernel fills in the third and the
fourth."""
_ECHO = {
    socket.AF_INET: (socket.IPPROTO_ICMP, 8, 0),
    socket.AF_INET6: (socket.IPPROTO_ICMPV6, 128, 129),
}
"""By family: the protocol, and the types of request and answer."""

_Address = tuple[socket.AddressFamily, str]


class Prober:
    """Probes in a thread of its own.

    Args:
        probe: whom; nobody where it is None.
        say: takes lines.
        clock: what time it is, and how to wait.
    """

    def __init__(self, probe: Probe | None, say: Callable[[str], None], *, clock: Clock) -> None:
        self._probe, self._say, self._clock = probe, say, clock
        self._found: OrderedDict[int, Sample] = OrderedDict()
        self._address: _Address | None = None
        self._resolve_at = 0.0
        self._trouble: str | None = None
        self._can_ping = probe is not None and probe.port is None
        self._number = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        """Begin, where there is a target."""
        if self._probe is not None:
            self._thread.start()

    def close(self) -> None:
        """End."""
        self._stopped.set()

    def of_second(self, end_ns: int) -> Sample:
        """Return what a second's probe came to, by its end; nothing where there is none."""
        return self._found.get(end_ns, {})

    def _run(self) -> None:
        clock = self._clock
        while not clock.wait(self._stopped, (_S - clock.now_ns() % _S) / _S):
            self.look(clock.now_ns())

    def look(self, now_ns: int) -> None:
        """Probe once, and keep what it came to for the second in which it was sent."""
        found = self._ask()
        if found is not None:
            self._found[(now_ns // _S + 1) * _S] = found
            while len(self._found) > _KEPT_S:
                self._found.popitem(last=False)

    def _ask(self) -> Sample | None:
        """Return a probe's outcome; None where nobody could be asked."""
        assert self._probe is not None, "there is a target"
        address = self._resolved()
        if address is None:
            return None
        try:
            rtt_s = self._round_trip_s(address)
        except PermissionError:
            self._can_ping = False
            self._say(
                "probe: this user may not ping (net.ipv4.ping_group_range): instead it is how long "
                f"connecting to port {_PORT} takes"
            )
            return None
        if rtt_s is None:
            return {"probe_loss": 1.0}
        return {"probe_rtt_ms": rtt_s * 1e3, "probe_loss": 0.0}

    def _resolved(self) -> _Address | None:
        """Return the target's address; a name is asked for again from time to time."""
        assert self._probe is not None, "there is a target"
        if self._clock.monotonic_s() < self._resolve_at:
            return self._address
        try:
            found = socket.getaddrinfo(self._probe.host, None, type=socket.SOCK_DGRAM)
            self._address = (found[0][0], str(found[0][4][0]))
            self._resolve_at = self._clock.monotonic_s() + _RESOLVE_EVERY_S
            trouble = None
        except (OSError, UnicodeError) as error:
            # The address before may be right still.
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
    """Return the round trip of an echo request in seconds; None where no answer came in time.

    Raises:
        PermissionError: this user may send none.
    """
    family, host = address
    protocol, request, answer = _ECHO[family]
    mark = os.urandom(16)
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
        # The net or the host is not there.
        return None
    return None


def _is_readable(stream: socket.socket, until: float, clock: Clock) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(clock.select(selector, until - clock.monotonic_s()))


def connect_s(address: _Address, port: int, clock: Clock) -> float | None:
    """Return how long connecting takes, or being refused; None where no answer came in time."""
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
