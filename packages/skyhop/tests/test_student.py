"""Student's t distribution, compared with scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from skyhop.analysis import student

DEGREES = [1, 1.001, 1.5, 2, 3, 4.7, 10, 29, 158, 999.5, 1e4, 123456.7, 1e6,
           *np.exp(np.random.default_rng(1).uniform(0, math.log(1e6), 40))]  # fmt: skip
TAILS = [1e-12, 1e-6, 1e-4, 0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.4, 0.49]


@pytest.mark.parametrize("degrees", DEGREES)
def test_tails_equal_scipys(degrees: float) -> None:
    for t in [0.0, 0.001, 0.01, 0.3, 1.0, 1.96, 4.0, 12.0, 30.0, *-special.stdtrit(degrees, TAILS)]:
        expected = special.stdtr(degrees, -t)
        assert student.upper_tail(t, degrees) == pytest.approx(expected, rel=1e-12, abs=0)
    assert student.upper_tail(math.inf, degrees) == 0


@pytest.mark.parametrize("degrees", DEGREES)
def test_quantiles_equal_scipys(degrees: float) -> None:
    for share in (*TAILS, *(1 - tail for tail in TAILS)):
        expected = special.stdtrit(degrees, share)
        # Near the middle, scipy's have an error of 2e-11 at few degrees of freedom.
        off = 1e-12 if abs(share - 0.5) > 0.2 else 1e-10
        assert student.quantile(share, degrees) == pytest.approx(expected, rel=off)
    assert student.quantile(0.5, degrees) == 0


@pytest.mark.parametrize("tail", TAILS)
def test_one_and_two_degrees_of_freedom_have_closed_forms(tail: float) -> None:
    """Check the quantiles and tails of the Cauchy distribution, and of two degrees of freedom."""
    cauchy = 1 / math.tan(math.pi * tail)
    both = (1 - 2 * tail) / math.sqrt(2 * tail * (1 - tail))
    for t, degrees in ((cauchy, 1), (both, 2)):
        assert student.quantile(tail, degrees) == pytest.approx(-t, rel=1e-13)
        assert student.upper_tail(t, degrees) == pytest.approx(tail, rel=1e-13)


def test_a_tiny_t_is_just_below_one_half() -> None:
    """Check a value of which scipy 1.17 returns 0.5, with an error of 3e-10."""
    expected = 0.5 - math.atan(1e-9) / math.pi
    assert student.upper_tail(1e-9, 1) == pytest.approx(expected, rel=1e-14)
