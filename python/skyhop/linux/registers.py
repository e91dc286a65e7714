"""Room for a processor's registers in a guest's kernel.

User-Mode Linux keeps its programs' vector registers and gives them back whole, or its host refuses
them. Before 6.13 it has room for 2696 bytes, which processors with AMX exceed by far. The size
stands in one line of one file: a compiler in front of the compiler changes it, and no tree.
"""

from __future__ import annotations

from pathlib import Path

BYTES = 16_384
"""Of registers: what processors have by now is 11,008."""

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


def compiler(place: Path) -> str:
    """Write the compiler into a directory; return how make is told of it."""
    program = place / "gcc"
    changed = place / "user-offsets.c"
    program.write_text(_COMPILER.format(bytes=BYTES, changed=f"'{changed}'"), "utf-8")
    program.chmod(0o755)
    return f"CC={program}"
