"""Takes this machine's chance out of a guest's kernel.

Two runs are the same only if the guest's random numbers are. User-Mode Linux asks its host for
some as it boots, by a function of its own; it copes with a host that has none. And every kernel
collects chance from the moments of interrupts, of which those that this machine raises (its
console's) come whenever it gets to it. What the guest's first program gives it takes their place.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from skyhop.errors import InputError, RunError

_ASKS = "os_getrandom"
_COLLECT = ("add_interrupt_randomness", "add_input_randomness", "add_disk_randomness")
TAKEN_OUT = (_ASKS, *_COLLECT)
"""The kernel's functions that do nothing, and return 0 where they return anything."""
_RETURNS_0 = b"\x31\xc0\xc3"
"""xor eax, eax; ret."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_COLUMNS = 3
"""Of nm, for what has an address: that, a letter, the name."""
_LOADED = 1
"""A segment's type in elf.h, PT_LOAD."""


def check_asks(tree: Path) -> None:
    """Make sure that chance can be taken out of what is built of a tree.

    Raises:
        InputError: it is older than Linux 6.0, and asks its host in other ways.
    """
    file = tree / "arch/um/os-Linux/util.c"
    if not file.is_file() or _ASKS not in file.read_text("utf-8", errors="replace"):
        raise InputError(
            f"kernel: {tree} is too old: chance can be taken out of Linux from about 6.0 on "
            f"(arch/um/os-Linux/util.c has no {_ASKS})"
        )


def take_out(binary: Path) -> None:
    """Make the kernel's functions that bring chance from outside do nothing.

    Raises:
        RunError: the kernel does not ask by that function, or is no ELF file of 64 bits.
    """
    listed = subprocess.run(
        ["nm", str(binary)], capture_output=True, text=True, check=False, errors="replace"
    )
    words = (line.split() for line in listed.stdout.splitlines())
    addresses = {word[2]: int(word[0], 16) for word in words if len(word) == _COLUMNS}
    content = bytearray(binary.read_bytes())
    if _ASKS not in addresses or content[:5] != b"\x7fELF\x02":
        raise RunError(f"kernel: cannot take chance out of it: it has no {_ASKS}")
    for name in TAKEN_OUT:
        if name in addresses:
            place = _place(bytes(content), addresses[name])
            content[place : place + len(_RETURNS_0)] = _RETURNS_0
    binary.write_bytes(content)


def _place(content: bytes, address: int) -> int:
    """Return where in an ELF file what is loaded to an address lies."""
    header = _HEADER.unpack_from(content)
    first, size, count = header[5], header[9], header[10]
    for number in range(count):
        kind, _, offset, begins, _, length, *_ = _SEGMENT.unpack_from(
            content, first + number * size
        )
        if kind == _LOADED and begins <= address < begins + length:
            return int(offset + address - begins)
    raise RunError(f"kernel: {address:x} lies nowhere in the file")
