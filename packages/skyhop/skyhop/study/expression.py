"""Expressions of study files, made of numbers, metrics and comparisons only.

They are parsed with `ast`. Only the allowed kinds of nodes are evaluated, so that a study file from
an untrusted source cannot run code.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from skyhop.analysis.statistics import Interval
from skyhop.errors import InputError

Selected: TypeAlias = Mapping[str, object]
"""Selection of runs by the keywords of a call: names of axes with the value or values to select."""

Call: TypeAlias = Callable[[str, Selected], float]
"""Function that evaluates a call such as `goodput(cc="bbr")`, given its name and keywords."""

_LONGEST = 2000
_LARGEST = 1e300

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": lambda values: math.fsum(values) / len(values),
    "abs": lambda values: abs(values[0]),
}
"""Functions of numbers, which expressions may call in addition to metrics."""


class UnknownValueError(Exception):
    """A value of an expression is missing, because a run failed or lacks the metric."""


_UNKNOWN = Interval(None, None)


@dataclass(frozen=True)
class Comparison:
    """Evaluated comparison of a claim, with the values of both sides."""

    text: str
    left: float
    right: float
    holds: bool
    interval: Interval = _UNKNOWN
    """95 % interval of left - right over runs; unknown for single runs and for == and !=."""

    @property
    def within_chance(self) -> bool:
        """Whether the interval of the difference contains zero."""
        low, high = self.interval.low, self.interval.high
        return low is not None and high is not None and low <= 0 <= high and low < high


@dataclass(frozen=True)
class Expression:
    """Parsed expression; all of its nodes are of allowed kinds."""

    text: str
    _tree: ast.expr

    def calls(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the name and the keywords of each call of a metric."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and _called(node) not in FUNCTIONS:
                yield _called(node), _keywords(node)

    def names(self) -> set[str]:
        """Return the names that the expression uses without calling them."""
        called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        return {
            node.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Name) and id(node) not in called
        }

    def is_comparison(self) -> bool:
        """Return whether the value of the expression is true or false, rather than a number."""
        return _is_truth(self._tree)

    def number(self, names: Mapping[str, float | None], call: Call | None = None) -> float:
        """Evaluate the expression to a number; `names` has the values of names without a call.

        Raises:
            UnknownValueError: a name has no value, or the value is not finite (x / 0).
        """
        return _Evaluation(names, call or _no_calls).number(self._tree)

    def check(self, call: Call) -> tuple[bool, list[Comparison]]:
        """Evaluate the expression to true or false; return the result and each comparison.

        Raises:
            UnknownValueError: a value is missing.
        """
        evaluation = _Evaluation({}, call)
        return evaluation.truth(self._tree), evaluation.comparisons

    def asks_for_equality(self) -> bool:
        """Return whether the expression contains == or !=."""
        return any(isinstance(node, ast.Eq | ast.NotEq) for node in ast.walk(self._tree))

    def certain(self, comparisons: Sequence[Comparison]) -> bool | None:
        """Return whether the expression holds; None if a comparison within chance decides it."""
        return _certain(self._tree, iter(comparisons))


def parse_expression(text: str, origin: str) -> Expression:
    """Parse and check an expression; `origin` names its place in error messages.

    Raises:
        InputError: the text is not an expression, or contains something that is not allowed.
    """
    if len(text) > _LONGEST:
        raise InputError(f"{origin}: longer than {_LONGEST} characters")
    try:
        with warnings.catch_warnings():
            # Python only warns about a typing error such as "1and 2".
            warnings.simplefilter("error")
            tree = ast.parse(text.strip(), mode="eval").body
        _check(tree, origin)
    except (SyntaxError, ValueError, TypeError) as error:
        raise InputError(f"{origin}: not an expression: {text!r}: {error.args[0]}") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{origin}: nested too deeply") from None
    return Expression(text.strip(), tree)


def _check(node: ast.expr, origin: str) -> None:
    if _is_truth(node):
        _check_truth(node, origin)
    else:
        _check_number(node, origin)


def _check_truth(node: ast.expr, origin: str) -> None:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check_truth(operand, origin)
        case ast.BoolOp(values=values):
            for value in values:
                _check_truth(value, origin)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARE for op in ops
        ):
            for value in (left, *others):
                _check_number(value, origin)
        case _:
            raise _not_allowed(node, origin)


def _check_number(node: ast.expr, origin: str) -> None:
    match node:
        case ast.Constant(value=int() | float() as value) if (
            not isinstance(value, bool) and abs(value) <= _LARGEST
        ):
            pass
        case ast.Name():
            pass
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check_number(left, origin)
            _check_number(right, origin)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check_number(operand, origin)
        case ast.Call():
            _check_call(node, origin)
        case _:
            raise _not_allowed(node, origin)


def _not_allowed(node: ast.expr, origin: str) -> InputError:
    return InputError(
        f"{origin}: `{ast.unparse(node)}` is not allowed there in an expression; expected numbers, "
        'metrics such as goodput(cc="bbr"), + - * /, comparisons, and, or, not'
    )


def _check_call(node: ast.Call, origin: str) -> None:
    name = _called(node)
    if name in FUNCTIONS:
        if node.keywords or not node.args or (name == "abs" and len(node.args) != 1):
            raise InputError(f"{origin}: {name} takes numbers, not `{ast.unparse(node)}`")
        for argument in node.args:
            _check_number(argument, origin)
        return
    if not name or node.args:
        raise InputError(
            f"{origin}: `{ast.unparse(node)}`: a metric takes axes by name, such as "
            'goodput(cc="bbr")'
        )
    _keywords(node)


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _keywords(node: ast.Call) -> dict[str, object]:
    """Return the call's keywords; ValueError if a value is not a constant."""
    found: dict[str, object] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("** is not allowed in an expression")
        found[keyword.arg] = ast.literal_eval(keyword.value)
    return found


def _is_truth(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp | ast.Compare) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _certain(node: ast.expr, comparisons: Iterator[Comparison]) -> bool | None:
    """Return the truth of a node in Kleene's three-valued logic; comparisons come in walk order."""
    match node:
        case ast.BoolOp(op=op, values=values):
            each = [_certain(value, comparisons) for value in values]
            return (
                _all(each) if isinstance(op, ast.And) else _not(_all([_not(one) for one in each]))
            )
        case ast.UnaryOp(operand=operand):
            return _not(_certain(operand, comparisons))
        case ast.Compare(ops=ops):
            found = [next(comparisons) for _ in ops]
            return _all([None if c.within_chance else c.holds for c in found])
    raise UnknownValueError(f"`{ast.unparse(node)}` is not true or false")


def _all(each: Sequence[bool | None]) -> bool | None:
    if False in each:
        return False
    return None if None in each else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _no_calls(name: str, _selected: Selected) -> float:
    raise UnknownValueError(f"{name} cannot be called here")


class _Evaluation:
    """Evaluation of a checked tree; it collects the comparisons that it evaluates."""

    def __init__(self, names: Mapping[str, float | None], call: Call) -> None:
        self._names = names
        self._call = call
        self.comparisons: list[Comparison] = []

    def number(self, node: ast.expr) -> float:
        value = self._number(node)
        if not math.isfinite(value):
            raise UnknownValueError(f"{ast.unparse(node)} has no value")
        return value

    def _number(self, node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as value):
                return float(value)
            case ast.Name(id=name):
                return self._named(name)
            case ast.BinOp(left=left, op=op, right=right):
                try:
                    return _BINARY[type(op)](self.number(left), self.number(right))
                except ZeroDivisionError:
                    raise UnknownValueError(f"{ast.unparse(node)} divides by 0") from None
            case ast.UnaryOp(op=op, operand=operand):
                value = self.number(operand)
                return -value if isinstance(op, ast.USub) else value
            case ast.Call():
                return self._called(node)
        raise UnknownValueError(f"`{ast.unparse(node)}` is not a number")

    def _named(self, name: str) -> float:
        found = self._names.get(name)
        if found is None:
            raise UnknownValueError(f"{name} has no value")
        return found

    def _called(self, node: ast.Call) -> float:
        name = _called(node)
        if name in FUNCTIONS:
            return FUNCTIONS[name]([self.number(value) for value in node.args])
        return self._call(name, _keywords(node))

    def truth(self, node: ast.expr) -> bool:
        match node:
            case ast.BoolOp(op=op, values=values):
                # No short circuit: the report shows every comparison.
                each = [self.truth(value) for value in values]
                return all(each) if isinstance(op, ast.And) else any(each)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(operand)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compare(left, ops, others)
        raise UnknownValueError(f"`{ast.unparse(node)}` is not true or false")

    def _compare(
        self, first: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr]
    ) -> bool:
        left, holds = self.number(first), True
        for op, other in zip(ops, others, strict=True):
            right = self.number(other)
            is_true = _COMPARE[type(op)](left, right)
            text = f"{ast.unparse(first)} {_SIGNS[type(op)]} {ast.unparse(other)}"
            self.comparisons.append(Comparison(text, left, right, is_true))
            holds = holds and is_true
            first, left = other, right
        return holds


_SIGNS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
