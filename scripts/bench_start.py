"""Benchmark of start-up: time of commands that do almost no work."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_previous import previous
from skyhop.cli.terminal import print_rows

TIMES = 9
"""Number of measured runs of each command, after one that warms the caches; the median counts."""

SCENARIO = """
[path]
kind = "fixed"
rtt = "50 ms"
[link]
rate = "10 Mbit/s"
[[flow]]
[run]
duration = "1 s"
"""


SKYHOP = str(Path(sys.executable).with_name("skyhop"))

COMMANDS = {
    "skyhop sim, 1 simulated s": [SKYHOP, "sim", "scenario.toml", "-o", "run", "--force"],
    "skyhop --help": [SKYHOP, "--help"],
    "import skyhop": [sys.executable, "-c", "import skyhop"],
}


def bench_start() -> None:
    """Print the start-up times with warm caches."""
    with TemporaryDirectory(prefix="skyhop-bench-") as place:
        (Path(place) / "scenario.toml").write_text(SCENARIO, "utf-8")
        rows = [start_row(name, command, place) for name, command in COMMANDS.items()]
    print_rows(rows, as_json=False, title=f"start-up, warm, median of {TIMES}")


def start_row(name: str, command: list[str], place: str) -> dict[str, object]:
    """Measure a command that is run in the directory `place`."""
    took = [_times_s(command, place) for _ in range(1 + TIMES)][1:]
    wall_s, cpu_s = (statistics.median(column) for column in zip(*took, strict=True))
    return {
        "command": name,
        "wall s": round(wall_s, 2),
        "wall s before": previous("start", name, "wall_s"),
        "CPU s": round(cpu_s, 2),
        "CPU s before": previous("start", name, "cpu_s"),
    }


def _times_s(command: list[str], place: str) -> tuple[float, float]:
    """Return wall-clock and CPU time of a command in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started_s = time.monotonic()
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, cwd=place, stdout=quiet, stderr=quiet)
    wall_s = time.monotonic() - started_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
