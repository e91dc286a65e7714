"""Scavenger of a node: its host's own traffic, the owner's switch, quiet hours."""

from __future__ import annotations

import bisect
import itertools
import json
import random
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


def left(  # noqa: PLR0917
    total_rx: float | None,
    total_tx: float | None,
    runs_rx: float | None = 0.0,
    runs_tx: float | None = 0.0,
    agent_rx: float = 0.0,
    agent_tx: float = 0.0,
) -> Rates:
    """Return the rates of a second, in which the owner has what is left of the total."""
    parts = (total_rx, total_tx, runs_rx, runs_tx, agent_rx, agent_tx)
    users = [
        None if total is None or runs is None else max(0.0, total - runs - agent)
        for total, runs, agent in ((total_rx, runs_rx, agent_rx), (total_tx, runs_tx, agent_tx))
    ]
    return Rates(*parts, *users)


LOUD, SOFT, QUIET = left(50_000, 0), left(30_000, 0), left(10_000, 40_000)


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
        (left(40_001, 0), True), (left(40_000, 0), False),
        (left(0, 100_001), True), (left(0, 100_000), False),
        (left(40_000, 100_000), False),
        (left(1e8 + 40_001, 2e6, 1e8, 2e6), True), (left(1e8 + 40_000, 2e6, 1e8, 2e6), False),
        (left(50_000, 0, 0, 0, 10_000, 0), False), (left(50_001, 0, 0, 0, 10_000, 0), True),
        (left(None, 100_001), True), (left(None, 100_000), False),
        (left(50_000, 0, None, 0), False), (left(0, 0, 1e6, 1e6), False),
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
    half = left(0, None)
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
    run = left(101e6, 0, 100e6, 0)
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
    assert second == left(32_000, 128, 16_000, 64, 16, 32)
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


def test_what_runs_had_more_than_the_total_is_made_up_for_in_the_next_second() -> None:
    run_first = Counters(1000, 0, 8000, 0), Counters(9000, 0, 8000, 0), Counters(9500, 0, 8000, 0)
    link_first = Counters(8000, 0, 0, 0), Counters(8000, 0, 8000, 0), Counters(8500, 0, 8000, 0)
    for later, expected in ((run_first, [0, 8000, 4000]), (link_first, [64_000, 0, 0])):
        found = metered(Counters(0, 0), *later)[1:]
        assert [one and one.user_rx_bps for one in found] == expected


def test_after_a_lost_reading_the_next_one_begins_anew() -> None:
    found = metered(Counters(0, 0), None, Counters(10**6, 0), Counters(10**6 + 1, 0))
    assert found[1:3] == [None, None]
    assert found[3] == left(8, 0)


def test_two_readings_of_one_moment_say_nothing() -> None:
    assert metered(Counters(0, 0), Counters(5, 0), every_ns=0)[-1] is None


# Counters that are read one after another, of a link that carries runs, agent and owner.

Bursts = list[tuple[float, int]]
"""Times in s, and bytes."""
Moments = list[tuple[float, float, float, float]]
"""Times in s of each reading: of the link, the runs, the agent, and the link again."""
_BYTES = st.integers(1, 100_000)
_SECONDS = 20


@st.composite
def bursts(draw: st.DrawFn, count: int) -> Bursts:
    times = st.floats(0, _SECONDS)
    return draw(st.lists(st.tuples(times, _BYTES), max_size=count))


@st.composite
def moments(draw: st.DrawFn) -> Moments:
    readings = []
    for second in range(_SECONDS + 1):
        begin = second + draw(st.floats(0, 0.3))
        steps = draw(st.lists(st.floats(0, 0.1), min_size=3, max_size=3))
        before, after = begin, begin + sum(steps)
        runs, agent = draw(st.permutations([begin + steps[0], begin + steps[0] + steps[1]]))
        readings.append((before, runs, agent, after))
    return readings


class Counter:
    """Counter of the bytes of bursts."""

    def __init__(self, *sources: Bursts) -> None:
        found = sorted(burst for source in sources for burst in source)
        self._times = [at for at, _ in found]
        self._sums = [0, *itertools.accumulate(size for _, size in found)]

    def at(self, time_s: float) -> int:
        """Return the counter at a time."""
        return self._sums[bisect.bisect_right(self._times, time_s)]


@settings(max_examples=cases(60), deadline=None)
@given(bursts(40), bursts(20), bursts(20), moments())
def test_what_the_owner_moved_is_counted_once_whenever_counters_are_read(
    of_runs: Bursts, of_agent: Bursts, of_owner: Bursts, read: Moments
) -> None:
    link, runs, agent = Counter(of_runs, of_agent, of_owner), Counter(of_runs), Counter(of_agent)
    owner, meter, sums, between = Counter(of_owner), Meter(), [0], []
    for second, (before_s, runs_s, agent_s, after_s) in enumerate(read):
        between.append(link.at(after_s) - link.at(before_s))
        counters = Counters(
            link.at(before_s), 0, runs.at(runs_s), 0, agent.at(agent_s), 0, link.at(after_s), 0
        )
        found = meter.update(T0 + second * S, counters)
        sums.append(sums[-1] + round(((found and found.user_rx_bps) or 0) / 8))
    moved = [owner.at(after_s) for *_, after_s in read]
    for begin, end in itertools.combinations(range(len(read)), 2):
        # The error is what the link carried while the counters were read.
        bound = max(between[begin], between[end]) + between[0]
        assert abs(sums[end + 1] - sums[begin + 1] - (moved[end] - moved[begin])) <= bound
    if not of_owner:
        assert sums[-1] == 0, "no second of a quiet machine has any owner's traffic"


@settings(max_examples=cases(30), deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.9), st.sampled_from([-1, 1]), st.integers(0, 400_000))
def test_bursts_that_are_seen_a_second_late_do_not_add_up(
    seed: int, late_s: float, sign: int, size: int
) -> None:
    """A burst every 15 s, as the obstruction map, which its counter shows before or after."""
    chance, scavenger, meter = random.Random(seed), Scavenger(), Meter()
    passed = [(15.0 * i + 2 + chance.uniform(0, 0.999), size) for i in range(20)]
    link, seen = Counter(passed), Counter([(at + sign * late_s, size) for at, size in passed])
    loud_seconds = 0
    for second in range(300):
        counters = Counters(link.at(second), 0, 0, 0, seen.at(second), 0)
        found = meter.update(T0 + second * S, counters)
        loud_seconds += bool(found and (found.user_rx_bps or 0) > 40_000)
        assert not scavenger.update(T0 + second * S, found).active
    assert loud_seconds <= (20 if sign > 0 else 0)


@settings(max_examples=cases(30), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 10_000_000), st.floats(0.001, 0.003))
def test_an_owner_is_noticed_in_two_seconds_whatever_a_run_moves(
    seed: int, run_bytes_per_s: int, reading_s: float
) -> None:
    chance, scavenger, meter, begins = random.Random(seed), Scavenger(), Meter(), 10
    for second in range(begins + 3):
        at = second + chance.uniform(0, 0.05)
        later = at + reading_s
        runs = [round(run_bytes_per_s * time) for time in (at, chance.uniform(at, later), later)]
        owner = [max(0, round(125_000 * (time - begins - 0.06))) for time in (at, later)]
        counters = Counters(
            runs[0] + owner[0], 0, runs[1], 0, 0, 0, later_rx=runs[2] + owner[1], later_tx=0
        )
        active = scavenger.update(T0 + second * S, meter.update(T0 + second * S, counters)).active
        assert active is (second >= begins + 2)


@given(st.integers(-20_000, 60_000))
@settings(max_examples=cases(20), deadline=None)
def test_headers_that_were_estimated_too_large_hide_no_owner(error_per_s: int) -> None:
    """A run's bytes are overestimated for a minute; then an owner with 200 kbit/s comes."""
    meter, found = Meter(), []
    for second in range(80):
        run, owner = 1_000_000 * min(second, 60), 25_000 * max(0, second - 60)
        over = max(0, error_per_s) * min(second, 60)
        found.append(meter.update(T0 + second * S, Counters(run + owner, 0, run + over, 0)))
    users = [one.user_rx_bps for one in found if one is not None]
    assert max(users[:59]) == 0
    # What is carried from five seconds delays the notice by so many seconds at most.
    hidden = -(-5 * max(0, error_per_s) // 25_000)
    assert all(bps == 200_000 for bps in users[60 + hidden :])


def test_a_terminal_reports_a_runs_tail_a_second_later() -> None:
    rates, runs = [0, 0, 10**6, 10**6, 10**6, 0, 0, 0, 0], []
    meter, moved, total, users = Meter(lag=2), 0, 0, []
    for second, bytes_per_s in enumerate(rates):
        moved += bytes_per_s
        runs.append(moved)
        total = runs[max(0, second - 1)]
        found = meter.update(T0 + second * S, Counters(total, 0, moved, 0))
        users.append(found and found.user_rx_bps)
    assert users == [None, *[0] * (len(rates) - 1)]


# Random sequences.

_RATE = st.none() | st.sampled_from([0.0, 19_999.0, 20_000.0, 40_000.0, 40_001.0, 50_000.0, 1e8])
_RATES = st.none() | st.builds(left, _RATE, _RATE, st.sampled_from([0.0, 1e4, None]))


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
