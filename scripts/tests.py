"""Every test: Rust's, then Python's, then what was skipped and why, and one closing line.

Tests that take the wall clock seriously, or change what the kernel has, run by themselves; the
others run side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = ROOT / "build" / "skipped.jsonl"
TRIALS = ROOT / "build" / "trials.tsv"
"""What trials did, a line each: its kind, of what, how many cases, the seed, what was found."""
GRACE_S = 60
"""How long a runner may take to end once it is told to."""
TIMES = 10
"""How many of the longest Python tests are listed."""

CARGO_TEST = ["test", "--release", "--config", "tests/profile.toml", "--workspace", "--locked"]
CARGO_LINE = re.compile(r"test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored")
PYTEST_LINE = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


@dataclass
class Counts:
    """What a runner counted; Cargo counts what was skipped as passed."""

    passed: int = 0
    failed: int = 0

    def add(self, passed: int, failed: int) -> None:
        """Add those of a binary or a call."""
        self.passed += passed
        self.failed += failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, and say what was skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=math.inf, help="end what takes longer")
    until = time.monotonic() + 3600 * parser.parse_args(arguments).hours
    # Tests start thousands of processes: each would compile the same modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    SKIPPED.parent.mkdir(exist_ok=True)
    SKIPPED.unlink(missing_ok=True)
    os.environ["SKYHOP_SKIPPED"] = str(SKIPPED)
    TRIALS.unlink(missing_ok=True)
    os.environ["SKYHOP_TRIALS"] = str(TRIALS)
    counts = Counts()
    began = time.monotonic()
    statuses = [rust(counts, until)]
    print(f"tests: Rust's took {time.monotonic() - began:.0f} s with their compilation", flush=True)
    # One more than there are processors: a third of their time tests wait for what they started.
    workers = str((os.cpu_count() or 1) + 1)
    side_by_side = ["-n", workers, "--dist", "worksteal", "-m", "not alone"]
    for name, words in (("side-by-side", side_by_side), ("alone", ["-m", "alone"])):
        # Every test's time, beside the longest ones' that are listed.
        times = f"--junitxml={ROOT / 'build' / f'tests-{name}.xml'}"
        statuses.append(python(counts, until, times, *words))
    skips = list(skipped())
    print_skips(skips)
    if "SKYHOP_SOAK" in os.environ:
        print_trials()
    if time.monotonic() >= until:
        print("tests: the time is over; what is not above was not tried")
    # A runner that fails without a failed test could not run them.
    failed = max(counts.failed, sum(status != 0 for status in statuses))
    passed = counts.passed - sum(skip.in_rust for skip in skips)
    print(f"{passed} passed, {failed} failed, {len(skips)} skipped")
    return int(failed > 0)


def rust(counts: Counts, until: float) -> int:
    """Run Rust's tests with the features that the set-up found possible."""
    features = (ROOT / "build" / "features").read_text("utf-8").split()
    command = [cargo(), *CARGO_TEST, "--no-fail-fast", *features]
    status, lines = shown(command, {**os.environ, **same_python()}, until)
    for line in lines:
        if found := CARGO_LINE.search(line):
            counts.add(int(found[1]), int(found[2]))
    return status


def cargo() -> str:
    """Return where cargo is, as the set-up finds it."""
    return shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")


def same_python() -> dict[str, str]:
    """Return what maturin told the build, so that cargo builds nothing again that it has built."""
    told = {"PYO3_PYTHON": sys.executable, "PYO3_BUILD_EXTENSION_MODULE": "1"}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    told["PYO3_ENVIRONMENT_SIGNATURE"] = f"cpython-{version}-{8 * struct.calcsize('P')}bit"
    configs = sorted((ROOT / "target" / "maturin").glob("pyo3-config-*.txt"))
    if configs:
        told["PYO3_CONFIG_FILE"] = str(configs[-1])
    return told


def python(counts: Counts, until: float, *words: str) -> int:
    """Run a part of Python's tests."""
    command = [sys.executable, "-m", "pytest", f"--durations={TIMES}", *words]
    status, lines = shown(command, os.environ, until)
    found = Counter({kind: int(n) for n, kind in PYTEST_LINE.findall(lines[-1] if lines else "")})
    counts.add(found["passed"], found["failed"] + found["error"] + found["errors"])
    return status


def shown(
    command: Sequence[str], environment: Mapping[str, str], until: float
) -> tuple[int, list[str]]:
    """Run a command, show what it prints as it comes, and return its status and that.

    One that goes on after `until`, by the monotonic clock, is ended.
    """
    lines: list[str] = []
    if time.monotonic() >= until:
        return 1, lines
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as process:
        # A lock, as a wait, has no time without an end.
        left_s = min(max(until - time.monotonic(), 0), threading.TIMEOUT_MAX)
        alarm = threading.Timer(left_s, end, [process])
        alarm.daemon = True
        alarm.start()
        try:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                lines.append(line)
        except KeyboardInterrupt:
            end(process)
            raise
        finally:
            alarm.cancel()
    return process.returncode, lines


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt a command and what it has started, so that it says how far it is; then kill it."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Skip:
    """A test that could not run here."""

    test: str
    need: str
    why: str

    @property
    def in_rust(self) -> bool:
        """Whether Cargo counts it as passed."""
        return not self.test.startswith("tests/")


def skipped() -> Iterator[Skip]:
    """Return what the runners recorded, each test once."""
    lines = SKIPPED.read_text("utf-8").splitlines() if SKIPPED.exists() else []
    yield from {skip.test: skip for skip in (Skip(**json.loads(line)) for line in lines)}.values()


def print_trials() -> None:
    """Print what was killed, damaged and starved, how often, and what that found."""
    table = Table("trial", "of", "cases", "seed", "result", title="Trials")
    lines = TRIALS.read_text("utf-8").splitlines() if TRIALS.is_file() else []
    for kind, what, cases, *rest in sorted(line.split("\t") for line in lines):
        table.add_row(kind, what, f"{int(cases):,}", *rest)
    Console().print(table)


def print_skips(skips: Sequence[Skip]) -> None:
    """Print a table of what was skipped, and how a machine gets what it needs."""
    if not skips:
        print("No test was skipped.")
        return
    table = Table(title="Skipped", title_justify="left")
    for heading in ("needs", "test", "why"):
        table.add_column(heading, overflow="fold")
    for skip in sorted(skips, key=lambda skip: (skip.need, skip.test)):
        table.add_row(skip.need, skip.test, skip.why)
    Console(width=max(100, Console().width)).print(table)
    needs = tomllib.loads((ROOT / "tests" / "needs.toml").read_text("utf-8"))
    for need in sorted({skip.need for skip in skips}):
        print(f"{need} is {needs[need]['what']}: {needs[need]['how']}")


if __name__ == "__main__":
    sys.exit(main())
