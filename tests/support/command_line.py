"""Runs the command `skyhop`: in this process for tests of logic, else in a process of its own."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from unittest import mock

import typer.main

from skyhop.cli import commands

Skyhop = Callable[..., "subprocess.CompletedProcess[str]"]

commands.complete_app()
_command_tree = functools.cache(typer.main.get_command)
"""Tree of all packages' commands and options, cached as its construction takes 0.1 s."""

_FILE_CACHES = {
    "skyhop.data.positions": ("_satellites", "_satellite_names"),
    "skyhop.study.films": ("_data", "_playback_rates", "_rate_predictions"),
    "skyhop.study.prediction": ("_data",),
}
"""Functions by module that cache files by name for the lifetime of a process."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def skyhop_command() -> list[str]:
    """Return the command of skyhop in this virtual environment."""
    return [str(Path(sys.executable).with_name("skyhop"))]


def run_process(
    place: Path, *arguments: object, timeout_s: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process in a directory."""
    return subprocess.run(
        [*skyhop_command(), *map(str, arguments)],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run_here(place: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process, in a directory; restore the state of the process."""
    words = ["skyhop", *map(str, arguments)]
    _forget_files()
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        _restored_process(place),
        mock.patch.object(sys, "argv", words),
        # With `python -m MODULE` help would show that module as the name of the program.
        mock.patch.object(sys.modules["__main__"], "__package__", None),
        mock.patch.object(typer.main, "get_command", _command_tree),
    ):
        with _descriptor(1, output, "stdout"), _descriptor(2, errors, "stderr"):
            status = _status()
        return subprocess.CompletedProcess(words, status, _text(output), _text(errors))


def _forget_files() -> None:
    """Empty the caches of files, as in a new process."""
    for module, names in _FILE_CACHES.items():
        for name in names if module in sys.modules else ():
            getattr(sys.modules[module], name).cache_clear()


def _status() -> int:
    """Run the command line; return its exit status."""
    try:
        commands.run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextmanager
def _restored_process(place: Path) -> Iterator[None]:
    """Change to a directory; restore it, signal handlers and environment at the end."""
    before, handlers = Path.cwd(), {number: signal.getsignal(number) for number in _SIGNALS}
    os.chdir(place)
    try:
        with mock.patch.dict(os.environ):
            yield
    finally:
        os.chdir(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _descriptor(number: int, file: IO[bytes], name: str) -> Iterator[None]:
    """Redirect a descriptor, to which the core writes, and Python's stream of it into a file."""
    kept = os.dup(number)
    getattr(sys, name).flush()
    os.dup2(file.fileno(), number)
    stream = os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8", newline="\n")
    try:
        with stream, mock.patch.object(sys, name, stream):
            yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8").replace("\r\n", "\n")
