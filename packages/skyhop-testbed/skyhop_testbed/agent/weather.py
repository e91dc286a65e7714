"""`python -m skyhop_testbed.agent.weather < ORDER`: request the weather at a node.

The process asks open-meteo, or a server with the same API, and prints the fields `weather_*`. The
server learns this machine's address and the node's position, rounded as its owner chooses. Values
that are missing in the answer are left out; a value in another unit than requested is an error.
"""

from __future__ import annotations

import json
import math
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import Any, NamedTuple

from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import Sample
from skyhop_testbed.agent.position import Position, position
from skyhop_testbed.agent.surroundings import WeatherOrder

_TIMEOUT_S = 30.0
_LARGEST_ANSWER = 1_000_000
_KELVIN = 273.15
_HOURS = 3
_DAY_S = 86_400

_UNITS = {"wind_speed_unit": "ms", "temperature_unit": "celsius", "precipitation_unit": "mm"}


class _Variable(NamedTuple):
    """Variable of open-meteo's API: table, name, expected unit, and conversion to the field."""

    table: str
    name: str
    unit: str
    change: Callable[[float], float] = lambda value: value


def _kelvin(celsius: float) -> float:
    return round(celsius + _KELVIN, 2)


def _water_mm(snow_cm: float) -> float:
    """Return the water content, in mm, of fresh snow in cm; open-meteo's rule is 10 mm per 7 cm."""
    return round(snow_cm * 10 / 7, 2)


_VARIABLES = {
    "weather_id": _Variable("current", "weather_code", "wmo code"),
    "weather_temp": _Variable("current", "temperature_2m", "°C", _kelvin),
    "weather_pressure": _Variable("current", "pressure_msl", "hPa"),
    "weather_humidity": _Variable("current", "relative_humidity_2m", "%"),
    "weather_clouds": _Variable("current", "cloud_cover", "%"),
    "weather_visibility": _Variable("current", "visibility", "m"),
    "weather_speed": _Variable("current", "wind_speed_10m", "m/s"),
    "weather_gust": _Variable("current", "wind_gusts_10m", "m/s"),
    "weather_deg": _Variable("current", "wind_direction_10m", "°"),
    "weather_temp_min": _Variable("daily", "temperature_2m_min", "°C", _kelvin),
    "weather_temp_max": _Variable("daily", "temperature_2m_max", "°C", _kelvin),
    "weather_temp_mean": _Variable("daily", "temperature_2m_mean", "°C", _kelvin),
}
_OF_HOURS = {
    "weather_rain": _Variable("hourly", "rain", "mm"),
    "weather_snow": _Variable("hourly", "snowfall", "cm", _water_mm),
}
"""Variables summed over the last 1 and 3 hours; the suffix `1h` or `3h` is added to the field's
name.
"""

_KINDS: tuple[tuple[Sequence[int], str, str], ...] = (
    ((0,), "Clear", "clear sky"),
    ((1,), "Clear", "mainly clear"),
    ((2,), "Clouds", "partly cloudy"),
    ((3,), "Clouds", "overcast"),
    ((45,), "Fog", "fog"),
    ((48,), "Fog", "depositing rime fog"),
    ((51, 53, 55), "Drizzle", "drizzle"),
    ((56, 57), "Drizzle", "freezing drizzle"),
    ((61, 63, 65), "Rain", "rain"),
    ((66, 67), "Rain", "freezing rain"),
    ((71, 73, 75), "Snow", "snow"),
    ((77,), "Snow", "snow grains"),
    ((80, 81, 82), "Rain", "rain showers"),
    ((85, 86), "Snow", "snow showers"),
    ((95,), "Thunderstorm", "thunderstorm"),
    ((96, 99), "Thunderstorm", "thunderstorm with hail"),
)
"""WMO weather codes (table 4677) as open-meteo uses them, for one kind from light to heavy: codes,
kind and description.
"""
_STRENGTHS = {1: ("",), 2: ("light ", "heavy "), 3: ("light ", "moderate ", "heavy ")}


def address(source: str, where: Position) -> str:
    """Return the URL that requests the weather at a position."""
    asked: dict[str, list[str]] = {}
    for variable in [*_VARIABLES.values(), *_OF_HOURS.values()]:
        asked.setdefault(variable.table, []).append(variable.name)
    query = {
        "latitude": f"{where.latitude_deg:g}",
        "longitude": f"{where.longitude_deg:g}",
        **{table: ",".join(names) for table, names in asked.items()},
        **_UNITS,
        "timezone": "UTC",
        "timeformat": "unixtime",
        "forecast_days": "1",
        "past_hours": str(_HOURS + 1),
        "forecast_hours": "1",
    }
    return f"{source}?{urllib.parse.urlencode(query)}"


def fields_of(answer: Any, at_s: int) -> Sample:
    """Convert an answer of open-meteo to telemetry fields.

    Args:
        answer: the parsed JSON.
        at_s: the present time, in s since 1970; hours that end by then count as past.

    Raises:
        RunError: the answer holds no weather, or other units.
    """
    if not isinstance(answer, Mapping) or not isinstance(answer.get("current"), Mapping):
        raise RunError("the answer is not in open-meteo's format: it has no current weather")
    found: Sample = {}
    for field, variable in _VARIABLES.items():
        value = _present_value(answer, variable, at_s)
        if value is not None:
            found[field] = variable.change(value)
    for field, variable in _OF_HOURS.items():
        before = _hours_before(answer, variable, at_s)
        for hours in (1, _HOURS):
            if len(before) >= hours:
                found[f"{field}{hours}h"] = variable.change(sum(before[-hours:]))
    code = found.get("weather_id")
    if isinstance(code, float):
        found["weather_id"] = int(code)
        found |= _words(int(code))
    return found


def _present_value(answer: Mapping[str, Any], variable: _Variable, at_s: int) -> float | None:
    """Return a variable's present value, or its value for the present day; `None` if unknown."""
    values = _values(answer, variable)
    if variable.table == "current":
        return values[0] if values else None
    days = zip(_times(answer, variable), values, strict=False)
    return next((value for day_s, value in days if 0 <= at_s - day_s < _DAY_S), None)


def _times(answer: Mapping[str, Any], variable: _Variable) -> list[int]:
    table = answer.get(variable.table)
    times = table.get("time") if isinstance(table, Mapping) else None
    is_whole = isinstance(times, list) and all(type(time_s) is int for time_s in times)
    return times if isinstance(times, list) and is_whole else []


def _hours_before(answer: Mapping[str, Any], variable: _Variable, at_s: int) -> list[float]:
    """Return a variable's values for the whole hours since its last gap, the latest last."""
    before: list[float] = []
    for time_s, value in zip(_times(answer, variable), _values(answer, variable), strict=False):
        if time_s > at_s:
            continue
        # open-meteo's value is the sum over the hour that ends at its time stamp.
        before = [*before, value] if value is not None else []
    return before


def _values(answer: Mapping[str, Any], variable: _Variable) -> list[float | None]:
    """Return a variable's values, with `None` in place of non-numbers.

    Raises:
        RunError: the values are in another unit.
    """
    table, units = answer.get(variable.table), answer.get(f"{variable.table}_units")
    if not isinstance(table, Mapping) or variable.name not in table:
        return []
    unit = units.get(variable.name) if isinstance(units, Mapping) else None
    if unit != variable.unit:
        raise RunError(
            f"{variable.name} comes in {str(unit)[:20]}, not in {variable.unit}: the answer is "
            "not used"
        )
    said = table[variable.name]
    return [_number(value) for value in (said if isinstance(said, list) else [said])]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _words(code: int) -> Sample:
    for codes, kind, words in _KINDS:
        if code in codes:
            strength = _STRENGTHS[len(codes)][codes.index(code)]
            return {"weather_main": kind, "weather_desc": f"{strength}{words}"}
    return {}


def fetch_weather(order: WeatherOrder) -> Sample:
    """Request the weather at the position of an order; return the telemetry fields.

    Raises:
        InputError: no place has the given name.
        RunError: the server does not answer, or the answer holds no weather.
    """
    where = position(order["place"] or "", order.get("dish"), order["precision_deg"])
    source = order["source"]
    request = urllib.request.Request(address(source, where), headers={"User-Agent": "skyhop"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            content = answer.read(_LARGEST_ANSWER)
        return fields_of(json.loads(content), order["at_s"])
    except urllib.error.HTTPError as error:
        raise RunError(f"{source}: the server answers {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise RunError(f"{source}: cannot be reached: {reason}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{source}: the answer is no JSON") from None
    except RunError as error:
        raise RunError(f"{source}: {error}") from None


def main() -> None:
    """Read the order from standard input and print the fields as JSON."""
    print(json.dumps(fetch_weather(json.load(sys.stdin)), allow_nan=False))


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(str(error))
