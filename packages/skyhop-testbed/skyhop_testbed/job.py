"""Job file: program, nodes and times of an experiment, and its requirements.

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

Durations, sizes and times are text in the file. The types here hold them as numbers: seconds,
bytes, and nanoseconds since 1970 (UTC).
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

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
from skyhop_testbed.kernel.access import KernelAccess
from skyhop_testbed.kernel.requests import check_value
from skyhop_testbed.protocol import since
from skyhop_testbed.signals import MOST_CONDITIONS, Kind, Signals
from skyhop_testbed.words import Backend, JobKind, Network

LONGEST_FILE_BYTES = 64_000
"""Upper limit on the size of a job file; a larger file is refused without parsing."""
LONGEST_INPUTS_BYTES = 16_000_000
"""Upper limit on the total size of a job's input files."""
_LONGEST_PATH = 240
_LARGEST_SIZE = 2**63
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = ("SKYHOP_", "LD_", "PYTHON")
"""Prefixes of environment variables that jobs may not set: skyhop's own, and those that loaders
read.
"""
_PLACEHOLDERS = frozenset({"server", "port", "node", "run", "job", "cc", "length_s"})
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def _duration(value: object) -> object:
    return seconds(value) if isinstance(value, str) else value


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    size = size_bytes(value)
    if not size < _LARGEST_SIZE:
        raise ValueError("is too large")
    return int(size)


def _instant(value: object) -> object:
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f'"{value}" is no instant, such as "2026-12-01T00:00:00Z"') from None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise ValueError("a time needs its zone: end it with a Z for UTC")
        return round(value.timestamp()) * 1_000_000_000 + value.microsecond * 1000
    return value


def check_name(value: str) -> str:
    """Return the name of a job, node or user unchanged, if its form is valid.

    Raises:
        ValueError: the form is wrong; the message explains it.
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
        raise ValueError("holds a NUL character, which arguments of programs cannot")
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
    """Times at which a job's runs start: exactly one of `cron`, `at` and `trigger`."""

    cron: Annotated[str, Field(max_length=256)] | None = None
    """Cron line of five fields, in UTC."""
    at: InstantNs | Literal["now"] | None = None
    """Start of a single run; a time in the past means now, if the nodes are free."""
    trigger: Annotated[str, Field(max_length=4096)] | None = None
    """Condition over telemetry that starts runs within the window from `start` to `end`."""
    start: InstantNs | None = None
    end: InstantNs | None = None
    hold_s: Seconds = Field(0.0, alias="for")
    """Time in s for which the condition has to be true before the trigger fires."""
    cooldown_s: Seconds | None = Field(None, alias="cooldown")
    """Time in s after a firing in which the trigger does not fire again; by default the job's
    length.
    """
    max_runs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: int = 1
    """Seed of the trigger's `random(rate)`."""

    @property
    def kind(self) -> JobKind:
        """How the runs start: cron, at or trigger."""
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
    """Program of a run: commands of client and server, or a scenario or study of skyhop."""

    client: Words | None = None
    """Program and arguments on the client, executed without a shell; `{server}`, `{port}`,
    `{node}`, `{run}`, `{job}`, `{cc}` and `{length_s}` are filled in."""
    serve: Words | None = None
    """Program and arguments on the server's node."""
    scenario: Annotated[str, Field(max_length=64_000)] | None = None
    """Text of a scenario, or the name of an example or of one of the job's files."""
    study: Annotated[str, Field(max_length=64_000)] | None = None
    engine: Literal["sim", "live"] = "sim"
    image: Annotated[str, Field(max_length=512)] | None = None
    """Container image, for the back ends podman and docker."""
    backend: Backend = Backend.PROCESS
    network: Network = Network.INTERNET
    transport: Annotated[Literal["any", "tcp"], Field(json_schema_extra=since(2))] = "any"
    """Transport that the program uses; some nodes can count only TCP in the host's network."""
    files: list[Relative] = []
    """Input files of the job, relative to the job file."""
    keep: list[Relative] = ["*"]
    """Patterns of files to keep; "telemetry" stands for the terminal's telemetry during the run."""
    env: dict[str, Word] = {}
    signals: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(max_length=64, json_schema_extra=since(2)),
    ] = []
    """Signals that the program reads on its socket: names of `skyhop_testbed.signals`."""
    conditions: Annotated[
        dict[Name, Annotated[str, Field(max_length=4096)]],
        Field(max_length=MOST_CONDITIONS, json_schema_extra=since(2)),
    ] = {}
    """Conditions over telemetry, by name, whose changes are the signal "trigger"."""
    timeout: Literal["failure", "success"] = "failure"
    """Result of a run whose program is still running at its deadline."""

    @model_validator(mode="after")
    def _check(self) -> Run:
        if sum(x is not None for x in (self.client, self.scenario, self.study)) != 1:
            raise ValueError("give exactly one of client, scenario and study")
        if (self.image is not None) != (self.backend is not Backend.PROCESS):
            raise ValueError('an image goes with backend = "podman" or "docker"')
        Signals.named(self.signals)
        if self.conditions and Kind.TRIGGER not in self.signals:
            raise ValueError('conditions go with signals = ["trigger"]')
        for variable in self.env:
            if not _VARIABLE.fullmatch(variable) or variable.startswith(_RESERVED):
                raise ValueError(f'env: a job may not set "{variable}"')
        for word in [*(self.client or []), *(self.serve or [])]:
            for name in _PLACEHOLDER.findall(word):
                if name not in _PLACEHOLDERS:
                    known = ", ".join(f"{{{n}}}" for n in sorted(_PLACEHOLDERS))
                    raise ValueError(f"{{{name}}} is unknown: expected one of {known}")
        return self


class Kernel(_Part):
    """Requests to the kernel service, which apply to the run's own network namespace."""

    cc: Annotated[str, Field(max_length=64)] | None = None
    """Congestion control of the kernel, or "skyhop:NAME" for a module of skyhop."""
    parameters: dict[str, float | int | bool | str] = {}
    """Parameters of the skyhop module that `cc` names."""
    qdisc: Annotated[str, Field(max_length=64)] | None = None
    qdisc_parameters: dict[str, float | int | bool | str] = {}
    sysctl: dict[str, str | int] = {}

    @model_validator(mode="after")
    def _check(self) -> Kernel:
        """Check the values against the forms that the kernel service accepts."""
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
    def is_needed(self) -> bool:
        """Whether the job needs the kernel service."""
        return bool(self.cc or self.qdisc or self.sysctl)

    def access(self, socket: str, token: str) -> KernelAccess:
        """Return these requests, with the service's socket and the run's token."""
        return KernelAccess(
            socket,
            token,
            cc=self.cc,
            parameters=dict(self.parameters),
            qdisc=self.qdisc,
            qdisc_parameters=dict(self.qdisc_parameters),
            sysctl=dict(self.sysctl),
        )


class Job(_Part):
    """Job in the form in which its user submitted it."""

    id: Name
    """Name of the job, unique among the jobs of its user."""
    nodes: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    """Client nodes; each of them executes a run of its own."""
    server: Name | None = None
    length_s: Annotated[Seconds, Field(gt=0, le=31 * 86_400)] = Field(alias="length")
    """Length of a run in s, including deployment and upload."""
    overhead: bool = True
    """Whether runs load the link: such runs exclude each other, and give way to the host's traffic.
    """
    data_cap: Bytes | None = None
    retention_s: Seconds = Field(300 * 86_400.0, alias="retention")
    """Time in s for which the files of runs are kept."""
    description: Annotated[str, Field(max_length=4096)] = ""
    when: When
    run: Run
    kernel: Kernel = Kernel()

    @model_validator(mode="after")
    def _check(self) -> Job:
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("nodes: a node is listed twice")
        if self.server in self.nodes:
            raise ValueError("server: may not be one of the nodes")
        if (self.run.serve is not None) != (self.server is not None):
            raise ValueError("a server and [run] serve go together")
        if self.kernel.is_needed and self.run.network is not Network.VETH:
            raise ValueError(
                '[kernel] needs [run] network = "veth", as its changes need a separate namespace'
            )
        return self

    @property
    def length_ns(self) -> int:
        """Length of a run in ns, at least 1."""
        return max(1, round(self.length_s * 1_000_000_000))

    def as_json(self) -> dict[str, object]:
        """Return the JSON form that the orchestrator stores and signed schedules contain."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def read_job(text: str, source: str = "job") -> Job:
    """Parse a job file.

    Args:
        text: the file's TOML.
        source: name of the file in messages.

    Raises:
        InputError: the text is too long or no TOML, or a key or value is wrong.
    """
    if len(text.encode()) > LONGEST_FILE_BYTES:
        raise InputError(f"{source}: longer than the {LONGEST_FILE_BYTES:,} bytes of a job file")
    return job_of(read_toml(text, source), source)


def job_of(values: object, source: str = "job") -> Job:
    """Convert the values of a parsed job file to a `Job`.

    Raises:
        InputError: a key or value is wrong; the message names it.
    """
    try:
        return Job.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{source}: {first_fault(error, 'job-file')}") from None


def first_fault(error: ValidationError, page: str) -> str:
    """Return the first fault of a validation error as one line: key and reason.

    `page` is the page of the documentation that lists the keys.
    """
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "now")
    if first["type"] == "extra_forbidden":
        return f'"{place}" is unknown; see skyhop docs {page} for the keys'
    if first["type"] == "missing":
        return f'"{place}" is missing'
    if first["type"] == "model_type":
        return f"{place}: expected a table"
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message[0].lower()}{message[1:]}" if place else message
