"""Paths that misbehave: the simulator against what a real kernel did (tests/linux/traces.json)."""

from __future__ import annotations

import statistics
from typing import Any

import linux_runs
import pytest

import skyhop

TRACES = linux_runs.traces()
KERNEL_HZ = 250
GOODPUT = 0.02
SRTT = 0.03
RETRANSMITS = (0.25, 20)


@pytest.fixture(scope="module", params=TRACES)
def pair(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Return a trace's name, our flow over the same path, and the kernel's runs."""
    trace = TRACES[request.param]
    tcp = {"profile": "linux-6.18", "hz": KERNEL_HZ}
    run = skyhop.sim({**trace["scenario"], "tcp": tcp})
    return request.param, run.summary["flows"][0], trace["runs"]


def mean(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.mean(run[key] for run in runs)


def test_as_much_gets_through(
    pair: tuple[str, dict[str, Any], list[dict[str, Any]]],
) -> None:
    _, ours, runs = pair
    assert ours["goodput_bps"] == pytest.approx(mean(runs, "goodput_bps"), rel=GOODPUT)


def test_it_takes_as_long(pair: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> None:
    _, ours, runs = pair
    assert ours["srtt_mean_us"] == pytest.approx(mean(runs, "srtt_mean_us"), rel=SRTT)


def test_as_much_is_sent_again(pair: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> None:
    _, ours, runs = pair
    part, more = RETRANSMITS
    linux = mean(runs, "retransmits")
    assert abs(ours["retransmits"] - linux) <= part * linux + more
