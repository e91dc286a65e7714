"""Lock of an agent's directory: one process at a time uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skyhop.errors import InputError, RunError


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the lock of an agent's directory.

    Raises:
        InputError: the directory does not exist, or another agent uses it.
        RunError: the directory cannot be written.
    """
    try:
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise InputError(f"{state}: does not exist: enrol the node first") from None
    except OSError as error:
        raise RunError(f"{state}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(f"{state}: another agent uses this directory: stop it first") from None
    finally:
        os.close(descriptor)
