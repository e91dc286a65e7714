"""Runs on a real Linux kernel in virtual time.

A kernel of the user's choice runs as a process (User-Mode Linux), with the live engine inside. Its
clock stands still while any program computes.

    kernels.py    kernels in the cache, and how they are built
    guest.config  configuration of every kernel
    registers.py  space for this processor's vector registers in a kernel
    entropy.py    removal of the host's randomness from a kernel
    modules.py    congestion controls in C as kernel modules
    guest.py      the program that runs inside a guest
    job.py        names of the files that machine.py and guest.py exchange
    child.py      child processes that end when their parent does
    processor.py  choice of the processor that a guest runs on
    machine.py    boots a guest, passes it a scenario and waits for the run
"""

from skyhop.linux.kernels import (
    DEFAULT_KERNEL,
    Kernel,
    build,
    built,
    damaged,
    find,
    remove,
    repair_hint,
)
from skyhop.linux.machine import kernel_of, run, run_into

__all__ = [
    "DEFAULT_KERNEL",
    "Kernel",
    "build",
    "built",
    "damaged",
    "find",
    "kernel_of",
    "remove",
    "repair_hint",
    "run",
    "run_into",
]
