"""Network of a run: its sites, the two ends of its flows, and the places of its satellites.

A run directory has the names of links and the scenario. The rest follows from the scenario, as the
simulator derives it: sites with their positions, and flows with the sites between which they run.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.data.arrays import FloatArray
from skyhop.data.constellations import Constellation, constellation
from skyhop.data.geometry import earth_fixed_m
from skyhop.data.places import CITIES, position_of
from skyhop.errors import InputError

_SATELLITE_KEYS = ("satellites", "stale_after", "minimum_elevation")
"""Keys of `[network]` that select satellites, as those of `[path]` with the same names."""


@dataclass(frozen=True)
class NetworkSite:
    """Site of a network: its name, and its position in degrees and metres above WGS84."""

    name: str
    latitude_deg: float
    longitude_deg: float
    altitude_m: float

    @property
    def position_m(self) -> FloatArray:
        """Earth-fixed position in m, shape (3,)."""
        return earth_fixed_m(self.latitude_deg, self.longitude_deg, self.altitude_m)


@dataclass(frozen=True)
class Network:
    """Sites, flows and satellites of a run over a network."""

    scenario: Mapping[str, Any]
    """The table `[network]` of the resolved scenario."""
    sites: Sequence[NetworkSite]
    """Terminals, and the gateways and points of presence."""
    relays: frozenset[str]
    """Names of the gateways and points of presence."""
    ends: Mapping[int, tuple[str, str]]
    """Sites of each flow by the flow's id: first the one that sends the data, then the other."""

    @property
    def start(self) -> datetime:
        """Time in UTC at which the run starts."""
        return datetime.fromisoformat(self.scenario["start"]).astimezone(UTC)

    @property
    def stands_still(self) -> bool:
        """Whether the satellites stay at their places at the start."""
        return bool(self.scenario["interval"] == "never")

    @cached_property
    def constellation(self) -> Constellation:
        """Satellites of the network; their ids are those in the names of links."""
        keys = {key: self.scenario[key] for key in _SATELLITE_KEYS if self.scenario.get(key)}
        name, start = str(self.scenario["constellation"]), str(self.scenario["start"])
        return constellation(name, start=start, **{key: str(of) for key, of in keys.items()})

    def utc(self, at_s: float) -> datetime:
        """Return the time `at_s` seconds after the start, in UTC."""
        return self.start + timedelta(seconds=at_s)

    def satellites_m(self, at_s: float) -> FloatArray:
        """Return the earth-fixed positions (m) of all satellites at a time of the run, (n, 3)."""
        moment = self.start if self.stands_still else self.utc(at_s)
        return self.constellation.positions(moment.isoformat().replace("+00:00", "Z"))

    def sites_in_use(self, with_links: Collection[str]) -> list[NetworkSite]:
        """Return the terminals, and those gateways and points of presence that take part.

        Args:
            with_links: names of the sites whose links carried something.
        """
        in_use = {*with_links, *itertools.chain.from_iterable(self.ends.values())}
        return [s for s in self.sites if s.name not in self.relays or s.name in in_use]

    def site(self, name: str) -> NetworkSite | None:
        """Return the site with this name; None if the network has none."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, NetworkSite]:
        return {site.name: site for site in self.sites}


def network_of(scenario: Mapping[str, Any]) -> Network:
    """Return the network of a run's resolved scenario.

    Raises:
        InputError: the scenario has no `[network]`, or a file that it names is missing, such as
            element sets or the congestion control of a flow.
    """
    if "network" not in scenario:
        raise InputError("the run has no [network]: give a run of a network of satellites")
    return _network(json.dumps(scenario, sort_keys=True))


@lru_cache(maxsize=4)
def _network(text: str) -> Network:
    """Return the network of a scenario as JSON; cached, as a page needs it several times."""
    checked = _core.Scenario.from_json(text, "the run's scenario", [])
    experiment = _core.Experiment.build(checked, position_of, _ignore, cities=CITIES)
    built = json.loads(experiment.to_json())
    sites = [
        NetworkSite(site["name"], *(float(site["position"][key]) for key in _POSITION))
        for site in built["network"]["request"]["sites"]
    ]
    names = [site.name for site in sites]
    ends = {
        int(flow["id"]): _from_sender([names[place] for place in flow["sites"]], flow)
        for flow in built["flows"]
    }
    roles = built["network"]["request"].get("roles", [])
    relays = frozenset(
        name for name, role in zip(names, roles, strict=False) if role in _RELAY_ROLES
    )
    network = Network(json.loads(text)["network"], sites, relays, ends)
    if not np.isfinite(network.satellites_m(0.0)).any():
        raise InputError("no satellite of the constellation has a position at the run's start")
    return network


_RELAY_ROLES = ("Gateway", "PointOfPresence")
"""Roles of places without terminals, as an experiment names them."""

_POSITION = ("latitude_deg", "longitude_deg", "altitude_m")


def _from_sender(sites: Sequence[str], flow: Mapping[str, Any]) -> tuple[str, str]:
    """Return a flow's sites, the sending one first; the experiment has the client first."""
    client, server = sites
    return (server, client) if flow["from"] == "to" else (client, server)


def _ignore(_done: int, _all: int) -> None:
    """Show no progress of a computation that takes a fraction of a second."""
