"""What a trigger would have done: archived telemetry through the evaluator that agents use."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyhop.analysis.tables import Column, Table
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample, column_of
from skyhop.testbed.triggers.evaluate import Evaluation, Outcome, Trigger

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Replay:
    """All looks at a trigger, in order."""

    evaluations: tuple[Evaluation, ...]

    @property
    def firings(self) -> tuple[Evaluation, ...]:
        """Those at which a run would have been started."""
        return tuple(one for one in self.evaluations if one.fired)


def replay(trigger: Trigger, frame: pl.DataFrame) -> Replay:
    """Evaluate a trigger over telemetry as an agent would have.

    Args:
        trigger: it goes on from what it has seen.
        frame: `time_ns` and fields, a row per second, in any order.

    Raises:
        InputError: the frame has no times.
    """
    if TIME not in frame.columns:
        raise InputError(f'telemetry without "{TIME}": give what skyhop dish or an agent has kept')
    names = {column_of(used) for used in trigger.fields} & set(frame.columns)
    rows = frame.select(TIME, *sorted(names)).drop_nulls(TIME).sort(TIME)
    return Replay(tuple(evaluated(trigger, rows.iter_rows(named=True))))


def evaluated(trigger: Trigger, samples: Iterable[Sample]) -> Iterator[Evaluation]:
    """Yield a trigger's evaluations over samples in order of time."""
    for sample in samples:
        now_ns = sample[TIME]
        if not isinstance(now_ns, int):
            raise InputError(f'"{TIME}" is not a whole number of nanoseconds')
        evaluation = trigger.update(now_ns, sample)
        if evaluation is not None:
            yield evaluation


@dataclass(frozen=True)
class Span:
    """Evaluations in a row that came to the same."""

    first: Evaluation
    last: Evaluation
    count: int


def spans(evaluations: Iterable[Evaluation]) -> Iterator[Span]:
    """Yield what a trigger came to, each firing by itself, the rest together while it lasts."""
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
    """Return what makes two evaluations the same to a reader: of null, what was missing too."""
    return one.outcome, one.why.split()[1] if one.outcome is Outcome.NULL else ""


def firings_table(evaluations: Iterable[Evaluation], *, only_firings: bool = False) -> Table:
    """Return when a trigger fired and why it did not in between, as a table.

    Args:
        evaluations: in order of time.
        only_firings: leave out the reasons.
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
