"""Split of data into training, check and test parts: by time, with gaps, never shuffled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skyhop.data.arrays import BoolArray, IntArray
from skyhop.predict.windows import SECOND_NS, Windows

GAP_S = 60
"""Gap in s between parts, as long as the longest window: windows of two parts share no second."""
TRAIN_SHARE = 0.8
"""Share of each node's time before the test part; T3P uses 19 h of 24 h."""
CHECK_SHARE = 0.15
"""Share of the time before the test part that is the check part, at its end; for early stopping."""
LEAST_TRAIN, LEAST_OTHERS = 100, 30
"""Least numbers of windows: in the training part, and in each of the check and test parts."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of the parts of one node: ends of seconds, in ns since 1970 (UTC)."""

    first_ns: int
    check_ns: int
    """First second of the check part."""
    test_ns: int
    """First second of the test part."""
    last_ns: int


def bounds_of(nodes: IntArray, end_ns: IntArray, train_share: float = TRAIN_SHARE) -> list[Bounds]:
    """Return the bounds of each node's parts, by node number; shares count seconds, not gaps."""
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
    """Return the masks of the windows in the training, the check and the test part.

    Windows that predict a second in the first `GAP_S` of the check or test part are in no part.
    """
    check, test = (
        np.array([getattr(each, name) for each in bounds], dtype=np.int64)[windows.nodes]
        for name in ("check_ns", "test_ns")
    )
    gap_ns = GAP_S * SECOND_NS
    is_train = windows.end_ns < check
    is_check = (windows.end_ns >= check + gap_ns) & (windows.end_ns < test)
    return is_train, is_check, windows.end_ns >= test + gap_ns
