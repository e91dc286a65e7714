"""Routes from many sites to some places, over satellites and at many times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop import _core
from skyhop.data.arrays import FloatArray, IntArray
from skyhop.data.constellations import Constellation
from skyhop.data.missing_links import missing_links
from skyhop.data.places import Place
from skyhop.data.progress import Progress, ignore_progress
from skyhop.data.scenarios import load_scenario
from skyhop.errors import InputError

_MOST_ROUTES = 30_000_000
"""Largest number of routes at all times together, which take about a gigabyte."""


@dataclass(frozen=True)
class SiteRoutes:
    """Routes from n sites to k ends at some times."""

    constellation: Constellation
    times_s: FloatArray
    """Times in s since the start, shape (times,)."""
    delays_s: FloatArray
    """One-way delays in s, shape (times, k, n); NaN without a route."""
    satellites: IntArray
    """Satellites to which the sites send, shape (times, k, n); -1 without a route."""
    failed_satellites: Sequence[int]
    """Satellites that fail at some time."""
    notes: Sequence[str]
    """Features of the routes that the constellation is not known to have, or does not have."""


def site_routes(
    sites: Sequence[Place],
    ends: Sequence[Place | Sequence[Place]] | None = None,
    *,
    duration: str,
    lasers: bool | None = None,
    failures: Sequence[Mapping[str, object]] = (),
    failed_places: Sequence[Place] = (),
    progress: Progress = ignore_progress,
    **keys: str,
) -> SiteRoutes:
    """Compute the routes from each site to each end.

    An end is a place, or a list of gateways, of which the nearest is used. A handover policy
    chooses the satellites of the site and of an end that is a place; gateways use all satellites
    that they see, so that the route from the site's satellite to them is the shortest.

    Args:
        sites: n places at which routes begin.
        ends: k ends; by default each site.
        duration: time that the routes cover.
        lasers: whether routes use lasers between satellites, or one satellite alone; by default
            lasers if the constellation has them.
        failures: what fails, as tables with the keys of `[[failure]]`, other than `site`.
        failed_places: places of `sites` and `ends` that fail throughout.
        progress: callback (times done, all times).
        keys: keys of `[path]`: constellation, satellites, start, step, stale_after,
            minimum_elevation, isl_shells, handover ("immediate" by default).

    Raises:
        InputError: a key or what fails is wrong, or there are too many routes.
    """
    path = {"from": "0,0", "to": "0,0", "relay": "isl", "step": "1 s", **keys}
    scenario = load_scenario({"path": path, "run": {"duration": duration}}, origin="the routes")
    core = _core.Constellation.of(scenario)
    ends = sites if ends is None else ends
    step_s = _core.duration_s("path.step", path["step"])
    _check_size(len(sites) * len(ends), _core.duration_s("run.duration", duration) / step_s)
    chosen, lasers = lasers is not None, core.isl if lasers is None else lasers
    numbers = _numbers(sites, ends)
    # Several places may have one name.
    labels = {place: f"{place.name} ({number})" for place, number in numbers.items()}
    delays, satellites, failed = _core.site_routes(
        scenario,
        [(labels[one], one.latitude_deg, one.longitude_deg, one.altitude_m) for one in numbers],
        len(sites),
        [numbers[end] if isinstance(end, Place) else [numbers[one] for one in end] for end in ends],
        lasers,
        json.dumps([*failures, *({"site": labels[place]} for place in failed_places)]),
        progress,
    )
    shape = (-1, len(ends), len(sites))
    delays_ns = np.frombuffer(delays, "<i8").reshape(shape)
    return SiteRoutes(
        constellation=Constellation(core),
        times_s=step_s * np.arange(len(delays_ns), dtype=np.float64),
        delays_s=np.where(delays_ns > 0, delays_ns / 1e9, np.nan),
        satellites=np.frombuffer(satellites, "<i4").reshape(shape),
        failed_satellites=failed,
        notes=(
            [*scenario.path_notes(), *_missing(core, keys.get("isl_shells", "apart"))]
            if lasers
            else _no_lasers(core, chosen=chosen)
        ),
    )


def _check_size(routes: int, times: float) -> None:
    if routes * times > _MOST_ROUTES:
        raise InputError(
            f"{routes:,} routes at {times:,.0f} times are too many; expected at most "
            f"{_MOST_ROUTES:,} together: lengthen the step or shorten the duration"
        )


def _numbers(sites: Sequence[Place], ends: Sequence[Place | Sequence[Place]]) -> dict[Place, int]:
    """Return the index of each place in the order of the core: first the sites.

    Raises:
        InputError: two sites are the same place.
    """
    numbers = {place: number for number, place in enumerate(sites)}
    if len(numbers) < len(sites):
        raise InputError("two sites are the same place: leave one out")
    for end in ends:
        for place in [end] if isinstance(end, Place) else end:
            numbers.setdefault(place, len(numbers))
    return numbers


def _missing(core: _core.Constellation, isl_shells: str) -> list[str]:
    """Return a note on satellites that no lasers join, if the constellation has lasers."""
    missing = missing_links(core, isl_shells) if core.isl else None
    return [] if missing is None else [f"{core.name} has {missing}"]


def _no_lasers(core: _core.Constellation, *, chosen: bool) -> list[str]:
    """Return a note on routes without lasers; `chosen` says whether the caller chose them."""
    note = f"{core.name} has no links between satellites: each route uses a single satellite"
    return [] if chosen else [note]
