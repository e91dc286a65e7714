"""Simulator and a real kernel over paths with reordering and stalls (tests/linux/traces.json)."""

from __future__ import annotations

import functools
import statistics
from typing import Any

import pytest

import skyhop
from validation.linux import recorded

TRACES = recorded.traces()
KERNEL_HZ = 250
GOODPUT = 0.02
SRTT = 0.03
RETRANSMITS = (0.25, 20)


Flow = dict[str, Any]


@functools.cache
def ours(name: str) -> Flow:
    """Simulate the same scenario; return the summary of its flow."""
    tcp = {"profile": "linux-6.18", "hz": KERNEL_HZ}
    flow: Flow = skyhop.sim({**TRACES[name]["scenario"], "tcp": tcp}).summary["flows"][0]
    return flow


def linux(name: str, key: str) -> float:
    """Return the mean of a value over the kernel's runs."""
    return statistics.mean(run[key] for run in TRACES[name]["runs"])


@pytest.mark.parametrize("name", TRACES)
def test_goodput_matches_the_kernel(name: str) -> None:
    assert ours(name)["goodput_bps"] == pytest.approx(linux(name, "goodput_bps"), rel=GOODPUT)


# During an outage srtt keeps its last value for minutes, which dominates the mean.
@pytest.mark.parametrize("name", [name for name in TRACES if "outage" not in name])
def test_srtt_matches_the_kernel(name: str) -> None:
    assert ours(name)["srtt_mean_us"] == pytest.approx(linux(name, "srtt_mean_us"), rel=SRTT)


@pytest.mark.parametrize("name", TRACES)
def test_retransmits_match_the_kernel(name: str) -> None:
    fraction, constant = RETRANSMITS
    kernel = linux(name, "retransmits")
    assert abs(ours(name)["retransmits"] - kernel) <= fraction * kernel + constant
