"""Evaluation of expressions, without short circuit; an unknown value is `None`.

Numbers that are computed from an unknown one, divide by 0 or overflow are unknown. Conditions
follow Kleene's logic: false and unknown is false, true or unknown is true, and other combinations
with unknown are unknown.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from skyhop.expressions import tree
from skyhop.expressions.tree import Kind, Node

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": lambda values: math.fsum(values) / len(values),
    "abs": lambda values: abs(values[0]),
}
"""Functions of numbers; languages have further ones of their own operands."""


def conjunction(each: Sequence[bool | None]) -> bool | None:
    """Return whether all conditions are true; `None` stands for unknown."""
    return False if False in each else None if None in each else True


def negation(value: bool | None) -> bool | None:
    """Return the opposite of a condition; `None` stands for unknown."""
    return None if value is None else not value


class Evaluator(ABC):
    """Evaluator of trees; a language adds the values of its operands."""

    @abstractmethod
    def operand(self, node: Node) -> float | None:
        """Return the number of a node of the language; `None` if it is unknown."""

    @abstractmethod
    def undefined(self, node: tree.Operation, why: str, /) -> None:
        """Note that an operation has no result: it "divides by 0", or "a result is too large"."""

    def truth(self, node: Node) -> bool | None:
        """Return the value of a condition; a number is true if it is not 0."""
        match node:
            case tree.Not(operands=(part,)):
                return negation(self.truth(part))
            case tree.And(operands=parts):
                return conjunction([self.truth(part) for part in parts])
            case tree.Or(operands=parts):
                return negation(conjunction([negation(self.truth(part)) for part in parts]))
            case tree.Compare():
                return self.compared(node)
        number = self.number(node)
        return None if number is None else number != 0

    def compared(self, node: tree.Compare) -> bool | None:
        """Return whether all comparisons of a node are true."""
        values = [self.number(part) for part in node.operands]
        pairs = zip(node.signs, values, values[1:], strict=False)
        return conjunction(
            [
                None if left is None or right is None else COMPARISONS[sign](left, right)
                for sign, left, right in pairs
            ]
        )

    def number(self, node: Node) -> float | None:
        """Return the value of a number; a condition counts as 0 or 1."""
        if isinstance(node, tree.Constant):
            return float(node.value)
        if not isinstance(node, tree.Operation):
            return self.operand(node)
        if node.kind is Kind.BOOLEAN:
            truth = self.truth(node)
            return None if truth is None else float(truth)
        values = [self.number(part) for part in node.operands]
        known = [value for value in values if value is not None]
        return self._result(node, known) if len(known) == len(values) else None

    def _result(self, node: tree.Operation, values: list[float]) -> float | None:
        if isinstance(node, tree.Signed):
            return -values[0] if node.signs == ("-",) else values[0]
        if isinstance(node, tree.Function):
            return FUNCTIONS[node.signs[0]](values)
        total = values[0]
        for count, sign in enumerate(node.signs, 1):
            by_0 = sign == "/" and values[count] == 0
            total = math.nan if by_0 else ARITHMETIC[sign](total, values[count])
            if not math.isfinite(total):
                part = replace(node, operands=node.operands[: count + 1], signs=node.signs[:count])
                self.undefined(part, "divides by 0" if by_0 else "a result is too large")
                return None
        return total
