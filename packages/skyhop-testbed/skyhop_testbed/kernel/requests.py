"""Requests of the kernel service and their forms: one line of JSON each.

No request contains a path or a command. Requests that are not in the table, and requests with an
unknown field or a value of another form, are refused; the message names the fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict, cast

from skyhop.errors import InputError

LONGEST_BYTES = 16_384
_MOST_PARAMETERS = 64
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOKEN = re.compile(r"[0-9A-Za-z_-]{32,128}")
_CC = re.compile(r"(skyhop:)?[a-z][a-z0-9_]{0,14}")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,31}")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .+-]{0,31}")
_SYSCTL = re.compile(r"(net\.ipv4\.)?(tcp_[a-z_]{1,40})")
_NUMBERS = re.compile(r"\d{1,10}([ \t]+\d{1,10}){0,2}")
_LARGEST = 1 << 40


class Grant(StrEnum):
    """Permission that the agent gives to a run, for a group of requests."""

    CC = "cc"
    QDISC = "qdisc"
    SYSCTL = "sysctl"
    LINK = "link"


def _text(form: re.Pattern[str], what: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise ValueError(f"expected {what}")
        return value

    return check


def _integer(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"expected a whole number from {least:,} to {most:,}")
        return value

    return check


def _yes(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _grants(value: Any) -> frozenset[Grant]:
    try:
        return frozenset(Grant(each) for each in value)
    except (TypeError, ValueError):
        raise ValueError(f"expected a list of {', '.join(Grant)}") from None


def _parameters(value: Any) -> dict[str, str]:
    """Return parameters, after a check, as text; numbers are written without an exponent."""
    if not isinstance(value, dict) or len(value) > _MOST_PARAMETERS:
        raise ValueError(f"expected a table of at most {_MOST_PARAMETERS} parameters")
    texts = {}
    for name, given in value.items():
        if not _WORD.fullmatch(name):
            raise ValueError("names of parameters consist of a-z, 0-9 and _")
        texts[name] = _parameter(given)
        if not _VALUE.fullmatch(texts[name]):
            raise ValueError(f"{name}: expected a number or a word")
    return texts


def _parameter(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if "e" not in repr(value) else f"{value:.9f}"
    return str(value) if isinstance(value, int | str) else ""


def _numbers(value: Any) -> str:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not _NUMBERS.fullmatch(text):
        raise ValueError("expected one to three whole numbers")
    return " ".join(text.split())


@dataclass(frozen=True)
class _Form:
    required: dict[str, Callable[[Any], Any]]
    optional: dict[str, Callable[[Any], Any]]
    grant: Grant | None = None


_OF_RUN = {"run": _text(_RUN, "a run's id"), "token": _text(_TOKEN, "a token")}


def _form(grant: Grant | None = None, /, **more: Callable[[Any], Any]) -> _Form:
    optional = {name[:-1]: check for name, check in more.items() if name.endswith("_")}
    required = {name: check for name, check in more.items() if not name.endswith("_")}
    return _Form({**_OF_RUN, **required}, optional, grant)


FORMS = {
    "run.open": _form(grants=_grants),
    "run.attach": _form(leoscope_=_yes),
    "run.close": _form(),
    "cc.list": _form(),
    "cc.set": _form(Grant.CC, name=_text(_CC, "a congestion control's name")),
    "cc.load": _form(
        Grant.CC, name=_text(_CC, "a congestion control's name"), parameters_=_parameters
    ),
    "qdisc.list": _form(),
    "qdisc.set": _form(Grant.QDISC, kind=_text(_WORD, "a qdisc's kind"), parameters_=_parameters),
    "sysctl.set": _form(Grant.SYSCTL, name=_text(_SYSCTL, "tcp_NAME"), value=_numbers),
    "link.shape": _form(
        Grant.LINK,
        rate_bps=_integer(1_000, 400_000_000_000),
        burst_bytes_=_integer(1_500, _LARGEST),
        latency_ms_=_integer(1, 60_000),
    ),
    "link.cut": _form(),
    "counters": _form(),
}
"""Forms of all requests, by name."""


def check_value(request: str, field: str, value: object) -> None:
    """Check the value of a request's field; jobs are checked with it when they are submitted.

    Raises:
        ValueError: the value has another form.
    """
    form = FORMS[request]
    {**form.required, **form.optional}[field](value)


class RequestValues(TypedDict, total=False):
    """Fields of a request except run and token, as `FORMS` reads them."""

    grants: frozenset[Grant]
    leoscope: bool
    name: str
    parameters: dict[str, str]
    kind: str
    value: str
    rate_bps: int
    burst_bytes: int
    latency_ms: int


class Answer(TypedDict, total=False):
    """Answer to a request: `ok` or `error`, and the fields that the request asks for."""

    ok: bool
    error: str
    device: str
    address: str
    gateway: str | None
    name: str
    """Name of the run's congestion control in the kernel."""
    kernel: list[str]
    """Congestion controls of the kernel."""
    skyhop: list[str]
    """Congestion controls of skyhop, with their prefix."""
    loaded: dict[str, str]
    """Modules of skyhop that are loaded for the run, by their names in the kernel."""
    default: str
    kinds: list[str]
    """Queueing disciplines of the kernel."""
    rx_bytes: int
    tx_bytes: int


@dataclass(frozen=True)
class Request:
    """Parsed and checked request."""

    name: str
    run: str
    token: str
    values: RequestValues
    grant: Grant | None
    """Permission that the run needs for the request, if any."""


def read_request(line: bytes) -> Request:
    """Parse and check the line of a request.

    Raises:
        InputError: the line is no request; the message names the fault.
    """
    if len(line) > LONGEST_BYTES:
        raise InputError(f"a request has more than {LONGEST_BYTES:,} bytes")
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError("a request is no line of JSON") from None
    name = values.pop("request", None) if isinstance(values, dict) else None
    if not isinstance(name, str) or name not in FORMS:
        raise InputError(f"{str(name)[:64]!r}: unknown request; expected one of {', '.join(FORMS)}")
    form = FORMS[name]
    checks = {**form.required, **form.optional}
    for field in values:
        if field not in checks:
            raise InputError(f"{name}: unknown field {field[:64]!r}")
    read: dict[str, object] = {}
    for field, check in checks.items():
        if field not in values:
            if field in form.required:
                raise InputError(f"{name}: {field} is missing")
            continue
        try:
            read[field] = check(values[field])
        except ValueError as error:
            raise InputError(f"{name}: {field}: {error}") from None
    run, token = str(read.pop("run")), str(read.pop("token"))
    return Request(name, run, token, cast(RequestValues, read), form.grant)
