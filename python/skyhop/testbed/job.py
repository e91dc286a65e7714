"""The job file: what runs where and when, and what it needs.

    id = "bbr2-on-spikes"
    nodes = ["bcn-1", "edh"]
    server = "ams-1"
    length = "4 min"
    [when]
    trigger = "pop_ping_latency_ms >= 2 * before_avg(pop_ping_latency_ms, 5 s)"
    start = "2026-12-01T00:00:00Z"
    end = "2026-12-08T00:00:00Z"
    [run]
    client = ["iperf3", "-c", "{server}", "-p", "{port}", "--json"]
    serve = ["iperf3", "-s", "-1", "-p", "{port}"]
    keep = ["*.json"]

Durations, sizes and instants are text in the file and numbers in the types: seconds, bytes,
nanoseconds since 1970 (UTC).
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from skyhop.data.quantities import seconds, size_bytes
from skyhop.data.toml import read_toml
from skyhop.errors import InputError
from skyhop.testbed.kernel.requests import check_value
from skyhop.testbed.words import Backend, JobKind, Network

LONGEST_FILE_BYTES = 64_000
"""A job file that is longer is refused unread."""
LONGEST_INPUTS_BYTES = 16_000_000
"""What a job may bring with it, all files together."""
_LONGEST_PATH = 240
_LARGEST_SIZE = 2**63
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = ("SKYHOP_", "LD_", "PYTHON")
"""Variables that decide what a program loads, and ours, are not for jobs to set."""
_PLACEHOLDERS = frozenset({"server", "port", "node", "run", "job", "cc", "length_s"})
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def _duration(value: object) -> object:
    return seconds(value) if isinstance(value, str) else value


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    size = size_bytes(value)
    if not size < _LARGEST_SIZE:
        raise ValueError("is more than any disk holds")
    return int(size)


def _instant(value: object) -> object:
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f'"{value}" is no instant, such as "2026-12-01T00:00:00Z"') from None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise ValueError("an instant needs its zone: write it with a Z at its end")
        return round(value.timestamp()) * 1_000_000_000 + value.microsecond * 1000
    return value


def check_name(value: str) -> str:
    """Return a name of a job, node or user.

    Raises:
        ValueError: it is none; the message says what one is.
    """
    if not _NAME.fullmatch(value):
        raise ValueError(
            f'"{value}" is no name: up to 63 of a-z, 0-9, ".", "_" and "-", a letter or digit first'
        )
    return value


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if not value.isprintable() or len(value.encode()) > _LONGEST_PATH:
        raise ValueError(f"{value[:40]!a}: a path is plain text of at most {_LONGEST_PATH} bytes")
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise ValueError(f'"{value}" leaves the run\'s directory: give a path inside it')
    return value


def _word(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a zero byte, which no program's argument can")
    return value


Seconds = Annotated[float, BeforeValidator(_duration), Field(ge=0, allow_inf_nan=False)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0, lt=2**63)]
InstantNs = Annotated[int, BeforeValidator(_instant), Field(ge=0, lt=2**63)]
Name = Annotated[str, BeforeValidator(lambda v: check_name(v) if isinstance(v, str) else v)]
Relative = Annotated[str, BeforeValidator(lambda v: _relative(v) if isinstance(v, str) else v)]
Word = Annotated[str, Field(max_length=4096), AfterValidator(_word)]
Words = Annotated[list[Word], Field(min_length=1, max_length=256)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class When(_Part):
    """When a job runs: exactly one of `cron`, `at` and `trigger`."""

    cron: Annotated[str, Field(max_length=256)] | None = None
    """Five fields, in UTC."""
    at: InstantNs | Literal["now"] | None = None
    """Once; what has passed means now, if the nodes are free."""
    trigger: Annotated[str, Field(max_length=4096)] | None = None
    """The condition over telemetry that starts runs in the window `start` to `end`."""
    start: InstantNs | None = None
    end: InstantNs | None = None
    hold_s: Seconds = Field(0.0, alias="for")
    """How long a trigger has to hold before it fires."""
    cooldown_s: Seconds | None = Field(None, alias="cooldown")
    """How long it is deaf after it fired; the job's length where not given."""
    max_runs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: int = 1
    """What `random(rate)` draws with."""

    @property
    def kind(self) -> JobKind:
        """Which of the three it is."""
        if self.cron is not None:
            return JobKind.CRON
        return JobKind.AT if self.at is not None else JobKind.TRIGGER

    @model_validator(mode="after")
    def _check(self) -> When:
        if sum(x is not None for x in (self.cron, self.at, self.trigger)) != 1:
            raise ValueError("give exactly one of cron, at and trigger")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("the end is not after the start")
        if self.trigger is not None and self.end is None:
            raise ValueError('a trigger needs an "end" for its window')
        if self.trigger is None and (self.hold_s or self.cooldown_s is not None or self.max_runs):
            raise ValueError("for, cooldown and max_runs go with a trigger")
        return self


class Run(_Part):
    """What is run: programs, or a scenario or study of skyhop's."""

    client: Words | None = None
    """The client's program and its arguments, without a shell; `{server}`, `{port}`, `{node}`,
    `{run}`, `{job}`, `{cc}` and `{length_s}` are filled in."""
    serve: Words | None = None
    """The server node's."""
    scenario: Annotated[str, Field(max_length=64_000)] | None = None
    """A scenario: its text, or the name of one that skyhop ships or that the job brings."""
    study: Annotated[str, Field(max_length=64_000)] | None = None
    engine: Literal["sim", "live"] = "sim"
    image: Annotated[str, Field(max_length=512)] | None = None
    """A container's, with the back ends podman and docker."""
    backend: Backend = Backend.PROCESS
    network: Network = Network.HOST
    files: list[Relative] = []
    """Files beside the job file that it brings."""
    keep: list[Relative] = ["*"]
    """Patterns of files that are kept; "telemetry" is the terminal's during the run."""
    env: dict[str, Word] = {}
    timeout: Literal["failure", "success"] = "failure"
    """What it is when the length is over before the program has ended."""

    @model_validator(mode="after")
    def _check(self) -> Run:
        if sum(x is not None for x in (self.client, self.scenario, self.study)) != 1:
            raise ValueError("give exactly one of client, scenario and study")
        if (self.image is not None) != (self.backend is not Backend.PROCESS):
            raise ValueError('an image goes with backend = "podman" or "docker"')
        for variable in self.env:
            if not _VARIABLE.fullmatch(variable) or variable.startswith(_RESERVED):
                raise ValueError(f'env: "{variable}" is not for a job to set')
        for word in [*(self.client or []), *(self.serve or [])]:
            for name in _PLACEHOLDER.findall(word):
                if name not in _PLACEHOLDERS:
                    known = ", ".join(f"{{{n}}}" for n in sorted(_PLACEHOLDERS))
                    raise ValueError(f"{{{name}}} is not known: there are {known}")
        return self


class Kernel(_Part):
    """What the kernel service is asked for, inside the run's own network namespace."""

    cc: Annotated[str, Field(max_length=64)] | None = None
    """The kernel's own, or "skyhop:NAME" for one of skyhop's."""
    parameters: dict[str, float | int | bool | str] = {}
    """Those of a congestion control of skyhop's."""
    qdisc: Annotated[str, Field(max_length=64)] | None = None
    qdisc_parameters: dict[str, float | int | bool | str] = {}
    sysctl: dict[str, str | int] = {}

    @model_validator(mode="after")
    def _check(self) -> Kernel:
        """Refuse what the kernel service would, whose requests these become."""
        asked: list[tuple[str, str, str, object]] = [
            ("cc", "cc.set", "name", self.cc),
            ("parameters", "cc.load", "parameters", self.parameters),
            ("qdisc", "qdisc.set", "kind", self.qdisc),
            ("qdisc_parameters", "qdisc.set", "parameters", self.qdisc_parameters),
        ]
        for name, numbers in self.sysctl.items():
            asked.append(("sysctl", "sysctl.set", "name", name))
            asked.append((name, "sysctl.set", "value", numbers))
        for key, request, field, value in asked:
            try:
                if value is not None:
                    check_value(request, field, value)
            except ValueError as error:
                shown = f' "{value}"' if isinstance(value, str) else ""
                raise ValueError(f"{key}{shown}: {error}") from None
        return self

    @property
    def wanted(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.cc or self.qdisc or self.sysctl)


class Job(_Part):
    """A job as it was submitted."""

    id: Name
    """Unique among its user's."""
    nodes: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    """Its clients: a run on each."""
    server: Name | None = None
    length_s: Annotated[Seconds, Field(gt=0, le=31 * 86_400)] = Field(alias="length")
    """All of a run, deploying and uploading included."""
    overhead: bool = True
    """Whether it loads the link: such runs exclude each other, and make room for the host."""
    data_cap: Bytes | None = None
    retention_s: Seconds = Field(300 * 86_400.0, alias="retention")
    """How long its files are kept."""
    description: Annotated[str, Field(max_length=4096)] = ""
    when: When
    run: Run
    kernel: Kernel = Kernel()

    @model_validator(mode="after")
    def _check(self) -> Job:
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("nodes: a node stands there twice")
        if self.server in self.nodes:
            raise ValueError("server: is one of the nodes")
        if (self.run.serve is not None) != (self.server is not None):
            raise ValueError("a server and [run] serve go together")
        if self.kernel.wanted and self.run.network is not Network.VETH:
            raise ValueError(
                '[kernel] needs [run] network = "veth": its changes are for that alone'
            )
        return self

    def as_json(self) -> dict[str, Any]:
        """Return it as it stands in the orchestrator's store and in what it signs."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def read_job(text: str, source: str = "job") -> Job:
    """Read a job file.

    Args:
        text: the file, TOML.
        source: what messages call it.

    Raises:
        InputError: it is too long, is no TOML, or has keys or values that no job has.
    """
    if len(text.encode()) > LONGEST_FILE_BYTES:
        raise InputError(
            f"{source}: longer than {LONGEST_FILE_BYTES:,} bytes, which no job file is"
        )
    return job_of(read_toml(text, source), source)


def job_of(values: object, source: str = "job") -> Job:
    """Return the job that a table of values stands for.

    Raises:
        InputError: it is none.
    """
    try:
        return Job.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{source}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    """Return what is wrong in the first place, without the library's words around it."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "now")
    if first["type"] == "extra_forbidden":
        return f'"{place}" is not known; see docs/testbed.md for the keys of a job'
    if first["type"] == "missing":
        return f'"{place}" is missing'
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message[0].lower()}{message[1:]}" if place else message
