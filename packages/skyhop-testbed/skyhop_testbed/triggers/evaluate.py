"""Evaluation of a trigger: decides each second whether it fires, and why not.

A field is null (unknown) if it has no value, or if its last value is older than three of its
periods; `skyhop.expressions.evaluate` says what results from null. The trigger fires when its
condition has been true for `hold_s`, at most once per cooldown, and at most `max_runs` times. A
rising edge during the cooldown is lost. If two evaluations are further apart than three periods of
the fastest field, a condition that is true after the gap counts as a new rising edge.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypedDict

from skyhop.errors import InputError
from skyhop.expressions import tree
from skyhop.expressions.evaluate import Evaluator
from skyhop.expressions.tree import Kind, Node
from skyhop.telemetry.fields import Field, Sample, Type, Value, field_value
from skyhop_testbed.triggers.parse import parse
from skyhop_testbed.triggers.tree import (
    Age,
    Changed,
    Current,
    Earlier,
    Random,
    WindowFunction,
    fields_of,
    label,
)
from skyhop_testbed.triggers.windows import FieldHistory, WindowValues, minimum_count

STALE_PERIODS = 3
"""Number of a field's periods after which a value that was not updated becomes null."""
_S_NS = 1_000_000_000


class Outcome(StrEnum):
    """Outcome of an evaluation, in the words of the log."""

    FIRED = "fired"
    FALSE = "false"
    NULL = "null"
    HOLDING = "holding"
    """The condition is true, but not yet for `hold_s`."""
    STILL = "still-true"
    """The condition is still true since a rising edge that has fired or was lost."""
    COOLDOWN = "cooldown"
    """The rising edge is lost, as the trigger last fired within the cooldown."""
    MAX_RUNS = "max-runs"


@dataclass(frozen=True)
class Evaluation:
    """Result of one evaluation of a trigger."""

    at_ns: int
    value: bool | None
    inputs: dict[str, Value]
    """Values from which the expression was computed, by their names in it."""
    outcome: Outcome
    why: str
    """Reason why the trigger did not fire; "" if it fired."""

    @property
    def fired(self) -> bool:
        """Whether the trigger fired, so that a run starts."""
        return self.outcome is Outcome.FIRED

    def as_json(self) -> Mapping[str, object]:
        """Return the JSON form that logs and messages contain."""
        return {
            "at_ns": self.at_ns,
            "value": self.value,
            "inputs": self.inputs,
            "outcome": self.outcome.value,
            "why": self.why,
        }


class TriggerState(TypedDict):
    """State of a trigger's evaluation, which a restarted agent restores."""

    expression: str
    edge: Mapping[str, int | bool | None]
    random: Mapping[str, Sequence[int]]
    """Number of events so far, and time of the next, by the index of each `random`."""
    fields: Mapping[str, Sequence[Sequence[int | float | str]]]
    """Time and value of the updates of each field, by its name."""


class Trigger:
    """Condition over telemetry, with the state of its evaluation."""

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
        """Parse a trigger, and set up its evaluation.

        Args:
            expression: the condition.
            hold_s: time in s for which the condition has to be true before the trigger fires.
            cooldown_s: time in s after a firing in which the trigger does not fire again.
            max_runs: upper limit on firings; `None` for no limit.
            seed: seed of `random`.
            source: name of the trigger in messages.

        Raises:
            InputError: the expression is wrong.
        """
        self.expression = expression
        self.tree = parse(expression, source)
        self.fields = fields_of(self.tree)
        self.hold_ns = round(hold_s * _S_NS)
        self.cooldown_ns = round(cooldown_s * _S_NS)
        self.max_runs = max_runs
        self.seed = seed
        self._past = {used.name: FieldHistory.of(used, self.tree) for used in self.fields}
        self._random_events: dict[int, tuple[int, int]] = {}
        fastest_s = min((used.period_s for used in self.fields), default=1.0)
        self._gap_ns = round(STALE_PERIODS * fastest_s * _S_NS)
        self._edge = _Edge()

    @property
    def fired(self) -> int:
        """Number of firings so far."""
        return self._edge.fired

    def update(self, now_ns: int, sample: Sample) -> Evaluation | None:
        """Process a sample, and evaluate the trigger.

        The caller passes one sample each second, with the values measured in that second; fields
        that are missing or null were not updated.

        Returns:
            The evaluation. If the sample is not later than the last one: `None`, and no change.
        """
        last_ns = self._edge.last_ns
        if last_ns is not None and now_ns <= last_ns:
            return None
        for past in self._past.values():
            value = typed_value(past.used, field_value(past.used, sample))
            if value is not None:
                past.add(now_ns, value)
            else:
                past.advance(now_ns)
        evaluator = _TriggerEvaluator(self._past, self._random_events, self.seed, now_ns)
        value = evaluator.truth(self.tree)
        outcome, why = self._decide(now_ns, value, evaluator.missing)
        return Evaluation(now_ns, value, evaluator.inputs, outcome, why)

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
            return Outcome.STILL, f"true since {_clock(edge.since_ns)}: fires at its next edge"
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

    def as_json(self) -> TriggerState:
        """Return the state of the evaluation, so that a restarted agent can restore it."""
        return {
            "expression": self.expression,
            "edge": self._edge.as_json(),
            "random": {str(index): list(drawn) for index, drawn in self._random_events.items()},
            "fields": {name: past.as_json() for name, past in self._past.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `as_json` returned.

        Raises:
            InputError: the state is another trigger's, or damaged; this trigger is unchanged.
        """
        if not isinstance(state, Mapping) or state.get("expression") != self.expression:
            raise InputError("a trigger's stored state belongs to another expression")
        try:
            edge = _Edge.from_json(state["edge"])
            random_events = {int(i): (int(n), int(at)) for i, (n, at) in state["random"].items()}
            past = {}
            for used in self.fields:
                past[used.name] = FieldHistory.of(used, self.tree)
                history = [
                    (int(at), _restored_value(used, value))
                    for at, value in state["fields"][used.name]
                ]
                if history != sorted(history, key=lambda update: update[0]):
                    raise ValueError("its history is not in order")
                past[used.name].restore(history, edge.last_ns or 0)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"a trigger's stored state is damaged: {error}") from None
        self._edge, self._random_events, self._past = edge, random_events, past

    def dumps(self) -> str:
        """Return the state of `as_json` as JSON text."""
        return json.dumps(self.as_json(), allow_nan=False, separators=(",", ":"))


@dataclass
class _Edge:
    """State of a trigger's latest rising edge."""

    last_ns: int | None = None
    since_ns: int | None = None
    """Time in ns since which the condition is true; `None` while it is not true."""
    is_spent: bool = False
    """Whether this edge has fired or was lost."""
    fired_ns: int | None = None
    fired: int = 0

    def as_json(self) -> Mapping[str, int | bool | None]:
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


def typed_value(used: Field, value: object) -> float | str | None:
    """Return a sample's value in the form that triggers store.

    `None` if its type is not the field's.

    Booleans become 0 and 1; numbers that are not finite become `None`.
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


def _restored_value(used: Field, value: object) -> float | str:
    found = typed_value(used, value)
    if found is None:
        raise ValueError(f"{used.name} cannot be {str(value)[:40]!r}")
    return found


@dataclass
class _TriggerEvaluator(Evaluator):
    """Evaluation of all nodes of a tree at one time, with their inputs for the log."""

    past: dict[str, FieldHistory]
    random_events: dict[int, tuple[int, int]]
    """State of each `random`: number of events so far, and time of the next event in ns."""
    seed: int
    now_ns: int
    inputs: dict[str, Value] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Reasons for null values, in order of evaluation."""

    def compared(self, node: tree.Compare) -> bool | None:
        if node.operands[0].kind is not Kind.TEXT:
            return super().compared(node)
        text, other = map(self._text, node.operands)
        if text is None or other is None:
            return None
        return (text == other) == (node.signs == ("==",))

    def _text(self, node: Node) -> str | None:
        if isinstance(node, tree.Constant):
            return str(node.value)
        value = self._input(node)
        return None if value is None else str(value)

    def undefined(self, _node: tree.Operation, why: str) -> None:
        self.missing.append(why)

    def operand(self, node: Node) -> float | None:
        value = self._input(node)
        return None if value is None else float(value)

    def _input(self, node: Node) -> float | str | None:
        """Return the value of a leaf, and record it for the log."""
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
            case WindowFunction():
                return self._window_function(node)
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

    def _window_function(self, node: WindowFunction) -> float | None:
        past = self.past[node.field.name]
        kept = past.before if node.function == "before_avg" else past.windows
        values = kept[node.window]
        if node.function == "count":
            return float(values.total if node.field.type is Type.BOOLEAN else len(values))
        needs_current = node.window.updates is not None or node.function in ("before_avg", "delta")
        if needs_current and self._current(node.field) is None:
            return None
        least = minimum_count(node.window, past.period_ns)
        if len(values) < least:
            self.missing.append(f"{label(node)} has {len(values)} of {least} values")
            return None
        return self._function(node, values)

    def _function(self, node: WindowFunction, values: WindowValues) -> float | None:
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
        """Return whether an event has occurred since the last call.

        If so, draw the time of the next.
        """
        count, next_ns = self.random_events.get(index, (0, -1))
        happened = 0 <= next_ns <= self.now_ns
        if happened or next_ns < 0:
            count += happened
            gap_s = random.Random(f"{self.seed} {index} {count}").expovariate(rate_hz)
            # A Poisson process has no memory, so the wait for the next event may start now.
            self.random_events[index] = (count, self.now_ns + max(1, round(gap_s * _S_NS)))
        return happened


def _clock(instant_ns: int) -> str:
    moment = dt.datetime.fromtimestamp(instant_ns // _S_NS, dt.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
