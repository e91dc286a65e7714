"""Places by name or position: interpretation of `from` and `to` of a path.

The forms of a place are tried in this order: "lat,lon[,alt_m]"; a site of skyhop's lists; a city
("New York", "London, GB"), also by its alternate names. Of several cities with a name, the most
populous one is chosen; `ambiguity_note` reports this if the user may have meant another city.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from skyhop import _core
from skyhop.data.folding import folded
from skyhop.data.gazetteer import City, Gazetteer
from skyhop.data.near_names import did_you_mean
from skyhop.errors import InputError

_LATITUDES_DEG = (-90.0, 90.0)
_LONGITUDES_DEG = (-180.0, 360.0)
_ALTITUDES_M = (-5_000.0, 50_000.0)
"""Limits of altitudes in m, the same as for lists of sites (crates/scenario/src/catalogue.rs)."""
_POSITION = re.compile(r"^\s*([-+]?[\d.]+)\s*,\s*([-+]?[\d.]+)\s*(?:,\s*([-+]?[\d.]+)\s*)?$")


@dataclass(frozen=True)
class Place:
    """Named position: latitude and longitude in degrees (east positive), metres above WGS84."""

    name: str
    latitude_deg: float
    longitude_deg: float
    altitude_m: float = 0.0
    population: int | None = None
    """Inhabitants of a city."""
    others: tuple[str, ...] = ()
    """Other places with the same name that the user may have meant, in unambiguous form."""


@cache
def find_place(text: str) -> Place:
    """Return the place that `text` names.

    Raises:
        InputError: no place has this name; the message suggests similar names.
    """
    position = _POSITION.match(text)
    if position:
        return _at_position(text, position)
    site = _sites().get(folded(text))
    if site is not None:
        return site
    city = _largest_city(text)
    if city is not None:
        return city
    raise InputError(_unknown(text))


def ambiguity_note(text: str) -> str | None:
    """Return a note on which of several places with a name was chosen; None if it is unambiguous.

    Raises:
        InputError: no place has this name.
    """
    place = find_place(text)
    if not place.others:
        return None
    at = f"{place.latitude_deg:.2f}, {place.longitude_deg:.2f}"
    others = " or ".join(f'"{other}"' for other in place.others)
    return f'"{text}" is taken as {place.name} ({at}); for another write {others}'


def position_of(text: str) -> tuple[str, float, float, float]:
    """Return name, latitude (deg), longitude (deg) and altitude (m) of the place that `text` names.

    Raises:
        InputError: no place has this name.
    """
    place = find_place(text)
    return place.name, place.latitude_deg, place.longitude_deg, place.altitude_m


def population_of(text: str) -> int | None:
    """Return the inhabitants of the city that `text` names; None if it names no city.

    Raises:
        InputError: no place has this name.
    """
    return find_place(text).population


def largest_cities(count: int) -> list[tuple[str, float, float, float, int]]:
    """Return the most populous cities, the largest first.

    Returns:
        Their names, latitudes (deg), longitudes (deg), altitudes (m) and inhabitants. Of two cities
        with the same name in one country, the smaller one's name contains its position.

    Raises:
        InputError: there are fewer cities.
    """
    cities = sorted(_gazetteer().cities(), key=lambda city: (-city.population, city.name))
    if count > len(cities):
        raise InputError(f"{count} cities; the list has {len(cities)}")
    found = dict[str, tuple[float, float, float, int]]()
    for city in cities[:count]:
        name = f"{city.name}, {city.country}"
        if name in found:
            name = f"{name} ({city.latitude_deg:.2f}, {city.longitude_deg:.2f})"
        found[name] = (city.latitude_deg, city.longitude_deg, 0.0, city.population)
    return [(name, *rest) for name, rest in found.items()]


CITIES = (largest_cities, population_of)
"""The functions from which the core takes the cities of a network."""


def _at_position(text: str, position: re.Match[str]) -> Place:
    try:
        latitude_deg, longitude_deg, altitude_m = (float(part or 0) for part in position.groups())
    except ValueError:
        raise InputError(f'"{text}" is not a position; expected "lat,lon[,alt_m]"') from None
    if not _within(altitude_m, _ALTITUDES_M):
        low, high = _ALTITUDES_M
        raise InputError(
            f'"{text}" has an altitude of {altitude_m:g} m; expected {low:g} to {high:g}'
        )
    if not (_within(latitude_deg, _LATITUDES_DEG) and _within(longitude_deg, _LONGITUDES_DEG)):
        raise InputError(
            f'"{text}" is not on Earth; expected a latitude of -90 to 90 and a longitude of '
            "-180 to 180 degrees"
        )
    return Place(text.strip(), latitude_deg, longitude_deg, altitude_m)


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]


@cache
def _sites() -> dict[str, Place]:
    """Return the sites of all lists by name; of several sites with a name, the first one."""
    sites: dict[str, Place] = {}
    for entry in _core.list_sites():
        for name, latitude_deg, longitude_deg, altitude_m in _core.sites(entry.name):
            place = Place(name, latitude_deg, longitude_deg, altitude_m)
            sites.setdefault(folded(name), place)
    return sites


@cache
def _gazetteer() -> Gazetteer:
    """Return the cities and regions that scripts/cities.py writes for builds."""
    return Gazetteer(Path(__file__).with_name("cities.dat"))


@cache
def _largest_city(text: str) -> Place | None:
    name, _, region = (part.strip() for part in text.partition(","))
    wanted = folded(name)
    if not wanted:
        return None
    found = _gazetteer().named(wanted)
    # Countries take priority: CA is Canada, and California only if Canada has no such city.
    for is_there in (_is_in_country, _is_in_state) if region else ():
        there = [city for city in found if is_there(city, region)]
        if there:
            return _largest(there, wanted)
    return None if region or not found else _largest(found, wanted)


def _largest(found: list[City], wanted: str) -> Place:
    """Return the most populous of the cities, with the others that the user may have meant.

    Cities for which `wanted` is only an alternate name are not among the others.
    """
    city, *rest = sorted(found, key=lambda each: each.population, reverse=True)
    own = [other for other in rest if folded(other.name) == wanted]
    if folded(city.name) == wanted:
        own = [other for other in own if other.population >= _RIVAL_SHARE * city.population]
    written = dict.fromkeys(_written(other) for other in own)
    written.pop(_written(city), None)
    return Place(
        f"{city.name}, {city.country}",
        city.latitude_deg,
        city.longitude_deg,
        population=city.population,
        others=tuple(written)[:_MOST_OTHERS],
    )


_RIVAL_SHARE = 0.05
"""Share of the largest city's population below which a city of the same name is not mentioned."""
_MOST_OTHERS = 3


def _written(city: City) -> str:
    return f"{city.name}, {city.admin1 if city.country == 'US' else city.country}"


def _is_in_country(city: City, region: str) -> bool:
    return city.country in _countries().get(folded(region), ())


def _is_in_state(city: City, region: str) -> bool:
    return city.country == "US" and city.admin1 == _states().get(folded(region))


@cache
def _countries() -> dict[str, set[str]]:
    """Return the ISO codes of countries by case-folded name or code."""
    named: dict[str, set[str]] = {}
    for code, country, iso3 in _gazetteer().countries:
        for name in (code, country, iso3, *_COLLOQUIAL_NAMES.get(code, ())):
            named.setdefault(folded(name), set()).add(code)
    return named


_COLLOQUIAL_NAMES = {
    "US": ("USA", "U.S.", "America"),
    "GB": ("UK", "England", "Scotland", "Wales"),
}
"""Names of countries by ISO code, in addition to GeoNames'."""


@cache
def _states() -> dict[str, str]:
    """Return the codes of the states of the US, by case-folded name and code."""
    return {folded(written): code for name, code in _gazetteer().states for written in (name, code)}


def _unknown(text: str) -> str:
    name = text.partition(",")[0].strip()
    hint = did_you_mean(name, dict.fromkeys(city.name for city in _gazetteer().cities()))
    forms = 'a city, "City, Country", in the US "City, State", or "lat,lon[,alt_m]"'
    return f'unknown place "{text}"{hint}; expected {forms}'
