"""Expressions of study files, made of numbers, metrics and comparisons only.

Their language is that of `skyhop.expressions`, with metrics as operands: names, and calls that
select runs by keywords. No part of it runs code, as a study file may be from an untrusted source.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, TypeAlias

from skyhop.analysis.statistics import Interval
from skyhop.expressions import tree
from skyhop.expressions.evaluate import COMPARISONS, FUNCTIONS, Evaluator, conjunction
from skyhop.expressions.parse import NAME, NUMBER, Level, ParseError, Parser, Part, Words
from skyhop.expressions.tree import Kind, Node

Selected: TypeAlias = Mapping[str, object]
"""Selection of runs by the keywords of a call: names of axes with the value or values to select."""

Call: TypeAlias = Callable[[str, Selected], float]
"""Function that evaluates a call such as `goodput(cc="bbr")`, given its name and keywords."""

_LARGEST = 1e300


class UnknownValueError(Exception):
    """A value of an expression is missing, because a run failed or lacks the metric."""


_UNKNOWN = Interval(None, None)


@dataclass(frozen=True)
class Asked:
    """Comparison of a measured value with a number of the expression, such as a > 1.1 * b."""

    kind: Literal["value", "ratio", "difference"]
    """The number is compared with a measured value, or multiplies one, or is added to one."""
    value: float
    """The measured value, or the ratio or difference of the two measured values."""
    sign: str
    """Sign between the value and the number, in this order."""
    limit: float


@dataclass(frozen=True)
class Comparison:
    """Evaluated comparison of a claim, with the values of both sides."""

    text: str
    left: float
    right: float
    holds: bool
    interval: Interval = _UNKNOWN
    """95 % interval of left - right over runs; unknown for single runs and for == and !=."""
    asked: Asked | None = None
    """The comparison with a number of the expression; None if both sides were measured."""

    @property
    def within_chance(self) -> bool:
        """Whether the interval of the difference contains zero."""
        low, high = self.interval.low, self.interval.high
        return low is not None and high is not None and low <= 0 <= high and low < high


@dataclass(frozen=True)
class MetricName(Node):
    """Metric of the row for which the expression is evaluated."""

    name: str


@dataclass(frozen=True)
class MetricCall(Node):
    """Metric of the runs that the keywords select."""

    name: str
    selected: dict[str, object]


@dataclass(frozen=True)
class Expression:
    """Checked expression of a study."""

    _tree: Node

    def calls(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the name and the keywords of each call of a metric."""
        for node in tree.walk(self._tree):
            if isinstance(node, MetricCall):
                yield node.name, node.selected

    def names(self) -> set[str]:
        """Return the names that the expression uses without calling them."""
        return {node.name for node in tree.walk(self._tree) if isinstance(node, MetricName)}

    def is_comparison(self) -> bool:
        """Return whether the value of the expression is true or false, rather than a number."""
        return self._tree.kind is Kind.BOOLEAN

    def number(self, names: Mapping[str, float | None], call: Call | None = None) -> float:
        """Evaluate the expression to a number; `names` has the values of names without a call.

        Raises:
            UnknownValueError: a name has no value, or the value is not finite (x / 0).
        """
        return _Evaluation(names, call or _no_calls).known(self._tree)

    def check(self, call: Call) -> tuple[bool, list[Comparison]]:
        """Evaluate the expression to true or false; return the result and each comparison.

        Raises:
            UnknownValueError: a value is missing.
        """
        evaluation = _Evaluation({}, call)
        return evaluation.truth(self._tree) is True, evaluation.comparisons

    def asks_for_equality(self) -> bool:
        """Return whether the expression contains == or !=."""
        return any(
            isinstance(node, tree.Compare) and not {"==", "!="}.isdisjoint(node.signs)
            for node in tree.walk(self._tree)
        )

    def certain(self, comparisons: Sequence[Comparison]) -> bool | None:
        """Return whether the expression holds; None if a comparison within chance decides it."""
        return _Certainty(iter(comparisons)).truth(self._tree)


@lru_cache(maxsize=256)
def parse_expression(text: str, origin: str) -> Expression:
    """Parse and check an expression; `origin` names its place in error messages.

    Raises:
        InputError: the text is not an expression, or contains something that is not allowed.
    """
    return Expression(_StudyParser.parse(text, origin))


_SKIPPED = r"(?:[ \t\r\n\f]|\#[^\n]*)*+"
_QUOTED = r""" "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' """


class _StudyParser(Parser):
    longest = 2000
    prefixes: ClassVar[Words] = {"not": "not", "-": "-", "+": "+"}
    infixes: ClassVar[Words] = {
        word: word for word in ("and", "or", "<=", ">=", "==", "!=", *"<>+-*/,")
    }
    skipped = re.compile(_SKIPPED)
    operands = re.compile(
        rf"""(?P<number>{NUMBER})
        | (?!(?:{"|".join(FUNCTIONS)}){_SKIPPED}\() (?P<name>{NAME})
          (?P<keywords> {_SKIPPED} \( (?: {_QUOTED} | \([^()"']*+\) | [^()"'] )*+ \) )?""",
        re.VERBOSE,
    )
    expected = 'a number or a metric, such as goodput(cc="bbr")'

    def operand(self, found: re.Match[str]) -> Part:
        at, name = found.start(), found["name"]
        if found["number"]:
            return Part(tree.Constant(at, Kind.NUMBER, None, _number(at, found["number"])))
        if found["keywords"]:
            return Part(MetricCall(at, Kind.NUMBER, None, name, _keywords(at, found[0])))
        if keyword.iskeyword(name):
            raise ParseError(at, f"expected {self.expected}, not {name}")
        return Part(MetricName(at, Kind.NUMBER, None, name))

    def called(self, at: int, name: str, given: Sequence[Part]) -> Node:
        nodes = tuple(part.node for part in given)
        for node in nodes:
            self.check_number(node)
        if name not in FUNCTIONS or (name == "abs" and len(nodes) != 1):
            raise ParseError(at, f"{name} does not take {len(nodes)} numbers")
        return tree.Function(at, Kind.NUMBER, None, nodes, (name,))


def _number(at: int, text: str) -> float:
    # Texts of comparisons show whole numbers without decimals.
    value = int(text) if text.replace("_", "").isdigit() else float(text)
    if abs(value) > _LARGEST:
        raise ParseError(at, "the number is too large")
    return value


def _keywords(at: int, call: str) -> dict[str, object]:
    """Return the keywords of a metric's call, whose values are literals of Python."""
    try:
        with warnings.catch_warnings():
            # Python only warns about a wrong escape such as "\\d".
            warnings.simplefilter("error")
            node = ast.parse(call, mode="eval").body
        assert isinstance(node, ast.Call)
        found = {each.arg or "**": ast.literal_eval(each.value) for each in node.keywords}
        if not node.args and "**" not in found:
            return found
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ParseError(at, f'{call}: a metric takes axes by name, such as goodput(cc="bbr")')


def _text(node: Node, level: Level = Level.SUM) -> str:
    """Return the text of a number, in brackets if its operator is looser than `level`."""
    match node:
        case tree.Constant(value=value):
            return repr(value)
        case MetricName(name=name):
            return name
        case MetricCall(name=name, selected=selected):
            return f"{name}({', '.join(f'{key}={value!r}' for key, value in selected.items())})"
        case tree.Function(operands=parts, signs=(name,)):
            return f"{name}({', '.join(_text(part) for part in parts)})"
        case tree.Signed(operands=(part,), signs=(sign,)):
            own, text = Level.SIGN, f"{sign}{_text(part, Level.SIGN)}"
        case tree.Operation(operands=(part, *parts), signs=signs):
            own = Level.SUM if isinstance(node, tree.Sum) else Level.PRODUCT
            text = _text(part, own)
            for sign, other in zip(signs, parts, strict=True):
                text += f" {sign} {_text(other, Level(own + 1))}"
    return f"({text})" if own < level else text


def _no_calls(name: str, _selected: Selected) -> float:
    raise UnknownValueError(f"{name} cannot be called here")


class _Evaluation(Evaluator):
    """Evaluation of a tree without unknown values; it collects the comparisons."""

    def __init__(self, names: Mapping[str, float | None], call: Call) -> None:
        self._names = names
        self._call = call
        self.comparisons: list[Comparison] = []

    def known(self, node: Node) -> float:
        value = self.number(node)
        assert value is not None
        return value

    def operand(self, node: Node) -> float:
        match node:
            case MetricName(name=name):
                value = self._names.get(name)
            case MetricCall(name=name, selected=selected):
                value = self._call(name, selected)
        if value is None or not math.isfinite(value):
            raise UnknownValueError(f"{_text(node)} has no value")
        return value

    def undefined(self, node: tree.Operation, why: str) -> None:
        what = why if why == "divides by 0" else "has no value"
        raise UnknownValueError(f"{_text(node)} {what}")

    def compared(self, node: tree.Compare) -> bool | None:
        sides = [(self.known(part), part) for part in node.operands]
        pairs = zip(node.signs, itertools.pairwise(sides), strict=True)
        found = [
            Comparison(
                f"{_text(left)} {sign} {_text(right)}", a, b, COMPARISONS[sign](a, b),
                asked=_asked(a, left, sign, b, right) or _asked(b, right, _TURNED[sign], a, left),
            )
            for sign, ((a, left), (b, right)) in pairs
        ]  # fmt: skip
        self.comparisons += found
        return all(comparison.holds for comparison in found)


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""Signs for a comparison with its sides exchanged."""


def _asked(value: float, left: Node, sign: str, compared: float, right: Node) -> Asked | None:
    """Return the comparison of the left side with the number that the right side is or has."""
    if not _measures(left):
        return None
    if not _measures(right):
        return Asked("value", value, sign, compared)
    numbers = [
        (sign, float(part.value))
        for sign, part in zip(("", *right.signs), right.operands, strict=True)
        if isinstance(part, tree.Constant)
    ] if isinstance(right, tree.Product | tree.Sum) else []  # fmt: skip
    if len(numbers) != 1:
        return None
    ((before, number),) = numbers
    if isinstance(right, tree.Sum):
        margin = -number if before == "-" else number
        return Asked("difference", value - compared + margin, sign, margin)
    factor = 1 / number if before == "/" else number
    if factor <= 0 or compared <= 0:
        return None
    return Asked("ratio", value / compared * factor, sign, factor)


def _measures(node: Node) -> bool:
    return any(isinstance(part, MetricCall | MetricName) for part in tree.walk(node))


class _Certainty(_Evaluation):
    """Evaluation in which comparisons within chance are unknown."""

    def __init__(self, comparisons: Iterator[Comparison]) -> None:
        super().__init__({}, _no_calls)
        self._given = comparisons

    def compared(self, node: tree.Compare) -> bool | None:
        found = [next(self._given) for _ in node.signs]
        return conjunction([None if c.within_chance else c.holds for c in found])
