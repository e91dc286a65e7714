"""What a node's owner has written down for the agent: a file that never leaves the machine.

    place = "41.39,2.17"                   # or "dish": what the terminal says, where it may
    precision_deg = 0.1                    # how finely it may be known

    [orbit]                                # satellites: nothing without this table
    elements = "starlink.tle"              # TLE or OMM; an address; a constellation's name
    handover = "max-elevation-grid"
    old_after_days = 3

    [weather]                              # nothing without this table
    source = "open-meteo"

    [probe]                                # nothing without this table
    target = "8.8.8.8"                     # pinged; with a port, connected to

    [predict]                              # nothing without this table
    model = "models/xgboost"               # beside this file; a list of one of each target
    horizon = 1                            # s; each model's shortest where not given

In `[orbit]`, `path = "site.parquet"` with `begins = "2026-12-01T10:00:00Z"` is for emulated links,
which their path file or scenario tells all about, and `grid = true` for the moments of Starlink's
grid alone.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyhop.data.toml import read_toml
from skyhop.errors import InputError

FILE = "agent.toml"
"""In the agent's directory, where nothing else is named."""
DISH = "dish"
OPEN_METEO = "open-meteo"
_OPEN_METEO_URL = "https://api.open-meteo.com/v1/forecast"
_PRECISION_DEG = 0.1
_COARSEST_DEG = 10.0
_HANDOVER = "max-elevation-grid"
_OLD_AFTER_DAYS = 3.0
_OLDEST_DAYS = 14.0
"""Element sets older than that no path takes."""
_LARGEST_FILE = 100_000
_MOST_MODELS, _LONGEST_HORIZON_S = 2, 30
_TARGET = re.compile(
    r"(?:(?P<host>[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)"
    r"|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
)
"""A name or an address, and perhaps a port; IPv6 stands in brackets where it has one."""
_SUFFIXES = {".csv", ".gz", ".json", ".omm", ".tle", ".toml", ".txt", ".xml"}


@dataclass(frozen=True)
class Orbit:
    """Where satellites are known from: one of `elements`, `path` and `is_grid`."""

    elements: str | None = None
    handover: str = _HANDOVER
    """The policy by which the serving satellite is guessed."""
    old_after_days: float = _OLD_AFTER_DAYS
    path: str | None = None
    begins_ns: int = 0
    """When the path's first second was, in UTC."""
    is_grid: bool = False


@dataclass(frozen=True)
class Probe:
    """Whom the agent probes once a second."""

    host: str
    port: int | None = None
    """Over TCP; without one it is pinged where this user may."""


@dataclass(frozen=True)
class Predict:
    """What fills `predicted_latency_ms` and `predicted_throughput_bps`."""

    models: tuple[str, ...]
    """Directories."""
    horizon_s: int | None = None
    """How far ahead; None is each model's shortest."""


@dataclass(frozen=True)
class Settings:
    """An owner's; as it is here, of one who has written nothing."""

    place: str | None = None
    """A position, a place's name, or `DISH`."""
    precision_deg: float = _PRECISION_DEG
    """To what multiples of this the position is rounded before anything is done with it: distances
    of satellites tell where they were measured."""
    orbit: Orbit | None = None
    weather: str | None = None
    """The address to ask."""
    probe: Probe | None = None
    predict: Predict | None = None

    @property
    def needs_dish(self) -> bool:
        """Whether the terminal is to be asked where it is."""
        return self.place == DISH


def read_settings(file: Path, *, is_wanted: bool = True) -> Settings:
    """Return what a file says; nothing is switched on where it need not be there and is not.

    Args:
        file: of TOML.
        is_wanted: whether it has to be there.

    Raises:
        InputError: it cannot be read, or a key is wrong: the message names it.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST_FILE).decode()
    except FileNotFoundError:
        if not is_wanted:
            return Settings()
        raise InputError(f"{file}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is no TOML: it is no text in UTF-8") from None
    try:
        return _settings(read_toml(text, str(file)), file.parent)
    except _WrongError as error:
        raise InputError(f"{file}: {error}") from None


class _WrongError(ValueError):
    """A key is wrong."""


def _settings(content: Mapping[str, Any], directory: Path) -> Settings:
    _known(content, {"place", "precision_deg", "orbit", "weather", "probe", "predict"}, "")
    place = _text(content, "place", "")
    precision_deg = _number(content, "precision_deg", _PRECISION_DEG, _COARSEST_DEG)
    orbit = None if "orbit" not in content else _orbit(_table(content, "orbit"), directory)
    weather = None if "weather" not in content else _weather(_table(content, "weather"))
    is_placed = weather is not None or (orbit is not None and orbit.elements is not None)
    if is_placed and place is None:
        raise _WrongError('place: is missing: "LATITUDE,LONGITUDE", a city, or "dish"')
    probe = None if "probe" not in content else _probe(_table(content, "probe"))
    predict = None if "predict" not in content else _predict(_table(content, "predict"), directory)
    return Settings(place, precision_deg, orbit, weather, probe, predict)


def _orbit(table: Mapping[str, Any], directory: Path) -> Orbit:
    _known(table, {"elements", "handover", "old_after_days", "path", "begins", "grid"}, "orbit.")
    elements, path = _text(table, "elements", "orbit."), _text(table, "path", "orbit.")
    is_grid = table.get("grid", False)
    if not isinstance(is_grid, bool):
        raise _WrongError("orbit.grid: expected true or false")
    if (elements is not None) + (path is not None) + is_grid != 1:
        raise _WrongError("orbit: expected one of elements, path and grid = true")
    handover = _text(table, "handover", "orbit.") or _HANDOVER
    if not handover.endswith("-grid"):
        # Others keep what they chose once, and where a forecast begins would decide.
        raise _WrongError(
            f'orbit.handover: "{handover[:100]}" does not choose at the moments of a grid; '
            "expected max-elevation-grid, nearest-grid, shortest-grid or longest-visible-grid"
        )
    if path is not None and "begins" not in table:
        raise _WrongError("orbit.begins: is missing: when the path's first second was")
    return Orbit(
        elements=None if elements is None else _beside(elements, directory),
        handover=handover,
        old_after_days=_number(table, "old_after_days", _OLD_AFTER_DAYS, _OLDEST_DAYS, "orbit."),
        path=None if path is None else str(directory / path),
        begins_ns=_instant_ns(table["begins"]) if path is not None else 0,
        is_grid=is_grid,
    )


def _beside(elements: str, directory: Path) -> str:
    """Return a file of element sets by its whole name; an address or a name as it is."""
    file = directory / elements
    looks_like_file = "/" in elements or file.suffix.lower() in _SUFFIXES
    return str(file) if looks_like_file and "://" not in elements else elements


def _weather(table: Mapping[str, Any]) -> str:
    _known(table, {"source"}, "weather.")
    source = _text(table, "source", "weather.")
    if source == OPEN_METEO:
        return _OPEN_METEO_URL
    if source is None or not source.startswith(("https://", "http://")):
        raise _WrongError(
            f'weather.source: expected "{OPEN_METEO}", or the address of a server that answers '
            "as it does"
        )
    return source


def _probe(table: Mapping[str, Any]) -> Probe:
    _known(table, {"target"}, "probe.")
    target = _text(table, "target", "probe.")
    found = _TARGET.fullmatch(target or "")
    if found is None or not 0 < int(found["port"] or 1) < 1 << 16:
        raise _WrongError('probe.target: expected such as "8.8.8.8" or "example.org:443"')
    host = found["six"] or found["host"]
    return Probe(host, int(found["port"]) if found["port"] else None)


def _predict(table: Mapping[str, Any], directory: Path) -> Predict:
    _known(table, {"model", "horizon"}, "predict.")
    named = table.get("model")
    asked = named if isinstance(named, list) else [named]
    models = [name for name in asked if isinstance(name, str) and name and "\0" not in name]
    if len(models) < len(asked) or not 1 <= len(models) <= _MOST_MODELS:
        raise _WrongError(
            "predict.model: expected a model's directory, or a list of one of latency and one of "
            "throughput"
        )
    horizon = table.get("horizon")
    if horizon is not None and (type(horizon) is not int or not 1 <= horizon <= _LONGEST_HORIZON_S):
        raise _WrongError(f"predict.horizon: expected seconds from 1 to {_LONGEST_HORIZON_S}")
    return Predict(tuple(str(directory / name) for name in models), horizon)


def _known(table: Mapping[str, Any], keys: set[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise _WrongError(
                f"{where}{key[:100]}: there is no such key; expected {', '.join(sorted(keys))}"
            )


def _table(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = content[key]
    if not isinstance(table, Mapping):
        raise _WrongError(f"{key}: expected a table [{key}]")
    return table


def _text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and (not isinstance(value, str) or not value or "\0" in value):
        raise _WrongError(f"{where}{key}: expected a text")
    return value


def _number(
    table: Mapping[str, Any], key: str, default: float, most: float, where: str = ""
) -> float:
    value = table.get(key, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or not 0 <= value <= most:
        raise _WrongError(f"{where}{key}: expected a number from 0 to {most:g}")
    return float(value)


def _instant_ns(value: object) -> int:
    try:
        instant = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=dt.UTC)
        since = instant - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        return round(since / dt.timedelta(microseconds=1)) * 1000
    except (ValueError, OverflowError):
        raise _WrongError(
            'orbit.begins: expected an instant such as "2026-12-01T10:00:00Z"'
        ) from None
