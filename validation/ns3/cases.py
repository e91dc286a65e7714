"""Networks and flows of the comparison with ns-3."""

from __future__ import annotations

import random
from collections.abc import Sequence

from validation.ns3.description import HEADERS_BYTES, Device, Flow, Network

CITIES = {
    "Tokyo": (35.69, 139.69), "Delhi": (28.65, 77.23), "Shanghai": (31.22, 121.46),
    "São Paulo": (-23.55, -46.64), "Mexico City": (19.43, -99.13), "Cairo": (30.06, 31.25),
    "Mumbai": (19.07, 72.88), "Beijing": (39.91, 116.4), "New York": (40.71, -74.01),
    "London": (51.51, -0.13), "Paris": (48.85, 2.35), "Lagos": (6.45, 3.39),
    "Istanbul": (41.01, 28.95), "Buenos Aires": (-34.61, -58.38),
    "Johannesburg": (-26.2, 28.04), "Sydney": (-33.87, 151.21),
}  # fmt: skip
LONDON = list(CITIES).index("London")
SLOW, FAST = Device(10_000_000, 50), Device(100_000_000, 50)
SENDING_S = 2
DURATION_S = 4
"""Duration of a run: all packets have arrived by then."""
LARGEST_BYTES = 1472
QUICK = "100 Mbit/s"
"""Case with most packets, whose speed is measured."""


def cases() -> dict[str, Network]:
    """Return the networks by the names of their rows."""
    ring = [(site, (site + 5) % len(CITIES)) for site in range(len(CITIES))]
    to_london = [(site, LONDON) for site in range(len(CITIES)) if site != LONDON]
    return {
        "nothing lost": _network(SLOW, SLOW, SLOW, _flows(ring, 2.0, 1000)),
        "uplinks overflow": _network(FAST, FAST, SLOW, _flows(ring, 12.0, LARGEST_BYTES)),
        "lasers overflow": _network(SLOW, FAST, FAST, _flows(ring, 12.0, LARGEST_BYTES)),
        "a shared downlink overflows": _network(
            FAST, SLOW, FAST, _flows(to_london, 6.0, LARGEST_BYTES)
        ),
        "sizes and rates drawn": _network(SLOW, SLOW, SLOW, _drawn_flows()),
        QUICK: _network(FAST, FAST, FAST, _flows(ring, 60.0, LARGEST_BYTES)),
        "twins that send in the same nanosecond": _twins(),
    }


def _network(lasers: Device, down: Device, up: Device, flows: Sequence[Flow]) -> Network:
    return Network(CITIES, lasers, down, up, flows, DURATION_S)


def _flow(ends: tuple[int, int], start_ns: int, rate_mbps: float, payload_bytes: int) -> Flow:
    """Return a flow of so many Mbit/s on the wire."""
    interval_ns = round(8e3 * (payload_bytes + HEADERS_BYTES) / rate_mbps)
    count = (SENDING_S * 10**9 - start_ns) // interval_ns
    return Flow(*ends, start_ns, interval_ns, payload_bytes, count)


def _flows(pairs: Sequence[tuple[int, int]], rate_mbps: float, payload_bytes: int) -> list[Flow]:
    """Return a flow for each pair of sites, with starts drawn from the first 100 ms."""
    chance = random.Random(1)
    return [_flow(pair, chance.randrange(10**8), rate_mbps, payload_bytes) for pair in pairs]


def _drawn_flows(count: int = 40) -> list[Flow]:
    chance = random.Random(2)
    pairs = [chance.sample(range(len(CITIES)), 2) for _ in range(count)]
    return [
        _flow(
            (client, server), chance.randrange(10**8), chance.uniform(0.5, 8),
            chance.randint(16, LARGEST_BYTES),
        )
        for client, server in pairs
    ]  # fmt: skip


def _twins() -> Network:
    """Return a network in which each city has a twin at the same place.

    Both send at the same times: their packets arrive at the satellite in the same nanosecond.
    """
    sites = {f"{name} {k}": place for k in (1, 2) for name, place in CITIES.items()}
    count = len(CITIES)
    ends = [(site, (site + 5) % count) for site in range(count)]
    # The twin with the higher number is the first in the list, so that the orders differ.
    ends = [(count + client, count + server) for client, server in ends] + ends
    flows = [_flow(pair, 0, 7.0, LARGEST_BYTES) for pair in ends]
    return Network(sites, SLOW, SLOW, SLOW, flows, DURATION_S)
