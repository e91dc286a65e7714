"""Optional requirements of tests: those that this machine lacks skip a test, through `missing`.

Their names are those of tests/needs.toml, as in the Rust tests (crates/needs).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDS: dict[str, Any] = tomllib.loads((ROOT / "tests" / "needs.toml").read_text("utf-8"))


def missing(need: str, why: str) -> NoReturn:
    """Skip the calling test; fail it where SKYHOP_REQUIRE names the need."""
    if need not in NEEDS:
        pytest.fail(f'tests/needs.toml does not list "{need}"')
    required = os.environ.get("SKYHOP_REQUIRE", "")
    if need in (name.strip() for name in required.split(",")):
        pytest.fail(f"SKYHOP_REQUIRE names {need}, but it is missing here: {why}")
    pytest.skip(f"needs {need}: {why}")


def cases(usual: int) -> int:
    """Return the number of random cases of a test: `usual` times SKYHOP_SOAK."""
    return usual * int(os.environ.get("SKYHOP_SOAK", "1"))


def kills() -> int:
    """Return the number of kills per command: one, or ten times SKYHOP_SOAK in soak."""
    soak = int(os.environ.get("SKYHOP_SOAK", "1"))
    return 1 if soak == 1 else 10 * soak


def record_trial(kind: str, what: str, cases: int, seed: int, result: str) -> None:
    """Append a trial to the file that SKYHOP_TRIALS names, for the table of `make soak`."""
    file = os.environ.get("SKYHOP_TRIALS")
    if file:
        line = "\t".join([kind, what, str(cases), str(seed), " ".join(result.split())[:300]])
        with Path(file).open("a", encoding="utf-8") as record:
            record.write(line + "\n")


@contextmanager
def recorded(kind: str, what: str, cases: int, seed: int) -> Iterator[None]:
    """Record a trial when its block ends, with the error if it fails."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        record_trial(kind, what, cases, seed, f"{type(error).__name__}: {error}")
        raise
    record_trial(kind, what, cases, seed, "ok")


def needs_program(name: str, need: str = "programs") -> str:
    """Return the path of a program, or skip the test."""
    return shutil.which(name) or missing(need, f"there is no {name}")


def needs_ray() -> None:
    """Skip the test where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        missing("ray", "it is not installed")


def needs_framework(name: str) -> None:
    """Skip the test where a framework that writes checkpoints is missing: tensorflow or torch."""
    if importlib.util.find_spec(name) is None:
        missing(name, "it is not installed")


def needs_predict(*names: str) -> None:
    """Skip the test where a module for training predictors is missing: one of these, or any."""
    for name in names or ("jax", "optax", "statsmodels", "xgboost"):
        if importlib.util.find_spec(name) is None:
            missing("xgboost" if name == "xgboost" else "predict", f"{name} is not installed")


def needs_gym() -> None:
    """Skip the test where Gymnasium or PettingZoo is not installed."""
    for name in ("gymnasium", "pettingzoo"):
        if importlib.util.find_spec(name) is None:
            missing("gym", f"{name} is not installed")


def needs_train() -> None:
    """Skip the test where a library for training policies is not installed."""
    needs_gym()
    for name in ("jax", "optax"):
        if importlib.util.find_spec(name) is None:
            missing("train", f"{name} is not installed")


def needs_root() -> None:
    """Skip the test where the tests do not run as root."""
    if os.geteuid() != 0:
        missing("root", "the tests run as another user")


def needs_namespaces() -> None:
    """Skip the test where live runs are impossible."""
    kinds = ["--net", "--mount", "--pid", "--fork", *([] if os.geteuid() == 0 else ["--user"])]
    command = [needs_program("unshare"), *kinds, "true"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        missing("namespaces", made.stderr.strip() or "user namespaces are not allowed")


def unless_impossible(result: subprocess.CompletedProcess[str]) -> None:
    """Skip the test where a command reports that the kernel or build cannot load modules."""
    lacking = {
        "needs root": "kernel",
        "no type information": "kernel",
        "from BPF": "kernel",
        "without libbpf": "kernel",
        "without clang": "clang",
    }
    said = result.stderr.strip()
    need = next((need for words, need in lacking.items() if words in said), None)
    if result.returncode == 1 and need is not None:
        missing(need, said)


def record_skip(report: pytest.TestReport) -> None:
    """Append a skip to the file that SKYHOP_SKIPPED names; fail skips without a requirement."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    need, _, why = reason.removeprefix("Skipped: ").removeprefix("needs ").partition(": ")
    if need not in NEEDS:
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} skips by itself ({reason}): call needs.missing"
        return
    file = os.environ.get("SKYHOP_SKIPPED")
    if file:
        line = json.dumps({"test": report.nodeid, "need": need, "why": why})
        with Path(file).open("a", encoding="utf-8") as record:
            record.write(line + "\n")
