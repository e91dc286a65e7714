"""Configuration and fixtures of all tests: tiers, seeds, command line, and skips."""

from __future__ import annotations

import platform
from collections.abc import Generator
from functools import partial
from pathlib import Path

import hypothesis
import pytest

import blank_figures
import inherited_signals
import studies_here
import tiers
from command_line import Skyhop, run_here, run_process, skyhop_command
from needs import needs_namespaces, record_skip

__all__ = ["ROOT", "Skyhop", "skyhop_command"]

ROOT = Path(__file__).resolve().parent


def pytest_configure() -> None:
    """Fix the seeds of random cases, except in `make soak`, and install the checks of tiers."""
    inherited_signals.restore()
    # The first call starts a process, which tests of logic may not; the result is cached.
    platform.processor()
    tiers.guard.install()
    studies_here.install(tiers.guard.is_on)
    hypothesis.settings.register_profile("test", derandomize=True, deadline=None)
    hypothesis.settings.register_profile("soak", deadline=None)
    hypothesis.settings.load_profile("soak" if tiers.is_soak() else "test")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the limits of its tier."""
    tiers.sort_into_tiers(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forbid tests of logic to start processes and to sleep."""
    tiers.guard.set(tiers.tier(item) == "logic")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Lift the checks after a test, so that fixtures can end their processes."""
    tiers.guard.set(False)


@pytest.fixture
def skyhop(tmp_path: Path, request: pytest.FixtureRequest) -> Skyhop:
    """Run skyhop in an empty directory, in a process of its own where the tier allows one."""
    logic = tiers.tier(request.node) == "logic"
    return partial(run_here if logic else run_process, tmp_path)


@pytest.fixture(params=["blank", pytest.param("drawn", marks=pytest.mark.soak)])
def pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures of pages blank; draw them only in soak tests."""
    if request.param == "blank":
        blank_figures.leave_blank(monkeypatch)


@pytest.fixture
def namespaces() -> None:
    """Skip the test where live runs are impossible."""
    needs_namespaces()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record a skipped test with its requirement."""
    report = yield
    record_skip(report)
    return report
