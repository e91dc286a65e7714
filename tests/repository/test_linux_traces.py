"""Simulator and a real kernel over paths with reordering and stalls (tests/linux/traces.json)."""

from __future__ import annotations

import functools

import pytest

from validation.flows import mean_of
from validation.linux import recorded, traces

TRACES = recorded.traces()
GOODPUT = 0.02
SRTT = 0.03
RETRANSMITS = (0.25, 20)


@functools.cache
def ours(name: str) -> traces.Flow:
    return traces.simulated(TRACES[name])


def linux(name: str, key: str) -> float:
    return mean_of(TRACES[name]["runs"], key)


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
