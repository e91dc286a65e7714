"""The announcing service as tests start it and listen to it."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import skyhop_command

PATIENCE_S = 60.0


@contextmanager
def service(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run `skyhop signal serve` with its socket in a directory, until the block ends."""
    place = directory / "signal.sock"
    command = [*skyhop_command(), "signal", "serve", "--socket", str(place), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"announcing on {place}\n"
        yield process, place
    finally:
        process.kill()
        process.wait()


def announced(place: Path, count: int) -> list[dict[str, object]]:
    """Return the next lines that the service says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(place))
        with connection.makefile(encoding="utf-8") as lines:
            return [json.loads(next(lines)) for _ in range(count)]


def await_note(process: subprocess.Popen[str], text: str) -> None:
    """Wait until the service notes something; one that does not in time is killed."""
    assert process.stderr is not None
    impatience = threading.Timer(PATIENCE_S, process.kill)
    impatience.start()
    try:
        assert any(text in line for line in process.stderr), f"never said: {text}"
    finally:
        impatience.cancel()
