"""Paths that misbehave: the simulator against what a real kernel did (tests/linux/traces.json)."""

from __future__ import annotations

import functools
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


Flow = dict[str, Any]


@functools.cache
def ours(name: str) -> Flow:
    """Return our flow over the same path."""
    tcp = {"profile": "linux-6.18", "hz": KERNEL_HZ}
    flow: Flow = skyhop.sim({**TRACES[name]["scenario"], "tcp": tcp}).summary["flows"][0]
    return flow


def linux(name: str, key: str) -> float:
    """Return the mean of the kernel's runs."""
    return statistics.mean(run[key] for run in TRACES[name]["runs"])


@pytest.mark.parametrize("name", TRACES)
def test_as_much_gets_through(name: str) -> None:
    assert ours(name)["goodput_bps"] == pytest.approx(linux(name, "goodput_bps"), rel=GOODPUT)


# In an outage srtt stands for minutes at what the last acknowledgement left of it.
@pytest.mark.parametrize("name", [name for name in TRACES if "outage" not in name])
def test_it_takes_as_long(name: str) -> None:
    assert ours(name)["srtt_mean_us"] == pytest.approx(linux(name, "srtt_mean_us"), rel=SRTT)


@pytest.mark.parametrize("name", TRACES)
def test_as_much_is_sent_again(name: str) -> None:
    part, more = RETRANSMITS
    kernel = linux(name, "retransmits")
    assert abs(ours(name)["retransmits"] - kernel) <= part * kernel + more
