"""Packets at constant rates over satellites that stand still, in skyhop and in ns-3, one by one.

The command prints the table. It needs ns-3: apt-get install g++ libns3-dev.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import skyhop
from skyhop.cli.terminal import print_note
from validation import pages
from validation.ns3 import program
from validation.ns3.description import HEADERS_BYTES, SATELLITES, Device, Flow, Network
from validation.ns3.program import Fates, Loss

CITIES = {
    "Tokyo": (35.69, 139.69), "Delhi": (28.65, 77.23), "Shanghai": (31.22, 121.46),
    "São Paulo": (-23.55, -46.64), "Mexico City": (19.43, -99.13), "Cairo": (30.06, 31.25),
    "Mumbai": (19.07, 72.88), "Beijing": (39.91, 116.4), "New York": (40.71, -74.01),
    "London": (51.51, -0.13), "Paris": (48.85, 2.35), "Lagos": (6.45, 3.39),
    "Istanbul": (41.01, 28.95), "Buenos Aires": (-34.61, -58.38),
    "Johannesburg": (-26.2, 28.04), "Sydney": (-33.87, 151.21),
}  # fmt: skip
SLOW, FAST = Device(10_000_000, 50), Device(100_000_000, 50)
SENDING_S = 3
DURATION_S = 5
"""Duration of a run: all packets have arrived by then."""
LARGEST_BYTES = 1472


def main() -> None:
    """Compare, and print the table."""
    print(table())


def table() -> str:
    """Return the table of all cases; raise MissingError where ns-3 is missing."""
    with tempfile.TemporaryDirectory() as directory:
        built = program.build(Path(directory))
        rows = []
        for name, network in cases().items():
            print_note(f"validate: ns-3, {name}")
            description = network.description()
            with one_core():
                ours, speed = simulate(network)
                theirs = program.run(built, description)
            comparison = compare(ours, theirs)
            other = compare(ours, program.run(built, description, "insertion"))
            rows.append(row(name, comparison, other, (speed, theirs.arrivals / theirs.wall_s)))
    return pages.table(HEAD, rows)


# --- cases ---


def cases() -> dict[str, Network]:
    """Return the networks by the names of their rows."""
    ring = [(site, (site + 5) % len(CITIES)) for site in range(len(CITIES))]
    to_london = [(site, LONDON) for site in range(len(CITIES)) if site != LONDON]
    return {
        "nothing lost": _network(SLOW, SLOW, SLOW, _flows(ring, 2.0, 1000)),
        "uplinks overflow": _network(FAST, FAST, SLOW, _flows(ring, 12.0, LARGEST_BYTES)),
        "lasers overflow": _network(SLOW, FAST, FAST, _flows(ring, 12.0, LARGEST_BYTES)),
        "a shared downlink overflows": _network(
            FAST, SLOW, FAST, _flows(to_london, 2.0, LARGEST_BYTES)
        ),
        "all overflow, sizes and rates drawn": _network(SLOW, SLOW, SLOW, _drawn_flows()),
        "100 Mbit/s": _network(FAST, FAST, FAST, _flows(ring, 60.0, LARGEST_BYTES)),
        "twins that send in the same nanosecond": _twins(),
    }


LONDON = list(CITIES).index("London")


def _network(lasers: Device, down: Device, up: Device, flows: Sequence[Flow]) -> Network:
    return Network(CITIES, lasers, down, up, flows, DURATION_S)


def _flow(
    ends: tuple[int, int], start_ns: int, rate_mbps: float, payload_bytes: int
) -> Flow:
    """Return a flow of so many Mbit/s on the wire."""
    interval_ns = round(8e3 * (payload_bytes + HEADERS_BYTES) / rate_mbps)
    count = (SENDING_S * 10**9 - start_ns) // interval_ns
    return Flow(*ends, start_ns, interval_ns, payload_bytes, count)


def _flows(
    pairs: Sequence[tuple[int, int]], rate_mbps: float, payload_bytes: int
) -> list[Flow]:
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


# --- skyhop's run ---


@contextmanager
def one_core() -> Iterator[None]:
    """Let the block, and what it starts, run on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def simulate(network: Network) -> tuple[Fates, float]:
    """Run a network in skyhop; return the fates, and packet hops per second."""
    done = skyhop.sim(network.scenario())
    timing = done.info["timing"]
    return fates(network, done), timing["packet_hops"] / timing["engine_s"]


def fates(network: Network, done: skyhop.Run) -> Fates:
    """Return the fates of the packets of skyhop's run."""
    found = Fates(arrivals=done.info["timing"]["packet_hops"])
    for probe, sent_ns, rtt_ns in done.probes.select("probe", "t_ns", "rtt_ns").rows():
        flow = network.flows[probe]
        key = probe, (sent_ns - flow.start_ns) // flow.interval_ns
        if rtt_ns is None:
            found.lost.add(key)
        else:
            found.rtts_ns[key] = rtt_ns
    columns = ("t_ns", "flow", "link", "direction")
    ends = link_ends(network)
    for at_ns, probe, link, direction in done.events.select(columns).rows():
        found.losses.append((at_ns, probe, *ends[link, direction]))
    return found


def link_ends(network: Network) -> Mapping[tuple[str, str], tuple[int, int]]:
    """Return the nodes of links by name and direction, with -1 for the air."""
    return _Ends({name: SATELLITES + number for number, name in enumerate(network.sites)})


class _Ends(dict[tuple[str, str], tuple[int, int]]):
    """Ends of links, found when they are first asked for."""

    def __init__(self, sites: Mapping[str, int]) -> None:
        super().__init__()
        self.sites = sites

    def __missing__(self, key: tuple[str, str]) -> tuple[int, int]:
        link, direction = key
        begin, end = link.split(" - ")
        if end == "satellites":
            ends = self.sites[begin], -1
        else:
            first = int(begin.removeprefix("satellite "))
            ends = first, -1 if end == "sites" else int(end)
        self[key] = ends if direction == "forward" else ends[::-1]
        return self[key]


# --- comparison ---


@dataclass(frozen=True)
class Comparison:
    """Packets of both simulators, side by side.

    Attributes:
        sent: packets in either simulator.
        returned: packets that have returned in skyhop, and in ns-3.
        returned_in_both: packets that have returned in both.
        same_rtt: packets that have returned in both after the same time, to the nanosecond.
        most_apart_ns: largest difference of the round trips of a packet.
        lost: packets lost in skyhop, and in ns-3.
        same_lost: packets lost in both.
        links: links that have lost packets in either.
        same_drops: links that have lost the same number of packets in both.
        same_losses: losses of a flow's packet at the same link and in the same nanosecond.
    """

    sent: int
    returned: tuple[int, int]
    returned_in_both: int
    same_rtt: int
    most_apart_ns: int
    lost: tuple[int, int]
    same_lost: int
    links: int
    same_drops: int
    same_losses: int

    @property
    def is_equal(self) -> bool:
        """Whether each packet has the same fate in both."""
        return (
            {self.same_rtt} == set(self.returned)
            and {self.same_lost, self.same_losses} == set(self.lost)
            and self.same_drops == self.links
            and self.sent == self.same_rtt + self.same_lost
        )


def compare(ours: Fates, theirs: Fates) -> Comparison:
    """Compare the fates of all packets."""
    both = ours.rtts_ns.keys() & theirs.rtts_ns.keys()
    apart_ns = [abs(ours.rtts_ns[key] - theirs.rtts_ns[key]) for key in both]
    our_drops, their_drops = drops(ours.losses), drops(theirs.losses)
    links = our_drops.keys() | their_drops.keys()
    return Comparison(
        sent=len(ours.rtts_ns.keys() | ours.lost | theirs.rtts_ns.keys() | theirs.lost),
        returned=(len(ours.rtts_ns), len(theirs.rtts_ns)),
        returned_in_both=len(both),
        same_rtt=apart_ns.count(0),
        most_apart_ns=max(apart_ns, default=0),
        lost=(len(ours.lost), len(theirs.lost)),
        same_lost=len(ours.lost & theirs.lost),
        links=len(links),
        same_drops=sum(our_drops[link] == their_drops[link] for link in links),
        same_losses=(Counter(ours.losses) & Counter(theirs.losses)).total(),
    )


def drops(losses: Sequence[Loss]) -> Counter[tuple[int, int]]:
    """Return the number of losses of each link."""
    return Counter((begin, end) for _, _, begin, end in losses)


HEAD = (
    "packets", "sent", "returned: skyhop, ns-3", "same round trip", "most apart (ns)",
    "lost: skyhop, ns-3", "same packets lost", "links with losses", "same number lost",
    "same link and ns", "equal", "without the order: other round trip, other fate",
    "hops per s: skyhop", "ns-3",
)  # fmt: skip


def row(
    name: str, found: Comparison, other: Comparison, speeds: tuple[float, float]
) -> list[object]:
    """Return the row of a case; `other` is the comparison with ns-3's own order of events."""
    both = [f"{mine:,}, {its:,}" for mine, its in (found.returned, found.lost)]
    rtts_differ = other.returned_in_both - other.same_rtt
    fates_differ = other.sent - other.returned_in_both - other.same_lost
    return [
        name, f"{found.sent:,}", both[0], f"{found.same_rtt:,}", found.most_apart_ns,
        both[1], f"{found.same_lost:,}", found.links, found.same_drops,
        f"{found.same_losses:,}", pages.yes_or_no(found.is_equal),
        f"{rtts_differ:,}, {fates_differ:,}", *(f"{speed:,.0f}" for speed in speeds),
    ]  # fmt: skip
