"""Kernels for tests of guests: a real one if it is built, and scripts as stub kernels."""

from __future__ import annotations

import json
from pathlib import Path

from needs import missing
from skyhop.linux import Kernel, built
from skyhop.linux.kernels import MARK
from skyhop.linux.modules import BUILD

HERE = """\
#!/bin/sh
# Runs the last commands of a guest's init script on this machine, in real time.
for word in "$@"; do case $word in init=*) init=${word#init=} ;; esac; done
eval "$(sed -n '/^export/p; /skyhop.linux.guest/p' "$init")"
"""
PRINTS = f"""{HERE}
printf 'half a line\\rand more\\r\\n\\377'
echo 'Kernel panic is what this is not'
"""
TELLS = f"""#!/bin/sh
for word in "$@" "TMPDIR=$TMPDIR"; do echo "$word"; done > "$0.told"
{HERE}"""
PANIC = """\
#!/bin/sh
echo 'Out of memory: Killed process 31 (python3)'
echo 'Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009'
echo 'CPU: 0 UID: 0 PID: 1 Comm: init'
exit 1
"""
SLOW = """\
#!/bin/sh
sleep 600 & sleep 600
"""
DIGEST = "0123456789abcdef" * 4


def needs_guest_kernel() -> Kernel:
    """Return the kernel that was built last, or skip the test."""
    kernels = [kernel for kernel in built() if kernel.binary.exists()]
    if not kernels:
        missing("guest", "no kernel is built")
    return max(kernels, key=lambda kernel: kernel.binary.stat().st_mtime_ns)


def needs_module_kernel() -> Kernel:
    """Return a kernel that modules can be compiled for, or skip the test."""
    needs_guest_kernel()
    kernels = [kernel for kernel in built() if (kernel.directory / BUILD / "Makefile").exists()]
    if not kernels:
        missing("guest", "no kernel with support for modules is built")
    return max(kernels, key=lambda kernel: kernel.binary.stat().st_mtime_ns)


def stand_in(cache: Path, script: str, name: str = "6.12", source: str = "a script") -> Path:
    """Put a script into a cache as a kernel of this name; return its directory."""
    directory = cache / "skyhop" / "kernels" / f"{name}-{DIGEST[:12]}"
    MARK.make(directory)
    binary = directory / "linux"
    binary.write_text(script, "utf-8")
    binary.chmod(0o755)
    (directory / "config").write_text("CONFIG_HZ=100\nCONFIG_TCP_CONG_CUBIC=y\n", "utf-8")
    card = {
        "name": name, "release": "6.12.99", "source": source, "digest": DIGEST, "hz": 100,
        "options": ["HZ=100"],
    }  # fmt: skip
    (directory / "kernel.json").write_text(json.dumps(card), "utf-8")
    return directory
