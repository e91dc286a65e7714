"""What ours cost in the kernel: CPU per GB, and the latency of announcements."""

from __future__ import annotations

import os
import subprocess

BENCHES = (("skyhop-kernel", "cpu_per_gb"), ("skyhop-signald", "signal_latency"))


def lines(package: str, bench: str) -> list[str]:
    """Return what a bench prints, one line for each figure."""
    command = [os.environ.get("CARGO", "cargo"), "bench", "--locked", "-p", package]
    done = subprocess.run(
        [*command, "--bench", bench], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines()


def table() -> str:
    """Return the lines of all benches as a list."""
    return "\n".join(f"- {line}" for one in BENCHES for line in lines(*one) if line)


if __name__ == "__main__":
    print(table())
