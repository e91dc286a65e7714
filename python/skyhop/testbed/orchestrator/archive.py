"""Questions to kept telemetry, each answered by a process of its own, which ends with the answer.

polars would take of the orchestrator's memory, for good, as much as that has without it. The
process is told on its standard input what is asked, and writes the answer to a file without a name,
from which it is sent in pieces: `python -m skyhop.testbed.orchestrator.archive < asked.json`.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from skyhop.errors import InputError, RunError, SkyhopError

if TYPE_CHECKING:
    import polars as pl

_log = logging.getLogger("skyhop.testbed")
_PATIENCE_S = 60.0
_MEMORY_BYTES = 4 << 30
_WRONG, _FAILED = 2, 1


def answer(telemetry: Path, kind: str, **asked: Any) -> BinaryIO:
    """Return a file that holds the answer, opened at its beginning; for a thread of a service.

    Args:
        telemetry: the store's directory.
        kind: "samples" (Arrow's stream of record batches) or "trigger" (JSON).
        asked: `node`, `from_ns`, `to_ns`; of samples `fields` and `step_ns` too (empty and 0 for
            all), of a trigger its `expression`.

    Raises:
        InputError: there is no such field, or the trigger is none.
        RunError: it took too long, or what is kept cannot be read.
    """
    text = json.dumps({"telemetry": str(telemetry), "kind": kind, **asked})
    command = [sys.executable, "-m", "skyhop.testbed.orchestrator.archive"]
    file = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE_S,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
            check=False,
        )
        if done.returncode == _WRONG:
            raise InputError(done.stderr.decode(errors="replace").strip())
        if done.returncode:
            _log.error("reading telemetry: %s", done.stderr.decode(errors="replace"))
            raise RunError("the telemetry could not be read: the testbed's log says why")
    except BaseException as error:
        file.close()
        if isinstance(error, subprocess.TimeoutExpired):
            raise RunError("this takes too long to read: ask for a shorter time") from None
        if isinstance(error, OSError):
            raise RunError(f"the telemetry could not be read: {error.strerror}") from None
        raise
    file.seek(0)
    return file


def main() -> int:
    """Answer what standard input asks."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return respond(json.load(sys.stdin), sys.stdout.buffer, sys.stderr)


def respond(asked: dict[str, Any], to: BinaryIO, errors: TextIO) -> int:
    """Write the answer, or in a line why there is none; return the exit status."""
    try:
        _KINDS[asked["kind"]](asked, to)
    except SkyhopError as error:
        errors.write(str(error).replace(asked["telemetry"], "the testbed"))
        return _WRONG if isinstance(error, InputError) else _FAILED
    return 0


def _read(asked: dict[str, Any], fields: list[str] | None, step_ns: int | None) -> pl.DataFrame:
    from skyhop.telemetry.store import Store

    store = Store(Path(asked["telemetry"]))
    return store.read([asked["node"]], fields, asked["from_ns"], asked["to_ns"], step_ns)


def _samples(asked: dict[str, Any], to: BinaryIO) -> None:
    frame = _read(asked, asked["fields"] or None, asked["step_ns"] or None)
    frame.write_ipc_stream(to)


def _trigger(asked: dict[str, Any], to: BinaryIO) -> None:
    from skyhop.testbed.orchestrator.desk import as_json
    from skyhop.testbed.triggers.evaluate import Trigger
    from skyhop.testbed.triggers.replay import replay

    trigger = Trigger(asked["expression"])
    looks = replay(trigger, _read(asked, None, None)).evaluations
    to.write(as_json({"evaluations": [look.as_json() for look in looks]}).encode())


_KINDS: dict[str, Callable[[dict[str, Any], BinaryIO], None]] = {
    "samples": _samples,
    "trigger": _trigger,
}

if __name__ == "__main__":
    sys.exit(main())
