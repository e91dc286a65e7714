"""Assignment of an executor: one side of a run on this node, in `RUNDIR/run.json`.

The agent has already verified the job's signature and applied the owner's policy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from skyhop.errors import InputError
from skyhop_testbed.fence import Fence
from skyhop_testbed.kernel.access import KernelAccess
from skyhop_testbed.manifests import MOST_FILES
from skyhop_testbed.words import Backend, Network, Side, key_of

if TYPE_CHECKING:
    from skyhop_testbed.job import Job

FILE = "run.json"
STOP_FILE = "stop.json"
RESULT_FILE = "result.json"
WORK = "work"
_LONGEST_BYTES = 1_000_000
_SCALAR = (str, int, float, bool)
_LARGEST = 2**63
_OF_TEXTS = ("list[str]", "list[str] | None", "dict[str, str]")
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "list[str]": (list,),
    "dict[str, str]": (dict,),
    "dict[str, str | int]": (dict,),
    "dict[str, float | int | bool | str]": (dict,),
}


@dataclass(frozen=True)
class Limits:
    """Resource limits of a run, set by the node's owner."""

    memory_bytes: int = 2_000_000_000
    """Upper limit on each process's address space, and on the resident memory of all processes
    together.
    """
    processes: int = 256
    disk_bytes: int = 2_000_000_000
    output_bytes: int = 10_000_000
    """Upper limit on the bytes kept of standard output and of standard error, each; further bytes
    are read and dropped.
    """
    nice: int = 10
    files: int = MOST_FILES
    """Upper limit on the files of a run, and on those that are uploaded."""


@dataclass(frozen=True)
class Assignment:
    """One side of a run on this node, with all values that its executor needs."""

    run: str
    job: str
    node: str
    side: Side
    deadline_ns: int
    """Time at which the program is stopped, in ns of UTC."""
    command: list[str] | None = None
    """Program and arguments; exactly one of `command`, `scenario` and `study` is set."""
    scenario: str | None = None
    study: str | None = None
    engine: str = "sim"
    image: str | None = None
    backend: Backend = Backend.PROCESS
    network: Network = Network.INTERNET
    env: dict[str, str] = field(default_factory=dict)
    keep: list[str] = field(default_factory=lambda: ["*"])
    timeout_is_success: bool = False
    server: str = ""
    """Address of the server's node, if the job has one; `server_node` and `port` belong to it."""
    server_node: str = ""
    port: int = 0
    cc: str = ""
    length_s: float = 0.0
    data_cap_bytes: int | None = None
    inputs: str | None = None
    """Directory of the input files, which are copied into the work directory."""
    limits: Limits = Limits()
    fence: Fence = field(default_factory=Fence)
    """Addresses that the program reaches, for the networks `internet` and `veth`."""
    kernel: KernelAccess | None = None
    signals: str | None = None
    """Directory of the socket on which the program reads signals."""

    @property
    def key(self) -> str:
        """Key of this side of the run, for names that are unique on the node's machine."""
        return key_of(self.run, self.side)

    @classmethod
    def of(cls, job: Job, side: Side, **others: Any) -> Assignment:
        """Return the assignment of one side of a job; `others` sets fields that no job has."""
        run = job.run
        is_client = side is Side.CLIENT
        return cls(
            **{
                "job": job.id,
                "side": side,
                "command": run.client if is_client else run.serve,
                "scenario": run.scenario if is_client else None,
                "study": run.study if is_client else None,
                "engine": run.engine,
                "image": run.image,
                "backend": run.backend,
                "network": run.network,
                "env": dict(run.env),
                "keep": list(run.keep),
                "timeout_is_success": run.timeout == "success" or not is_client,
                "length_s": job.length_s,
                "data_cap_bytes": job.data_cap,
                **others,
            }
        )

    def write(self, directory: Path) -> None:
        """Write `run.json` into a run's directory, readable by its owner only, and sync it."""
        text = json.dumps(asdict(self), indent=1)
        write_durably(directory / FILE, text.encode(), mode=0o600)

    @classmethod
    def read(cls, directory: Path) -> Assignment:
        """Read the `run.json` that the agent wrote.

        Raises:
            InputError: the file is missing, or is no assignment.
        """
        file = directory / FILE
        try:
            with file.open("rb") as stream:
                content = stream.read(_LONGEST_BYTES + 1)
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}") from None
        return cls.from_json(content, str(file))

    @classmethod
    def from_json(cls, content: bytes, source: str) -> Assignment:
        """Parse the content of `run.json`.

        Raises:
            InputError: the content is no assignment.
        """
        if len(content) > _LONGEST_BYTES:
            raise InputError(f"{source}: is longer than {_LONGEST_BYTES:,} bytes")
        try:
            values = json.loads(content)
            assignment = _assignment(values)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(f"{source}: is no assignment: {error}") from None
        return assignment


def _assignment(values: Mapping[str, Any]) -> Assignment:
    known = dict(values)
    for name, kind in (("side", Side), ("backend", Backend), ("network", Network)):
        if name in known:
            known[name] = kind(known[name])
    known["limits"] = Limits(**known.get("limits", {}))
    known["fence"] = Fence(**known.get("fence", {}))
    if known.get("kernel") is not None:
        known["kernel"] = KernelAccess(**known["kernel"])
    made = Assignment(**known)
    for part in (made, made.limits, made.fence, made.kernel):
        if part is not None:
            _check_kinds(part)
    made.fence.parsed_rules()
    made.fence.ports()
    if sum(x is not None for x in (made.command, made.scenario, made.study)) != 1:
        raise ValueError("expected one of command, scenario and study")
    return made


def _check_kinds(made: Any) -> None:
    """Check that the values from a file have the types of their fields.

    Raises:
        ValueError: a value has another type; the message names its field.
    """
    for each in fields(made):
        value, kind = getattr(made, each.name), str(each.type)
        plain = _KINDS.get(kind.removesuffix(" | None"))
        if plain is None or (value is None and kind.endswith("| None")):
            continue
        if not isinstance(value, plain) or (isinstance(value, bool) and plain != (bool,)):
            raise ValueError(f"{each.name}: expected {kind}")
        if isinstance(value, int | float) and not 0 <= value < _LARGEST:
            raise ValueError(f"{each.name}: out of range")
        if isinstance(value, dict | list):
            _check_contents(each.name, value, texts=kind in _OF_TEXTS)
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"{each.name}: holds a NUL character")


def _check_contents(name: str, value: dict[str, object] | list[object], *, texts: bool) -> None:
    inside = list(value.values()) if isinstance(value, dict) else value
    if not all(isinstance(each, str if texts else _SCALAR) for each in inside):
        raise ValueError(f"{name}: expected {'texts' if texts else 'texts or numbers'} only")
    if any("\0" in str(each) for each in (*inside, *value)):
        raise ValueError(f"{name}: holds a NUL character")


def write_durably(file: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file atomically, and sync it to disk."""
    with open_durably(file, mode) as stream:
        stream.write(content)


@contextmanager
def open_durably(file: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Open a file that appears, synced to disk, at the end of the `with` block.

    After an exception the file is as before.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    aside.replace(file)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
