"""ip, tc, nft and skyhop's own loader: fixed programs, checked arguments, and no shell."""

from __future__ import annotations

import shutil
import subprocess

from skyhop.errors import RunError

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST_S = 60.0
_held: list[int] = []
"""Descriptors that every program inherits."""


def hold(descriptor: int) -> None:
    """Have every program inherit the service's lock: it is free when the last of them has ended.

    A service that is killed leaves the program it had just started; the next one waits for it.
    """
    _held.append(descriptor)


def let_go(descriptor: int) -> None:
    """End that."""
    _held.remove(descriptor)


def missing(*names: str) -> str | None:
    """Return which of the programs this machine lacks."""
    lacking = [name for name in names if shutil.which(name, path=_PATH) is None]
    return ", ".join(lacking) or None


def call(
    *command: str,
    text: str | None = None,
    fds: tuple[int, ...] = (),
    environment: dict[str, str] | None = None,
) -> str:
    """Run a program, and return what it printed.

    Args:
        command: its name and arguments.
        text: its standard input.
        fds: descriptors that it inherits.
        environment: what it has beside a PATH.

    Raises:
        RunError: it failed; the message is its first line.
    """
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        raise RunError(f"this machine has no {command[0]}")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            pass_fds=(*fds, *_held),
            timeout=_LONGEST_S,
            env={"PATH": _PATH, "LANG": "C", **(environment or {})},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{command[0]} did not come to an end") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RunError(f"{command[0]}: {said[0] if said else f'status {done.returncode}'}")
    return done.stdout
