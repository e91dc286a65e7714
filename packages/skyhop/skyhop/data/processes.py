"""Check that the system allows as many processes and threads as the work needs.

Without this check, a library that cannot start a thread may abort the program with hundreds of
lines of output, or wait forever.
"""

from __future__ import annotations

import os
import threading

from skyhop.errors import RunError

_TASKS_PER_PROCESS = 14
"""Threads of one worker process, not counting those that libraries start per processor."""

_SMALL_STACK = 1 << 16


def check_processes(jobs: int = 1) -> None:
    """Check that the system allows `jobs` worker processes, by starting that many threads.

    Raises:
        RunError: the system does not allow them.
    """
    wanted = jobs * (_TASKS_PER_PROCESS + 2 * (os.cpu_count() or 1))
    done = threading.Event()
    started: list[threading.Thread] = []
    # The check is about the number of tasks: small stacks prevent a failure for lack of memory.
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
