"""Calls of ip, tc, nft and skyhop's loader: fixed programs, checked arguments, no shell."""

from __future__ import annotations

import shutil
import subprocess

from skyhop.errors import RunError

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST_S = 60.0
_inherited: list[int] = []
"""Descriptors that every started program inherits."""


def inherit_lock(descriptor: int) -> None:
    """Pass the service's lock to every program that it starts; the last one to end frees the lock.

    A killed service may leave a program running; the next service waits for it.
    """
    _inherited.append(descriptor)


def drop_lock(descriptor: int) -> None:
    """Stop passing a lock to programs that are started."""
    _inherited.remove(descriptor)


def missing(*names: str) -> str | None:
    """Return the programs that are not installed, separated by commas.

    `None` if all are installed.
    """
    lacking = [name for name in names if shutil.which(name, path=_PATH) is None]
    return ", ".join(lacking) or None


def call(
    *command: str,
    text: str | None = None,
    fds: tuple[int, ...] = (),
    environment: dict[str, str] | None = None,
) -> str:
    """Run a program; return its standard output.

    Args:
        command: name and arguments.
        text: standard input.
        fds: descriptors that the program inherits.
        environment: variables in addition to PATH and LANG.

    Raises:
        RunError: the program failed; the message is the first line of its error output.
    """
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        raise RunError(f"{command[0]} is not installed on this machine")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            pass_fds=(*fds, *_inherited),
            timeout=_LONGEST_S,
            env={"PATH": _PATH, "LANG": "C", **(environment or {})},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{command[0]} did not end within {_LONGEST_S:.0f} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RunError(f"{command[0]}: {said[0] if said else f'status {done.returncode}'}")
    return done.stdout
