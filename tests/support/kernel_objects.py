"""Counts of BPF objects in the kernel, from bpf(2)."""

from __future__ import annotations

import ctypes
import platform
from collections import Counter

from needs import missing

_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
"""Number of the system call bpf by machine."""
_NEXT_ID = {"programs": 11, "maps": 12, "links": 31}
"""Commands `BPF_*_GET_NEXT_ID` of linux/bpf.h, by kind of object."""


def bpf_objects() -> Counter[str]:
    """Count programs, maps and links; skip the test where the kernel forbids that."""
    number = _BPF.get(platform.machine()) or missing("kernel", "bpf(2) has an unknown number")
    libc = ctypes.CDLL(None, use_errno=True)
    counts: Counter[str] = Counter()
    for what, command in _NEXT_ID.items():
        attributes = (ctypes.c_uint32 * 32)()
        while (
            libc.syscall(number, command, ctypes.byref(attributes), ctypes.sizeof(attributes)) == 0
        ):
            counts[what] += 1
            attributes[0] = attributes[1]
    return counts
