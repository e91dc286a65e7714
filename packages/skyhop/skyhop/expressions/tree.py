"""Syntax tree of expressions; a language adds its operands as further subclasses of `Node`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """Type of a node's value."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"


@dataclass(frozen=True)
class Node:
    """Node of the syntax tree."""

    at: int = field(compare=False)
    """Offset in the text at which the node begins."""
    kind: Kind = field(compare=False)
    unit: str | None = field(compare=False)
    """Unit of a number; `None` if unknown, and for a `Constant` without a unit."""


@dataclass(frozen=True)
class Constant(Node):
    """Literal: a number, true, false or a string."""

    value: float | bool | str


@dataclass(frozen=True)
class Operation(Node):
    """Operator or function, applied to its operands from left to right."""

    operands: tuple[Node, ...]
    signs: tuple[str, ...]
    """Signs between the operands, or what is before them: a sign, or the name of a function."""


class Or(Operation):
    """Logical disjunction of conditions."""


class And(Operation):
    """Logical conjunction of conditions."""


class Not(Operation):
    """Logical negation of a condition."""


class Compare(Operation):
    """Comparisons of each operand with the next; the signs are == != < <= > >=."""


class Sum(Operation):
    """Sum and difference of numbers, computed from the left."""


class Product(Operation):
    """Product and quotient of numbers, computed from the left."""


class Signed(Operation):
    """Number with - or + before it, which is its only sign."""


class Function(Operation):
    """Function of numbers, a name of `evaluate.FUNCTIONS`, which is its only sign."""


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all of its descendants, in pre-order."""
    yield node
    if isinstance(node, Operation):
        for operand in node.operands:
            yield from walk(operand)
