"""Expansion of a study's axes to points: the combinations of axis values that the study runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyhop.data.near_names import did_you_mean
from skyhop.errors import InputError
from skyhop.study.changes import drawn_changes, read_changes
from skyhop.study.csv_axes import check_rows, csv_labels, keys_of_rows, rows_with
from skyhop.study.file import MOST_DRAWS, Axis, Changes, Range, StudyFile
from skyhop.study.key_errors import entry
from skyhop.study.keys import Choice, Setting, Value


@dataclass(frozen=True)
class Point:
    """One combination of the axes' values, which the study runs with each seed."""

    labels: Mapping[str, Value]
    """Value of each axis by the name of the axis, in the order of the study file."""
    sets: Mapping[str, Setting]
    """Value (or list of tables) to set, by dotted scenario key."""


def axis_values(axis: Axis) -> list[tuple[Value, Mapping[str, Setting]]]:
    """Return the axis's values, each with the scenario keys that it sets.

    Raises:
        InputError: the CSV file with the axis's changes or rows is wrong.
    """
    if axis.points is not None:
        return list(axis.points.items())
    values = axis_labels(axis)
    if axis.csv is not None:
        return [(value, {}) for value in values]
    if axis.changes is not None:
        return [(value, {"change": _changes(axis.changes, axis.name, value)}) for value in values]
    key = axis.key or ""
    return [(value, {key: value}) for value in values]


def axis_labels(axis: Axis) -> list[Value]:
    """Return the axis's values: its labels, the values in its CSV file, or its numbers."""
    if axis.points is not None:
        return list(axis.points)
    if axis.csv is not None:
        return csv_labels(axis.csv, axis.name)
    return axis.values if axis.values is not None else _range_values(axis.range)


def _changes(changes: Changes, name: str, value: Value) -> list[dict[str, Any]]:
    if changes.csv is not None:
        return read_changes(changes.csv, name, value)
    return drawn_changes(changes, int(value))


def numeric_axes(study: StudyFile) -> dict[str, bool]:
    """Return, for the name of each axis, whether all of its values are numbers."""
    return {
        axis.name: all(
            isinstance(value, int | float) and not isinstance(value, bool)
            for value in axis_labels(axis)
        )
        for axis in study.axis
    }


_MOST_POINTS = 100_000
"""Largest number of points of a study, before `exclude` removes any."""


def expand(study: StudyFile, origin: str, overridden: Iterable[str] = ()) -> list[Point]:
    """Return the study's points, in the order of the file.

    `overridden` are the keys that the user sets for all runs; none may replace an axis.

    Axes with the same `zip` advance together; all others are crossed. Axes with a CSV file come
    last: each combination of the other axes is combined with those rows of the file that apply
    to it.

    Raises:
        InputError: axes contradict each other; the message names them.
    """
    _check_overridden(overridden, _check_axes(study.axis, origin), origin)
    csv_axes = [axis for axis in study.axis if axis.csv is not None]
    crossed = [axis for axis in study.axis if axis.csv is None]
    groups = [_zip_points(axes, origin) for axes in _zip_groups(crossed)]
    count = math.prod(map(len, groups))
    if count > _MOST_POINTS:
        raise InputError(f"{origin}: axis: {count:,} points; expected at most {_MOST_POINTS:,}")
    names = [axis.name for axis in study.axis]
    excluded = [_checked_choice(study, e, f"{origin}: exclude") for e in study.exclude]
    points = []
    for combination in _with_rows(itertools.product(*groups), csv_axes):
        labels = {name: label for part in combination for name, label in part.labels.items()}
        point = Point(
            {name: labels[name] for name in names},
            {key: value for part in combination for key, value in part.sets.items()},
        )
        if not any(matches(point.labels, choice) for choice in excluded):
            points.append(point)
    if not points:
        raise InputError(
            f"{origin}: exclude: excludes every point, so that there is nothing to run"
        )
    return points


def _with_rows(
    combinations: Iterable[tuple[Point, ...]], csv_axes: Sequence[Axis]
) -> Iterator[tuple[Point, ...]]:
    """Yield each combination with each of its CSV rows; leave out combinations without rows."""
    for combination in combinations:
        labels = {name: label for part in combination for name, label in part.labels.items()}
        rows = [
            [
                Point({axis.name: label}, sets)
                for label, sets in rows_with(axis.csv or "", axis.name, labels)
            ]
            for axis in csv_axes
        ]
        yield from ((*combination, *chosen) for chosen in itertools.product(*rows))


def matches(labels: Mapping[str, object], choice: Choice) -> bool:
    """Return whether a point has, on each axis of the choice, a value that the choice selects."""
    return all(labels[name] in _as_list(wanted) for name, wanted in choice.items())


def check_choice(study: StudyFile, choice: Mapping[str, object], origin: str) -> None:
    """Check that a choice names existing axes of the study and existing values of these axes.

    Raises:
        InputError: an axis or a value does not exist; the message lists the existing ones.
    """
    known = {axis.name: axis_labels(axis) for axis in study.axis}
    for name, wanted in choice.items():
        if name in ("seed", "flow"):
            if not all(isinstance(value, int) for value in _as_list(wanted)):
                raise InputError(f"{origin}: {name}: expected whole numbers")
            continue
        if name not in known:
            expected = ", ".join([*known, "seed", "flow"])
            hint = did_you_mean(name, known)
            raise InputError(f"{origin}: no axis `{name}`{hint}; expected one of {expected}")
        for value in _as_list(wanted):
            if value not in known[name]:
                values = ", ".join(repr(v) for v in known[name])
                hint = did_you_mean(value, known[name])
                raise InputError(f"{origin}: {name} has no value {value!r}{hint}; it has {values}")


def _checked_choice(study: StudyFile, choice: Choice, origin: str) -> Choice:
    check_choice(study, choice, origin)
    for name in ("seed", "flow"):
        if name in choice:
            raise InputError(f"{origin}: {name} is not an axis")
    return choice


def _as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def _check_axes(axes: Sequence[Axis], origin: str) -> dict[str, str]:
    """Check that axes do not contradict each other; return the axis of each key that one sets."""
    seen: dict[str, str] = {}
    names: set[str] = set()
    for place, axis in enumerate(axes):
        where = f"{origin}: {entry('axis', place)}"
        if axis.name in names:
            raise InputError(f"{where}.name: there is already an axis `{axis.name}`")
        names.add(axis.name)
        _check_draws(axis, where)
        values = axis_values(axis)
        labels = [label for label, _ in values]
        if len(set(labels)) < len(labels):
            raise InputError(f"{where}: `{axis.name}` has the same value twice")
        if axis.csv is not None:
            others = {a.name: axis_labels(a) for a in axes if a.csv is None}
            check_rows(axis.csv, axis.name, others)
            values.append(("", dict.fromkeys(keys_of_rows(axis.csv, axis.name, others), "")))
        for key in sorted({key for _, sets in values for key in sets}):
            if key in seen:
                raise InputError(
                    f"{where}: `{key}` is set by the axis `{seen[key]}` already; "
                    "let one axis with `points` set both"
                )
            if key in {"run.seed", ""}:
                raise InputError(f"{where}: seeds come from `repeats`; expected another key")
            seen[key] = axis.name
    return seen


def _check_overridden(
    overridden: Iterable[str], axis_of_key: Mapping[str, str], origin: str
) -> None:
    for override in overridden:
        for key, axis in axis_of_key.items():
            if key == override or key.startswith(f"{override}."):
                raise InputError(
                    f"--set {override}: the axis `{axis}` sets `{key}`: change the values of the "
                    f"axis in a copy of {origin}"
                )


def _check_draws(axis: Axis, where: str) -> None:
    """Check an axis of drawn changes: its values are whole numbers, at most `MOST_DRAWS` draws."""
    if axis.changes is None or axis.changes.draw is None:
        return
    labels = axis_labels(axis)
    for value in labels:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(
                f"{where}: drawn changes need whole numbers as values, which are seeds, "
                f"not {value!r}"
            )
    draws = len(axis.changes.draw) * (axis.changes.count or 0) * len(labels)
    if draws > MOST_DRAWS:
        raise InputError(
            f"{where}.changes: draws {draws:,} values; expected at most {MOST_DRAWS:,}"
        )


def _zip_groups(axes: Sequence[Axis]) -> Iterator[list[Axis]]:
    """Yield groups of axes with the same `zip`, in the order of their first axes.

    An axis without `zip` is a group of its own.
    """
    done: set[str] = set()
    for axis in axes:
        if axis.zip is None:
            yield [axis]
        elif axis.zip not in done:
            done.add(axis.zip)
            yield [other for other in axes if other.zip == axis.zip]


def _zip_points(axes: Sequence[Axis], origin: str) -> list[Point]:
    columns = [axis_values(axis) for axis in axes]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"`{a.name}` {len(c)}" for a, c in zip(axes, columns, strict=True))
        raise InputError(
            f"{origin}: axis: the zip `{axes[0].zip}` needs axes of the same length; it has {sizes}"
        )
    return [
        Point(
            {axis.name: label for axis, (label, _) in zip(axes, row, strict=True)},
            {key: value for _, sets in row for key, value in sets.items()},
        )
        for row in zip(*columns, strict=True)
    ]


def _range_values(given: Range | None) -> list[Value]:
    assert given is not None
    count = given.count
    if count is None:
        assert given.step is not None
        # The tolerance includes a last value that floating-point rounding puts just above `to`.
        count = math.floor((given.to - given.from_) / given.step + 1e-9) + 1
        numbers = [given.from_ + index * given.step for index in range(count)]
    elif given.scale == "log":
        ratio = math.log(given.to / given.from_) / (count - 1)
        numbers = [given.from_ * math.exp(index * ratio) for index in range(count)]
    else:
        step = (given.to - given.from_) / (count - 1)
        numbers = [given.from_ + index * step for index in range(count)]
    return [_axis_number(number, given.unit) for number in numbers]


def _axis_number(number: float, unit: str) -> Value:
    """Return a number rounded to nine digits, so that 0.1 + 0.2 is 0.3 in tables and keys."""
    rounded = float(f"{number:.9g}")
    if unit:
        return f"{rounded:.9g} {unit}"
    return int(rounded) if rounded.is_integer() else rounded
