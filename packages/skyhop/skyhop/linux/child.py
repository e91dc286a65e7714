"""Child processes that are killed, with all their own children, when their parent ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_WRAPPER = 'exec 3<&0; (read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'
"""Shell script that runs a command next to a watchdog. The script's standard input is a pipe whose
other end the parent holds. When the parent ends, the watchdog reads end of file and kills the
process group.
"""


@contextmanager
def child_process(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start a process whose output is read as text; kill its process group on exit.

    Args:
        command: program and arguments.
        environment: environment of the process; by default this process's own.
        directory: working directory of the process; by default this process's own.
    """
    with subprocess.Popen(
        ["sh", "-c", _WRAPPER, "sh", *command],
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
