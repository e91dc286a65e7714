"""Words and numbers of the sentences that open reports: counts, lists, rates, times, shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skyhop.analysis.tables import three_digits

_LONG_MS, _LONG_S, _MINUTE_S = 2000, 600, 60
"""Least time (ms) written in seconds; least time (s) written in minutes; a minute in s."""


def listed(words: Sequence[str]) -> str:
    """Return words separated by commas, with "and" before the last word."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, singular for 1: "1 run", "2,000 runs"."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: float, noun: str) -> str:
    """Return the noun, with "s" unless the count is 1."""
    return noun if count == 1 else f"{noun}s"


def was_or_were(count: int) -> str:
    """Return the verb that agrees with a count."""
    return "was" if count == 1 else "were"


def count_or_no(count: int) -> str:
    """Return a count as text, "no" for 0."""
    return f"{count:,}" if count else "no"


def spaced(name: str) -> str:
    """Return a name of a file as words."""
    return name.replace("_", " ")


def in_brackets(text: str) -> str:
    """Return a text in brackets after a space; empty if the text is empty."""
    return f" ({text})" if text else ""


def share_text(value: float, whole: float | None) -> str:
    """Return a share in percent as text; empty if the whole is not known."""
    if not whole:
        return ""
    percent = 100 * value / whole
    return f"{percent:.0f} %" if percent >= 1 or percent == 0 else f"{percent:.1f} %"


def rate_text(mbps: float) -> str:
    """Return a rate in Mbit/s as text, in kbit/s below 1 Mbit/s."""
    if 0 < mbps < 1:
        return f"{three_digits(1000 * mbps)} kbit/s"
    return f"{three_digits(mbps)} Mbit/s"


def nominal_rate_text(mbps: float) -> str:
    """Return a rate of the scenario as text, without trailing zeros."""
    return f"{mbps:g} Mbit/s" if 1 <= mbps < 1000 else rate_text(mbps)  # noqa: PLR2004


def us_text(microseconds: float) -> str:
    """Return a time in microseconds as text."""
    return ms_text(float(microseconds) / 1e3)


def ms_text(milliseconds: float) -> str:
    """Return a time in milliseconds as text, in seconds if it is long."""
    return (
        f"{three_digits(milliseconds)} ms"
        if milliseconds < _LONG_MS
        else seconds_text(milliseconds / 1e3)
    )


def seconds_text(seconds: float) -> str:
    """Return a time in seconds as text, in the unit in which it is short."""
    if 0 < seconds < 1:
        return f"{three_digits(1e3 * seconds)} ms"
    if seconds >= _LONG_S or (seconds >= 2 * _MINUTE_S and seconds % _MINUTE_S == 0):
        minutes = seconds / _MINUTE_S
        return f"{minutes:,.0f} min" if minutes.is_integer() else f"{three_digits(minutes)} min"
    return f"{seconds:,.0f} s" if float(seconds).is_integer() else f"{three_digits(seconds)} s"


def score_text(value: float) -> str:
    """Return a score (MOS, QoE) as text, with two decimals."""
    return f"{value:.2f}"


def span_text(values: Sequence[float], write: Callable[[float], str], to: str = " to ") -> str:
    """Return the lowest and the highest value as text, or only one if their texts are equal.

    If both have the same unit, the unit appears once.
    """
    low, high = write(min(values)), write(max(values))
    if low == high:
        return high
    number, _, unit = low.partition(" ")
    return f"{number if unit and high.endswith(f' {unit}') else low}{to}{high}"
