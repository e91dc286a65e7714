"""A trigger's tree: what `parse` makes, with types and units checked, and evaluators walk.

Numbers are in the unit of what they meet, so that evaluators need none. A boolean is 0 or 1 where
a number is wanted, and a number is true where it is not 0, as in LEOScope.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from skyhop.telemetry.fields import Field, Type


class Kind(StrEnum):
    """What a node is worth."""

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
    """How much of the past: so many updates, or so long; exactly one of the two."""

    updates: int | None = None
    span_ns: int | None = None
    text: str = field(default="", compare=False)
    """As it was written."""


@dataclass(frozen=True)
class Node:
    """A part of a trigger."""

    at: int = field(compare=False)
    """Where it begins in the text."""
    kind: Kind = field(compare=False)
    unit: str | None = field(compare=False)
    """Of a number; None where it has none that is known, which for `Constant` is none at all."""

    @property
    def children(self) -> tuple[Node, ...]:
        """The parts that it is made of."""
        return ()


@dataclass(frozen=True)
class Constant(Node):
    """A number, true, false or a string."""

    value: float | bool | str


@dataclass(frozen=True)
class Current(Node):
    """A field, null if older than three of its periods."""

    field: Field


@dataclass(frozen=True)
class Earlier(Node):
    """A field as it was some updates ago."""

    field: Field
    steps: int


@dataclass(frozen=True)
class Over(Node):
    """A function of what a field was in a window."""

    function: str
    field: Field
    window: Window
    percent: float = 50.0
    """Of `p`."""


@dataclass(frozen=True)
class Age(Node):
    """How long ago a field was updated, in s."""

    field: Field


@dataclass(frozen=True)
class Changed(Node):
    """Whether a field is another than one update ago."""

    field: Field


@dataclass(frozen=True)
class Random(Node):
    """Whether an event of a Poisson process fell since the last look."""

    rate_hz: float
    index: int
    """Which of the trigger's it is."""


@dataclass(frozen=True)
class Minus(Node):
    """A number with the other sign."""

    node: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The number."""
        return (self.node,)


@dataclass(frozen=True)
class Absolute(Node):
    """A number without its sign."""

    node: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The number."""
        return (self.node,)


@dataclass(frozen=True)
class Sum(Node):
    """Terms, each with "+" or "-" before it, from the left."""

    terms: tuple[tuple[str, Node], ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The terms."""
        return tuple(node for _, node in self.terms)


@dataclass(frozen=True)
class Product(Node):
    """Factors, each with "*" or "/" before it, from the left."""

    factors: tuple[tuple[str, Node], ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The factors."""
        return tuple(node for _, node in self.factors)


@dataclass(frozen=True)
class Compare(Node):
    """A comparison; `sign` is one of == != < <= > >=."""

    sign: str
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """Both sides."""
        return (self.left, self.right)


@dataclass(frozen=True)
class Not(Node):
    """The contrary of a condition."""

    node: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The condition."""
        return (self.node,)


@dataclass(frozen=True)
class All(Node):
    """Conditions joined by "and"."""

    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The conditions."""
        return self.nodes


@dataclass(frozen=True)
class Either(Node):
    """Conditions joined by "or"."""

    nodes: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The conditions."""
        return self.nodes


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all that it is made of."""
    yield node
    for child in node.children:
        yield from walk(child)


def fields_of(node: Node) -> tuple[Field, ...]:
    """Return the fields that a trigger looks at, each once, in the order of the text."""
    used = [
        part.field
        for part in walk(node)
        if isinstance(part, Current | Earlier | Over | Age | Changed)
    ]
    return tuple(dict.fromkeys(used))


def label(node: Node) -> str | None:
    """Return what logs call an input, None where a node is none."""
    match node:
        case Current(field=used):
            text = used.name
        case Earlier(field=used, steps=steps):
            text = f"{used.name}_{steps}"
        case Over(function="avg", field=used, window=Window(text="")):
            text = f"{used.name}_avg"
        case Over(function="p", field=used, window=window, percent=percent):
            text = f"p({used.name}, {percent:g}, {window.text})"
        case Over(function=function, field=used, window=window):
            text = f"{function}({used.name}, {window.text})"
        case Age(field=used) | Changed(field=used):
            text = f"{type(node).__name__.lower()}({used.name})"
        case Random():
            text = "random"
        case _:
            return None
    return text
