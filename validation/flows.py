"""Comparison of flows: the summaries of two engines' runs of one scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import skyhop
from validation.pages import percent

Flow = dict[str, Any]
"""Entry of a flow in summary.json, or in a file of tests/linux."""


def first_flow(scenario: Mapping[str, Any]) -> Flow:
    """Simulate a scenario; return the summary of its first flow."""
    flow: Flow = skyhop.sim(scenario).summary["flows"][0]
    return flow


def mean_of(flows: Sequence[Flow], key: str) -> float:
    """Return the mean of a value over the flows of several runs."""
    return float(mean(flow[key] for flow in flows))


def apart(ours: Sequence[Flow], theirs: Sequence[Flow], key: str) -> float:
    """Return the difference of our mean from theirs, as a fraction of theirs."""
    return mean_of(ours, key) / mean_of(theirs, key) - 1


def cells_of(
    key: str, scale: float, decimals: int, ours: Sequence[Flow], theirs: Sequence[Flow]
) -> list[str]:
    """Return the cells of a value: both means, and by how much ours differs."""
    means = [f"{mean_of(flows, key) / scale:.{decimals}f}" for flows in (ours, theirs)]
    return [*means, percent(apart(ours, theirs, key))]
