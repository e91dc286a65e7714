"""Settings of a node's owner for the agent: a TOML file that never leaves the machine.

    place = "41.39,2.17"                   # or "dish": the position that the terminal reports
    precision_deg = 0.1                    # the position is rounded to multiples of this
    proxy = "http://proxy.example.org:3128"   # to the orchestrator; default: HTTPS_PROXY, if set

    [orbit]                                # satellites; off without this table
    elements = "starlink.tle"              # TLE or OMM file, URL, or a constellation's name
    handover = "max-elevation-grid"
    old_after_days = 3

    [weather]                              # off without this table
    source = "open-meteo"

    [probe]                                # off without this table
    target = "8.8.8.8"                     # pinged; with a port, a TCP connection

    [predict]                              # off without this table
    model = "models/xgboost"               # relative to this file; or a list, one per target
    horizon = 1                            # s; default: each model's shortest

    [update]                               # off without this table
    allow = "patch"                        # or "any", "none"
    key = "…"                              # public key of the releases' signer

In `[orbit]`, `path = "site.parquet"` with `begins = "2026-12-01T10:00:00Z"` is for emulated links,
whose path file or scenario gives the satellites, and `grid = true` for the times of Starlink's
handover grid alone.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from skyhop.data.toml import read_toml
from skyhop.errors import InputError
from skyhop_testbed.proxies import checked_proxy

FILE = "agent.toml"
"""Default name of the settings file, in the agent's directory."""
DISH = "dish"
OPEN_METEO = "open-meteo"
_OPEN_METEO_URL = "https://api.open-meteo.com/v1/forecast"
_PRECISION_DEG = 0.1
_COARSEST_DEG = 10.0
_HANDOVER = "max-elevation-grid"
_OLD_AFTER_DAYS = 3.0
_OLDEST_DAYS = 14.0
"""Age limit of element sets in days, the same as that of `skyhop path`."""
_LARGEST_FILE = 100_000
_MOST_MODELS, _LONGEST_HORIZON_S = 2, 30
_KEY_BYTES = 32
_TARGET = re.compile(
    r"(?:(?P<host>[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)"
    r"|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
)
"""Form of the probe's target: a name or an address, and an optional port. An IPv6 address before a
port is in brackets.
"""
_SUFFIXES = {".csv", ".gz", ".json", ".omm", ".tle", ".toml", ".txt", ".xml"}


@dataclass(frozen=True)
class Orbit:
    """Source of satellite positions: exactly one of `elements`, `path` and `is_grid`."""

    elements: str | None = None
    handover: str = _HANDOVER
    """Handover policy that predicts the serving satellite."""
    old_after_days: float = _OLD_AFTER_DAYS
    path: str | None = None
    begins_ns: int = 0
    """Time at which the path begins, in ns of UTC since 1970."""
    is_grid: bool = False


@dataclass(frozen=True)
class Probe:
    """Target that the agent probes once a second."""

    host: str
    port: int | None = None
    """TCP port; `None` probes with ICMP echo if this user may send it."""


@dataclass(frozen=True)
class Predict:
    """Models that fill `predicted_latency_ms` and `predicted_throughput_bps`."""

    models: tuple[str, ...]
    """Directories of the models, at most one model per predicted field."""
    horizon_s: int | None = None
    """Horizon of the predictions in s; `None` is each model's shortest."""


class Allowed(StrEnum):
    """Releases that the agent may install by itself."""

    NONE = "none"
    PATCH = "patch"
    """Releases whose first two numbers are those of the present version."""
    ANY = "any"
    """All releases that are newer than the present version."""


@dataclass(frozen=True)
class Update:
    """Releases that the agent may install, and who must have signed them."""

    allowed: Allowed = Allowed.NONE
    key: bytes | None = None
    """Public key (Ed25519, 32 bytes) of the signer."""


@dataclass(frozen=True)
class Settings:
    """Settings of a node's owner; the defaults switch everything off."""

    place: str | None = None
    """Coordinates, the name of a place, or `DISH`."""
    precision_deg: float = _PRECISION_DEG
    """Step in degrees to which the position is rounded before any use, as distances of satellites
    would otherwise reveal it; 0 keeps it exact."""
    orbit: Orbit | None = None
    weather: str | None = None
    """URL of the weather service; `None` switches weather off."""
    probe: Probe | None = None
    predict: Predict | None = None
    proxy: str | None = None
    """URL of the HTTP proxy through which the agent reaches the orchestrator."""
    update: Update = Update()

    @property
    def needs_dish(self) -> bool:
        """Whether the position comes from the terminal."""
        return self.place == DISH


def read_settings(file: Path, *, is_wanted: bool = True) -> Settings:
    """Read a settings file; if an optional file is missing, return the defaults.

    Args:
        file: the TOML file.
        is_wanted: whether a missing file is an error.

    Raises:
        InputError: the file cannot be read, or a key is wrong; the message names the key.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST_FILE).decode()
    except FileNotFoundError:
        if not is_wanted:
            return Settings()
        raise InputError(f"{file}: does not exist") from None
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is no TOML: its text is not UTF-8") from None
    try:
        return _settings(read_toml(text, str(file)), file.parent)
    except _WrongError as error:
        raise InputError(f"{file}: {error}") from None


class _WrongError(ValueError):
    """A key or a value of the settings is wrong."""


def _settings(content: Mapping[str, Any], directory: Path) -> Settings:
    known = {"place", "precision_deg", "orbit", "weather", "probe", "predict", "proxy", "update"}
    _known(content, known, "")
    place = _text(content, "place", "")
    precision_deg = _number(content, "precision_deg", _PRECISION_DEG, _COARSEST_DEG)
    orbit = None if "orbit" not in content else _orbit(_table(content, "orbit"), directory)
    weather = None if "weather" not in content else _weather(_table(content, "weather"))
    is_placed = weather is not None or (orbit is not None and orbit.elements is not None)
    if is_placed and place is None:
        raise _WrongError('place: is missing: "LATITUDE,LONGITUDE", a city, or "dish"')
    probe = None if "probe" not in content else _probe(_table(content, "probe"))
    predict = None if "predict" not in content else _predict(_table(content, "predict"), directory)
    proxy = _text(content, "proxy", "")
    if proxy is not None:
        try:
            checked_proxy(proxy, "proxy")
        except InputError as error:
            raise _WrongError(str(error)) from None
    update = Update() if "update" not in content else _update(_table(content, "update"))
    return Settings(place, precision_deg, orbit, weather, probe, predict, proxy, update)


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
        # Other policies keep their first choice, so the result would depend on where a forecast
        # starts.
        raise _WrongError(
            f'orbit.handover: "{handover[:100]}" does not choose at the moments of a grid; '
            "expected max-elevation-grid, nearest-grid, shortest-grid or longest-visible-grid"
        )
    if path is not None and "begins" not in table:
        raise _WrongError("orbit.begins: is missing: give the time at which the path begins")
    return Orbit(
        elements=None if elements is None else _resolve_elements(elements, directory),
        handover=handover,
        old_after_days=_number(table, "old_after_days", _OLD_AFTER_DAYS, _OLDEST_DAYS, "orbit."),
        path=None if path is None else str(directory / path),
        begins_ns=_instant_ns(table["begins"]) if path is not None else 0,
        is_grid=is_grid,
    )


def _resolve_elements(elements: str, directory: Path) -> str:
    """Return the path of an element-set file, resolved against the settings file's directory.

    URLs and names of constellations are returned unchanged.
    """
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
            f'weather.source: expected "{OPEN_METEO}", or the URL of a server with the same API'
        )
    return source


def _probe(table: Mapping[str, Any]) -> Probe:
    _known(table, {"target"}, "probe.")
    target = _text(table, "target", "probe.")
    found = _TARGET.fullmatch(target or "")
    if found is None or not 0 < int(found["port"] or 1) < 1 << 16:
        raise _WrongError('probe.target: expected a target such as "8.8.8.8" or "example.org:443"')
    host = found["six"] or found["host"]
    return Probe(host, int(found["port"]) if found["port"] else None)


def _predict(table: Mapping[str, Any], directory: Path) -> Predict:
    _known(table, {"model", "horizon"}, "predict.")
    named = table.get("model")
    asked = named if isinstance(named, list) else [named]
    models = [name for name in asked if isinstance(name, str) and name and "\0" not in name]
    if len(models) < len(asked) or not 1 <= len(models) <= _MOST_MODELS:
        raise _WrongError(
            "predict.model: expected a model's directory, or a list of one for latency and one for "
            "throughput"
        )
    horizon = table.get("horizon")
    if horizon is not None and (type(horizon) is not int or not 1 <= horizon <= _LONGEST_HORIZON_S):
        raise _WrongError(f"predict.horizon: expected seconds from 1 to {_LONGEST_HORIZON_S}")
    return Predict(tuple(str(directory / name) for name in models), horizon)


def _update(table: Mapping[str, Any]) -> Update:
    _known(table, {"allow", "key"}, "update.")
    allow, text = _text(table, "allow", "update.") or Allowed.NONE, _text(table, "key", "update.")
    if allow not in [each.value for each in Allowed]:
        raise _WrongError('update.allow: expected "none", "patch" or "any"')
    key = None
    if text is not None:
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _KEY_BYTES:
            raise _WrongError(
                "update.key: expected the public key that skyhop testbed release key prints"
            )
    if key is None and allow != Allowed.NONE:
        raise _WrongError("update.key: is missing: give the public key of the releases' signer")
    return Update(Allowed(allow), key)


def _known(table: Mapping[str, Any], keys: set[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise _WrongError(
                f"{where}{key[:100]}: unknown key; expected {', '.join(sorted(keys))}"
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
