"""Satellites above one end of a path at one moment, as a view model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.analysis.moment import TRACK_S, Moment
from skyhop.data.arrays import BoolArray, FloatArray
from skyhop.data.geometry import seen_from

_NAMES_AT_MOST = 40
"""Largest number of usable satellites that are named; with more, only the serving one is named."""


@dataclass(frozen=True)
class SkyView:
    """Satellites in the sky by elevation and azimuth (from north over east), in degrees."""

    title: str
    elevation_deg: FloatArray
    """Elevation of every satellite of the constellation, by satellite id, shape (n,)."""
    azimuth_deg: FloatArray
    low: BoolArray
    """Whether a satellite is above the horizon but too low to serve, shape (n,)."""
    low_label: str
    usable: BoolArray
    usable_label: str
    minimum_elevation_deg: float
    serving: int | None
    track_deg: Sequence[tuple[FloatArray, FloatArray]]
    """Track of the serving satellite: elevations and azimuths before the moment, and after it."""
    track_label: str
    named: Mapping[int, str]
    """Shown names of satellites, by their ids."""


def sky_view(
    moment: Moment, place: str, place_deg: tuple[float, float], serving: int | None
) -> SkyView:
    """Return the view of the sky above a place.

    Args:
        moment: state of the path at the moment.
        place: the name of the place.
        place_deg: latitude and longitude of the place.
        serving: id of the satellite that serves the place; None without one.
    """
    elevation_deg, azimuth_deg = seen_from(*place_deg, moment.satellites_m)
    usable = elevation_deg >= moment.minimum_elevation_deg
    low = (elevation_deg > 0) & ~usable
    shown = np.flatnonzero(usable).tolist()
    if len(shown) > _NAMES_AT_MOST:
        shown = [] if serving is None else [serving]
    return SkyView(
        title=_title(moment, place, serving, elevation_deg),
        elevation_deg=elevation_deg,
        azimuth_deg=azimuth_deg,
        low=low,
        low_label=f"too low ({low.sum()})",
        usable=usable,
        usable_label=f"above {moment.minimum_elevation_deg:g}\N{DEGREE SIGN} ({usable.sum()})",
        minimum_elevation_deg=moment.minimum_elevation_deg,
        serving=serving,
        track_deg=[] if serving is None else _track(moment, place_deg, serving),
        track_label=f"its track, \N{PLUS-MINUS SIGN}{TRACK_S // 60} min",
        named={satellite: moment.satellite_names[satellite] for satellite in shown},
    )


def _track(
    moment: Moment, place_deg: tuple[float, float], serving: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Return the satellite's track above the horizon, before the moment and after it."""
    elevation_deg, azimuth_deg = seen_from(*place_deg, moment.tracks_m[serving])
    now = len(elevation_deg) // 2
    parts = [(elevation_deg[part], azimuth_deg[part]) for part in (np.s_[: now + 1], np.s_[now:])]
    return [(elevation[elevation > 0], azimuth[elevation > 0]) for elevation, azimuth in parts]


def _title(moment: Moment, place: str, serving: int | None, elevation_deg: FloatArray) -> str:
    when = moment.utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    what = "no path"
    if serving is not None:
        name = moment.satellite_names[serving]
        what = f"served by {name} at {elevation_deg[serving]:.0f}\N{DEGREE SIGN}"
    return f"the sky over {place}   ({when}, {moment.at_s:g} s): {what}"
