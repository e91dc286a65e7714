"""Space for a processor's vector registers in a guest's kernel.

User-Mode Linux saves and restores the vector registers of its programs; the host rejects a
truncated set of registers. Before 6.13 a kernel has space for 2696 bytes, and the registers of
processors with AMX are far larger. The size is one line of one file: a wrapper around the compiler
changes that line, so that no source tree is modified.
"""

from __future__ import annotations

from pathlib import Path

BYTES = 16_384
"""Space for a program's registers in bytes; current processors need 11,008."""

_COMPILER = """#!/bin/sh
for word do
    case $word in
    */arch/x86/um/user-offsets.c)
        sed 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, {bytes})/' \\
            "$word" > {changed}
        word={changed} ;;
    esac
    set -- "$@" "$word"
    shift
done
exec gcc "$@"
"""


def compiler(directory: Path) -> str:
    """Write the compiler wrapper into a directory; return the make variable that selects it."""
    program = directory / "gcc"
    changed = directory / "user-offsets.c"
    program.write_text(_COMPILER.format(bytes=BYTES, changed=f"'{changed}'"), "utf-8")
    program.chmod(0o755)
    return f"CC={program}"
