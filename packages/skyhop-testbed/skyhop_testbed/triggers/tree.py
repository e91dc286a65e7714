"""Operands of triggers, which the tree of `skyhop.expressions` contains, with types and units.

Constants are converted to the unit of their operands, so that evaluators need no units. As in
LEOScope, a boolean in place of a number counts as 0 or 1, and a number in place of a boolean is
true if it is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skyhop.expressions.tree import Kind, Node, walk
from skyhop.telemetry.fields import Field, Type

KINDS = {
    Type.NUMBER: Kind.NUMBER,
    Type.INTEGER: Kind.NUMBER,
    Type.BOOLEAN: Kind.BOOLEAN,
    Type.TEXT: Kind.TEXT,
}


@dataclass(frozen=True)
class Window:
    """Window over past values: a number of updates or a time span, exactly one of which is set."""

    updates: int | None = None
    span_ns: int | None = None
    text: str = field(default="", compare=False)
    """Text of the window in the expression."""


@dataclass(frozen=True)
class OfField(Node):
    """Operand that is computed from the values of one field."""

    field: Field


class Current(OfField):
    """Current value of a field, null if older than three of its periods."""


class Age(OfField):
    """Time since a field's last update, in s."""


class Changed(OfField):
    """Whether a field differs from its value one update ago."""


@dataclass(frozen=True)
class Earlier(OfField):
    """Value of a field `steps` updates ago."""

    steps: int


@dataclass(frozen=True)
class WindowFunction(OfField):
    """Function of the values that a field has in a window."""

    function: str
    window: Window
    percent: float = 50.0
    """Percentage of the function `p`, which returns a percentile."""


@dataclass(frozen=True)
class Random(Node):
    """Whether an event of a Poisson process occurred since the last evaluation."""

    rate_hz: float
    index: int
    """Offset of the call in the text, which identifies the Poisson process."""


def fields_of(node: Node) -> tuple[Field, ...]:
    """Return the fields that a trigger uses, each once, in the order of the text."""
    return tuple(dict.fromkeys(part.field for part in walk(node) if isinstance(part, OfField)))


def label(node: Node) -> str | None:
    """Return the name under which logs show an input; `None` for nodes that are no inputs."""
    match node:
        case Current(field=used):
            text = used.name
        case Earlier(field=used, steps=steps):
            text = f"{used.name}_{steps}"
        case WindowFunction(function="avg", field=used, window=Window(text="")):
            text = f"{used.name}_avg"
        case WindowFunction(function="p", field=used, window=window, percent=percent):
            text = f"p({used.name}, {percent:g}, {window.text})"
        case WindowFunction(function=function, field=used, window=window):
            text = f"{function}({used.name}, {window.text})"
        case Age(field=used) | Changed(field=used):
            text = f"{type(node).__name__.lower()}({used.name})"
        case Random():
            text = "random"
        case _:
            return None
    return text
