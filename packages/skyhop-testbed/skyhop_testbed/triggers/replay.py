"""Replay of a trigger: archived telemetry through the evaluator of the agents."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyhop.analysis.tables import Column, Table
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample, column_of
from skyhop_testbed.triggers.evaluate import Evaluation, Outcome, Trigger

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Replay:
    """Evaluations of a trigger over archived telemetry, in order."""

    evaluations: tuple[Evaluation, ...]

    @property
    def firings(self) -> tuple[Evaluation, ...]:
        """Evaluations at which a run would have started."""
        return tuple(one for one in self.evaluations if one.fired)


def replay(trigger: Trigger, frame: pl.DataFrame) -> Replay:
    """Evaluate a trigger over telemetry, with the results that an agent would have had.

    Args:
        trigger: the trigger, which continues from its present state.
        frame: `time_ns` and fields, a row per second, in any order.

    Raises:
        InputError: the frame has no column of times.
    """
    if TIME not in frame.columns:
        raise InputError(f'telemetry without "{TIME}": give a file of skyhop dish or of an agent')
    names = {column_of(used) for used in trigger.fields} & set(frame.columns)
    rows = frame.select(TIME, *sorted(names)).drop_nulls(TIME).sort(TIME)
    return Replay(tuple(evaluations_of(trigger, rows.iter_rows(named=True))))


def evaluations_of(trigger: Trigger, samples: Iterable[Sample]) -> Iterator[Evaluation]:
    """Yield a trigger's evaluations over samples, which must be in order of time."""
    for sample in samples:
        now_ns = sample[TIME]
        if not isinstance(now_ns, int):
            raise InputError(f'"{TIME}" is not a whole number of nanoseconds')
        evaluation = trigger.update(now_ns, sample)
        if evaluation is not None:
            yield evaluation


@dataclass(frozen=True)
class Span:
    """Consecutive evaluations with the same outcome."""

    first: Evaluation
    last: Evaluation
    count: int


def spans(evaluations: Iterable[Evaluation]) -> Iterator[Span]:
    """Group evaluations into spans of the same outcome; each firing is a span of its own."""
    span: Span | None = None
    for one in evaluations:
        if span is not None and _kind(span.last) == _kind(one) and not one.fired:
            span = Span(span.first, one, span.count + 1)
            continue
        if span is not None:
            yield span
        span = Span(one, one, 1)
    if span is not None:
        yield span


def _kind(one: Evaluation) -> tuple[Outcome, str]:
    """Return the key by which evaluations are grouped: the outcome, for null also the field."""
    return one.outcome, one.why.split()[1] if one.outcome is Outcome.NULL else ""


def firings_table(evaluations: Iterable[Evaluation], *, only_firings: bool = False) -> Table:
    """Return a table of a trigger's firings and of the outcomes between them.

    Args:
        evaluations: the evaluations in order of time.
        only_firings: whether to leave out the other outcomes.
    """
    columns = [
        Column("from", "from", "UTC", str, numeric=False),
        Column("to", "to", "UTC", str, numeric=False),
        Column("looks", "looks", "", str),
        Column("outcome", "outcome", "", str, numeric=False),
        Column("why", "why", "", str, numeric=False),
        Column("inputs", "inputs", "", str, numeric=False),
    ]
    chosen = (span for span in spans(evaluations) if span.first.fired or not only_firings)
    return Table((), columns, [_row(span) for span in chosen])


def _row(span: Span) -> list[str]:
    last = span.last
    inputs = ", ".join(f"{name} = {_written(value)}" for name, value in last.inputs.items())
    times = [_clock(span.first.at_ns), _clock(last.at_ns)]
    return [*times, f"{span.count:,}", last.outcome.value, last.why or "a run starts", inputs]


def _written(value: float | str | bool | None) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
    return f"{value:.6g}"


def _clock(instant_ns: int) -> str:
    moment = dt.datetime.fromtimestamp(instant_ns / 1e9, dt.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-5]
