"""Parser of triggers: text to a checked tree.

The parser is LALR and builds the tree bottom-up, so that nested brackets cannot exhaust the stack.
Lengths, depths and windows are limited, because users write triggers and the machines of other
people evaluate them each second.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken
from lark.exceptions import UnexpectedInput, VisitError

from skyhop.errors import InputError
from skyhop.telemetry.fields import ALERT_FIELDS, BY_NAME, Field
from skyhop_testbed.triggers import units
from skyhop_testbed.triggers.tree import (
    KINDS,
    Absolute,
    Age,
    And,
    Changed,
    Compare,
    Constant,
    Current,
    Earlier,
    Kind,
    Negate,
    Node,
    Not,
    Or,
    Product,
    Random,
    Sum,
    Window,
    WindowFunction,
    walk,
)

_NAMED = {**BY_NAME, **ALERT_FIELDS}
LONGEST = 4096
"""Upper limit on the length of a trigger, in characters."""
DEEPEST = 50
"""Upper limit on the nesting depth of brackets, signs and calls."""
MOST_WINDOWS = 16
"""Upper limit on the number of different windows in a trigger, each of which stores its values."""
MOST_UPDATES = 10_000
"""Upper limit on the number of values in a window, at the field's own period."""
SHORTEST_S = 1e-3
"""Shortest permitted window of time, in s."""
HISTORY = 5
"""Number of earlier values F_1 to F_5 of a field F; F_avg is the mean of these and the current
value.
"""
FASTEST_HZ = 1.0
"""Highest rate in Hz of random(rate), as triggers are evaluated once a second."""

FUNCTIONS: dict[str, tuple[str, str]] = {
    "avg": ("(field, window)", "the mean; for booleans, the share of true"),
    "min": ("(field, window)", "the minimum"),
    "max": ("(field, window)", "the maximum"),
    "median": ("(field, window)", "the median"),
    "p": ("(field, percent, window)", "the percentile, linearly interpolated"),
    "count": ("(field, window)", "the number of updates; for booleans, the number of true ones"),
    "before_avg": ("(field, window)", "the mean of the values before the current one"),
    "delta": ("(field), (field, window)", "the current value less the one before, or the oldest"),
    "changed": ("(field)", "whether it differs from its value one update ago"),
    "age": ("(field)", "seconds since its last update"),
    "abs": ("(number)", "the absolute value; also written between two bars"),
    "random": ("(rate)", "true at random times, at a rate per s; or 6 /h, 1 /min"),
}
"""Functions of the language: their arguments and their values, for messages and documentation."""

_WINDOWED = frozenset({"avg", "min", "max", "median", "count", "before_avg", "delta"})
_SIGNS = {"===": "==", "!==": "!="}
_OPERAND = 'a number, a field, a function, "(" or "|"'
_EXPECTED = {
    "NUMBER": _OPERAND,
    "COMPARE": "a comparison",
    "RPAR": '")"',
    "COMMA": '","',
    "PIPE": '"|"',
    "AND": '"&"',
    "PLUS": "+ - * /",
    "$END": "the end",
}
"""Words for expected tokens in messages, in the order in which messages list them."""


class _ParseError(Exception):
    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


def parse(text: str, source: str = "trigger") -> Node:
    """Parse and check a trigger.

    Args:
        text: the condition.
        source: name of the trigger in messages.

    Raises:
        InputError: the text is wrong or exceeds a limit; the message says where, and what was
            expected.
    """
    if len(text) > LONGEST:
        raise InputError(f"{source}: longer than {LONGEST:,} characters")
    if not text.strip():
        raise InputError(f"{source}: is empty: give a condition, such as pop_ping_latency_ms > 100")
    try:
        return _read(text)
    except _ParseError as refusal:
        raise InputError(f"{source}: {_place(text, refusal.at)}: {refusal}") from None


def _read(text: str) -> Node:
    if "||" in text:
        try:
            return _read_with(text, twice=False)
        except _ParseError:
            pass
    return _read_with(text, twice=True)


def _read_with(text: str, *, twice: bool) -> Node:
    try:
        root: Any = _parser(twice).parse(text)
    except UnexpectedInput as error:
        raise _syntax(text, error) from None
    except VisitError as error:
        raise error.orig_exc from None
    tree = _condition(root).node
    _check_windows(tree)
    return tree


@lru_cache(maxsize=2)
def _parser(twice: bool) -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    if not twice:
        grammar = grammar.replace(" | TWICE", "")
    return Lark(grammar, parser="lalr", transformer=_TreeBuilder(), maybe_placeholders=False)


def _place(text: str, at: int) -> str:
    """Return an offset in the text as line and column, counted from 1."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return f"column {column}" if "\n" not in text else f"line {line}, column {column}"


def _syntax(text: str, error: UnexpectedInput) -> _ParseError:
    """Return an error for the parser's error, in words of the trigger language."""
    at, found = len(text), "the end"
    words: set[str] = set()
    if isinstance(error, UnexpectedToken):
        words = set(error.accepts or error.expected)
        if error.token.type != "$END":
            at, found = error.token.start_pos or 0, f'"{str(error.token)[:40]}"'
    elif isinstance(error, UnexpectedCharacters):
        at, words = int(error.pos_in_stream or 0), set(error.allowed or ())
        found = f'"{text[at]}"'
    if "NUMBER" in words:
        words = {"NUMBER"}
    if text[at : at + 1] == "=":
        return _ParseError(at, 'expected a comparison: equality is written "=="')
    named = [said for word, said in _EXPECTED.items() if word in words]
    expected_words = " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
    return _ParseError(at, f"expected {expected_words or 'something else'}, not {found}")


@dataclass(frozen=True)
class _Part:
    """Node under construction, with its nesting depth."""

    node: Node
    depth: int
    bare: bool = False
    """Whether the part is a plain field name or number, the form that functions take."""
    text: str = ""
    """Text of a number with its unit."""


def _deeper(at: int, *parts: _Part) -> int:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > DEEPEST:
        raise _ParseError(at, f"more than {DEEPEST} nested brackets, signs and calls")
    return depth


def _parts(children: Sequence[_Part | Token | Any]) -> list[_Part]:
    return [child for child in children if isinstance(child, _Part)]


class _TreeBuilder(Transformer[Token, Any]):
    """Builder of the tree; the parser calls its methods for the grammar's rules, bottom-up."""

    def either(self, children: list[Any]) -> _Part:
        return _joined(_parts(children), Or)

    def both(self, children: list[Any]) -> _Part:
        return _joined(_parts(children), And)

    def negation(self, children: list[Any]) -> _Part:
        (part,) = (_condition(part) for part in _parts(children))
        node = part.node
        return _Part(Not(node.at, Kind.BOOLEAN, "", node), _deeper(node.at, part))

    def comparison(self, children: list[Any]) -> _Part:
        if len(children) == 1:
            return _part(children[0])
        if len(children) > 3:  # noqa: PLR2004
            raise _ParseError(
                children[3].start_pos,
                'comparisons do not chain: join them with "&", or put brackets around one',
            )
        left, sign, right = _part(children[0]), str(children[1]), _part(children[2])
        node = _compared(left.node, _SIGNS.get(sign, sign), right.node)
        return _Part(node, _deeper(node.at, left, right))

    def sum(self, children: list[Any]) -> _Part:
        return _arithmetic(children, "+", _sum_of)

    def product(self, children: list[Any]) -> _Part:
        return _arithmetic(children, "*", _product_of)

    def minus(self, children: list[Any]) -> _Part:
        part = _number(_part(children[1]))
        at, node = children[0].start_pos, part.node
        if isinstance(node, Constant):
            made: Node = Constant(at, Kind.NUMBER, node.unit, -_constant_value(node))
        else:
            made = Negate(at, Kind.NUMBER, node.unit, node)
        return _Part(made, _deeper(at, part))

    def inside(self, children: list[Any]) -> _Part:
        return _part(children[0])

    def absolute(self, children: list[Any]) -> _Part:
        return _absolute(children[0].start_pos, _part(children[1]))

    def number(self, children: list[Token]) -> _Part:
        at, unit = children[0].start_pos or 0, str(children[1]) if children[1:] else None
        value = float(children[0])
        if not math.isfinite(value):
            raise _ParseError(at, "the number is too large")
        text = " ".join(str(child) for child in children)
        return _Part(Constant(at, Kind.NUMBER, unit, value), 1, bare=True, text=text)

    def string(self, children: list[Token]) -> _Part:
        at = children[0].start_pos or 0
        return _Part(Constant(at, Kind.TEXT, None, str(children[0])[1:-1]), 1)

    def true(self, children: list[Token]) -> _Part:
        return _Part(Constant(children[0].start_pos or 0, Kind.BOOLEAN, None, True), 1)

    def false(self, children: list[Token]) -> _Part:
        return _Part(Constant(children[0].start_pos or 0, Kind.BOOLEAN, None, False), 1)

    def field(self, children: list[Token]) -> _Part:
        return _Part(_field(children[0].start_pos or 0, str(children[0])), 1, bare=True)

    def call(self, children: list[Any]) -> _Part:
        name, at = str(children[0]), children[0].start_pos
        if name not in FUNCTIONS:
            raise _ParseError(at, f'"{name}" is no function: there are {", ".join(FUNCTIONS)}')
        given = _parts(children)
        made = _called(at, name, given)
        return _Part(made.node, _deeper(at, made, *given))


def _part(child: Any) -> _Part:
    assert isinstance(child, _Part)
    return child


def _joined(parts: list[_Part], kind: type[Or] | type[And]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    nodes = tuple(_condition(part).node for part in parts)
    at = nodes[0].at
    return _Part(kind(at, Kind.BOOLEAN, "", nodes), _deeper(at, *parts))


def _condition(part: _Part) -> _Part:
    """Return the part if it can be a condition: a boolean, or a number (true if not 0).

    Raises:
        _RefusalError: the part is a text, or a constant with a unit.
    """
    node = part.node
    if node.kind is Kind.TEXT:
        raise _ParseError(node.at, "a text is no condition: compare it with a string")
    if isinstance(node, Constant) and node.unit is not None:
        raise _ParseError(node.at, "a number with a unit is no condition: compare it")
    return part


def _number(part: _Part) -> _Part:
    if part.node.kind is Kind.TEXT:
        raise _ParseError(part.node.at, "expected a number, not a text")
    return part


def _constant_value(node: Constant) -> float:
    assert not isinstance(node.value, str)
    return float(node.value)


def _compared(left: Node, sign: str, right: Node) -> Node:
    if Kind.TEXT in (left.kind, right.kind):
        _check_texts(left, sign, right)
    else:
        unit = _common_unit([left, right])
        left, right = _in_unit(left, unit), _in_unit(right, unit)
    return Compare(left.at, Kind.BOOLEAN, "", sign, left, right)


def _check_texts(left: Node, sign: str, right: Node) -> None:
    constants = sum(isinstance(node, Constant) for node in (left, right))
    if left.kind is not right.kind or constants != 1:
        raise _ParseError(right.at, 'a text field is compared with a string, such as "CONNECTED"')
    if sign not in ("==", "!="):
        raise _ParseError(left.at, "texts are equal (==) or not (!=), neither is less")


def _common_unit(nodes: Sequence[Node]) -> str | None:
    """Return the common unit of operands that are added or compared; `None` if unknown."""
    varying = [node.unit for node in nodes if not isinstance(node, Constant)]
    if varying:
        return varying[0] if len(set(varying)) == 1 else None
    return next((node.unit for node in nodes if node.unit is not None), None)


def _in_unit(node: Node, unit: str | None) -> Node:
    """Return the node, with a constant converted into the unit of the other operands.

    Raises:
        _RefusalError: the units have different dimensions.
    """
    if not isinstance(node, Constant) or node.unit is None:
        return node
    if unit is None:
        raise _ParseError(
            node.at, f"{_constant_value(node):g} {node.unit}: the other operand has no known unit"
        )
    value = units.converted(_constant_value(node), node.unit, unit)
    if value is None or not math.isfinite(value):
        met = f"is in {unit}" if unit else "is a number without a unit"
        raise _ParseError(
            node.at, f"{_constant_value(node):g} {node.unit}: the other operand {met}"
        )
    return Constant(node.at, Kind.NUMBER, unit, value)


def _arithmetic(
    children: list[Any], first: str, make: Callable[[tuple[tuple[str, Node], ...]], Node]
) -> _Part:
    """Return a sum or a product of operands; return a single operand unchanged."""
    if len(children) == 1:
        return _part(children[0])
    parts = [_number(part) for part in _parts(children)]
    signs = [first, *(str(child) for child in children if isinstance(child, Token))]
    pairs = tuple((sign, part.node) for sign, part in zip(signs, parts, strict=True))
    return _Part(make(pairs), _deeper(parts[0].node.at, *parts))


def _sum_of(terms: tuple[tuple[str, Node], ...]) -> Node:
    unit, at = _common_unit([node for _, node in terms]), terms[0][1].at
    terms = tuple((sign, _in_unit(node, unit)) for sign, node in terms)
    made = Sum(at, Kind.NUMBER, unit, terms)
    value = 0.0
    for sign, node in terms:
        if not isinstance(node, Constant):
            return made
        value += -_constant_value(node) if sign == "-" else _constant_value(node)
    return Constant(at, Kind.NUMBER, unit, value) if math.isfinite(value) else made


def _product_of(factors: tuple[tuple[str, Node], ...]) -> Node:
    first = factors[0][1]
    unit, value = first.unit, _constant_value(first) if isinstance(first, Constant) else None
    for sign, node in factors[1:]:
        other = _constant_value(node) if isinstance(node, Constant) else None
        unit = _unit_of(sign, (unit, value), (node.unit, other))
        if value is None or other is None or (sign == "/" and other == 0):
            value = None
        else:
            value = value / other if sign == "/" else value * other
    if value is not None and math.isfinite(value):
        return Constant(first.at, Kind.NUMBER, unit, value)
    return Product(first.at, Kind.NUMBER, unit, factors)


def _unit_of(
    sign: str, left: tuple[str | None, float | None], right: tuple[str | None, float | None]
) -> str | None:
    """Return the unit of a product or quotient of two operands.

    Each operand is given as its unit and, if it is constant, its value.
    """
    (unit, value), (other, factor) = left, right
    bare = factor if other is None else None
    if sign == "*" and unit is None and value is not None and bare is None:
        return units.product(other, None, value)
    return units.quotient(unit, other, bare) if sign == "/" else units.product(unit, other, bare)


def _absolute(at: int, part: _Part) -> _Part:
    node = _number(part).node
    if isinstance(node, Constant):
        made: Node = Constant(at, Kind.NUMBER, node.unit, abs(_constant_value(node)))
    else:
        made = Absolute(at, Kind.NUMBER, node.unit, node)
    return _Part(made, _deeper(at, part))


def _field(at: int, name: str) -> Node:
    """Return the node for a name: a field, one of its earlier values, or their mean."""
    known = _NAMED.get(name)
    if known is not None:
        return Current(at, KINDS[known.type], known.unit, known)
    stem, _, suffix = name.rpartition("_")
    known = _NAMED.get(stem)
    if known is not None and suffix == "avg":
        return _window_function(at, "avg", known, Window(updates=HISTORY + 1))
    if known is not None and suffix in [str(steps) for steps in range(1, HISTORY + 1)]:
        return Earlier(at, KINDS[known.type], known.unit, known, int(suffix))
    if name in FUNCTIONS:
        raise _ParseError(at, f"{name} is a function: write {name}{FUNCTIONS[name][0]}")
    near = difflib.get_close_matches(name[:64], [*_NAMED], 1)
    hint = f"; did you mean {near[0]}?" if near else ", see skyhop docs triggers"
    raise _ParseError(at, f'"{name[:64]}" is no field{hint}')


def _window_function(
    at: int, function: str, of: Field, window: Window, percent: float = 50.0
) -> Node:
    if KINDS[of.type] is Kind.TEXT and function != "count":
        raise _ParseError(at, f"{of.name} is a text, and {function} needs a number")
    unit = "" if function == "count" else of.unit
    return WindowFunction(at, Kind.NUMBER, unit, function, of, window, percent)


def _called(at: int, name: str, given: Sequence[_Part]) -> _Part:
    """Return the node of a function call.

    Raises:
        _RefusalError: the arguments are wrong.
    """
    made: Node
    match name, list(given):
        case "abs", [part]:
            return _absolute(at, part)
        case "random", [part]:
            made = _random(at, part)
        case "age", [part]:
            made = Age(at, Kind.NUMBER, "s", _plain_field(name, part))
        case "changed", [part]:
            made = Changed(at, Kind.BOOLEAN, "", _plain_field(name, part))
        case "delta", [part]:
            made = _window_function(at, name, _plain_field(name, part), Window(updates=2, text="1"))
        case "p", [part, percent, width]:
            of = _plain_field(name, part)
            made = _window_function(at, name, of, _window(name, of, width), _percent(percent))
        case _, [part, width] if name in _WINDOWED:
            of = _plain_field(name, part)
            made = _window_function(at, name, of, _window(name, of, width))
        case _:
            takes = FUNCTIONS[name][0]
            raise _ParseError(at, f"{name} takes {takes}, not {len(given)} arguments")
    return _Part(made, 1)


def _plain_field(name: str, part: _Part) -> Field:
    if isinstance(part.node, Current) and part.bare:
        return part.node.field
    raise _ParseError(part.node.at, f"{name} takes the name of a field first")


def _window(name: str, of: Field, part: _Part) -> Window:
    node = part.node
    if not isinstance(node, Constant) or node.kind is not Kind.NUMBER or not part.bare:
        raise _ParseError(node.at, f'{name}: a window is a number of updates, or "5 s"')
    value = _constant_value(node)
    if node.unit is None:
        if value != int(value) or not 1 <= value <= MOST_UPDATES:
            raise _ParseError(node.at, f"a window has 1 to {MOST_UPDATES:,} updates")
        # A difference over n updates needs n + 1 values.
        return Window(updates=int(value) + (name == "delta"), text=f"{value:g}")
    span_s = units.converted(value, node.unit, "s")
    longest_s = MOST_UPDATES * of.period_s
    if span_s is None or not SHORTEST_S <= span_s <= longest_s:
        raise _ParseError(
            node.at, f"a window of {of.name} is from 1 ms to {longest_s:,.0f} s, or a number"
        )
    return Window(span_ns=round(span_s * 1e9), text=part.text)


def _percent(part: _Part) -> float:
    node = part.node
    if (
        isinstance(node, Constant)
        and node.kind is Kind.NUMBER
        and node.unit in (None, "%")
        and 0 <= _constant_value(node) <= 100  # noqa: PLR2004
    ):
        return _constant_value(node)
    raise _ParseError(node.at, "expected a percentage, 0 to 100")


def _random(at: int, part: _Part) -> Node:
    node = part.node
    if isinstance(node, Constant) and node.kind is Kind.NUMBER:
        rate = units.converted(_constant_value(node), node.unit or "/s", "/s")
        if rate is not None and 0 < rate <= FASTEST_HZ:
            return Random(at, Kind.BOOLEAN, "", rate, at)
    raise _ParseError(node.at, f"expected a rate above 0 up to {FASTEST_HZ:g} /s, such as 6 /h")


def _check_windows(tree: Node) -> None:
    windows = {
        (part.function == "before_avg", part.field.name, part.window)
        for part in walk(tree)
        if isinstance(part, WindowFunction)
    }
    if len(windows) > MOST_WINDOWS:
        raise _ParseError(0, f"{len(windows)} different windows, more than {MOST_WINDOWS}")
