"""`skyhop` as a command: in this process for tests of logic, a process for the others."""

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

_command_tree = functools.cache(typer.main.get_command)
"""The commands and their options, derived once in a process: deriving them takes 0.1 s."""

_KEPT_BY_NAME = {
    "skyhop.data.positions": ("_satellites", "_satellite_names"),
    "skyhop.study.films": ("_data", "_played_over", "_told"),
    "skyhop.study.prediction": ("_data",),
}
"""What a process keeps of files by their names, and a new one reads again."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def skyhop_command() -> list[str]:
    """Return the command that starts skyhop in this environment."""
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
    """Run the command line in this process, in a directory; undo what it changes of the process."""
    words = ["skyhop", *map(str, arguments)]
    _forget_files()
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        _same_process_afterwards(place),
        mock.patch.object(sys, "argv", words),
        # A module that Python was started with would be the name of the program in help.
        mock.patch.object(sys.modules["__main__"], "__package__", None),
        mock.patch.object(typer.main, "get_command", _command_tree),
    ):
        with _descriptor(1, output, "stdout"), _descriptor(2, errors, "stderr"):
            status = _status()
        return subprocess.CompletedProcess(words, status, _text(output), _text(errors))


def _forget_files() -> None:
    """Empty the caches of files, as they are in a new process."""
    for module, names in _KEPT_BY_NAME.items():
        for name in names if module in sys.modules else ():
            getattr(sys.modules[module], name).cache_clear()


def _status() -> int:
    """Return what the command line exits with."""
    try:
        commands.run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextmanager
def _same_process_afterwards(place: Path) -> Iterator[None]:
    """Work in a directory; give signals, environment and directory back."""
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
    """Lead a descriptor, to which the core writes, and Python's stream of it into a file."""
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
