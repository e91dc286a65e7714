"""Assignment of one processor of this machine to each guest.

A guest has one processor: its kernel and its programs are processes on the host that take turns
with every system call. If the host's scheduler spreads them over processors, each turn wakes up
another processor, which takes a quarter more CPU time, and longer.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_PROCESSOR = "/sys/devices/system/cpu/cpu{number}"


@contextmanager
def own_processor() -> Iterator[int | None]:
    """Reserve a processor that no other guest has; yield `None` if all are taken or unknown."""
    with ExitStack() as stack:
        yield _lock_free_processor(stack)


def _lock_free_processor(stack: ExitStack) -> int | None:
    for number in sorted(os.sched_getaffinity(0), reverse=True):
        with suppress(OSError):
            # A lock by flock needs no write permission, and is released when its process ends.
            file = os.open(_PROCESSOR.format(number=number), os.O_RDONLY)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number
    return None
