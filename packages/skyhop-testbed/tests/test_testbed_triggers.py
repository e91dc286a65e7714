"""Triggers: meaning of expressions, refused ones, correctness and bounds of the evaluator.

The reference evaluator computes each step from the whole history.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import random
import re
import time
from fractions import Fraction
from typing import Any

import pytest
from conftest import ROOT

from damaged import Trial
from needs import cases
from skyhop.errors import InputError
from skyhop.expressions import tree
from skyhop.expressions.tree import Kind, Node
from skyhop.telemetry.fields import ALERT_FIELDS, ALERTS, BY_NAME, FIELDS, Field, Sample, Type
from skyhop_testbed.triggers import Evaluation, Outcome, Trigger, parse
from skyhop_testbed.triggers.evaluate import typed_value
from skyhop_testbed.triggers.parse import FUNCTIONS
from skyhop_testbed.triggers.replay import evaluations_of, firings_table, replay
from skyhop_testbed.triggers.tree import Age, Changed, Current, OfField, Random, WindowFunction

S = 1_000_000_000
T0 = 1_800_000_000 * S
LATENCY = "pop_ping_latency_ms"


def looks(trigger: Trigger, *samples: Sample, every_s: float = 1.0) -> list[Evaluation]:
    """Evaluate a trigger over samples, one per second."""
    found = []
    for number, sample in enumerate(samples):
        one = trigger.update(T0 + round(number * every_s * S), sample)
        assert one is not None
        found.append(one)
    return found


def value(expression: str, *samples: Sample) -> bool | None:
    """Return the value of an expression after the samples."""
    return looks(Trigger(expression), *samples)[-1].value


def latencies(*values: float | None) -> list[Sample]:
    return [{LATENCY: one} for one in values]


# Meaning of expressions.

MEANINGS: list[tuple[str, Sample, bool | None]] = [
    ("tilt > 3", {"tilt": 4}, True),
    ("tilt > 3", {"tilt": 3}, False),
    ("tilt > 3", {}, None),
    ("tilt > 3.5", {"tilt": 3.6}, True),
    ("-5 < 3", {}, True),
    ("direction_azimuth > -10", {"direction_azimuth": -5}, True),
    ("- -tilt == 4", {"tilt": 4}, True),
    ("2 + 3 * 4 == 14", {}, True),
    ("(2 + 3) * 4 == 20", {}, True),
    ("10 - 3 - 2 == 5", {}, True),
    ("16 / 4 / 2 == 2", {}, True),
    ("12 / 2 * 3 == 18", {}, True),
    ("|5 - 9| == 4", {}, True),
    ("|tilt| | |gps_sats| > 3", {"tilt": 0, "gps_sats": -4}, True),
    ("|tilt - |gps_sats|| > 2", {"tilt": 1, "gps_sats": -4}, True),
    ("||tilt| - gps_sats| > 2", {"tilt": -9, "gps_sats": 4}, True),
    ("tilt > 1 | tilt < -1", {"tilt": -2}, True),
    ("tilt > 1 || tilt < -1", {"tilt": -2}, True),
    ("tilt > 1 or tilt < -1", {"tilt": 0}, False),
    ("tilt > 1 & gps_sats > 1", {"tilt": 2, "gps_sats": 1}, False),
    ("tilt > 1 && gps_sats > 1", {"tilt": 2, "gps_sats": 2}, True),
    ("tilt > 1 and not gps_sats > 1", {"tilt": 2, "gps_sats": 1}, True),
    ("!tilt > 1", {"tilt": 1}, True),
    ("tilt > 1 | gps_sats > 1 & power_w > 1", {"tilt": 2, "gps_sats": 0, "power_w": 0}, True),
    ("tilt === 2", {"tilt": 2}, True),
    ("tilt !== 2", {"tilt": 2}, False),
    ("1 <= tilt // a comment | & (", {"tilt": 2}, True),
    ("currently_obstructed", {"currently_obstructed": False}, False),
    ("currently_obstructed == 1", {"currently_obstructed": True}, True),
    ("currently_obstructed == false", {"currently_obstructed": False}, True),
    ("(tilt > 1) + (gps_sats > 1) + outage >= 2", {"tilt": 2, "gps_sats": 2, "outage": 0}, True),
    ("(tilt > 1) == (gps_sats > 1)", {"tilt": 0, "gps_sats": 0}, True),
    ('state == "CONNECTED"', {"state": "CONNECTED"}, True),
    ("'OBSTRUCTED' != state", {"state": "CONNECTED"}, True),
    ('state == "CONNECTED"', {}, None),
    ("alerts_roaming", {"alerts": "is_heating,roaming"}, True),
    ("alerts_roaming", {"alerts": "is_heating"}, False),
    ("!alerts_thermal_throttle", {"alerts": "power_supply_thermal_throttle"}, True),
    ("alerts_roaming", {"alerts": ""}, False),
    ("alerts_roaming", {}, None),
    ("alerts_is_heating + alerts_roaming == 2", {"alerts": "roaming,is_heating"}, True),
    # The number of a field's updates is never null.
    ("count(tilt, 3 s) > 0", {"tilt": 1}, True),
    ("count(tilt, 3 s) > 0", {}, False),
    ("!(count(tilt, 3 s) > 0) | tilt > 3", {}, True),
    # Kleene's logic.
    ("tilt > 1 & outage", {"tilt": 0}, False),
    ("tilt > 1 & outage", {"tilt": 2}, None),
    ("tilt > 1 | outage", {"tilt": 2}, True),
    ("tilt > 1 | outage", {"tilt": 0}, None),
    ("!(outage)", {}, None),
    ("outage == outage", {}, None),
    ("1 / tilt > 0", {"tilt": 0}, None),
    ("tilt / (gps_sats + 1) > 0", {"tilt": 1, "gps_sats": 0}, True),
    ("tilt / (gps_sats + 1) > 0", {"tilt": 1, "gps_sats": -1}, None),
    ("tilt * 1e308 * 10 > 0", {"tilt": 1}, None),
    ("tilt > 1", {"tilt": math.nan}, None),
    ("tilt > 1", {"tilt": math.inf}, None),
    ("tilt > 1", {"tilt": "4"}, None),
    ("tilt > 1", {"tilt": 10**400}, None),
    # Numbers with units are converted to the field's unit.
    ("pop_ping_latency_ms > 0.03 s", {LATENCY: 31}, True),
    ("pop_ping_latency_ms > 0.03 s", {LATENCY: 29}, False),
    ("pop_ping_latency_ms - 10 ms > 20 ms", {LATENCY: 31}, True),
    ("downlink_throughput_bps < 100 kbit/s", {"downlink_throughput_bps": 99_999}, True),
    ("exp_rx_rate_bytes >= 8 kbit/s", {"exp_rx_rate_bytes": 1000}, True),
    ("exp_rx_rate_bytes * 2 >= 1 kB/s", {"exp_rx_rate_bytes": 500}, True),
    ("exp_rx_rate_bytes * 8 >= 1 kbit/s", {"exp_rx_rate_bytes": 125}, True),
    ("uplink_throughput_bps - exp_tx_rate_bytes * 8 > 100 kbit/s",
     {"uplink_throughput_bps": 200_001, "exp_tx_rate_bytes": 12_500}, True),
    ("pop_ping_drop_rate > 5 %", {"pop_ping_drop_rate": 0.06}, True),
    ("weather_humidity > 60 %", {"weather_humidity": 61}, True),
    ("sat_dist_min < 600 km", {"sat_dist_min": 599_999}, True),
    ("-1 s < handover_in_s", {"handover_in_s": -0.5}, True),
    ("abs(tilt) > 3", {"tilt": -4}, True),
    ("age(tilt) < 500 ms", {"tilt": 1}, True),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "sample", "expected"), MEANINGS)
def test_expressions_mean_what_the_page_says(
    expression: str, sample: Sample, expected: bool | None
) -> None:
    assert value(expression, sample) is expected


OWNERS = (
    "(uplink_throughput_bps - exp_tx_rate_bytes*8 > 100000)"
    " & (downlink_throughput_bps - exp_rx_rate_bytes*8 > 40000)"
)
JUMP = f"|{LATENCY}_1 - {LATENCY}| / {LATENCY}_1 * 100 > 60"


def test_leoscopes_examples_keep_their_meaning() -> None:
    quiet = {"uplink_throughput_bps": 180_000, "exp_tx_rate_bytes": 12_500,
             "downlink_throughput_bps": 99_000, "exp_rx_rate_bytes": 7_500}  # fmt: skip
    assert value(OWNERS, quiet) is False
    assert value(OWNERS, {**quiet, "uplink_throughput_bps": 200_001}) is False
    assert value(OWNERS, {**quiet, "uplink_throughput_bps": 200_001,
                          "downlink_throughput_bps": 100_001}) is True  # fmt: skip
    assert value(JUMP, *latencies(30, 48.1)) is True
    assert value(JUMP, *latencies(30, 47.9)) is False
    assert value(JUMP, *latencies(30)) is None, "LEOScope begins with -1"


def test_leoscopes_or_before_an_absolute_value_stays_that() -> None:
    """Read `a||b|-c>2` as a | (|b| - c > 2), as LEOScope does, where "||" is no operator."""
    both: Sample = {"tilt": 0, "gps_sats": -9, "power_w": 1}
    assert value("tilt>1||gps_sats|-power_w>2", both) is True
    assert value("tilt>1||gps_sats|-power_w>9", both) is False


def test_history_is_that_of_updates() -> None:
    """Keep F_1 to F_5 apart; after 10, 20, 30, 40 LEOScope's x_2 to x_5 are all 20."""
    samples = latencies(10, 20, 30, 40, 50, 61)
    for steps, expected in enumerate((50, 40, 30, 20, 10), 1):
        assert value(f"{LATENCY}_{steps} == {expected}", *samples) is True
        assert value(f"{LATENCY}_{steps} > 0", *samples[:steps]) is None, "not enough"
    mean = sum((10, 20, 30, 40, 50, 61)) / 6
    assert value(f"|{LATENCY}_avg - {mean}| < 1e-9", *samples) is True
    assert value(f"{LATENCY}_avg > 0", *samples[:5]) is None
    assert value(f"{LATENCY}_1 == 10", *latencies(10, None, 20)) is True, "null is no update"


def test_single_alerts_have_a_history_and_are_replayed() -> None:
    import polars as pl

    on = ["", "roaming", "roaming,moving_while_not_mobile", None, "roaming", "is_heating"]
    samples: list[Sample] = [{"alerts": each} for each in on]
    seen = [look.value for look in looks(Trigger("changed(alerts_roaming)"), *samples)]
    # A second without an answer of the dish is no update, and the last value is not outdated.
    assert seen == [None, True, False, False, False, True]
    share = looks(Trigger("avg(alerts_roaming, 4) > 0.7"), *samples)
    assert [look.value for look in share] == [None, None, None, None, True, True]
    frame = pl.DataFrame({"time_ns": [T0 + i * S for i in range(len(on))], "alerts": on})
    expression = 'alerts_roaming & alerts != "roaming"'
    replayed = replay(Trigger(expression), frame).evaluations
    assert [each.value for each in replayed] == [False, False, True, True, False, False]
    assert replayed[2].inputs["alerts_roaming"] is True
    trigger = Trigger("alerts_roaming_1")
    looks(trigger, *samples[:3])
    again = Trigger("alerts_roaming_1")
    again.restore(json.loads(trigger.dumps()))
    later = T0 + 10 * S
    assert again.update(later, samples[5]) == trigger.update(later, samples[5])


def test_alerts_are_those_of_the_terminals_answer() -> None:
    from skyhop_testbed.dish import device_pb2

    assert tuple(device_pb2.DishAlerts.DESCRIPTOR.fields_by_name) == ALERTS
    assert not {*ALERT_FIELDS} & {*BY_NAME}


def test_windows_in_updates_and_in_time() -> None:
    samples = latencies(1, 2, 3, 4, 10)
    for expression, expected in {
        "avg(F, 5)": 4, "avg(F, 2)": 7, "min(F, 3)": 3, "max(F, 4)": 10, "median(F, 4)": 3.5,
        "p(F, 0, 5)": 1, "p(F, 100, 5)": 10, "p(F, 25 %, 5)": 2, "count(F, 3)": 3,
        "before_avg(F, 4)": 2.5, "before_avg(F, 2)": 3.5, "delta(F)": 6, "delta(F, 4)": 9,
        "avg(F, 5 s)": 4, "avg(F, 2 s)": 7, "min(F, 3 s)": 3, "before_avg(F, 2 s)": 3.5,
        "before_avg(F, 4 s)": 2.5, "delta(F, 3 s)": 7, "count(F, 2500 ms)": 3, "age(F)": 0,
    }.items():  # fmt: skip
        text = f"{expression} == {expected}".replace("F", LATENCY)
        assert value(text, *samples) is True, expression
    for expression in ("avg(F, 6)", "before_avg(F, 5)", "delta(F, 5)", "avg(F, 11 s)"):
        assert value(f"{expression} > 0".replace("F", LATENCY), *samples) is None, expression


def test_shares_and_changes() -> None:
    seen: list[Sample] = [{"outage": one, "state": str(one)} for one in (True, True, False, True)]
    assert value("avg(outage, 4) == 0.75", *seen) is True
    assert value("count(outage, 4) == 3", *seen) is True
    assert value("count(outage, 3) == 2", *seen) is True
    assert value("changed(state)", *seen) is True
    assert value("changed(state)", *seen[:2]) is False
    assert value("changed(state)", *seen[:1]) is None
    assert value("count(state, 2 s) == 2", *seen) is True


def test_a_field_older_than_three_of_its_periods_is_null() -> None:
    trigger = Trigger(f"{LATENCY} > 100")
    found = looks(trigger, {LATENCY: 200}, {}, {}, {}, {})
    assert [one.value for one in found] == [True, True, True, True, None]
    assert found[-1].why == "null: pop_ping_latency_ms is 4 s old"
    assert found[-1].inputs == {LATENCY: None}
    weather = Trigger("weather_temp > 273 K")
    weather.update(T0, {"weather_temp": 280})
    for seconds, expected in ((3600, True), (5400, True), (5401, None)):
        one = weather.update(T0 + seconds * S, {})
        assert one is not None
        assert one.value is expected


# Firing of triggers.


def outcomes(trigger: Trigger, text: str) -> str:
    """Return the outcomes of a trigger over `outage`: "1" true, "0" false, "." null."""
    samples: list[Sample] = [{} if one == "." else {"outage": one == "1"} for one in text]
    letters = {Outcome.FIRED: "F", Outcome.FALSE: "0", Outcome.NULL: ".", Outcome.HOLDING: "h",
               Outcome.STILL: "t", Outcome.COOLDOWN: "c", Outcome.MAX_RUNS: "m"}  # fmt: skip
    return "".join(letters[one.outcome] for one in looks(trigger, *samples))


def test_it_fires_at_the_rising_edge_only() -> None:
    assert outcomes(Trigger("outage"), "0110110") == "0Ft0Ft0"
    assert outcomes(Trigger("outage"), "1") == "F", "what is true at first became so"


def test_it_fires_after_holding() -> None:
    assert outcomes(Trigger("outage", hold_s=2), "0111101110") == "0hhFt0hhF0"
    assert outcomes(Trigger("outage", hold_s=2), "01101") == "0hh0h", "not held, not fired"
    one = looks(Trigger("outage", hold_s=2), {"outage": True}, {"outage": True})[-1]
    assert one.why == "holding 1.0 of 2 s"


def test_an_edge_within_the_cooldown_is_lost() -> None:
    assert outcomes(Trigger("outage", cooldown_s=4), "1010110101") == "F0c0Ft0c0F"
    found = looks(Trigger("outage", cooldown_s=60), *[{"outage": one} for one in (1, 0, 1, 1)])
    assert re.fullmatch(r"cooldown until 2027-01-15 08:01:00 UTC", found[2].why)
    assert "fires at its next edge" in found[3].why


def test_it_fires_max_runs_times() -> None:
    assert outcomes(Trigger("outage", max_runs=2), "10101") == "F0F0m"


def test_what_is_not_known_is_not_true() -> None:
    assert outcomes(Trigger("outage"), "1......1") == "Fttt...F"
    trigger = Trigger("outage", hold_s=3)
    assert outcomes(trigger, "1") == "h"
    late = trigger.update(T0 + 10 * S, {"outage": True})
    assert late is not None
    assert late.outcome is Outcome.HOLDING, "no evaluation for 10 s: the hold begins again"


def test_a_sample_that_is_not_later_changes_nothing() -> None:
    trigger = Trigger("outage")
    trigger.update(T0, {"outage": False})
    before = trigger.as_json()
    assert trigger.update(T0, {"outage": True}) is None
    assert trigger.update(T0 - 1, {"outage": True}) is None
    assert trigger.as_json() == before


def test_random_fires_at_its_rate_and_repeats_itself() -> None:
    count = 40_000

    def fired(seed: int) -> list[int]:
        trigger = Trigger("random(180 /h)", seed=seed)
        found = (trigger.update(T0 + i * S, {}) for i in range(count))
        return [i for i, one in enumerate(found) if one is not None and one.value]

    times = fired(1)
    expected = count * 0.05
    assert abs(len(times) - expected) < 5 * math.sqrt(expected)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert abs(sum(gap <= 14 for gap in gaps) / len(gaps) - 0.5) < 0.06, "exponential gaps"
    assert fired(1) == times
    assert fired(2) != times


# Refused expressions.

REFUSED = [
    ("", "is empty"), ("  ", "is empty"), ("tilt >", "column 7: expected a number"),
    ("tilt = 3", '"=="'), ("(tilt > 3", 'column 10: expected ")"'),
    ("tilt > 3)", 'column 9: expected'), ("tilt > 3 4", "column 10: expected"),
    ("1 < tilt < 3", "do not chain"), ("tlt > 3", "did you mean tilt?"),
    ("nothing_like_it > 3", "is no field"), ("tilt_6 > 1", "is no field"),
    ("state > 3", "compared with a string"), ("state == tilt", "compared with a string"),
    ('state < "A"', "neither is less"), ('"a" == "b"', "compared with a string"),
    ("state", "a text is no condition"), ("state + 1 > 2", "expected a number, not a text"),
    ("state_avg > 1", "avg needs a number"), ("tilt > 3 s", "the other operand is in deg"),
    ("pop_ping_drop_rate > 3 ms", "a number without a unit"), ("tilt > 3 parsec", "column 10"),
    ("tilt * power_w > 3 W", "has no known unit"), ("5 s", "a number with a unit"),
    ("avg > 3", "write avg(field, window)"), ("avg(tilt) > 3", "avg takes (field, window)"),
    ("avg(3, 5) > 3", "the name of a field"), ("avg(tilt_1, 5) > 3", "the name of a field"),
    ("avg(tilt, 0) > 3", "1 to 10,000"), ("avg(tilt, 2.5) > 3", "1 to 10,000"),
    ("avg(tilt, 10001) > 3", "1 to 10,000"), ("avg(tilt, 3 h) > 3", "from 1 ms to 10,000 s"),
    ("avg(tilt, -5) > 3", "a window is"), ("avg(tilt, tilt) > 3", "a window is"),
    ("avg(tilt, 3 km) > 3", "a window of tilt"), ("p(tilt, 101, 5) > 3", "0 to 100"),
    ("random(0)", "a rate above 0"), ("random(2)", "a rate above 0"), ("random(tilt)", "a rate"),
    ("mean(tilt, 5) > 3", "is no function: there are avg"), ("1e999 > tilt", "too large"),
    ("!" * 60 + "outage", "more than 50"), ("tilt > $", 'not "$"'),
    ("tilt\n> &", "line 2, column 3"),
    ("||tilt - |gps_sats|| > 2 || outage || |tilt > 1", "expected"), ("x" * 5000, "longer than"),
    (" | ".join(f"avg(tilt, {n}) > 1" for n in range(1, 18)), "17 different windows"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_trigger_is_refused_in_a_line(expression: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(expression)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.soak
def test_long_and_deep_ones_do_not_take_long() -> None:
    began = time.process_time()
    test_long_and_deep_ones_do_not_fail()
    assert time.process_time() - began < 10


def test_long_and_deep_ones_do_not_fail() -> None:
    assert Trigger("(" * 2000 + "outage" + ")" * 2000).update(T0, {"outage": 1})
    assert Trigger("|".join(["outage"] * 500)).update(T0, {"outage": 1})
    assert Trigger("+".join(["1"] * 2000)).update(T0, {})
    for text in ("(" * 4096, "|" * 4096, "-" * 4096, "tilt>1|" * 585, "avg(" * 1000, "1e" * 2000):
        with pytest.raises(InputError):
            parse(text)


VALID = [expression for expression, _, _ in MEANINGS] + [
    OWNERS, JUMP, "pop_ping_latency_ms >= 2 * before_avg(pop_ping_latency_ms, 5 s)",
    "p(tilt, 95, 5 min) > 3 | changed(state) & random(6 /h)",
]  # fmt: skip
_SOUP = [
    "tilt", "outage", "state", "tilt_1", "tilt_avg", "avg", "p", "random", "abs", "(", ")", "|",
    "||", "&", "&&", "!", "not", "and", "or", "<", ">=", "==", "!==", "=", "+", "-", "*", "/",
    "//", "3", "0.5", "1e400", "5 s", "6 /h", "100 kbit/s", "%", '"a"', "'", '"', ",", "true",
    "false", "\n", " ", "\0", "é", "x" * 50, "null", "٣", "9" * 400,
]  # fmt: skip


def test_any_text_is_a_trigger_or_refused_in_a_line() -> None:
    """Parse random sequences of tokens; 100,000 in all with `make soak`."""
    draw = random.Random(5)
    assert _read_of_soups(draw, cases(2_500)) > cases(2_500) / 50, "some are triggers"


@pytest.mark.soak
def test_any_text_is_read_or_refused_soon() -> None:
    began = time.process_time()
    _read_of_soups(random.Random(6), 5_000)
    assert (time.process_time() - began) / 5_000 < 0.02


def _read_of_soups(draw: random.Random, count: int) -> int:
    """Parse random sequences of tokens; return the number of valid triggers."""
    read = 0
    for _ in range(count):
        soup = draw.choices(_SOUP, k=draw.randint(1, 12))
        if draw.random() < 0.5:
            words = re.findall(r"\w+|\W", draw.choice(VALID))
            for _ in range(draw.randint(1, 3)):
                words[draw.randrange(len(words))] = draw.choice(_SOUP)
            soup = words
        text = draw.choice(["", " "]).join(soup)
        try:
            trigger = Trigger(text)
        except InputError as refused:
            message = str(refused)
            assert len(message.splitlines()) == 1, message
            assert message.isprintable(), message
            assert len(message) < 600, message
            continue
        read += 1
        looks(trigger, {"tilt": 1, "outage": True, "state": "a"}, {"tilt": 2}, {})
        again = Trigger(text)
        again.restore(json.loads(trigger.dumps()))
    return read


def test_damaged_triggers_are_read_or_refused() -> None:
    Trial("trigger", [text.encode() for text in VALID], usual=300, of_soak=1000).run(
        lambda content: parse(content.decode("utf-8", "replace"))
    )


def test_damaged_states_are_read_or_refused() -> None:
    trigger = Trigger(f"avg({LATENCY}, 3) > 5 & random(0.5) & state == 'x'", hold_s=1)
    looks(trigger, *[{LATENCY: 7, "state": "x"}] * 6)

    def read(content: bytes) -> None:
        try:
            state = json.loads(content)
        except (ValueError, RecursionError):
            raise InputError("a state is no JSON") from None
        other = Trigger(trigger.expression, hold_s=1)
        other.restore(state)
        other.update(T0 + 10**6 * S, {LATENCY: 8})
        json.loads(other.dumps())

    Trial("trigger-state", [trigger.dumps().encode()]).run(read)


# The reference evaluator, over the whole history at each step.


_SIGNS: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv
}  # fmt: skip


class Reference:
    """Reference evaluator of a tree, which keeps all samples."""

    def __init__(self, tree: Node, seed: int) -> None:
        self.tree, self.seed = tree, seed
        self.samples: list[tuple[int, Sample]] = []

    def look(self, now_ns: int, sample: Sample) -> bool | None:
        """Return the value of the trigger with one more sample."""
        self.samples.append((now_ns, sample))
        return self._truth(self.tree)

    def _updates(self, used: Field) -> list[tuple[int, float | str]]:
        found = [(at, typed_value(used, sample.get(used.name))) for at, sample in self.samples]
        return [(at, value) for at, value in found if value is not None]

    def _truth(self, node: Node) -> bool | None:
        match node:
            case tree.Not(operands=(part,)):
                inner = self._truth(part)
                return None if inner is None else not inner
            case tree.And(operands=nodes):
                values = [self._truth(part) for part in nodes]
                return False if False in values else (None if None in values else True)
            case tree.Or(operands=nodes):
                values = [self._truth(part) for part in nodes]
                return True if True in values else (None if None in values else False)
            case tree.Compare(signs=(sign,), operands=(left, right)):
                a, b = self._worth(left), self._worth(right)
                if a is None or b is None:
                    return None
                return bool(eval(f"a {sign} b", {}, {"a": a, "b": b}))
        number = self._worth(node)
        return None if number is None else number != 0

    def _worth(self, node: Node) -> Any:  # noqa: PLR0911
        match node:
            case tree.Constant(value=fixed):
                return fixed
            case tree.Signed(operands=(part,)) | tree.Function(operands=(part,), signs=("abs",)):
                inner = self._worth(part)
                if inner is None:
                    return None
                return -inner if isinstance(node, tree.Signed) else abs(inner)
            case tree.Sum() | tree.Product():
                return self._reckoned(node.signs, [self._worth(part) for part in node.operands])
            case tree.Not() | tree.And() | tree.Or() | tree.Compare():
                return self._truth(node)
            case Random(rate_hz=rate, index=index):
                return self._event(rate, index)
        return self._leaf(node)

    def _reckoned(self, signs: tuple[str, ...], parts: list[Any]) -> Any:
        if None in parts:
            return None
        total = float(parts[0])
        for sign, worth in zip(signs, parts[1:], strict=True):
            if sign == "/" and worth == 0:
                return None
            total = _SIGNS[sign](total, worth)
            if not math.isfinite(total):
                return None
        return total

    def _leaf(self, node: Node) -> Any:
        assert isinstance(node, OfField)
        now, updates = self.samples[-1][0], self._updates(node.field)
        period = round(node.field.period_s * S)
        is_fresh = bool(updates) and now - updates[-1][0] <= 3 * period
        if isinstance(node, WindowFunction):
            return self._over(node, updates, is_fresh)
        if isinstance(node, Age):
            return (now - updates[-1][0]) / 1e9 if updates else None
        steps = {Current: 0, Changed: 1}.get(type(node), getattr(node, "steps", 0))
        if not is_fresh or len(updates) <= steps:
            return None
        then = updates[-1 - steps][1]
        return then != updates[-1][1] if isinstance(node, Changed) else then

    def _over(self, node: WindowFunction, updates: list[Any], is_fresh: bool) -> Any:
        now, span, count = self.samples[-1][0], node.window.span_ns, node.window.updates
        if node.function == "before_avg":
            last = updates[-1][0] if updates else now
            inside = [u for u in updates[:-1] if span is None or u[0] >= last - span]
        else:
            inside = [u for u in updates if span is None or u[0] > now - span]
        if count is not None:
            inside = inside[-count:]
        values = [worth for _, worth in inside]
        if node.function == "count":
            return sum(map(bool, values)) if node.field.type is Type.BOOLEAN else len(values)
        least = count if span is None else max(1, math.ceil(span / (2 * node.field.period_s * S)))
        assert least is not None
        if len(values) < least:
            return None
        if not is_fresh and (span is None or node.function in ("before_avg", "delta")):
            return None
        return self._function(node, values, updates)

    def _function(self, node: WindowFunction, values: list[float], updates: list[Any]) -> float:
        match node.function:
            case "min":
                return min(values)
            case "max":
                return max(values)
            case "delta":
                return float(updates[-1][1] - values[0])
            case "median" | "p":
                values = sorted(values)
                place = (len(values) - 1) * node.percent / 100
                low, part = int(place), place - int(place)
                return values[low] + (values[low + 1] - values[low]) * part if part else values[low]
        return float(sum(map(Fraction, values)) / len(values))

    def _event(self, rate: float, index: int) -> bool:
        count, next_ns, happened = 0, -1, False
        for now, _ in self.samples:
            happened = 0 <= next_ns <= now
            if happened or next_ns < 0:
                count += happened
                gap = random.Random(f"{self.seed} {index} {count}").expovariate(rate)
                next_ns = now + max(1, round(gap * S))
        return happened


_NUMBERS = [LATENCY, "tilt", "gps_sats", "weather_temp", "outage"]
_WINDOWS = ["1", "2", "3", "7", "1 s", "2 s", "2500 ms", "6 s", "20 s"]


def random_number(draw: random.Random, depth: int) -> str:
    kind = draw.random()
    name = draw.choice(_NUMBERS)
    window = draw.choice(_WINDOWS)
    if kind < 0.25 or depth > 3:
        return draw.choice([name, f"{name}_{draw.randint(1, 5)}", f"{name}_avg", "3", "0.5", "40"])
    if kind < 0.6:
        function = draw.choice(["avg", "min", "max", "median", "count", "before_avg", "delta"])
        percentile = f"p({name}, {draw.randint(0, 100)}, {window})"
        plain = f"{function}({name}, {window})"
        return draw.choice([plain, percentile, f"age({name})", f"delta({name})"])
    inner = random_number(draw, depth + 1)
    if kind < 0.7:
        return draw.choice([f"|{inner}|", f"(-{inner})", f"abs({inner})"])
    return f"({inner} {draw.choice('+-*/')} {random_number(draw, depth + 1)})"


def random_condition(draw: random.Random, depth: int = 0) -> str:
    kind = draw.random()
    if kind < 0.5 or depth > 2:
        sign = draw.choice(["<", "<=", ">", ">=", "==", "!="])
        return f"{random_number(draw, depth)} {sign} {random_number(draw, depth)}"
    if kind < 0.65:
        return draw.choice(["outage", "changed(state)", 'state == "A"', "random(0.3)", "outage_2"])
    if kind < 0.75:
        return f"!({random_condition(draw, depth + 1)})"
    word = draw.choice([" | ", " & ", " and ", " or "])
    return f"({random_condition(draw, depth + 1)}{word}{random_condition(draw, depth + 1)})"


def random_samples(draw: random.Random) -> list[tuple[int, Sample]]:
    """Return samples with gaps in all fields, in one field, and in time."""
    now, found = T0, []
    for _ in range(40):
        now += draw.choice([S] * 12 + [S + 1, S - 1, S // 2, 2 * S, 5 * S, 30 * S])
        sample: Sample = {}
        for name in [*_NUMBERS, "state"]:
            if draw.random() < 0.8:
                drawn = {"outage": draw.random() < 0.5, "state": draw.choice("AB")}
                usual = draw.choice([draw.uniform(0, 100), draw.randint(0, 5), 1e-300, 0.1])
                sample[name] = drawn.get(name, usual)
        found.append((now, sample))
    return found


def test_the_evaluator_is_the_reference_on_random_programs() -> None:
    draw = random.Random(7)
    known_ones = 0
    tried = 0
    for _ in range(cases(120)):
        text = random_condition(draw)
        trigger = Trigger(text, hold_s=draw.choice([0, 2]), seed=3)
        reference = Reference(trigger.tree, 3)
        for now, sample in random_samples(draw):
            if draw.random() < 0.05:  # the agent restarts
                state = json.loads(trigger.dumps())
                trigger = Trigger(text, hold_s=trigger.hold_ns / S, seed=3)
                trigger.restore(state)
            one = trigger.update(now, sample)
            assert one is not None
            assert one.value is reference.look(now, sample), (text, now)
            known_ones += one.value is not None
            tried += 1
    assert known_ones > tried / 4


def test_memory_is_that_of_the_longest_window() -> None:
    trigger = Trigger(f"avg({LATENCY}, 100) > 1 & max({LATENCY}, 50 s) > 0 & tilt_5 > 2")
    sizes = []
    for number in range(2_000):
        trigger.update(T0 + number * S, {LATENCY: number % 7, "tilt": number})
        if number % 500 == 499:
            sizes.append(len(trigger.dumps()))
    assert max(sizes) - min(sizes) < 100, sizes
    assert max(sizes) < 110 * 40


def test_a_restored_trigger_goes_on_as_if_nothing_had_been() -> None:
    def samples(numbers: range) -> list[Sample]:
        return [
            {"time_ns": T0 + i * S, LATENCY: (i * 37) % 101, "outage": i % 5 > 2} for i in numbers
        ]

    text = f"{LATENCY} > before_avg({LATENCY}, 10 s) & (outage | random(0.2))"
    whole = Trigger(text, hold_s=1, cooldown_s=7, max_runs=9)
    expected = list(evaluations_of(whole, samples(range(300))))
    parts = Trigger(text, hold_s=1, cooldown_s=7, max_runs=9)
    found: list[Evaluation] = []
    for begin in range(0, 300, 13):
        found += evaluations_of(parts, samples(range(begin, min(300, begin + 13))))
        state = json.loads(parts.dumps())
        parts = Trigger(text, hold_s=1, cooldown_s=7, max_runs=9)
        parts.restore(state)
    assert found == expected
    assert whole.fired == 9
    with pytest.raises(InputError, match="another expression"):
        Trigger("outage").restore(parts.as_json())


# Replay over archived telemetry.


def test_replay_is_what_the_agent_would_have_done() -> None:
    import polars as pl

    draw = random.Random(3)
    rows = [
        {"time_ns": T0 + i * S, LATENCY: draw.choice([30.0, 31.0, None, 90.0]), "tilt": 1.0}
        for i in range(500)
    ]
    text = f"{LATENCY} >= 2 * before_avg({LATENCY}, 5 s)"
    live = Trigger(text, cooldown_s=20)
    expected = [one for row in rows if (one := live.update(int(row["time_ns"] or 0), dict(row)))]
    found = replay(
        Trigger(text, cooldown_s=20), pl.DataFrame(rows).sample(500, shuffle=True, seed=1)
    )
    assert list(found.evaluations) == expected
    assert len(found.firings) == live.fired > 5
    assert all(b.at_ns - a.at_ns >= 20 * S
               for a, b in itertools.pairwise(found.firings))  # fmt: skip


def test_the_table_says_when_it_fired_and_why_not() -> None:
    trigger = Trigger("tilt > 2", hold_s=1, cooldown_s=60)
    tilts = [None, 1, 1, 3, 3, 3, 1, 3, 3]
    table = firings_table(looks(trigger, *[{"tilt": tilt} for tilt in tilts]))
    shown = [(row[0][-10:], row[2], row[3], row[4]) for row in table.rows]
    assert shown == [
        ("08:00:00.0", "1", "null", "null: tilt has no value yet"),
        ("08:00:01.0", "2", "false", "false"),
        ("08:00:03.0", "1", "holding", "holding 0.0 of 1 s"),
        ("08:00:04.0", "1", "fired", "a run starts"),
        ("08:00:05.0", "1", "still-true",
         "true since 2027-01-15 08:00:03 UTC: fires at its next edge"),
        ("08:00:06.0", "1", "false", "false"),
        ("08:00:07.0", "1", "holding", "holding 0.0 of 1 s"),
        ("08:00:08.0", "1", "cooldown", "cooldown until 2027-01-15 08:01:04 UTC"),
    ]  # fmt: skip
    assert table.rows[1][-1] == "tilt = 1"
    assert len(firings_table(looks(Trigger("tilt > 2"), {"tilt": 3}), only_firings=True).rows) == 1


def test_telemetry_without_times_is_refused() -> None:
    import polars as pl

    with pytest.raises(InputError, match="time_ns"):
        replay(Trigger("tilt > 2"), pl.DataFrame({"tilt": [1.0]}))


# The documentation page.


PAGE = ROOT / "docs" / "testbed" / "triggers.md"


def test_the_page_lists_all_alerts() -> None:
    text = PAGE.read_text("utf-8").split("The names are")[1].split(".")[0]
    assert tuple(re.findall(r"`(\w+)`", text)) == ALERTS


def test_the_page_lists_all_functions() -> None:
    text = PAGE.read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)\(.*?\| (.*) \|$", text, re.M))
    assert {name: rows.get(name) for name in FUNCTIONS} == {n: h for n, (_, h) in FUNCTIONS.items()}


def test_the_pages_examples_are_triggers() -> None:
    blocks = re.findall(r"```trigger\n(.+?)```", PAGE.read_text("utf-8"), re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) >= 8
    for line in lines:
        assert parse(line)


def test_constants_of_other_kinds_are_typed() -> None:
    assert parse("true").kind is Kind.BOOLEAN
    assert set(BY_NAME) == {f.name for f in FIELDS}
