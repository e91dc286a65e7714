"""Costs of skyhop in the kernel: CPU time per GB, latency of announcements and of decisions."""

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
"""Part of a policy card that leaves the window to CUBIC: only the cost of decisions differs then.
"""


def lines(package: str, bench: str, *arguments: str) -> list[str]:
    """Run a benchmark of a Rust crate; return the lines that it prints."""
    command = [os.environ.get("CARGO", "cargo"), "bench", "--locked", "-p", package]
    done = subprocess.run(
        [*command, "--bench", bench, "--", *arguments],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def policy_lines() -> list[str]:
    """Return the cost of a policy whose network is as large as Astraea's actor."""
    with tempfile.TemporaryDirectory() as directory:
        card = write_card(Path(directory), tcp=UNMOVED, moves="factor", step=1e-9)
        return lines(*POLICY, str(card))


def table() -> str:
    """Return the output of all benchmarks as a Markdown list."""
    costs = [line for one in BENCHES for line in lines(*one)]
    return "\n".join(f"- {line}" for line in (*costs, *policy_lines()) if line)


if __name__ == "__main__":
    print(table())
