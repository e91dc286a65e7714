"""Packets at constant rates over satellites that stand still, in skyhop and in ns-3, one by one.

The command prints the table. It needs ns-3: apt-get install g++ libns3-dev.
"""

from __future__ import annotations

import os
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
from validation.ns3.cases import QUICK, cases
from validation.ns3.description import SATELLITES, Network
from validation.ns3.program import ORDERS, Fates, Loss

HEAD = (
    "flows", "packets", "returned: skyhop, ns-3", "lost: skyhop, ns-3", "same round trip",
    "most apart (ns)", "lost at the same link in the same ns", "links that lost as many", "equal",
    "without the order of arrivals: other round trip, other fate",
    "without the whole order: other round trip, other fate",
)  # fmt: skip
SPEEDS = (
    "skyhop", "ns-3, devices alone", "ns-3, its stack, UDP over three links",
    "ns-3, its stack, TCP over three links",
)  # fmt: skip
REPEATS = 3
"""Runs of each simulator of which the fastest counts."""


def main() -> None:
    """Compare, and print the table."""
    print(table())
    print(f"\n{speed_table()}")


def table() -> str:
    """Return the table of all cases; raise MissingError where ns-3 is missing."""
    with built_program() as built:
        rows = []
        for name, network in cases().items():
            print_note(f"validate: ns-3, {name}")
            description = network.description()
            ours = fates(network, skyhop.sim(network.scenario()))
            both = (compare(ours, program.run(built, description, order)) for order in ORDERS)
            rows.append(row(name, *both))
    return pages.table(HEAD, rows)


def speed_table() -> str:
    """Return the table of both simulators' speed on one processor."""
    network = cases()[QUICK]
    description, rates = network.description(), []
    with tempfile.TemporaryDirectory() as directory, one_processor():
        built, stack = (program.build(Path(directory), name) for name in program.LIBRARIES)
        for _ in range(REPEATS):
            timing = skyhop.sim(network.scenario()).info["timing"]
            theirs = program.run(built, description)
            over_stack = [program.run_stack(stack, transport).rate for transport in ("udp", "tcp")]
            rates.append((timing["packet_hops"] / timing["engine_s"], theirs.rate, *over_stack))
    best = [max(column) for column in zip(*rates, strict=True)]
    cells = [
        (name, f"{rate / 1e3:,.0f}", f"{best[0] / rate:,.0f}")
        for name, rate in zip(SPEEDS, best, strict=True)
    ]
    return pages.table(("what", "1000 packet hops per s", "skyhop is faster, times"), cells)


@contextmanager
def built_program() -> Iterator[Path]:
    """Provide ns-3's program, compiled."""
    with tempfile.TemporaryDirectory() as directory:
        yield program.build(Path(directory))


@contextmanager
def one_processor() -> Iterator[None]:
    """Let the block, and what it starts, run on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# --- skyhop's run ---


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
    def other_rtt(self) -> int:
        """Number of packets that have returned in both, after different times."""
        return self.returned_in_both - self.same_rtt

    @property
    def other_fate(self) -> int:
        """Number of packets that have returned in one, and not in the other."""
        return self.sent - self.returned_in_both - self.same_lost

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


def row(name: str, found: Comparison, *others: Comparison) -> list[object]:
    """Return the row of a case; `others` are the comparisons with other orders of events."""
    return [
        name, f"{found.sent:,}",
        *(f"{ours:,}, {its:,}" for ours, its in (found.returned, found.lost)),
        f"{found.same_rtt:,}", found.most_apart_ns, f"{found.same_losses:,}",
        f"{found.same_drops} of {found.links}", pages.yes_or_no(found.is_equal),
        *(f"{other.other_rtt:,}, {other.other_fate:,}" for other in others),
    ]  # fmt: skip
