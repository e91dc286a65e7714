"""Rows of the portrait of an access link: key, section, title, unit, and width of a match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

RTT_QUANTILES = (1, 5, 25, 50, 75, 95, 99, 99.9)
EXCESS_QUANTILES = (25, 50, 75, 90, 99, 99.9)
MEMORY_MS = (12, 24, 60, 120, 600)
"""Lags of the autocorrelation of the excess, in ms."""
RATE_QUANTILES = (5, 25, 50, 75, 95)
SLOT_QUANTILES = (5, 50, 95)
SLOT_LAGS = (1, 2, 4, 8)
"""Lags of the correlation of slot means, in slots."""
STEP_LAGS_MS = (100, 200, 500, 1000)
"""Lags of the autocorrelation within a slot, in ms."""
RUN_QUANTILES = (50, 90, 99)
BINS_MS = (1, 2, 4, 10, 100, 1000, 5000)
"""Lengths of the bins over which the spread of the rate is given, in ms."""

WIDER = 0.15
"""Share by which the range of the reference logs is widened for a match."""
WIDER_RTT = 0.10
"""The same for quantiles of round trips."""


@dataclass(frozen=True)
class Row:
    """Row of a portrait: what is measured, and how far a match may lie outside the range."""

    key: str
    section: str
    title: str
    unit: str
    wider: float = WIDER
    is_count: bool = False
    """Whether the value is a whole number."""
    is_judged: bool = True
    """Whether the row is compared with reference logs; some hang on the length of a log."""


def quantile_name(per_cent: float) -> str:
    """Return the name of a quantile.

    >>> quantile_name(99.9), quantile_name(5)
    ('p99.9', 'p5')
    """
    return f"p{per_cent:g}"


def _key(per_cent: float) -> str:
    return quantile_name(per_cent).replace(".", "_")


def rtt_key(per_cent: float) -> str:
    """Return the key of a quantile of the round trips."""
    return f"rtt_{_key(per_cent)}_ms"


def excess_key(per_cent: float) -> str:
    """Return the key of a quantile of the excess over the slot's floor."""
    return f"excess_{_key(per_cent)}_ms"


_TRIPS = "Round trips"
_EXCESS = "Excess"
_MARKS = "Marks"
_PACKETS = "Milliseconds"


def _of_round_trips() -> Iterator[Row]:
    for share in RTT_QUANTILES:
        yield Row(rtt_key(share), _TRIPS, f"round trip {quantile_name(share)}", "ms", WIDER_RTT)
    yield Row("floor_step_p50_ms", _TRIPS, "step of the floor, p50", "ms")
    yield Row("floor_step_p90_ms", _TRIPS, "step of the floor, p90", "ms")
    yield Row("gap_longest_ms", _TRIPS, "longest gap in the answers", "ms", is_judged=False)
    for share in EXCESS_QUANTILES:
        yield Row(excess_key(share), _EXCESS,
                  f"over the slot's floor, {quantile_name(share)}", "ms")  # fmt: skip
    for lag in MEMORY_MS:
        yield Row(f"excess_correlation_{lag}ms", _EXCESS, f"autocorrelation, {lag} ms later", "")
    yield Row("marks", _MARKS, "marks in the log", "", is_count=True, is_judged=False)
    yield Row("hole_percent", _MARKS, "marks with a hole", "%")
    yield Row("hole_p50_ms", _MARKS, "hole, median", "ms")
    yield Row("hole_longest_ms", _MARKS, "hole, longest", "ms")
    yield Row("rtt_first_ms", _MARKS, "round trip, first 250 ms", "ms")
    yield Row("rtt_second_ms", _MARKS, "round trip, next 250 ms", "ms")
    yield Row("rtt_rest_ms", _MARKS, "round trip, rest", "ms")


def _of_direction(way: str) -> Iterator[Row]:
    section = way.capitalize()
    for share in RATE_QUANTILES:
        yield Row(f"{way}_rate_{_key(share)}_mbps", section,
                  f"rate {quantile_name(share)}", "Mbit/s")  # fmt: skip
    for share in SLOT_QUANTILES:
        yield Row(f"{way}_slot_{_key(share)}_mbps", section,
                  f"mean of slots {quantile_name(share)}", "Mbit/s")  # fmt: skip
    for lag in SLOT_LAGS:
        later = "slot later" if lag == 1 else "slots later"
        yield Row(f"{way}_slot_correlation_{lag}", section, f"their correlation, {lag} {later}", "")
    yield Row(f"{way}_within_spread", section, "sd over mean within a slot", "")
    for lag in STEP_LAGS_MS:
        yield Row(f"{way}_within_correlation_{lag}ms", section,
                  f"autocorrelation within, {lag} ms", "")  # fmt: skip
    yield Row(f"{way}_loss_percent", section, "loss", "%")
    yield Row(f"{way}_loss_steps_percent", section, "steps with loss", "%")
    for share in RUN_QUANTILES:
        yield Row(f"{way}_loss_run_{_key(share)}", section,
                  f"run of them {quantile_name(share)}", "steps", is_count=True)  # fmt: skip
    yield Row(f"{way}_loss_first_percent", section, "loss in the first 0.5 s", "%")
    yield Row(f"{way}_loss_last_percent", section, "loss in the last 0.5 s", "%")
    yield Row(f"{way}_loss_elsewhere_percent", section, "loss elsewhere", "%")
    yield Row(f"{way}_rate_before_mbps", section, "rate 1.5-1 s before a mark", "Mbit/s")
    yield Row(f"{way}_rate_middle_mbps", section, "rate mid-slot", "Mbit/s")
    yield Row(f"{way}_delay_first_ms", section, "one-way delay, first 0.5 s", "ms")
    yield Row(f"{way}_delay_last_ms", section, "one-way delay, last 0.5 s", "ms")
    yield Row(f"{way}_delay_middle_ms", section, "one-way delay, mid-slot", "ms")


def _of_packets() -> Iterator[Row]:
    yield Row("ms_empty_percent", _PACKETS, "empty ms", "%")
    for length in BINS_MS:
        yield Row(f"ms_spread_{length}ms", _PACKETS, f"sd over mean, bins of {length} ms", "")
    yield Row("ms_hole_longest_ms", _PACKETS, "longest hole", "ms")


ROWS: tuple[Row, ...] = (
    *_of_round_trips(), *_of_direction("up"), *_of_direction("down"), *_of_packets(),
)  # fmt: skip
"""Every row of a portrait with one number, in the order of tables; spectral lines are a list."""

LINES = Row("ms_lines_hz", _PACKETS, "spectral lines", "Hz")
"""Row of the spectral lines, which has a list of numbers."""

SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(row.section for row in ROWS))
