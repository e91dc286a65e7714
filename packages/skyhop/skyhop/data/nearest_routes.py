"""Routes from many sites to the nearest of some ends, over satellites and at many times."""

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
class NearestRoutes:
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


def nearest_routes(
    sites: Sequence[Place],
    ends: Sequence[Sequence[Place]] | None = None,
    *,
    duration: str,
    lasers: bool | None = None,
    failures: Sequence[Mapping[str, object]] = (),
    failed_places: Sequence[Place] = (),
    progress: Progress = ignore_progress,
    **keys: str,
) -> NearestRoutes:
    """Compute the routes from each site to the nearest place of each end.

    A handover policy chooses the satellites as for a path from the site to the end; an end of
    several places is for it like one place that sees what any of them sees.

    Args:
        sites: n places at which routes begin.
        ends: k ends, each with the places of which the nearest is used; by default each site.
        duration: time that the routes cover.
        lasers: whether routes use lasers between satellites, or one satellite alone; by default
            lasers if the constellation has them.
        failures: what fails, as tables with the keys of `[[failure]]`, other than `site`.
        failed_places: places of `sites` and `ends` that fail throughout.
        progress: callback (times done, all times).
        keys: keys of `[path]`: constellation, satellites, start, step, stale_after,
            minimum_elevation, handover ("immediate" by default).

    Raises:
        InputError: a key or what fails is wrong, or there are too many routes.
    """
    path = {"from": "0,0", "to": "0,0", "relay": "isl", "step": "1 s", **keys}
    scenario = load_scenario({"path": path, "run": {"duration": duration}}, origin="the routes")
    core = _core.Constellation.of(scenario)
    of_ends = dict.fromkeys(place for end in ends or () for place in end)
    places = [*sites, *(place for place in of_ends if place not in {*sites})]
    step_s = _core.duration_s("path.step", path["step"])
    times = max(-(-_core.duration_s("run.duration", duration) // step_s), 1) if step_s else 1
    groups = [[place] for place in sites] if ends is None else ends
    if times * len(sites) * len(groups) > _MOST_ROUTES:
        raise InputError(
            f"{len(sites) * len(groups):,} routes at {times:,.0f} times are too many; expected "
            f"{_MOST_ROUTES:,} together at most: lengthen the step or shorten the duration"
        )
    if lasers is None:
        lasers = core.isl
    index = {place: number for number, place in enumerate(places)}
    # Several places may have one name.
    labels = [f"{place.name} ({number})" for number, place in enumerate(places)]
    failing = [*failures, *({"site": labels[index[place]]} for place in failed_places)]
    delays, satellites, failed = _core.nearest_routes(
        scenario,
        [
            (label, place.latitude_deg, place.longitude_deg, place.altitude_m)
            for label, place in zip(labels, places, strict=True)
        ],
        len(sites),
        [[index[place] for place in group] for group in groups],
        lasers,
        json.dumps(failing),
        progress,
    )
    shape = (-1, len(groups), len(sites))
    delays_ns = np.frombuffer(delays, "<i8").reshape(shape)
    delays_s = np.where(delays_ns > 0, delays_ns / 1e9, np.nan)
    return NearestRoutes(
        constellation=Constellation(core),
        times_s=step_s * np.arange(len(delays_s)),
        delays_s=delays_s,
        satellites=np.frombuffer(satellites, "<i4").reshape(shape),
        failed_satellites=failed,
        notes=_notes(core, scenario) if lasers else [],
    )


def _notes(core: _core.Constellation, scenario: _core.Scenario) -> list[str]:
    notes = scenario.path_notes()
    missing = missing_links(core)
    if missing is not None:
        notes.append(f"{core.name}: there are {missing}: each route stays in one shell")
    return notes
