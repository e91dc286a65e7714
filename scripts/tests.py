"""Rust's tests by cargo-nextest, Python's by pytest, then a table of what was skipped and why.

Without arguments: the tiers logic and integration. With --soak: all tiers with new random cases,
and a table of the trials; tests marked `alone` run one after the other.
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
"""A line a trial: its kind, its subject, the number of cases, the seed, the result."""
GRACE_S = 60
"""How long a runner may take to end once it is told to."""
SLOWEST = 15
"""How many of the longest Python tests are listed."""

# With the extension, whose features make every crate the same as in the set-up's build.
CRATES = ["--workspace", "--exclude", "skyhop-bindings", "--locked"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, and say what was skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--soak", action="store_true", help="with the tests that take long")
    parser.add_argument("--hours", type=float, default=math.inf, help="end what takes longer")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 3600 * options.hours
    environment = prepared(options.soak)
    statuses = []
    for title, command in [*rust(options.soak), *python(options.soak)]:
        began = time.monotonic()
        statuses.append(ran(command, environment, until))
        print(f"tests: {title}: {time.monotonic() - began:.0f} s", flush=True)
    print_skips(list(skipped()))
    if options.soak:
        print_trials()
    if time.monotonic() >= until:
        print("tests: the time is over; what is not above was not tried")
    return int(any(statuses))


def prepared(soak: bool) -> dict[str, str]:
    """Return the tests' environment; forget what earlier runs recorded."""
    SKIPPED.parent.mkdir(exist_ok=True)
    for record in (SKIPPED, TRIALS):
        record.unlink(missing_ok=True)
    environment = {**os.environ, "SKYHOP_SKIPPED": str(SKIPPED), "SKYHOP_TRIALS": str(TRIALS)}
    # Tests start many processes: each would compile the same modules again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if soak:
        environment.setdefault("SKYHOP_SOAK", "1")
        seed = environment.setdefault("PROPTEST_RNG_SEED", str(random.randrange(2**63)))
        print(f"tests: PROPTEST_RNG_SEED={seed}")
    return environment


def rust(soak: bool) -> list[tuple[str, list[str]]]:
    """Return the commands of Rust's tests, with the features that the set-up found possible."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    features = (ROOT / "build" / "features").read_text("utf-8").split()
    nextest = Path(sys.executable).with_name("cargo-nextest")
    ignored = ["--run-ignored", "all", "--profile", "soak"] if soak else []
    if nextest.exists():
        command = [str(nextest), "nextest", "run", *CRATES, *features, *ignored]
    else:
        # In one process, tests that change the kernel or count its children would meet.
        also = ["--", "--test-threads=1", *(["--include-ignored"] if soak else [])]
        command = [cargo, "test", *CRATES, "--no-fail-fast", "--tests", *features, *also]
    doc = [cargo, "test", "--quiet", "--doc", *CRATES, *features]
    return [("Rust, with its compilation", command), ("Rust's examples", doc)]


def python(soak: bool) -> list[tuple[str, list[str]]]:
    """Return the commands of Python's tests."""
    # One more than there are processors: part of their time tests wait for what they started.
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


def ran(command: Sequence[str], environment: Mapping[str, str], until: float) -> int:
    """Run a command and return its status; end it at `until`, by the monotonic clock."""
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
    """Interrupt a command and its children, so that it says how far it is; then kill it."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Skip:
    """A test that could not run here; runners count Rust's as passed."""

    test: str
    need: str
    why: str


def skipped() -> Iterator[Skip]:
    """Return what the tests recorded, each test once."""
    lines = SKIPPED.read_text("utf-8").splitlines() if SKIPPED.exists() else []
    yield from {skip.test: skip for skip in (Skip(**json.loads(line)) for line in lines)}.values()


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


def print_trials() -> None:
    """Print what was killed, damaged and starved, how often, and the result."""
    table = Table("trial", "of", "cases", "seed", "result", title="Trials")
    lines = TRIALS.read_text("utf-8").splitlines() if TRIALS.is_file() else []
    for kind, what, cases, *rest in sorted(line.split("\t") for line in lines):
        table.add_row(kind, what, f"{int(cases):,}", *rest)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
