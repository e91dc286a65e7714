"""Description of a network that stands still, for ns-3 (static_network.cc) and for skyhop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import skyhop
from skyhop.errors import RunError

CONSTELLATION, COMPAT = "kuiper-630-hypatia", "hypatia"
SATELLITES = 1156
"""Number of satellites. The sites' numbers in ns-3's network follow those of the satellites."""
HEADERS_BYTES = 14 + 20 + 8
"""Ethernet, IPv4 and UDP."""


@dataclass(frozen=True)
class Device:
    """Rate and queue of all links of one kind.

    Rates are 8 Gbit/s divided by a whole number: a byte takes whole nanoseconds, and no simulator
    rounds.
    """

    rate_bps: int
    queue_packets: int

    @property
    def text(self) -> dict[str, str]:
        """Keys of the kind of link in a scenario."""
        return {"rate": f"{self.rate_bps / 1e6:g} Mbit/s", "queue": f"{self.queue_packets} packets"}


@dataclass(frozen=True)
class Flow:
    """Packets of one size at regular intervals between two sites; the server returns each."""

    client: int
    server: int
    start_ns: int
    interval_ns: int
    payload_bytes: int
    count: int

    @property
    def wire_bytes(self) -> int:
        """Size of a packet with its headers."""
        return self.payload_bytes + HEADERS_BYTES

    @property
    def stop_ns(self) -> int:
        """Time before which the last packet is sent, and after which no packet would be."""
        return self.start_ns + self.interval_ns * (self.count - 1) + 1


@dataclass(frozen=True)
class Network:
    """Sites, all links, and flows.

    Attributes:
        sites: latitude and longitude in degrees by name.
    """

    sites: Mapping[str, tuple[float, float]]
    lasers: Device
    down: Device
    up: Device
    flows: Sequence[Flow]
    duration_s: int

    def scenario(self) -> dict[str, Any]:
        """Return skyhop's scenario: a flow of kind probe for each flow."""
        names = list(self.sites)
        return {
            "network": {
                "constellation": CONSTELLATION,
                "compat": COMPAT,
                "sites": [
                    {"name": name, "lat": lat, "lon": lon}
                    for name, (lat, lon) in self.sites.items()
                ],
                "interval": "never",
                "lasers": self.lasers.text,
                "user_links": {"down": self.down.text, "up": self.up.text},
            },
            "flow": [
                {
                    "between": [names[flow.client], names[flow.server]],
                    "kind": "probe",
                    "size": f"{flow.payload_bytes} B",
                    "interval": f"{flow.interval_ns} ns",
                    "start": f"{flow.start_ns} ns",
                    "stop": f"{flow.stop_ns} ns",
                }
                for flow in self.flows
            ],
            "run": {"duration": f"{self.duration_s} s"},
        }

    def description(self, moved: tuple[int, int, int] | None = None) -> str:
        """Return ns-3's description: the flows, and the links and routes that they use.

        Routes and delays are those of the paths between the flows' sites, which skyhop computes
        pair by pair, and not those of its simulation of networks.

        Args:
            moved: satellites of a laser, and ns by which its delay is longer than it is.
        """
        geometry = Geometry()
        for flow in self.flows:
            geometry.add(self, flow.client, flow.server)
            geometry.add(self, flow.server, flow.client)
        if moved is not None:
            first, second, by_ns = moved
            geometry.delays_ns[first, second] += by_ns
        return "\n".join([*geometry.lines(self), *self._flow_lines(), ""])

    def _flow_lines(self) -> Iterator[str]:
        for number, flow in enumerate(self.flows):
            ends = f"{SATELLITES + flow.client} {SATELLITES + flow.server}"
            times = f"{flow.start_ns} {flow.interval_ns}"
            yield f"flow {number} {ends} {times} {flow.wire_bytes} {flow.count}"


class Geometry:
    """Delays of all links that are used, and next nodes.

    Attributes:
        delays_ns: by the numbers of both nodes, the lower one first.
        routes: next node, by node and destination.
    """

    def __init__(self) -> None:
        self.delays_ns: dict[tuple[int, int], int] = {}
        self.routes: dict[tuple[int, int], int] = {}

    def add(self, network: Network, client: int, server: int) -> None:
        """Add the links and routes of a path from one site to another."""
        places = [f"{lat},{lon}" for lat, lon in network.sites.values()]
        path = skyhop.path(
            places[client], places[server],
            constellation=CONSTELLATION, compat=COMPAT, relay="isl", duration="1 s", step="1 s",
        )  # fmt: skip
        [frame] = path.frames.head(1).to_dicts()
        satellites = frame["nodes"][1:-1]
        nodes = [SATELLITES + client, *satellites, SATELLITES + server]
        for begin, end, delay_ns in zip(nodes, nodes[1:], frame["hop_delay_ns"], strict=False):
            self._set(self.delays_ns, (min(begin, end), max(begin, end)), delay_ns)
            self._set(self.routes, (begin, nodes[-1]), end)

    @staticmethod
    def _set(known: dict[tuple[int, int], int], key: tuple[int, int], value: int) -> None:
        if known.setdefault(key, value) != value:
            raise RunError(f"ns-3: two paths do not agree about {key}: {known[key]} and {value}")

    def lines(self, network: Network) -> Iterator[str]:
        """Return the lines of links and routes."""
        nodes = {node for pair in self.delays_ns for node in pair}
        for node in sorted(nodes):
            device = network.down if node < SATELLITES else network.up
            yield f"air {node} {device.rate_bps} {device.queue_packets}"
        laser = f"{network.lasers.rate_bps} {network.lasers.queue_packets}"
        for (begin, end), delay_ns in sorted(self.delays_ns.items()):
            if end < SATELLITES:
                yield f"laser {begin} {end} {delay_ns} {laser}"
            else:
                yield f"sight {begin} {end} {delay_ns}"
        for (node, destination), following in sorted(self.routes.items()):
            yield f"route {node} {destination} {following}"
