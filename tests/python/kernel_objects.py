"""What the kernel keeps of BPF, counted by bpf(2) itself."""

from __future__ import annotations

import ctypes
import platform
from collections import Counter

from needs import missing

_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
"""The number of the system call."""
_NEXT_ID = {"programs": 11, "maps": 12, "links": 31}
"""`BPF_*_GET_NEXT_ID` (linux/bpf.h)."""


def bpf_objects() -> Counter[str]:
    """Return how many programs, maps and links there are, or skip where nobody may look."""
    number = _BPF.get(platform.machine()) or missing("kernel", "bpf(2) has a number unknown here")
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
