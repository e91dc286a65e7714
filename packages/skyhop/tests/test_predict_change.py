"""Prediction of changes: windows relative to the last value, and values made from changes."""

from __future__ import annotations

import numpy as np
import pytest

from skyhop.data.arrays import FloatArray
from skyhop.predict.change import absolute, limit_of, relative
from skyhop.predict.windows import LOOK_BACK_S, Windows


def windows(last: list[float], truth: list[float]) -> Windows:
    """Return windows whose past rises by 1 each second to the given last values."""
    count = len(last)
    rise = np.arange(1.0 - LOOK_BACK_S, 1.0)
    past = np.stack([np.array(last)[:, None] + rise, np.ones((count, LOOK_BACK_S))], axis=2)
    return Windows(
        horizon_s=1,
        end_ns=np.arange(count, dtype=np.int64),
        nodes=np.zeros(count, dtype=np.int64),
        past=past,
        covariates=np.full((count, 1), 7.0),
        truth=np.array(truth),
        has_grid=np.zeros(count, dtype=bool),
    )


def test_windows_of_different_levels_become_alike() -> None:
    low, high = windows([30.0], [32.0]), windows([90.0], [92.0])
    one, other = relative(low, 1e9), relative(high, 1e9)
    assert one.past[0, :, 0].tolist() == other.past[0, :, 0].tolist()
    assert one.truth.tolist() == other.truth.tolist() == [2.0]
    assert (one.past[..., 1] == 1).all(), "other columns stay"
    assert one.covariates.tolist() == [[7.0, 30.0]]
    assert other.covariates.tolist() == [[7.0, 90.0]]
    assert low.past[0, -1, 0] == 30.0, "the windows given are not changed"


def test_a_predictor_of_changes_becomes_one_of_values() -> None:
    given = windows([30.0, 90.0], [32.0, 80.0])

    def change(seen: Windows) -> FloatArray:
        return seen.truth

    assert absolute(change, 1e9)(given).tolist() == pytest.approx([32.0, 80.0])


def test_an_outlier_is_no_level() -> None:
    fit = windows([30.0] * 100, [30.0] * 99 + [5000.0])
    limit = limit_of(fit)
    assert 60 <= limit < 200

    def no_change(seen: Windows) -> FloatArray:
        return np.zeros(len(seen))

    assert absolute(no_change, limit)(windows([31.0, 5000.0], [0.0, 0.0])).tolist() == [31.0, limit]
