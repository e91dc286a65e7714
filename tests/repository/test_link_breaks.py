"""Breaks of links in a network namespace, as LeoEM's emulator makes them."""

from __future__ import annotations

import pytest

from needs import needs_namespaces, needs_program
from validation import link_breaks


@pytest.mark.integration
def test_every_break_of_every_link_is_measured_and_interrupts_the_stream() -> None:
    for program in ("unshare", "ip", "tc", "ifconfig"):
        needs_program(program)
    needs_namespaces()
    took_ms, gaps_ms = link_breaks.in_namespace(links=2, breaks=3, first=False)
    assert (len(took_ms), len(gaps_ms)) == (6, 3)
    # A stream that goes on has gaps of half a millisecond, and one that ends has no last gap.
    assert all(took > 0 for took in took_ms)
    assert all(gap > 1e3 * link_breaks.EVERY_S for gap in gaps_ms)


def test_a_cell_has_the_median_and_the_outer_tenths() -> None:
    assert link_breaks.cells([float(ms) for ms in range(1, 20)]) == ("10.0", "2.0 to 18.0")
