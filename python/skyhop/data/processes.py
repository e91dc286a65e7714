"""Whether the system gives as many processes and threads as work takes.

Without this a library that gets none ends the program in hundreds of lines, or waits forever.
"""

from __future__ import annotations

import os
import threading

from skyhop.errors import RunError

_OF_A_PROCESS = 14
"""What a process of ours starts, with those of its libraries that do not depend on the machine."""

_SMALL_STACK = 1 << 16


def check_processes(jobs: int = 1) -> None:
    """Check that so many of our processes find room.

    Raises:
        RunError: they do not.
    """
    wanted = jobs * (_OF_A_PROCESS + 2 * (os.cpu_count() or 1))
    done = threading.Event()
    started: list[threading.Thread] = []
    # It is not about memory.
    usual = threading.stack_size(_SMALL_STACK)
    try:
        for _ in range(wanted):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        raise RunError(
            f"the system gives {len(started)} of the {wanted} processes and threads that this "
            "takes: end other programs, or allow more (ulimit -u, pids.max)"
        ) from None
    finally:
        threading.stack_size(usual)
        done.set()
        for thread in started:
            thread.join()
