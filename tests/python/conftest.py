"""What the tests share: the command line as a user runs it, and what this machine allows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from needs import missing, needs_namespaces, record_skip

ROOT = Path(__file__).resolve().parents[2]
# Reference input that is not part of the project lies beside the checkout.
SHARED = ROOT.parent / "shared"

Skyhop = Callable[..., "subprocess.CompletedProcess[str]"]


def skyhop_command() -> list[str]:
    """Return the command that starts skyhop in this environment."""
    script = Path(sys.executable).with_name("skyhop")
    return [str(script)]


@pytest.fixture
def skyhop(tmp_path: Path) -> Skyhop:
    """Run skyhop in an empty directory and return what it printed."""

    def run(*arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*skyhop_command(), *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


@pytest.fixture
def shared() -> Path:
    """Return the directory of reference input, or skip."""
    if not SHARED.is_dir():
        missing("reference", "the directory shared beside the checkout is missing")
    return SHARED


@pytest.fixture
def namespaces() -> None:
    """Skip where live runs are not possible."""
    needs_namespaces()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count what is skipped, each with what it needs."""
    report = yield
    record_skip(report)
    return report
