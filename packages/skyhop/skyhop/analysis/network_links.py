"""Links of runs over a network: which were used most, and what was lost on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyhop._core import LOSS_REASONS
from skyhop.data.run_headers import RunHeader


@dataclass(frozen=True)
class UsedLink:
    """Direction of a link that carried packets: means over runs."""

    name: str
    direction: str
    """Direction of packets: forward or back."""
    utilisation: float
    """Bytes on the wire, with the background's, divided by those that the rate allowed, 0 to 1."""


def is_network(run: RunHeader) -> bool:
    """Return whether a run is over a network, rather than over a path."""
    return "network" in run.scenario


def network_text(network: Mapping[str, Any]) -> str:
    """Return a network as text: its constellation, its sites, and the rule of its traffic."""
    match network["sites"]:
        case str(count):
            pass
        case {"grid": height}:
            count = f"cells of {height}"
        case sites:
            count = f"{len(sites)} sites"
    traffic = network.get("traffic", {}).get("kind")
    return f"{network['constellation']}, {count}" + (f", {traffic}" if traffic else "")


def link_texts(network: Mapping[str, Any]) -> dict[str, str]:
    """Return the rate and the queue of each kind of a network's links as text, by kind."""
    links = {"lasers": network["lasers"]} if network.get("relay") != "bent-pipe" else {}
    links |= {f"{way}links": network["user_links"][way] for way in ("up", "down")}
    if "gateways" in network:
        links |= {f"gateway {way}links": network["gateway_links"][way] for way in ("up", "down")}
    texts = {kind: f"{link['rate']}, queue {link['queue']}" for kind, link in links.items()}
    access = network["user_links"].get("access")
    return texts | ({"access profile": access} if access else {})


def used_links(runs: Sequence[RunHeader]) -> list[UsedLink]:
    """Return the directions of links that any of the runs used, the most used first."""
    sums: dict[tuple[str, str], float] = {}
    for run in runs:
        for name, link in _links(run).items():
            for direction, key in (("forward", "utilisation"), ("back", "utilisation_back")):
                if link[key]:
                    place = (name, direction)
                    sums[place] = sums.get(place, 0.0) + float(link[key])
    used = [UsedLink(*place, total / len(runs)) for place, total in sums.items()]
    return sorted(used, key=lambda link: (-link.utilisation, link.name, link.direction))


def losses(runs: Sequence[RunHeader]) -> dict[str, float]:
    """Return the packets that a run lost on all its links, by reason: means over the runs."""
    total = dict.fromkeys(LOSS_REASONS, 0)
    for run in runs:
        for link in _links(run).values():
            for reason in LOSS_REASONS:
                total[reason] += int(link["drops"].get(reason, 0))
    return {reason: lost / len(runs) for reason, lost in total.items()}


def _links(run: RunHeader) -> Mapping[str, Mapping[str, Any]]:
    return run.summary.get("links") or {}
