"""Processes that go with whoever started them, and all of their own with them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_HELD = 'exec 3<&0; (read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'
"""Standard input ends when whoever holds its other end is gone, however that came about: then the
whole process group is killed."""


@contextmanager
def held(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Yield a process whose output is read as text; it and its children are killed on the way out.

    Args:
        command: program and arguments.
        environment: this process's own where not given.
        directory: where it works; this process's own where not given.
    """
    with subprocess.Popen(
        ["sh", "-c", _HELD, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=directory,
        env=None if environment is None else dict(environment),
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
