"""Scavenger of a node: its host's own traffic, the owner's switch, quiet hours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needs import cases
from skyhop.errors import InputError
from skyhop_testbed.scavenger import (
    Cause,
    Counters,
    Decision,
    Meter,
    QuietHours,
    Rates,
    Rule,
    Scavenger,
    parse_rule,
)
from skyhop_testbed.words import ScavengerMode

S = 1_000_000_000
DAY = 86_400 * S
T0 = 20_000 * DAY
LOUD, SOFT, QUIET = Rates(50_000, 0), Rates(30_000, 0), Rates(10_000, 40_000)


def decisions(rule: Rule, *seconds: Rates | None, begin_ns: int = T0) -> list[Decision]:
    scavenger = Scavenger(rule)
    return [scavenger.update(begin_ns + i * S, one) for i, one in enumerate(seconds)]


def pattern(rule: Rule, *seconds: Rates | None) -> str:
    return "".join("A" if one.active else "." for one in decisions(rule, *seconds))


def test_two_loud_samples_of_three_activate() -> None:
    assert pattern(Rule(), QUIET, LOUD, QUIET, LOUD) == "...A"
    assert pattern(Rule(), LOUD, LOUD) == ".A"
    assert pattern(Rule(), LOUD, QUIET, QUIET, LOUD, QUIET, QUIET) == "......", "too seldom"


@pytest.mark.parametrize(
    ("loud", "is_enough"),
    [
        (Rates(40_001, 0), True), (Rates(40_000, 0), False),
        (Rates(0, 100_001), True), (Rates(0, 100_000), False),
        (Rates(40_000, 100_000), False),
        (Rates(1e8 + 40_001, 2e6, 1e8, 2e6), True), (Rates(1e8 + 40_000, 2e6, 1e8, 2e6), False),
        (Rates(50_000, 0, 0, 0, 10_000, 0), False), (Rates(50_001, 0, 0, 0, 10_000, 0), True),
        (Rates(None, 100_001), True), (Rates(None, 100_000), False),
        (Rates(50_000, 0, None, 0), False), (Rates(0, 0, 1e6, 1e6), False),
    ],
)  # fmt: skip
def test_what_is_left_of_the_total_counts_in_either_direction(loud: Rates, is_enough: bool) -> None:
    assert decisions(Rule(), loud, loud)[-1].active is is_enough


def test_a_minute_below_half_of_both_thresholds_deactivates() -> None:
    found = decisions(Rule(), LOUD, LOUD, *[QUIET] * 60)
    assert [one.active for one in found[1:]] == [True] * 60 + [False]
    assert found[-1].since_ns == found[-1].since_ns == T0 + 61 * S
    assert found[-1].cause is Cause.IDLE
    assert found[-2].since_ns == T0 + S
    assert decisions(Rule(), LOUD, LOUD, *[SOFT] * 300)[-1].active, "not below half"
    again = [*[QUIET] * 59, SOFT]
    assert decisions(Rule(), LOUD, LOUD, *again * 5)[-1].active, "the minute begins again"


def test_missing_samples_neither_activate_nor_deactivate() -> None:
    assert pattern(Rule(), LOUD, None, None, LOUD, None) == "...AA"
    assert decisions(Rule(), LOUD, LOUD, QUIET, *[None] * 1000, QUIET)[-1].active
    found = decisions(Rule(), LOUD, LOUD, *[QUIET, None] * 60)
    assert not found[-1].active, "60 s were seen to be quiet"
    assert found[-4].active
    half = Rates(0, None)
    assert decisions(Rule(), LOUD, LOUD, *[half] * 300)[-1].active, "of the other nothing is known"


def test_a_node_that_slept_was_not_seen_to_be_quiet() -> None:
    scavenger = Scavenger()
    for second in (0, 1):
        scavenger.update(T0 + second * S, LOUD)
    scavenger.update(T0 + 2 * S, QUIET)
    assert scavenger.update(T0 + 3600 * S, QUIET).active


def test_the_switch_comes_before_all() -> None:
    hours = (QuietHours.read("00:00-24:00"),)
    on = decisions(Rule(ScavengerMode.ON), QUIET)[-1]
    assert (on.active, on.cause) == (True, Cause.SWITCH)
    off = decisions(Rule(ScavengerMode.OFF, hours), LOUD, LOUD, LOUD)[-1]
    assert (off.active, off.cause) == (False, Cause.SWITCH)
    auto = decisions(Rule(quiet=hours), QUIET)[-1]
    assert (auto.active, auto.cause) == (True, Cause.QUIET_HOURS)


def test_a_changed_rule_goes_on_with_what_was_seen() -> None:
    scavenger = Scavenger(Rule(ScavengerMode.OFF))
    for second in (0, 1):
        assert not scavenger.update(T0 + second * S, LOUD).active
    scavenger.change(Rule())
    found = scavenger.update(T0 + 2 * S, None)
    assert (found.active, found.cause, found.since_ns) == (True, Cause.TRAFFIC, T0 + 2 * S)


@pytest.mark.parametrize(
    ("text", "minute", "is_quiet"),
    [
        ("08:00-09:30", 480, True), ("08:00-09:30", 479, False), ("08:00-09:30", 569, True),
        ("08:00-09:30", 570, False), ("22:00-06:00", 0, True), ("22:00-06:00", 1320, True),
        ("22:00-06:00", 360, False), ("22:00-06:00", 1319, False), ("00:00-24:00", 1439, True),
        ("23:59-00:00", 1439, True), ("23:59-00:00", 0, False),
    ],
)  # fmt: skip
def test_quiet_hours(text: str, minute: int, is_quiet: bool) -> None:
    assert QuietHours.read(text).contains(T0 + minute * 60 * S) is is_quiet
    assert QuietHours.read(text).contains(T0 + minute * 60 * S + 60 * S - 1) is is_quiet


@pytest.mark.parametrize(
    "text",
    ["", "8-9", "08:00", "08:00-08:00", "24:00-01:00", "08:60-09:00", "0\u0668:00-09:00",
     "08:00-25:00"],
)  # fmt: skip
def test_no_quiet_hours_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="quiet hours"):
        QuietHours.read(text)


@pytest.mark.parametrize(
    "values",
    [
        {"mood": 1}, {"mode": "maybe"}, {"mode": []}, {"quiet": "22:00-06:00"}, {"quiet": [3]},
        {"rx_bps": 0}, {"rx_bps": "1"}, {"tx_bps": float("nan")}, {"idle_s": -1}, {"samples": 0},
        {"samples": 1}, {"samples": 1000}, {"of_them": "2"}, {"of_them": 1.5}, {"idle_share": 2},
        {"slack": True}, {"tx_bps": None}, {"idle_s": float("inf")},
    ],
)  # fmt: skip
def test_no_rule_is_refused_in_a_line(values: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        parse_rule(values)
    assert len(str(refused.value).splitlines()) == 1


def test_a_policy_makes_a_rule() -> None:
    found = parse_rule({"mode": "on", "quiet": ["22:00-06:30"], "rx_bps": 1e6, "samples": 5})
    assert found == Rule(ScavengerMode.ON, (QuietHours(1320, 390),), rx_bps=1e6, samples=5)
    assert parse_rule({}) == Rule()


def test_slack_forgives_a_share_of_runs_traffic() -> None:
    run = Rates(101e6, 0, 100e6, 0)
    assert decisions(Rule(), run, run)[-1].active
    assert not decisions(Rule(slack=0.02), run, run)[-1].active
    assert decisions(Rule(slack=0.02), LOUD, LOUD)[-1].active


# Rates from counters.


def metered(*counters: Counters | None, every_ns: int = S) -> list[Rates | None]:
    meter = Meter()
    return [meter.update(T0 + i * every_ns, one) for i, one in enumerate(counters)]


def test_rates_are_differences_over_time() -> None:
    first, second = metered(Counters(1000, 0, 500, 0, 1, 2), Counters(3000, 8, 1500, 4, 2, 4),
                            every_ns=S // 2)  # fmt: skip
    assert first is None, "nothing came before it"
    assert second == Rates(32_000, 128, 16_000, 64, 16, 32)
    assert second.user_rx_bps == 15_984


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        (2**32 - 1000, 1000, 16_000), (2**32 - 1, 0, 8), (5_000_000, 1000, None), (2**40, 5, None),
        (2**31, 0, None), (None, 1, None), (1, None, None), (0, 2**40, None), (7, 7, 0),
    ],
)  # fmt: skip
def test_counters_wrap_or_begin_anew(before: int | None, after: int | None, rate: Any) -> None:
    found = metered(Counters(before, 0), Counters(after, 0))[-1]
    assert found is not None
    assert found.total_rx_bps == rate
    assert found.user_rx_bps == rate


def test_a_counter_far_below_its_top_began_anew_however_long_ago() -> None:
    found = metered(Counters(5_000_000, 0), Counters(1000, 0), every_ns=60 * S)[-1]
    assert found is not None
    assert found.total_rx_bps is None


def test_what_runs_had_more_than_the_total_is_nothing() -> None:
    assert Rates(0, 10, 8000, 4).user_rx_bps == 0
    assert Rates(0, 10, 8000, 4).user_tx_bps == 6


def test_after_a_lost_reading_the_next_one_begins_anew() -> None:
    found = metered(Counters(0, 0), None, Counters(10**6, 0), Counters(10**6 + 1, 0))
    assert found[1:3] == [None, None]
    assert found[3] == Rates(8, 0)


def test_two_readings_of_one_moment_say_nothing() -> None:
    assert metered(Counters(0, 0), Counters(5, 0), every_ns=0)[-1] is None


# Random sequences.

_RATE = st.none() | st.sampled_from([0.0, 19_999.0, 20_000.0, 40_000.0, 40_001.0, 50_000.0, 1e8])
_RATES = st.none() | st.builds(Rates, _RATE, _RATE, st.sampled_from([0.0, 1e4, None]))


def loud(one: Rates | None) -> bool:
    return one is not None and ((one.user_rx_bps or 0) > 40_000 or (one.user_tx_bps or 0) > 100_000)


def quiet(one: Rates | None) -> bool:
    rx, tx = (None, None) if one is None else (one.user_rx_bps, one.user_tx_bps)
    return rx is not None and tx is not None and rx < 20_000 and tx < 50_000


@settings(max_examples=cases(25), deadline=None)
@given(st.lists(st.tuples(_RATES, st.sampled_from([1, 1, 2, 30, 70])), max_size=20))
def test_it_changes_for_a_reason(runs: list[tuple[Rates | None, int]]) -> None:
    """Compare the decisions with a slow reference, computed from all samples so far."""
    samples = [one for one, times in runs for _ in range(times)]
    active = False
    for i, found in enumerate(decisions(Rule(), *samples)):
        seen = samples[: i + 1]
        known = [o for o in seen if o and not (o.user_rx_bps is None and o.user_tx_bps is None)]
        if known and known[-1] is samples[i] and sum(map(loud, known[-3:])) >= 2:
            active = True
        elif quiet(samples[i]) and quiet_for(seen) >= 60:
            active = False
        assert found.active is active
        assert found.since_ns <= T0 + i * S
        json.dumps(vars(found))


def quiet_for(seen: list[Rates | None]) -> int:
    """Return the number of quiet samples since the last loud one, without unknown ones."""
    count = 0
    for one in reversed(seen):
        rx, tx = (None, None) if one is None else (one.user_rx_bps, one.user_tx_bps)
        if (rx or 0) >= 20_000 or (tx or 0) >= 50_000:
            return count
        count += quiet(one)
    return count
