"""Removal of the host's entropy from a guest's kernel, so that runs are reproducible.

Two runs are equal only if the guest's random numbers are equal. At boot, User-Mode Linux asks its
host for entropy in a function of its own, and accepts that the host has none. Every kernel also
collects entropy from the times of interrupts; the times of console interrupts depend on the host's
scheduling. The guest's init process provides a constant seed instead.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from skyhop.errors import InputError, RunError

_HOST_ENTROPY = "os_getrandom"
_INTERRUPT_ENTROPY = ("add_interrupt_randomness", "add_input_randomness", "add_disk_randomness")
DISABLED_FUNCTIONS = (_HOST_ENTROPY, *_INTERRUPT_ENTROPY)
"""Kernel functions that are patched to do nothing; functions with a result return 0."""
_RETURNS_0 = b"\x31\xc0\xc3"
"""Machine code (x86-64) of a function that returns 0: xor eax, eax; ret."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_COLUMNS = 3
"""Number of columns in nm's lines for symbols with an address: address, type letter, name."""
_PT_LOAD = 1
"""Type of loaded segments in ELF files (elf.h)."""


def check_entropy_source(tree: Path) -> None:
    """Check that the host's entropy can be removed from kernels built from a source tree.

    Raises:
        InputError: the tree is older than Linux 6.0, which gets entropy in other ways.
    """
    file = tree / "arch/um/os-Linux/util.c"
    if not file.is_file() or _HOST_ENTROPY not in file.read_text("utf-8", errors="replace"):
        raise InputError(
            f"kernel: {tree} is too old: runs are reproducible with Linux 6.0 and later "
            f"(arch/um/os-Linux/util.c has no {_HOST_ENTROPY})"
        )


def disable_host_entropy(binary: Path) -> None:
    """Patch those functions of a kernel that collect entropy from outside to do nothing.

    Raises:
        RunError: the kernel does not have User-Mode Linux's function, or is no 64-bit ELF file.
    """
    listed = subprocess.run(
        ["nm", str(binary)], capture_output=True, text=True, check=False, errors="replace"
    )
    words = (line.split() for line in listed.stdout.splitlines())
    addresses = {word[2]: int(word[0], 16) for word in words if len(word) == _COLUMNS}
    content = bytearray(binary.read_bytes())
    if _HOST_ENTROPY not in addresses or content[:5] != b"\x7fELF\x02":
        raise RunError(f"kernel: cannot make it reproducible: it has no function {_HOST_ENTROPY}")
    for name in DISABLED_FUNCTIONS:
        if name in addresses:
            offset = _file_offset(bytes(content), addresses[name])
            content[offset : offset + len(_RETURNS_0)] = _RETURNS_0
    binary.write_bytes(content)


def _file_offset(content: bytes, address: int) -> int:
    """Return the file offset, in an ELF file, of the code that is loaded to an address."""
    header = _HEADER.unpack_from(content)
    first, size, count = header[5], header[9], header[10]
    for number in range(count):
        kind, _, offset, begins, _, length, *_ = _SEGMENT.unpack_from(
            content, first + number * size
        )
        if kind == _PT_LOAD and begins <= address < begins + length:
            return int(offset + address - begins)
    raise RunError(f"kernel: no segment of the file holds address {address:x}")
