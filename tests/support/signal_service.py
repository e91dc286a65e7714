"""Starts the service `skyhop signal serve` for tests, and reads its announcements."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import skyhop_command

TIMEOUT_S = 120.0


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
    """Connect to the service, and return its next lines."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(place))
        with connection.makefile(encoding="utf-8") as lines:
            return [json.loads(next(lines)) for _ in range(count)]


def await_note(process: subprocess.Popen[str], text: str) -> None:
    """Wait until the service logs a text; kill the service after a timeout."""
    assert process.stderr is not None
    timer = threading.Timer(TIMEOUT_S, process.kill)
    timer.start()
    try:
        assert any(text in line for line in process.stderr), f"not logged: {text}"
    finally:
        timer.cancel()
