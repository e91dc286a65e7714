"""Queries of stored telemetry, each answered by a subprocess that exits afterwards.

An import of polars would permanently double the orchestrator's memory. The subprocess reads the
query from standard input and writes the answer to an unnamed temporary file, which the orchestrator
then sends in pieces: `python -m skyhop_testbed.orchestrator.archive < query.json`.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed.privacy import check_readable, readable_fields
from skyhop_testbed.triggers.parse import fields_in

if TYPE_CHECKING:
    import polars as pl

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 60.0
_MEMORY_BYTES = 4 << 30
_TRIGGER_KIND = "trigger"
_INVALID, _FAILED = 2, 1
"""Exit statuses: `_INVALID` for a wrong query, `_FAILED` if reading the store failed."""


@dataclass(frozen=True)
class Query:
    """Query of a node's telemetry in a time range.

    Attributes:
        telemetry: directory of the telemetry store.
        kind: "samples" (answer: Arrow IPC stream) or "trigger" (answer: JSON).
        node: name of the node.
        from_ns: start of the time range.
        to_ns: end of the time range.
        fields: for samples, their columns; empty for all.
        step_ns: for samples, the time between two rows; 0 for all samples.
        expression: for a trigger, its expression.
    """

    telemetry: str
    kind: str
    node: str
    from_ns: int
    to_ns: int
    fields: Sequence[str] = ()
    step_ns: int = 0
    expression: str = ""


def without_traffic(query: Query) -> Query:
    """Return the query of a caller who may not read the traffic of the node's owner.

    Raises:
        InputError: a field or the trigger names that traffic.
    """
    if query.kind == _TRIGGER_KIND:
        check_readable(query.node, fields_in(query.expression))
        return query
    return replace(query, fields=readable_fields(query.node, query.fields))


def answer(query: Query) -> BinaryIO:
    """Return a file with the answer, positioned at its beginning.

    The function blocks until the subprocess ends, so coroutines call it in a thread.

    Raises:
        InputError: a field does not exist, or the trigger expression is invalid.
        RunError: the query timed out, or the store cannot be read.
    """
    text = json.dumps(asdict(query))
    command = [sys.executable, "-m", "skyhop_testbed.orchestrator.archive"]
    file = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
            check=False,
        )
        if done.returncode == _INVALID:
            raise InputError(done.stderr.decode(errors="replace").strip())
        if done.returncode:
            _LOG.error("reading telemetry: %s", done.stderr.decode(errors="replace"))
            raise RunError("the telemetry could not be read: see the testbed's log")
    except BaseException as error:
        file.close()
        if isinstance(error, subprocess.TimeoutExpired):
            raise RunError("the query timed out: choose a shorter time range") from None
        if isinstance(error, OSError):
            raise RunError(f"the telemetry could not be read: {error.strerror}") from None
        raise
    file.seek(0)
    return file


def main() -> int:
    """Answer the query on standard input.

    Memory is limited to 4 GiB and core dumps are disabled.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return respond(Query(**json.load(sys.stdin)), sys.stdout.buffer, sys.stderr)


def respond(query: Query, to: BinaryIO, errors: TextIO) -> int:
    """Write the answer to a query, or one line about its error; return the exit status.

    The error line does not reveal the store's path.
    """
    try:
        _KINDS[query.kind](query, to)
    except SkyhopError as error:
        errors.write(str(error).replace(query.telemetry, "the testbed"))
        return _INVALID if isinstance(error, InputError) else _FAILED
    return 0


def _read(query: Query, fields: Sequence[str] | None, step_ns: int | None) -> pl.DataFrame:
    from skyhop.telemetry.store import Store

    store = Store(Path(query.telemetry))
    return store.read([query.node], fields, query.from_ns, query.to_ns, step_ns)


def _samples(query: Query, to: BinaryIO) -> None:
    frame = _read(query, query.fields or None, query.step_ns or None)
    frame.write_ipc_stream(to)


def _trigger(query: Query, to: BinaryIO) -> None:
    from skyhop_testbed.orchestrator.request_context import as_json
    from skyhop_testbed.triggers.evaluate import Trigger
    from skyhop_testbed.triggers.replay import replay

    trigger = Trigger(query.expression)
    evaluations = replay(trigger, _read(query, None, None)).evaluations
    to.write(as_json([each.as_json() for each in evaluations]).encode())


_KINDS: dict[str, Callable[[Query, BinaryIO], None]] = {
    "samples": _samples,
    _TRIGGER_KIND: _trigger,
}

if __name__ == "__main__":
    sys.exit(main())
