"""Satellites with their laser links at any time, and the least delays over them.

The links are those of a `[network]`. One search finds the least delays from a place to all
satellites, and so to all cells of a map, also without satellites that fail. `data/pairs.py` has
routes between all pairs of sites with handover policies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.data.constellations import Constellation, constellation
from skyhop.data.geometry import LIGHT_M_PER_S, earth_fixed_m
from skyhop.data.places import CITIES, Place, position_of
from skyhop.data.scenarios import load_scenario

_BLOCK = 2_000_000
"""Largest number of places times satellites looked at together, which bounds the memory."""

_CLEARANCE_M = 6_378_137.0 + 80_000.0
"""Least distance of a laser from the Earth's centre: the default of `isl_clearance`."""

_TIMES = 20
"""Number of times at which a network is looked at for its lasers."""


@dataclass(frozen=True)
class Ground:
    """Places on the ground: n positions, and the directions away from the Earth there."""

    positions_m: FloatArray
    """Earth-fixed positions in m, shape (n, 3)."""
    up: FloatArray
    """Unit vectors along the vertical, shape (n, 3)."""


def ground(places: Sequence[Place]) -> Ground:
    """Return places as positions with their verticals."""
    degrees = np.array([(place.latitude_deg, place.longitude_deg) for place in places])
    latitude, longitude = np.radians(degrees.reshape(-1, 2)).T
    up = np.column_stack(
        (np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude),
         np.sin(latitude))
    )  # fmt: skip
    positions = [
        earth_fixed_m(place.latitude_deg, place.longitude_deg, place.altitude_m) for place in places
    ]
    return Ground(np.array(positions).reshape(-1, 3), up)


@dataclass(frozen=True)
class Mesh:
    """Constellation with the laser links of its satellites."""

    constellation: Constellation
    start: datetime
    """Time in UTC from which times count."""
    lasers: IntArray
    """Directed laser links, (m, 2): the satellite that sends, and the one that receives."""

    @property
    def satellites(self) -> int:
        """Number of satellites of the constellation."""
        return self.constellation.satellites.height

    def at(self, at_s: float, failed: BoolArray | None = None) -> MeshAt:
        """Return the mesh at a time, in s after the start, without the failed satellites."""
        moment = (self.start + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")
        positions_m = self.constellation.positions(moment)
        works: BoolArray = np.asarray(np.isfinite(positions_m).all(axis=1))
        if failed is not None:
            works &= ~failed
        one, other = (positions_m[ends] for ends in self.lasers.T)
        length_m = np.linalg.norm(one - other, axis=1)
        # The point of the line from one end to the other that is nearest to the Earth's centre.
        with np.errstate(invalid="ignore", divide="ignore"):
            along = (one * (one - other)).sum(axis=1) / length_m**2
            nearest = one + (other - one) * np.clip(along, 0.0, 1.0)[:, None]
            is_clear = np.linalg.norm(nearest, axis=1) >= _CLEARANCE_M
        exists = is_clear & works[self.lasers].all(axis=1)
        delay_s = np.where(exists, length_m / LIGHT_M_PER_S, np.inf)
        return MeshAt(self, positions_m, works, delay_s)

    @cached_property
    def neighbours(self) -> tuple[IntArray, IntArray]:
        """Links that leave each satellite: rows of `lasers`, and receivers, (satellites, d) each.

        Missing links are row -1 to the satellite itself.
        """
        degree = int(np.bincount(self.lasers[:, 0], minlength=1).max(initial=0)) or 1
        rows = np.full((self.satellites, degree), -1)
        receivers = np.repeat(np.arange(self.satellites)[:, None], degree, axis=1)
        filled = np.zeros(self.satellites, np.int64)
        for row, (one, other) in enumerate(self.lasers.tolist()):
            rows[one, filled[one]], receivers[one, filled[one]] = row, other
            filled[one] += 1
        return rows, receivers


@dataclass(frozen=True)
class MeshAt:
    """Mesh at one time; delays are one-way and in s, infinite without a route."""

    mesh: Mesh
    positions_m: FloatArray
    works: BoolArray
    """Satellites that have a position and did not fail, shape (satellites,)."""
    laser_s: FloatArray
    """Delay of each row of `Mesh.lasers`, shape (m,)."""

    def up_s(self, places: Ground) -> FloatArray:
        """Return the delay from each place to each satellite in its view, (places, satellites)."""
        least = np.sin(np.radians(self.mesh.constellation.minimum_elevation_deg))
        sites_m, up = places.positions_m, places.up
        square = (self.positions_m**2).sum(axis=1) + (sites_m**2).sum(axis=1)[:, None]
        with np.errstate(invalid="ignore"):
            distance_m = np.sqrt(square - 2 * sites_m @ self.positions_m.T)
            height_m = up @ self.positions_m.T - (up * sites_m).sum(axis=1)[:, None]
            in_view = (height_m >= least * distance_m) & self.works
        return np.where(in_view, distance_m / LIGHT_M_PER_S, np.inf)

    def least_s(self, places: Ground, onward_s: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return each place's least delay over one of its satellites, and that satellite's id.

        Args:
            places: n places.
            onward_s: delay from each satellite to where the routes end, shape (satellites,).

        Returns:
            Arrays of shape (n,); the id is -1 without a route.
        """
        count = len(places.up)
        delays_s, chosen = np.full(count, np.inf), np.full(count, -1)
        block = max(_BLOCK // max(self.mesh.satellites, 1), 1)
        for begin in range(0, count, block):
            part = slice(begin, begin + block)
            of_part = self.up_s(Ground(places.positions_m[part], places.up[part])) + onward_s
            best = of_part.argmin(axis=1)
            delays_s[part] = of_part[np.arange(len(best)), best]
            chosen[part] = np.where(np.isfinite(delays_s[part]), best, -1)
        return delays_s, chosen

    def from_all_s(self, begins_s: FloatArray) -> FloatArray:
        """Return the least delays to all satellites, (k, satellites), over any number of lasers.

        Args:
            begins_s: delays at which each of k routes begins at each satellite, (k, satellites).
        """
        rows, receivers = self.mesh.neighbours
        of_link = np.append(self.laser_s, np.inf)[rows]
        delays_s = begins_s
        while True:
            # Lasers go both ways, so that the delay from a neighbour is that to it.
            over = (delays_s[:, receivers] + of_link).min(axis=2)
            better: FloatArray = np.minimum(delays_s, over)
            if (better == delays_s).all():
                return better
            delays_s = better


def mesh_of(
    name: str, start: str | None, duration_s: float, keys: dict[str, str], *, with_lasers: bool
) -> Mesh:
    """Return a constellation with its laser links.

    Args:
        name: value of `[network] constellation`.
        start: time in UTC from which times count; by default the constellation's epoch.
        duration_s: time for which the links are needed, in s.
        keys: other keys of `[network]` that select satellites and lasers.
        with_lasers: whether satellites have laser links.

    Raises:
        InputError: there is no such constellation, or a key is wrong.
    """
    given = {"start": start} if start is not None else {}
    found = constellation(name, **given, **{k: v for k, v in keys.items() if k in _OF_SATELLITES})
    begins = datetime.fromisoformat(start or found.epoch)
    begins = begins.replace(tzinfo=begins.tzinfo or UTC)
    if not with_lasers:
        return Mesh(found, begins, np.empty((0, 2), np.int64))
    built = _built({"constellation": name, **given, **keys}, duration_s)
    lasers = [(laser["from"], laser["to"]) for laser in built["network"]["lasers"]]
    return Mesh(found, begins, np.array(lasers, np.int64).reshape(-1, 2))


_OF_SATELLITES = frozenset({"satellites", "stale_after", "minimum_elevation"})


def _built(network: dict[str, str], duration_s: float) -> dict[str, Any]:
    """Return the plan of a network with these links; its two sites and its flow play no part."""
    scenario = load_scenario(
        {
            "network": {
                "sites": ["0,0", "0,90"],
                "interval": f"{max(duration_s / _TIMES, 1.0)} s",
                **network,
            },
            "flow": [{"between": ["0,0", "0,90"], "cc": "reno"}],
            "run": {"duration": f"{max(duration_s, 1.0)} s"},
        },
        origin="the network",
    )
    experiment = _core.Experiment.build(scenario, position_of, _ignore, cities=CITIES)
    plan: dict[str, Any] = json.loads(experiment.to_json())
    return plan


def _ignore(_done: int, _all: int) -> None:
    """Show no progress of a computation that takes a fraction of a second."""
