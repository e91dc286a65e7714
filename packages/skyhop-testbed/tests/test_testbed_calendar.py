"""Calendar's rules, compared with slow reference versions that look at every pair."""

from __future__ import annotations

import datetime as dt
import random
import time
from typing import Any

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from needs import cases
from skyhop.errors import InputError
from skyhop_testbed.calendar import (
    Booking,
    Conflict,
    Interval,
    Plan,
    bookings_of,
    check,
    first_overlap,
    free,
    nearest_slot,
    occurrences,
    why_never,
)
from skyhop_testbed.job import Job, job_of

S = 1_000_000_000
MIN, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S
FAR = 2**63 - 1


def at(text: str) -> int:
    """Return a time of the first days of December 2026 in ns, from "10:30" or "2 10:30"."""
    day, _, clock = text.rpartition(" ")
    hour, minute = clock.split(":")
    moment = dt.datetime(2026, 12, int(day or 1), int(hour), int(minute), tzinfo=dt.UTC)
    return int(moment.timestamp()) * S


NOW = at("0:00")


def job(nodes: str = "a", length_s: float = 600, **keys: Any) -> Job:
    """Return a job; `nodes` are its clients and, after a "/", its server."""
    clients, _, server = nodes.partition("/")
    when = {key: keys.pop(key) for key in ("cron", "at", "trigger", "start", "end") if key in keys}
    run = {"client": ["true"], **({"serve": ["true"]} if server else {})}
    values = {"id": "j", "nodes": clients.split(), "length": length_s, "when": when, "run": run}
    return job_of({**values, **({"server": server} if server else {}), **keys})


def plan(key: str = "j", nodes: str = "a", length_s: float = 600, **keys: Any) -> Plan:
    """Return a plan, submitted at the beginning unless `submitted` gives a time."""
    submitted_ns = keys.pop("submitted", NOW)
    gone = frozenset(keys.pop("gone", ()))
    return Plan(key, job(nodes, length_s, **keys), submitted_ns, gone)


def begins(one: Job, from_ns: int, to_ns: int, submitted_ns: int = NOW) -> list[int]:
    return [i.start_ns for i in occurrences(one, from_ns, to_ns, submitted_ns=submitted_ns)]


# Occurrences.


def test_a_cron_job_runs_within_its_start_and_end() -> None:
    one = job(length_s=1800, cron="0 * * * *", start=at("10:00"), end=at("13:00"))
    assert begins(one, NOW, FAR) == [at("10:00"), at("11:00"), at("12:00")]
    assert next(occurrences(one, NOW, FAR, submitted_ns=NOW)).end_ns == at("10:30")
    to_the_end = job(length_s=3600, cron="0 * * * *", start=at("10:00"), end=at("13:00"))
    assert begins(to_the_end, NOW, FAR)[-1] == at("12:00"), "ends as the job does"
    longer = job(length_s=3601, cron="0 * * * *", start=at("10:00"), end=at("13:00"))
    assert begins(longer, NOW, FAR)[-1] == at("11:00")


def test_asked_for_times_are_half_open() -> None:
    one = job(cron="0 * * * *")
    assert begins(one, at("10:00"), at("12:00")) == [at("10:00"), at("11:00")]
    assert begins(one, at("10:00") + 1, at("12:00") + 1) == [at("11:00"), at("12:00")]
    assert begins(one, at("10:00"), at("10:00")) == []


def test_nothing_runs_before_it_was_submitted() -> None:
    one = job(cron="0 * * * *", end=at("13:00"))
    assert begins(one, 0, FAR, submitted_ns=at("11:30")) == [at("12:00")]


def test_an_at_that_has_passed_means_now() -> None:
    assert begins(job(at=at("10:00")), 0, FAR, at("9:00")) == [at("10:00")]
    assert begins(job(at=at("10:00")), 0, FAR, at("10:01")) == [at("10:01")]
    assert begins(job(at="now"), 0, FAR, at("10:01")) == [at("10:01")]
    assert begins(job(at=at("10:00"), end=at("10:10")), 0, FAR, at("10:01")) == [], "too late"


def test_a_trigger_has_its_window_and_reserves_nothing() -> None:
    one = plan(trigger="tilt > 1", start=at("10:00"), end=at("12:00"))
    window = Interval(at("10:00"), at("12:00"))
    assert list(occurrences(one.job, NOW, FAR, submitted_ns=NOW)) == [window]
    assert list(bookings_of(one, NOW, FAR)) == []
    found = check(one, [plan("k", cron="* * * * *", length_s=60)], now_ns=at("11:00"))
    assert (found.total, found.first) == (0, window), "it is open"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"cron": "0 10 * * *", "end": at("9:00")}, "no time of"),
        ({"at": at("10:00"), "end": at("10:05")}, "at"),
        ({"at": at("10:00"), "start": at("11:00"), "end": at("12:00")}, "at"),
        ({"at": FAR}, "at"),
        ({"cron": "0 0 1 1 *", "start": FAR - 1}, "does not fit"),
        ({"trigger": "tilt > 1", "start": at("10:00"), "end": at("10:09")}, "does not fit"),
    ],
)
def test_what_would_never_run_is_said(keys: dict[str, Any], said: str) -> None:
    assert said in str(why_never(job(length_s=600, **keys), NOW))
    with pytest.raises(InputError, match="would never run"):
        check(plan(**keys), [], now_ns=NOW)


@pytest.mark.parametrize(
    "line",
    ["", "* * * *", "* * * * * *", "60 * * * *", "0 0 31 2 *", "x * * * *", "*/0 * * * *",
     "0 0 * * MON-", "٣ * * * *", "9" * 250 + " * * * *"],
)  # fmt: skip
def test_a_cron_line_that_is_none_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(InputError) as refused:
        check(plan(cron=line), [], now_ns=NOW)
    assert len(str(refused.value).splitlines()) == 1


_PARTS = ["*", "0", "*/7", "3,17", "10-20/3"]
_CRONS = st.tuples(
    st.sampled_from([*_PARTS, "*/5", "59"]),
    st.sampled_from([*_PARTS, "23"]),
    st.sampled_from(["*", "1", "29", "L", "LW", "*/2", "31", "10-20"]),
    st.sampled_from(["*", "2", "FEB-APR", "*/5", "12"]),
    st.sampled_from(["*", "MON", "0", "7", "MON#2", "5L", "1-5"]),
)


@settings(max_examples=cases(100), deadline=None)
@given(_CRONS, st.integers(0, 40 * 365 * 86_400), st.integers(1, 500 * DAY))
def test_times_are_those_of_cronsim(fields: tuple[str, ...], begin_s: int, wide_ns: int) -> None:
    line = " ".join(fields)
    begin = begin_s * S + 1
    try:
        reference = CronSim(line, dt.datetime.fromtimestamp(begin_s, dt.UTC))
    except CronSimError:
        return
    expected: list[int] = []
    for moment in reference:
        if int(moment.timestamp()) * S >= begin + wide_ns or len(expected) == 300:
            break
        expected.append(int(moment.timestamp()) * S)
    found: list[int] = []
    for interval in occurrences(job(cron=line), begin, begin + wide_ns, submitted_ns=0):
        found.append(interval.start_ns)
        if len(found) == 300:
            break
    assert found == expected


# Conflicts: the cases that LEOScope's test got wrong (4.11, 4.12), then brute force.


def conflicting(one: Plan, other: Plan) -> list[tuple[int, int]]:
    found = check(one, [other], now_ns=NOW).conflicts
    return [(conflict.mine.start_ns, conflict.theirs.start_ns) for conflict in found]


def test_a_cron_run_meets_an_at_run_in_its_midst_in_both_orders() -> None:
    cron = plan("c", cron="0 10 * * *", length_s=3600, end=at("3 0:00"))
    once = plan("o", at=at("10:30"), length_s=600)
    assert conflicting(cron, once) == [(at("10:00"), at("10:30"))]
    assert conflicting(once, cron) == [(at("10:30"), at("10:00"))]


def test_cron_runs_meet_in_both_orders() -> None:
    one = plan("c", cron="0 10 * * *", length_s=3600, end=at("2 0:00"))
    other = plan("o", cron="50 10 * * *", length_s=60, end=at("2 0:00"))
    assert conflicting(one, other) == [(at("10:00"), at("10:50"))]
    assert conflicting(other, one) == [(at("10:50"), at("10:00"))]


def test_what_does_not_overlap_is_no_conflict_in_either_order() -> None:
    short = plan("c", cron="0 10 * * *", length_s=60)
    long = plan("o", cron="30 10 * * *", length_s=3600)
    assert conflicting(short, long) == conflicting(long, short) == []


def test_touching_is_no_conflict_of_any_kinds() -> None:
    ends = [plan("a", at=at("10:00"), length_s=1800), plan("b", cron="0 10 * * *", length_s=1800)]
    begin = [plan("c", at=at("10:30")), plan("d", cron="30 10 * * *")]
    for first in ends:
        for second in begin:
            assert conflicting(first, second) == conflicting(second, first) == []


def test_a_cron_job_that_is_longer_than_its_gaps_meets_itself() -> None:
    found = check(plan(cron="*/10 * * * *", length_s=601, end=at("1:00")), [], now_ns=NOW)
    assert found.total == 4, "the run of 0:50 would be over after the end"
    assert found.conflicts[0].other == "j"
    assert check(plan(cron="*/10 * * * *", length_s=600, end=at("1:00")), [], now_ns=NOW).total == 0


def test_a_slot_is_searched_over_all_bookings_those_under_way_included() -> None:
    """Check a case in which LEOScope returned 10:25 to 10:45, over a job at 10:30."""
    under_way = plan("u", cron="0 10 * * *", length_s=25 * 60)
    later = plan("l", at=at("10:30"), length_s=600)
    soon = plan("s", at=at("10:42"), length_s=600)
    found = nearest_slot(
        [later, under_way, soon], [], frozenset("a"), length_ns=20 * MIN, from_ns=at("10:10")
    )
    assert found == at("10:52")


def test_only_overhead_conflicts_and_only_on_a_shared_node() -> None:
    one = plan("c", "a/s", at=at("10:00"))
    assert conflicting(one, plan("o", "b", at=at("10:00"))) == []
    assert conflicting(one, plan("o", "a", at=at("10:00"), overhead=False)) == []
    assert conflicting(one, plan("o", "b/s", at=at("10:00"))), "the server is shared"
    assert conflicting(one, plan("o", "s", at=at("10:00"))), "a server is another's client"


def test_several_clients_at_one_server_are_refused_unless_they_may_meet() -> None:
    with pytest.raises(InputError, match="2 overhead runs at a time on the server s"):
        check(plan(nodes="a b/s", at=at("10:00")), [], now_ns=NOW)
    check(plan(nodes="a b/s", at=at("10:00"), overhead=False), [], now_ns=NOW)
    check(plan(nodes="a b", at=at("10:00")), [], now_ns=NOW)
    check(plan(nodes="a b/s", trigger="tilt > 1", end=at("10:00")), [], now_ns=NOW)


def test_moved_runs_count_where_they_stand_now() -> None:
    cron = plan("c", cron="0 10 * * *", length_s=600, gone=[at("10:00")])
    moved = Booking("c", "r1", frozenset("a"), at("11:00"), at("11:10"))
    assert check(plan("o", at=at("10:00")), [cron], [moved], now_ns=NOW).total == 0
    (found,) = check(plan("o", at=at("11:05")), [cron], [moved], now_ns=NOW).conflicts
    assert (found.run, found.theirs) == ("r1", moved.interval)
    elsewhere = Booking("c", "r1", frozenset("b"), at("11:00"), at("11:10"))
    assert check(plan("o", at=at("11:05")), [cron], [elsewhere], now_ns=NOW).total == 0


def test_what_is_under_way_still_has_its_nodes() -> None:
    cron = plan("c", cron="0 10 * * *", length_s=3600)
    now = at("10:30")
    assert check(plan("o", at="now", submitted=now), [cron], now_ns=now).total == 1
    assert check(plan("o", at="now", submitted=now + 30 * MIN), [cron], now_ns=now).total == 0


def test_what_has_ended_has_no_nodes() -> None:
    under_way = plan("o", at=at("10:00"), length_s=3600)
    over = Booking("m", "r", frozenset("a"), at("9:50"), at("10:20"))
    assert check(under_way, [], [over], now_ns=at("10:19")).total == 1
    assert check(under_way, [], [over], now_ns=at("10:20")).total == 0


def test_an_occurrence_that_was_moved_leaves_room() -> None:
    cron = plan("c", cron="0 10 * * *", length_s=600, gone=[at("10:00")])
    moved = Booking("c", "r1", frozenset("a"), at("10:20"), at("10:30"))
    ask = {"length_ns": 20 * MIN, "from_ns": at("10:00")}
    assert nearest_slot([cron], [moved], frozenset("a"), **ask) == at("10:00")
    again = plan("c", cron="0 10 * * *", length_s=600)
    assert nearest_slot([again], [moved], frozenset("a"), **ask) == at("10:30")


def test_jobs_are_compared_from_when_both_are_valid() -> None:
    endless = plan("c", cron="0 10 * * *")
    later = plan("l", cron="5 10 * * *", start=NOW + 10 * 366 * DAY)
    assert check(endless, [later], now_ns=NOW).total == check(later, [endless], now_ns=NOW).total
    assert check(later, [endless], now_ns=NOW).total == 1461
    years_on = Booking("m", "r", frozenset("a"), at("10:05") + 3660 * DAY, at("10:06") + 3660 * DAY)
    assert check(endless, [], [years_on], now_ns=NOW).total == 1


def test_too_many_occurrences_are_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="more than 1,000,000 occurrences: give an earlier end"):
        check(plan(cron="* * * * *", length_s=60), [], now_ns=NOW)
    check(plan(cron="* * * * *", length_s=60, end=NOW + 365 * DAY), [], now_ns=NOW)


def test_all_conflicts_are_counted_and_the_first_are_listed() -> None:
    one = plan("c", cron="0 * * * *", end=NOW + 1000 * HOUR)
    others = [plan(f"o{i}", cron=f"{i} * * * *", end=NOW + 1000 * HOUR) for i in (9, 5)]
    found = check(one, others, now_ns=NOW, limit=3)
    assert found.total == 2000
    assert [c.theirs.start_ns for c in found.conflicts] == [NOW + m * MIN for m in (5, 9, 65)]
    with pytest.raises(
        InputError, match=r"00:00 to 00:10 UTC overlaps .* of job o5 on a, and 1,999"
    ):
        found.raise_if_conflicting()


def random_plan(draw: random.Random, key: str) -> Plan:
    nodes = draw.choice(["a", "b", "a/s", "b/s", "c/s", "a b", "c/a", "c"])
    length = draw.choice([1, 60, 299, 300, 600, 1800, 3600, 4000])
    keys: dict[str, Any] = {}
    if draw.random() < 0.4:
        keys["start"] = NOW + draw.randrange(0, 720, 5) * MIN
    if draw.random() < 0.7:
        keys["end"] = keys.get("start", NOW) + draw.randrange(5, 720, 5) * MIN
    kind = draw.random()
    if kind < 0.4:
        keys["at"] = NOW + draw.randrange(-60, 1440, 5) * MIN + draw.choice([0, 0, 1])
    elif kind < 0.95:
        minute = draw.choice(["0", "30", "*/20", "5,50", "*/5", "7"])
        hour = draw.choice(["*", "*/2", "10", "0,23", "8-18"])
        keys["cron"] = f"{minute} {hour} {draw.choice(['*', '*/2'])} * {draw.choice(['*', '2-5'])}"
    else:
        keys["trigger"] = "tilt > 1"
        keys["end"] = keys.get("start", NOW) + DAY
    return plan(key, nodes, length, overhead=draw.random() < 0.9, **keys)


def random_bookings(draw: random.Random) -> list[Booking]:
    found = []
    for number in range(draw.randrange(4)):
        start = NOW + draw.randrange(-60, 1440) * MIN
        nodes = frozenset(draw.sample("abcs", draw.randint(1, 2)))
        found.append(Booking("m", f"r{number}", nodes, start, start + draw.randrange(1, 90) * MIN))
    return found


def all_bookings(plans: list[Plan], booked: list[Booking], until_ns: int) -> list[Booking]:
    """Return the bookings, computed from the jobs alone, without functions of the calendar."""
    found = list(booked)
    for one in plans:
        if one.job.overhead and one.job.when.trigger is None:
            nodes = frozenset([*one.job.nodes, *([one.job.server] if one.job.server else [])])
            for start in plain_starts(one, until_ns):
                length = round(one.job.length_s * S)
                found.append(Booking(one.key, "", nodes, start, start + length))
    return found


def plain_starts(one: Plan, until_ns: int) -> list[int]:
    when, length = one.job.when, round(one.job.length_s * S)
    begin = max(when.start or 0, one.submitted_ns)
    if when.trigger is not None:
        return []
    end = FAR if when.end is None else when.end
    if when.cron is None:
        assert isinstance(when.at, int)
        candidates = [max(when.at, one.submitted_ns)]
    else:
        candidates = []
        for moment in CronSim(when.cron, dt.datetime.fromtimestamp(begin // S - 1, dt.UTC)):
            candidates.append(int(moment.timestamp()) * S)
            if candidates[-1] > min(until_ns, end):
                break
    return [
        s for s in candidates if begin <= s < until_ns and s + length <= end and s not in one.gone
    ]


def test_conflicts_are_those_of_all_pairs() -> None:
    """Compare with all pairs, on random sets of jobs that end within the compared time."""
    draw = random.Random(17)
    seen, none = 0, 0
    for _ in range(cases(1000)):
        plans = [random_plan(draw, f"p{i}") for i in range(draw.randint(1, 4))]
        plans = [ended(one) for one in plans]
        booked = random_bookings(draw)
        mine, others = plans[0], plans[1:]
        try:
            found = check(mine, others, booked, now_ns=NOW, limit=10**6)
        except InputError:
            assert not plain_starts(mine, NOW + 9 * DAY), "no other reason there is"
            continue
        expected = every_pair(mine, others, booked)
        assert found.total == len(expected)
        assert list(found.conflicts) == expected
        seen, none = seen + bool(expected), none + (not expected)
    assert min(seen, none) > 100, "the sets have both"


def ended(one: Plan) -> Plan:
    """Return the plan with an end, so that the reference needs no horizon."""
    if one.job.when.end is not None:
        return one
    end = max(one.job.when.start or 0, NOW) + 8 * HOUR
    when = one.job.when.model_copy(update={"end": end})
    return Plan(one.key, one.job.model_copy(update={"when": when}), one.submitted_ns, one.gone)


def every_pair(mine: Plan, others: list[Plan], booked: list[Booking]) -> list[Conflict]:
    until = NOW + 30 * DAY
    own = all_bookings([mine], [], until)
    theirs = [b for b in all_bookings(others, booked, until) if b.end_ns > NOW]
    found = []
    for i, a in enumerate(own):
        for b in [*own[i + 1 :], *theirs]:
            shared = a.nodes & b.nodes
            if shared and a.start_ns < b.end_ns and b.start_ns < a.end_ns:
                nodes = tuple(sorted(shared))
                found.append(Conflict(a.interval, b.interval, b.job, b.run, nodes))
    return sorted(found)


def test_slots_are_those_of_trying_every_time() -> None:
    draw = random.Random(18)
    seen, none = 0, 0
    for _ in range(cases(1000)):
        plans = [random_plan(draw, f"p{i}") for i in range(draw.randint(0, 5))]
        booked = random_bookings(draw)
        nodes = frozenset(draw.sample("abcs", draw.randint(1, 2)))
        length = draw.choice([1, MIN, 20 * MIN, HOUR, 5 * HOUR])
        begin = NOW + draw.randrange(-10, 720) * MIN
        end = begin + draw.randrange(1, 600) * MIN
        found = nearest_slot(plans, booked, nodes, length_ns=length, from_ns=begin, end_ns=end)
        taken = [b for b in all_bookings(plans, booked, end) if b.nodes & nodes]
        assert found == first_of_all_times(taken, length, begin, end)
        seen, none = seen + (found is not None), none + (found is None)
        if found is not None:
            assert first_overlap(plans, booked, nodes, Interval(found, found + length)) is None
    assert min(seen, none) > 100


def first_of_all_times(taken: list[Booking], length: int, begin: int, end: int) -> int | None:
    """Try the beginning and each end of a booking, as no other time can be the first free one."""
    for start in sorted({begin, *(b.end_ns for b in taken if b.end_ns > begin)}):
        if start + length > end:
            return None
        if not any(b.start_ns < start + length and start < b.end_ns for b in taken):
            return start
    return None


def test_free_times_and_bookings_share_all_of_the_time() -> None:
    draw = random.Random(19)
    for _ in range(cases(100)):
        plans = [random_plan(draw, f"p{i}") for i in range(3)]
        booked = random_bookings(draw)
        span = Interval(NOW + HOUR, NOW + DAY)
        rooms = list(free(plans, booked, frozenset("a"), span))
        taken = [b for b in all_bookings(plans, booked, span.end_ns) if "a" in b.nodes]
        for minute in range(span.start_ns, span.end_ns, 7 * MIN):
            is_free = any(r.start_ns <= minute < r.end_ns for r in rooms)
            assert is_free != any(b.start_ns <= minute < b.end_ns for b in taken)


def test_what_is_in_the_way_is_named() -> None:
    cron = plan("c", cron="0 10 * * *", length_s=600)
    before = Interval(at("9:50"), at("10:00"))
    assert first_overlap([cron], [], frozenset("a"), before) is None
    longer = Interval(at("9:50"), at("10:00") + 1)
    found = first_overlap([cron], [], frozenset("a"), longer)
    assert found is not None
    assert (found.job, found.start_ns) == ("c", at("10:00"))
    assert first_overlap([cron], [], frozenset("b"), longer) is None


def test_a_node_that_is_always_taken_has_no_slot() -> None:
    always = plan("c", cron="0 * * * *", length_s=3600)
    assert nearest_slot([always], [], frozenset("a"), length_ns=1, from_ns=NOW) is None


@pytest.mark.soak
@pytest.mark.alone
def test_a_job_is_checked_against_a_thousand_in_well_under_a_second() -> None:
    """Check a new job that shares a server with 1,000 jobs without an end, on 50 nodes."""
    others = [
        plan(f"p{i}", f"n{i % 50}/s", 60, cron=f"{i % 60} {i // 60 % 24} * * {i % 7}")
        for i in range(1000)
    ]
    check(plan("warm", "x/s", 30, cron="30 23 * * 1"), others[:1], now_ns=NOW)
    began = time.perf_counter()
    found = check(plan("new", "n1/s", 60, cron="59 23 * * *"), others, now_ns=NOW)
    taken_s = time.perf_counter() - began
    assert found.first is not None
    assert taken_s < 1.0, f"{taken_s:.2f} s"
    began = time.perf_counter()
    nearest_slot(others, [], frozenset({"n1", "s"}), length_ns=10 * MIN, from_ns=NOW)
    assert time.perf_counter() - began < 1.0
