"""Run Rust's tests with cargo-nextest and Python's with pytest; print a table of skipped tests.

Without arguments the tiers logic and integration run. With --soak all tiers run with new random
cases, and a table of the trials is printed. Tests with the mark `alone` run one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = ROOT / "build" / "skipped.jsonl"
TRIALS = ROOT / "build" / "trials.tsv"
"""File with one line per trial: kind, subject, number of cases, seed, and result."""
GRACE_S = 60
"""Time in s that a test runner may take to end after SIGINT before it is killed."""
SLOWEST = 15
"""Number of the slowest Python tests to list."""

# The workspace includes the Python extension, so that crates have the same features as in the
# set-up's build.
CRATES = ["--workspace", "--exclude", "skyhop-bindings", "--locked"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, and print which ones were skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--soak", action="store_true", help="run also the long tests")
    parser.add_argument("--hours", type=float, default=math.inf, help="stop after this time")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 3600 * options.hours
    environment = prepare(options.soak)
    statuses = []
    for title, command in [*rust_commands(options.soak), *python_commands(options.soak)]:
        began = time.monotonic()
        statuses.append(run(command, environment, until))
        print(f"tests: {title}: {time.monotonic() - began:.0f} s", flush=True)
    print_skips(list(read_skips()))
    if options.soak:
        print_trials()
    if time.monotonic() >= until:
        print("tests: stopped after the given hours; tests that are not above did not run")
    return int(any(statuses))


def prepare(soak: bool) -> dict[str, str]:
    """Remove the records of earlier runs; return the environment for the tests."""
    SKIPPED.parent.mkdir(exist_ok=True)
    for record in (SKIPPED, TRIALS):
        record.unlink(missing_ok=True)
    environment = {**os.environ, "SKYHOP_SKIPPED": str(SKIPPED), "SKYHOP_TRIALS": str(TRIALS)}
    # Without cached bytecode each of the many processes of tests would compile the same modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if soak:
        environment.setdefault("SKYHOP_SOAK", "1")
        seed = environment.setdefault("PROPTEST_RNG_SEED", str(random.randrange(2**63)))
        print(f"tests: PROPTEST_RNG_SEED={seed}")
    return environment


def rust_commands(soak: bool) -> list[tuple[str, list[str]]]:
    """Return the commands that run Rust's tests, with the features that the set-up chose."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    features = (ROOT / "build" / "features").read_text("utf-8").split()
    nextest = Path(sys.executable).with_name("cargo-nextest")
    ignored = ["--run-ignored", "all", "--profile", "soak"] if soak else []
    if nextest.exists():
        command = [str(nextest), "nextest", "run", *CRATES, *features, *ignored]
    else:
        # One thread, as tests that change the kernel or count child processes share one process
        # here.
        also = ["--", "--test-threads=1", *(["--include-ignored"] if soak else [])]
        command = [cargo, "test", *CRATES, "--no-fail-fast", "--tests", *features, *also]
    doc = [cargo, "test", "--quiet", "--doc", *CRATES, *features]
    return [("Rust, with its compilation", command), ("Rust's examples", doc)]


def python_commands(soak: bool) -> list[tuple[str, list[str]]]:
    """Return the commands that run Python's tests."""
    # One worker more than processors, as tests spend a part of their time waiting for processes.
    workers = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "loadgroup"]
    stages = [("Python", "not soak", workers)]
    if soak:
        stages = [("Python", "not alone", workers), ("Python, alone", "alone", [])]
    return [
        (
            title,
            [
                *(sys.executable, "-m", "pytest", "-q", f"--durations={SLOWEST}"),
                f"--junitxml={ROOT / 'build' / ('tests-' + words.replace(' ', '-'))}.xml",
                *(*how, "-m", words),
            ],
        )
        for title, words, how in stages
    ]


def run(command: Sequence[str], environment: Mapping[str, str], until: float) -> int:
    """Run a command and return its exit status; interrupt it at `until` on the monotonic clock."""
    if time.monotonic() >= until:
        return 1
    with subprocess.Popen(command, cwd=ROOT, env=environment, process_group=0) as process:
        try:
            return process.wait(None if math.isinf(until) else max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            end(process)
            return 1
        except KeyboardInterrupt:
            end(process)
            raise


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a command and its children, so that it prints its results so far.

    Then kill them.
    """
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Skip:
    """Test that this machine cannot run; cargo-nextest counts such Rust tests as passed."""

    test: str
    need: str
    why: str


def read_skips() -> Iterator[Skip]:
    """Yield the skips that the tests recorded, one per test."""
    lines = SKIPPED.read_text("utf-8").splitlines() if SKIPPED.exists() else []
    yield from {skip.test: skip for skip in (Skip(**json.loads(line)) for line in lines)}.values()


def print_skips(skips: Sequence[Skip]) -> None:
    """Print a table of the skipped tests, and how to install what they need."""
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


def print_trials() -> None:
    """Print a table of the trials: crashes, damaged inputs and missing resources."""
    table = Table("trial", "of", "cases", "seed", "result", title="Trials")
    lines = TRIALS.read_text("utf-8").splitlines() if TRIALS.is_file() else []
    for kind, what, cases, *rest in sorted(line.split("\t") for line in lines):
        table.add_row(kind, what, f"{int(cases):,}", *rest)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
