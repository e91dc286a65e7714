"""What ours cost in the kernel: CPU per GB, the latency of announcements and of decisions."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from bench_policy import write_card

BENCHES = (("skyhop-kernel", "cpu_per_gb"), ("skyhop-signald", "signal_latency"))
POLICY = ("skyhop-policyd", "policy_cost")
UNMOVED = """[tcp]
governs = "base"
interval = "10 ms"
"""
"""What a card says to leave the window to CUBIC: what differs from it is what deciding costs."""


def lines(package: str, bench: str, *arguments: str) -> list[str]:
    """Return what a bench prints, one line for each figure."""
    command = [os.environ.get("CARGO", "cargo"), "bench", "--locked", "-p", package]
    done = subprocess.run(
        [*command, "--bench", bench, "--", *arguments],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def policy_lines() -> list[str]:
    """Return what a policy costs whose network is as large as Astraea's agent's."""
    with tempfile.TemporaryDirectory() as directory:
        card = write_card(Path(directory), tcp=UNMOVED, moves="factor", step=1e-9)
        return lines(*POLICY, str(card))


def table() -> str:
    """Return the lines of all benches as a list."""
    told = [line for one in BENCHES for line in lines(*one)]
    return "\n".join(f"- {line}" for line in (*told, *policy_lines()) if line)


if __name__ == "__main__":
    print(table())
