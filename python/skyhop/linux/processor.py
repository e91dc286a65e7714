"""One of this machine's processors for a guest, which has but one itself.

A guest's kernel and its programs are processes that take turns with every system call. Where the
scheduler spreads them over processors, each turn wakes another one up: that takes a quarter more
CPU, and longer.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_PROCESSOR = "/sys/devices/system/cpu/cpu{number}"


@contextmanager
def own_processor() -> Iterator[int | None]:
    """Yield a processor that no other guest has; None where all are taken, or it cannot be told."""
    with ExitStack() as stack:
        yield _taken(stack)


def _taken(stack: ExitStack) -> int | None:
    for number in sorted(os.sched_getaffinity(0), reverse=True):
        with suppress(OSError):
            # A lock needs no right to write, and ends with whoever holds it.
            file = os.open(_PROCESSOR.format(number=number), os.O_RDONLY)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number
    return None
