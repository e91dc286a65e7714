"""Limits of the connections of one port: how many there are, of which peer, and who must give way.

A `Budget` counts the connections of a port. Of too many, a connection gives way that has no
request in progress: the longest waiting one of the same peer, or of the peer with most of them. A
flood of idle or half-open connections therefore ends its own connections, not those of others. A
connection with a request in progress never gives way; if there is no other, the new one is refused.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

WANTED_DESCRIPTORS = 65_536
_RESERVED = 256
"""Descriptors of this process that are not connections of a port: database, files, pipes."""
_AGENTS_SHARE = 0.6
_LARGEST_AGENTS, _LARGEST_USERS = 8192, 1024


@dataclass(frozen=True)
class Limits:
    """Limits and deadlines of the connections of one port; deadlines are in s."""

    most: int = 512
    most_of_peer: int = 64
    """Upper limit per certificate of a client, else per IPv4 address or IPv6 network of 64 bits."""
    most_handshakes: int = 128
    """Upper limit on connections whose TLS handshake is not complete."""
    new_per_s: float = 200.0
    """Upper limit on the rate of new connections, whose handshakes take processor time; further
    ones wait in the kernel's queue."""
    handshake_s: float = 10.0
    head_s: float = 20.0
    """Deadline of a request's head: from the connection, or from the head's first byte."""
    body_silence_s: float = 60.0
    """Longest time without a byte of a request's body."""
    least_body_bytes_per_s: float = 1000.0
    """Least mean rate of a request's body once it has lasted for `body_silence_s`; 0 for none."""
    idle_s: float = 75.0
    """Time for which an idle connection is kept: longer than clients keep theirs."""
    stalled_s: float = 60.0
    """Longest time for which a client takes nothing of a response."""


def agents_limits(descriptors: int) -> Limits:
    """Return the limits of the agents' port; uploads may pause and be slow there.

    Args:
        descriptors: limit of this process on open files.
    """
    most = max(16, min(_LARGEST_AGENTS, round(_AGENTS_SHARE * (descriptors - _RESERVED))))
    return Limits(
        most=most,
        most_of_peer=max(8, min(64, most // 4)),
        most_handshakes=max(8, min(512, most // 2)),
        body_silence_s=900.0,
        least_body_bytes_per_s=0.0,
    )


def users_limits(descriptors: int) -> Limits:
    """Return the limits of a port of users or of the pages.

    Args:
        descriptors: limit of this process on open files.
    """
    share = (1 - _AGENTS_SHARE) * (descriptors - _RESERVED)
    most = max(16, min(_LARGEST_USERS, round(share)))
    return Limits(most=most, most_of_peer=max(8, min(64, most // 4)), new_per_s=100.0)


def raise_descriptor_limit(wanted: int = WANTED_DESCRIPTORS) -> int:
    """Raise this process's soft limit on open files as far as its hard limit allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return wanted if soft == resource.RLIM_INFINITY else soft


def peer_of(address: str) -> str:
    """Return the key by which connections of an address are counted: the network for IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        network = ipaddress.ip_network((parsed, 64), strict=False)
        return str(mapped) if mapped else str(network)
    return str(parsed)


class Stage(StrEnum):
    """Stage of a connection."""

    HANDSHAKE = "handshake"
    WAITING = "waiting"
    """The connection has no request, or only a part of a request's head."""
    BUSY = "busy"
    """A request's body or its response is in progress."""


class Cause(StrEnum):
    """Why the server refused or ended a connection."""

    FULL = "full"
    """The connection was refused: all places are taken by requests in progress."""
    DISPLACED = "displaced"
    """The connection waited, and gave way to a new one."""
    HANDSHAKE = "handshake"
    """The TLS handshake failed, or exceeded its deadline."""
    HEAD = "head"
    BODY = "body"
    STALLED = "stalled"
    """The client took nothing of the response."""


@dataclass(eq=False)
class Place:
    """Place of one connection in a budget."""

    peer: str
    end: Callable[[], object]
    """Ends the connection at once."""
    since_s: float
    """Time at which the stage began (monotonic)."""
    stage: Stage = Stage.HANDSHAKE
    is_held: bool = True
    """Whether the place still counts; it does not once the connection gave way."""


class Budget:
    """Connections of one port, within its limits. All calls are from one thread.

    Args:
        limits: the limits.
        monotonic_s: clock in s.
    """

    def __init__(self, limits: Limits, monotonic_s: Callable[[], float]) -> None:
        self.limits = limits
        self.accepted = 0
        self.ended: Counter[Cause] = Counter()
        """Number of connections that the server refused or ended, by cause."""
        self._monotonic_s = monotonic_s
        self._by_peer: dict[str, dict[Place, None]] = {}
        self._open = self._handshakes = 0

    @property
    def open(self) -> int:
        """Number of open connections."""
        return self._open

    def admit(self, address: str, end: Callable[[], object]) -> Place | None:
        """Return a place for a new connection of an address; None if it must be refused.

        Another connection that waits may be ended for it.
        """
        peer, limits = peer_of(address), self.limits
        own = self._by_peer.get(peer, {})
        if len(own) >= limits.most_of_peer and not self._displace(own):
            self._refused()
            return None
        if self._handshakes >= limits.most_handshakes:
            self._displace(self._crowd(Stage.HANDSHAKE), Stage.HANDSHAKE)
        if self._open >= limits.most and not self._displace(self._crowd()):
            self._refused()
            return None
        self.accepted += 1
        place = Place(peer, end, self._monotonic_s())
        self._by_peer.setdefault(peer, {})[place] = None
        self._open += 1
        self._handshakes += 1
        return place

    def set_stage(self, place: Place, stage: Stage) -> None:
        """Note that a connection now is at another stage."""
        if place.is_held and place.stage is not stage:
            self._handshakes -= place.stage is Stage.HANDSHAKE
            place.stage, place.since_s = stage, self._monotonic_s()

    def identify(self, place: Place, certificate: str) -> bool:
        """Count a connection for the client's certificate from now on; return whether it may stay.

        Agents behind one address then have a limit each.
        """
        if not place.is_held:
            return False
        own = self._by_peer.get(certificate, {})
        if len(own) >= self.limits.most_of_peer and not self._displace(own):
            self._refused()
            self.release(place)
            return False
        self._take_out(place)
        place.peer = certificate
        self._by_peer.setdefault(certificate, {})[place] = None
        self._open += 1
        self._handshakes += place.stage is Stage.HANDSHAKE
        return True

    def release(self, place: Place, cause: Cause | None = None) -> None:
        """Free the place of a connection that has ended, and count why the server ended it."""
        if place.is_held:
            self._take_out(place)
            place.is_held = False
            if cause is not None:
                self.ended[cause] += 1

    def _refused(self) -> None:
        self.ended[Cause.FULL] += 1

    def _take_out(self, place: Place) -> None:
        own = self._by_peer[place.peer]
        del own[place]
        if not own:
            del self._by_peer[place.peer]
        self._open -= 1
        self._handshakes -= place.stage is Stage.HANDSHAKE

    def _crowd(self, stage: Stage | None = None) -> Iterable[Place]:
        """Return the connections of the peer with most that may give way."""

        def count(places: Iterable[Place]) -> int:
            return sum(1 for each in places if _may_give_way(each, stage))

        return max(self._by_peer.values(), key=count, default={})

    def _displace(self, places: Iterable[Place], stage: Stage | None = None) -> bool:
        """End the longest waiting of some connections; return whether there is one."""
        waiting = [each for each in places if _may_give_way(each, stage)]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each.since_s)
        self.release(oldest, Cause.DISPLACED)
        oldest.end()
        return True


def _may_give_way(place: Place, stage: Stage | None) -> bool:
    return place.stage is not Stage.BUSY if stage is None else place.stage is stage
