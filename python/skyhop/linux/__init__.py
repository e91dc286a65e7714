"""Linux in virtual time.

A kernel of the user's choice is a process (User-Mode Linux) whose clock stands still while anything
computes, with the live engine inside.

    kernels.py    those that are built, and building them
    guest.config  what every one is configured to
    registers.py  room for this processor's registers in them
    chance.py     taking chance out of them
    modules.py    congestion controls in C as modules of them
    guest.py      what runs inside, as the guest's only program
    job.py        what both call alike
    held.py       processes that go with whoever started them
    processor.py  where a guest runs
    machine.py    boots a guest, hands a scenario over and waits for the run
"""

from skyhop.linux.kernels import (
    USUAL,
    Kernel,
    build,
    built,
    damaged,
    find,
    how_to_mend,
    remove,
)
from skyhop.linux.machine import kernel_of, run, run_aside

__all__ = [
    "USUAL",
    "Kernel",
    "build",
    "built",
    "damaged",
    "find",
    "how_to_mend",
    "kernel_of",
    "remove",
    "run",
    "run_aside",
]
