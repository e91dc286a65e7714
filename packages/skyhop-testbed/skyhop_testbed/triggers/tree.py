"""Syntax tree of a trigger, with types and units checked.

Constants are converted to the unit of their operands, so that evaluators need no units. As in
LEOScope, a boolean in place of a number counts as 0 or 1, and a number in place of a boolean is
true if it is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from skyhop.telemetry.fields import Field, Type


class Kind(StrEnum):
    """Type of a node's value."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"


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
class Node:
    """Node of the syntax tree."""

    at: int = field(compare=False)
    """Offset in the text at which the node begins."""
    kind: Kind = field(compare=False)
    unit: str | None = field(compare=False)
    """Unit of a number; `None` if unknown, and for a `Constant` without a unit."""

    @property
    def children(self) -> tuple[Node, ...]:
        """Child nodes, from left to right."""
        return ()


@dataclass(frozen=True)
class Constant(Node):
    """Literal: a number, true, false or a string."""

    value: float | bool | str


@dataclass(frozen=True)
class Current(Node):
    """Current value of a field, null if older than three of its periods."""

    field: Field


@dataclass(frozen=True)
class Earlier(Node):
    """Value of a field `steps` updates ago."""

    field: Field
    steps: int


@dataclass(frozen=True)
class WindowFunction(Node):
    """Function of the values that a field has in a window."""

    function: str
    field: Field
    window: Window
    percent: float = 50.0
    """Percentage of the function `p`, which returns a percentile."""


@dataclass(frozen=True)
class Age(Node):
    """Time since a field's last update, in s."""

    field: Field


@dataclass(frozen=True)
class Changed(Node):
    """Whether a field differs from its value one update ago."""

    field: Field


@dataclass(frozen=True)
class Random(Node):
    """Whether an event of a Poisson process occurred since the last evaluation."""

    rate_hz: float
    index: int
    """Offset of the call in the text, which identifies the Poisson process."""


@dataclass(frozen=True)
class Negate(Node):
    """Negation of a number."""

    node: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """Tuple of the negated number."""
        return (self.node,)


@dataclass(frozen=True)
class Absolute(Node):
    """Absolute value of a number."""

    node: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """Tuple of the number."""
        return (self.node,)


@dataclass(frozen=True)
class Sum(Node):
    """Sum of terms, each with "+" or "-" before it, computed from the left."""

    terms: tuple[tuple[str, Node], ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """Terms of the sum, in order."""
        return tuple(node for _, node in self.terms)


@dataclass(frozen=True)
class Product(Node):
    """Product of factors, each with "*" or "/" before it, computed from the left."""

    factors: tuple[tuple[str, Node], ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """Factors of the product, in order."""
        return tuple(node for _, node in self.factors)


@dataclass(frozen=True)
class Compare(Node):
    """Comparison of two values; `sign` is one of == != < <= > >=."""

    sign: str
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """Left and right side of the comparison."""
        return (self.left, self.right)


@dataclass(frozen=True)
class Not(Node):
    """Logical negation of a condition."""

    node: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """Tuple of the negated condition."""
        return (self.node,)


@dataclass(frozen=True)
class And(Node):
    """Logical conjunction of conditions."""

    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """Conditions of the conjunction, in order."""
        return self.nodes


@dataclass(frozen=True)
class Or(Node):
    """Logical disjunction of conditions."""

    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """Conditions of the disjunction, in order."""
        return self.nodes


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all of its descendants, in pre-order."""
    yield node
    for child in node.children:
        yield from walk(child)


def fields_of(node: Node) -> tuple[Field, ...]:
    """Return the fields that a trigger uses, each once, in the order of the text."""
    used = [
        part.field
        for part in walk(node)
        if isinstance(part, Current | Earlier | WindowFunction | Age | Changed)
    ]
    return tuple(dict.fromkeys(used))


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
