"""Whether a trigger fires, second by second, and why not.

A field without a value, or whose last one is older than three of its periods, is null; so is what
is reckoned from null, a division by 0 and a result that is too large. Conditions are Kleene's:
false & null is false, true | null is true, else null. Only true fires: at the moment at which it
has held for `hold_s` since it last was not true, at most once a cooldown, at most `max_runs` times.
An edge that falls into the cooldown is lost. What was not looked at for three of the fastest
field's periods was not true.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import operator
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.fields import Field, Sample, Type, Value, said
from skyhop.testbed.triggers.parse import parse
from skyhop.testbed.triggers.tree import (
    Absolute,
    Age,
    All,
    Changed,
    Compare,
    Constant,
    Current,
    Earlier,
    Either,
    Kind,
    Minus,
    Node,
    Not,
    Over,
    Product,
    Random,
    Sum,
    fields_of,
    label,
)
from skyhop.testbed.triggers.windows import Past, Values, least_count

STALE_PERIODS = 3
"""A field older than so many of its periods is null."""
_S_NS = 1_000_000_000
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Outcome(StrEnum):
    """What an evaluation came to: the words of the log."""

    FIRED = "fired"
    FALSE = "false"
    NULL = "null"
    HOLDING = "holding"
    """True, but not yet for long enough."""
    STILL = "still-true"
    """True since its last edge, which has fired or was lost."""
    COOLDOWN = "cooldown"
    """It would have fired, but did so too short a time ago."""
    MAX_RUNS = "max-runs"


@dataclass(frozen=True)
class Evaluation:
    """One look at a trigger."""

    at_ns: int
    value: bool | None
    inputs: dict[str, Value]
    """What the expression was reckoned from, by its words."""
    outcome: Outcome
    why: str
    """Why it did not fire, "" where it did."""

    @property
    def fired(self) -> bool:
        """Whether a run is to start."""
        return self.outcome is Outcome.FIRED

    def as_json(self) -> dict[str, Any]:
        """Return it as it stands in logs and messages."""
        return {
            "at_ns": self.at_ns,
            "value": self.value,
            "inputs": self.inputs,
            "outcome": self.outcome.value,
            "why": self.why,
        }


class Trigger:
    """A condition over telemetry, and what it has seen so far."""

    def __init__(
        self,
        expression: str,
        *,
        hold_s: float = 0.0,
        cooldown_s: float = 0.0,
        max_runs: int | None = None,
        seed: int = 1,
        source: str = "trigger",
    ) -> None:
        """Read a trigger.

        Args:
            expression: the condition.
            hold_s: how long it has to be true before it fires.
            cooldown_s: how long it does not fire again.
            max_runs: how often it fires at all.
            seed: what `random` draws with.
            source: what messages call it.

        Raises:
            InputError: the expression is none.
        """
        self.expression = expression
        self.tree = parse(expression, source)
        self.fields = fields_of(self.tree)
        self.hold_ns = round(hold_s * _S_NS)
        self.cooldown_ns = round(cooldown_s * _S_NS)
        self.max_runs = max_runs
        self.seed = seed
        self._past = {used.name: Past.of(used, self.tree) for used in self.fields}
        self._moments: dict[int, tuple[int, int]] = {}
        fastest_s = min((used.period_s for used in self.fields), default=1.0)
        self._gap_ns = round(STALE_PERIODS * fastest_s * _S_NS)
        self._edge = _Edge()

    @property
    def fired(self) -> int:
        """How often it has fired."""
        return self._edge.fired

    def update(self, now_ns: int, sample: Sample) -> Evaluation | None:
        """Take a sample in and say whether the trigger fires now.

        To be called each second, with what was measured in it: what the sample lacks, or has as
        null, was not updated.

        Returns:
            None where the sample is not later than the last one, and nothing is changed.
        """
        last_ns = self._edge.last_ns
        if last_ns is not None and now_ns <= last_ns:
            return None
        for past in self._past.values():
            value = known(past.used, said(past.used, sample))
            if value is not None:
                past.add(now_ns, value)
            else:
                past.advance(now_ns)
        look = _Look(self._past, self._moments, self.seed, now_ns)
        value = look.truth(self.tree)
        outcome, why = self._decide(now_ns, value, look.missing)
        return Evaluation(now_ns, value, look.inputs, outcome, why)

    def _decide(self, now_ns: int, value: bool | None, missing: list[str]) -> tuple[Outcome, str]:
        edge = self._edge
        if edge.last_ns is not None and now_ns - edge.last_ns > self._gap_ns:
            edge.since_ns = None
        edge.last_ns = now_ns
        if value is not True:
            edge.since_ns, edge.is_spent = None, False
            if value is False:
                return Outcome.FALSE, "false"
            return Outcome.NULL, f"null: {missing[0] if missing else 'not known'}"
        if edge.since_ns is None:
            edge.since_ns, edge.is_spent = now_ns, False
        held_ns = now_ns - edge.since_ns
        if edge.is_spent:
            return Outcome.STILL, f"true since {_clock(edge.since_ns)}: fires when it is so anew"
        if held_ns < self.hold_ns:
            return Outcome.HOLDING, f"holding {held_ns / 1e9:.1f} of {self.hold_ns / 1e9:g} s"
        edge.is_spent = True
        return self._fire(now_ns)

    def _fire(self, now_ns: int) -> tuple[Outcome, str]:
        edge = self._edge
        if self.max_runs is not None and edge.fired >= self.max_runs:
            return Outcome.MAX_RUNS, f"max_runs: has fired {edge.fired} times"
        if edge.fired_ns is not None and now_ns < edge.fired_ns + self.cooldown_ns:
            return Outcome.COOLDOWN, f"cooldown until {_clock(edge.fired_ns + self.cooldown_ns)}"
        edge.fired_ns, edge.fired = now_ns, edge.fired + 1
        return Outcome.FIRED, ""

    def as_json(self) -> dict[str, Any]:
        """Return what it has seen, for an agent that is started anew."""
        return {
            "expression": self.expression,
            "edge": self._edge.as_json(),
            "random": {str(index): list(drawn) for index, drawn in self._moments.items()},
            "fields": {name: past.as_json() for name, past in self._past.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `as_json` was written.

        Raises:
            InputError: it is of another trigger, or damaged; the trigger is as it was.
        """
        if not isinstance(state, Mapping) or state.get("expression") != self.expression:
            raise InputError("a trigger's state is of another one: begin anew without it")
        try:
            edge = _Edge.from_json(state["edge"])
            moments = {int(i): (int(n), int(at)) for i, (n, at) in state["random"].items()}
            past = {}
            for used in self.fields:
                past[used.name] = Past.of(used, self.tree)
                history = [
                    (int(at), _kept(used, value)) for at, value in state["fields"][used.name]
                ]
                if history != sorted(history, key=lambda update: update[0]):
                    raise ValueError("its history is not in order")
                past[used.name].fill(history, edge.last_ns or 0)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"a trigger's state is damaged ({error}): begin anew") from None
        self._edge, self._moments, self._past = edge, moments, past

    def dumps(self) -> str:
        """Return `as_json` as text."""
        return json.dumps(self.as_json(), allow_nan=False, separators=(",", ":"))


@dataclass
class _Edge:
    """Where a trigger stands between not true and fired."""

    last_ns: int | None = None
    since_ns: int | None = None
    """Since when it is true."""
    is_spent: bool = False
    """Whether this edge has fired or was lost."""
    fired_ns: int | None = None
    fired: int = 0

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> _Edge:
        def instant(name: str) -> int | None:
            found = None if values[name] is None else int(values[name])
            if found is not None and not 0 <= found < 2**63:
                raise ValueError(f"{name} is no instant")
            return found

        return cls(
            instant("last_ns"),
            instant("since_ns"),
            bool(values["is_spent"]),
            instant("fired_ns"),
            int(values["fired"]),
        )


def known(used: Field, value: object) -> float | str | None:
    """Return a sample's value as triggers keep it, None where it is not one of the field's type.

    Booleans are 0 and 1; what is not a finite number is not known.
    """
    if used.type is Type.TEXT:
        return value if isinstance(value, str) else None
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if used.type is Type.BOOLEAN:
        return number if number in (0, 1) else None
    return number if math.isfinite(number) else None


def _kept(used: Field, value: object) -> float | str:
    found = known(used, value)
    if found is None:
        raise ValueError(f"{used.name} cannot be {str(value)[:40]!r}")
    return found


@dataclass
class _Look:
    """One evaluation of a tree: every part of it, so that logs have all inputs."""

    past: dict[str, Past]
    moments: dict[int, tuple[int, int]]
    """Of each `random`: how many events there were, and when the next one is."""
    seed: int
    now_ns: int
    inputs: dict[str, Value] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Why something is null, in the order in which it was found."""

    def truth(self, node: Node) -> bool | None:
        """Return whether a condition is true, None where that is not known."""
        match node:
            case Not(node=part):
                value = self.truth(part)
                return None if value is None else not value
            case All(nodes=nodes):
                each = [self.truth(part) for part in nodes]
                return False if False in each else None if None in each else True
            case Either(nodes=nodes):
                each = [self.truth(part) for part in nodes]
                return True if True in each else None if None in each else False
            case Compare(sign=sign, left=left, right=right):
                return self._compared(sign, left, right)
        number = self.number(node)
        return None if number is None else number != 0

    def _compared(self, sign: str, left: Node, right: Node) -> bool | None:
        if left.kind is Kind.TEXT:
            text, other = self._text(left), self._text(right)
            if text is None or other is None:
                return None
            return (text == other) == (sign == "==")
        a, b = self.number(left), self.number(right)
        if a is None or b is None:
            return None
        return _COMPARE[sign](a, b)

    def _text(self, node: Node) -> str | None:
        if isinstance(node, Constant):
            return str(node.value)
        value = self._input(node)
        return None if value is None else str(value)

    def number(self, node: Node) -> float | None:
        """Return what a number is worth, None where that is not known."""
        match node:
            case Constant(value=fixed):
                return float(fixed)
            case Minus(node=part):
                found = self.number(part)
                return None if found is None else -found
            case Absolute(node=part):
                found = self.number(part)
                return None if found is None else abs(found)
            case Sum(terms=parts) | Product(factors=parts):
                return self._folded([(sign, self.number(part)) for sign, part in parts])
        is_condition = isinstance(node, Not | All | Either | Compare)
        value = self.truth(node) if is_condition else self._input(node)
        return None if value is None else float(value)

    def _folded(self, parts: list[tuple[str, float | None]]) -> float | None:
        """Reckon from the left."""
        total = parts[0][1]
        if parts[0][0] == "-" and total is not None:
            total = -total
        for sign, number in parts[1:]:
            if total is None or number is None:
                return None
            if sign == "/" and number == 0:
                self.missing.append("divides by 0")
                return None
            if sign in "*/":
                total = total / number if sign == "/" else total * number
            else:
                total = total - number if sign == "-" else total + number
            if not math.isfinite(total):
                self.missing.append("a result is too large")
                return None
        return total

    def _input(self, node: Node) -> float | str | None:
        """Return what a leaf is worth, and note it for the log."""
        value = self._leaf(node)
        name = label(node)
        if name is not None:
            is_truth = node.kind is Kind.BOOLEAN and isinstance(value, float)
            self.inputs[name] = bool(value) if is_truth else value
        return value

    def _leaf(self, node: Node) -> float | str | None:
        match node:
            case Current(field=used):
                return self._current(used)
            case Earlier(field=used, steps=steps):
                return self._earlier(used, steps)
            case Changed(field=used):
                before = self._earlier(used, 1)
                return None if before is None else float(before != self._current(used))
            case Age(field=used):
                return self._age(used)
            case Random(rate_hz=rate, index=index):
                return float(self._event(rate, index))
            case Over():
                return self._over(node)
        raise AssertionError(f"{type(node).__name__} is no leaf")

    def _age(self, used: Field) -> float | None:
        last = self.past[used.name].last
        if last is None:
            self.missing.append(f"{used.name} has no value yet")
            return None
        return (self.now_ns - last[0]) / 1e9

    def _current(self, used: Field) -> float | str | None:
        past = self.past[used.name]
        if past.last is None:
            self.missing.append(f"{used.name} has no value yet")
            return None
        age_ns = self.now_ns - past.last[0]
        if age_ns > STALE_PERIODS * past.period_ns:
            self.missing.append(f"{used.name} is {age_ns / 1e9:,.0f} s old")
            return None
        return past.last[1]

    def _earlier(self, used: Field, steps: int) -> float | str | None:
        past = self.past[used.name]
        if self._current(used) is None:
            return None
        if len(past.history) <= steps:
            self.missing.append(f"{used.name} was updated {len(past.history)} times")
            return None
        return past.history[-1 - steps][1]

    def _over(self, node: Over) -> float | None:
        past = self.past[node.field.name]
        kept = past.before if node.function == "before_avg" else past.windows
        values = kept[node.window]
        if node.function == "count":
            return float(values.total if node.field.type is Type.BOOLEAN else len(values))
        needs_current = node.window.updates is not None or node.function in ("before_avg", "delta")
        if needs_current and self._current(node.field) is None:
            return None
        least = least_count(node.window, past.period_ns)
        if len(values) < least:
            self.missing.append(f"{label(node)} has {len(values)} of {least} values")
            return None
        return self._function(node, values)

    def _function(self, node: Over, values: Values) -> float | None:
        match node.function:
            case "avg" | "before_avg":
                return values.mean
            case "min":
                return values.least
            case "max":
                return values.most
            case "median" | "p":
                found = values.percentile(node.percent)
            case _:
                current = self._current(node.field)
                assert isinstance(current, float)
                found = current - values.oldest
        return found if math.isfinite(found) else None

    def _event(self, rate_hz: float, index: int) -> bool:
        """Return whether an event fell since the last look, and draw when the next one will."""
        count, next_ns = self.moments.get(index, (0, -1))
        happened = 0 <= next_ns <= self.now_ns
        if happened or next_ns < 0:
            count += happened
            gap_s = random.Random(f"{self.seed} {index} {count}").expovariate(rate_hz)
            # A Poisson process has no memory: it may as well begin now.
            self.moments[index] = (count, self.now_ns + max(1, round(gap_s * _S_NS)))
        return happened


def _clock(instant_ns: int) -> str:
    moment = dt.datetime.fromtimestamp(instant_ns // _S_NS, dt.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
