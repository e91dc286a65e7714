"""Training, checking and test parts: by time, with gaps, never shuffled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skyhop.data.arrays import BoolArray, IntArray
from skyhop.predict.windows import SECOND_NS, Windows

GAP_S = 60
"""As long as the longest window, so that nothing of one part is in windows of the next."""
TRAIN_SHARE = 0.8
"""Of each node's time; T3P has 19 h of 24 h."""
CHECK_SHARE = 0.15
"""Of the training part, its end: what training stops early by."""
LEAST_TRAIN, LEAST_OTHERS = 100, 30
"""Fewer windows are too few to train, and to check or test with."""


@dataclass(frozen=True)
class Bounds:
    """Of one node, ends of seconds in ns of UTC."""

    first_ns: int
    check_ns: int
    """From here on the check part."""
    test_ns: int
    """From here on the test part."""
    last_ns: int


def bounds_of(nodes: IntArray, end_ns: IntArray, train_share: float = TRAIN_SHARE) -> list[Bounds]:
    """Return where each node's parts begin, by its number; seconds count, not gaps."""
    found = []
    for node in range(int(nodes.max()) + 1 if len(nodes) else 0):
        times = end_ns[nodes == node]
        cut = int(len(times) * train_share)
        check = int(cut * (1 - CHECK_SHARE))
        last = len(times) - 1
        found.append(
            Bounds(int(times[0]), int(times[min(check, last)]),
                   int(times[cut]) if cut <= last else int(times[last]) + SECOND_NS,
                   int(times[last]))
        )  # fmt: skip
    return found


def parts_of(windows: Windows, bounds: list[Bounds]) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return which windows are of the training, the check and the test part.

    What is predicted in the `GAP_S` after a part's beginning is of no part.
    """
    check, test = (
        np.array([getattr(each, name) for each in bounds], dtype=np.int64)[windows.nodes]
        for name in ("check_ns", "test_ns")
    )
    gap_ns = GAP_S * SECOND_NS
    is_train = windows.end_ns < check
    is_check = (windows.end_ns >= check + gap_ns) & (windows.end_ns < test)
    return is_train, is_check, windows.end_ns >= test + gap_ns
