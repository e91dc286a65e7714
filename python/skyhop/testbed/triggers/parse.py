"""Reading a trigger: text into a checked tree.

LALR, with the tree built as it reads, so that no depth of brackets can exhaust the stack. Lengths,
depths and windows are limited: triggers come from users and are evaluated each second on others'
machines.
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
from skyhop.testbed.triggers import units
from skyhop.testbed.triggers.tree import (
    KINDS,
    Absolute,
    Age,
    All,
    Changed,
    Compare,
    Constant,
    Current,
    Earlier,
    Either,
    Kind,
    Minus,
    Node,
    Not,
    Over,
    Product,
    Random,
    Sum,
    Window,
    walk,
)

_NAMED = {**BY_NAME, **ALERT_FIELDS}
LONGEST = 4096
"""Letters of a trigger."""
DEEPEST = 50
"""Brackets, signs and calls within each other."""
MOST_WINDOWS = 16
"""Different windows of a trigger: each keeps its values."""
MOST_UPDATES = 10_000
"""What a window may hold, at a field's own period."""
SHORTEST_S = 1e-3
"""The shortest window in time."""
HISTORY = 5
"""F_1 to F_5; F_avg is over these and the current value."""
FASTEST_HZ = 1.0
"""Of random(rate): it is looked at once a second."""

FUNCTIONS: dict[str, tuple[str, str]] = {
    "avg": ("(field, window)", "the mean; of true and false, the share of true"),
    "min": ("(field, window)", "the least"),
    "max": ("(field, window)", "the largest"),
    "median": ("(field, window)", "as many are below as above"),
    "p": ("(field, percent, window)", "the percentile, between two values in proportion"),
    "count": ("(field, window)", "how many updates; of true and false, how many were true"),
    "before_avg": ("(field, window)", "the mean of what was before the current value"),
    "delta": ("(field), (field, window)", "the current value less the one before, or the oldest"),
    "changed": ("(field)", "whether it is another than one update ago"),
    "age": ("(field)", "seconds since its last update"),
    "abs": ("(number)", "without its sign, as between two bars"),
    "random": ("(rate)", "true at random moments, so many a second; or 6 /h, 1 /min"),
}
"""Each function, what it takes and what it is worth."""

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
"""What messages call that which may come next, in this order."""


class _RefusalError(Exception):
    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


def parse(text: str, source: str = "trigger") -> Node:
    """Return the tree of a trigger.

    Args:
        text: the condition.
        source: what messages call it.

    Raises:
        InputError: it is none, or more than is allowed; the message says where and what was
            expected.
    """
    if len(text) > LONGEST:
        raise InputError(f"{source}: longer than {LONGEST:,} letters")
    if not text.strip():
        raise InputError(f"{source}: is empty: give a condition, such as pop_ping_latency_ms > 100")
    try:
        return _read(text)
    except _RefusalError as refusal:
        raise InputError(f"{source}: {_place(text, refusal.at)}: {refusal}") from None


def _read(text: str) -> Node:
    if "||" in text:
        try:
            return _read_with(text, twice=False)
        except _RefusalError:
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
    _check_whole(tree)
    return tree


@lru_cache(maxsize=2)
def _parser(twice: bool) -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    if not twice:
        grammar = grammar.replace(" | TWICE", "")
    return Lark(grammar, parser="lalr", transformer=_Build(), maybe_placeholders=False)


def _place(text: str, at: int) -> str:
    """Return where something is, for people, who count from 1."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return f"column {column}" if "\n" not in text else f"line {line}, column {column}"


def _syntax(text: str, error: UnexpectedInput) -> _RefusalError:
    """Return what is wrong in the words of this language instead of the parser's."""
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
        return _RefusalError(at, 'expected a comparison: equality is written "=="')
    named = [said for word, said in _EXPECTED.items() if word in words]
    expected_words = " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
    return _RefusalError(at, f"expected {expected_words or 'something else'}, not {found}")


@dataclass(frozen=True)
class _Part:
    """A node as it is built, with how deep it is."""

    node: Node
    depth: int
    bare: bool = False
    """Whether it is a field's name or a number as it was written: what calls may take."""
    text: str = ""
    """Of a number with its unit."""


def _deeper(at: int, *parts: _Part) -> int:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > DEEPEST:
        raise _RefusalError(at, f"more than {DEEPEST} brackets, signs and calls within each other")
    return depth


def _parts(children: Sequence[_Part | Token | Any]) -> list[_Part]:
    return [child for child in children if isinstance(child, _Part)]


class _Build(Transformer[Token, Any]):
    """The tree, from the leaves up, as the parser recognises its parts."""

    def either(self, children: list[Any]) -> _Part:
        return _joined(_parts(children), Either)

    def both(self, children: list[Any]) -> _Part:
        return _joined(_parts(children), All)

    def negation(self, children: list[Any]) -> _Part:
        (part,) = (_condition(part) for part in _parts(children))
        node = part.node
        return _Part(Not(node.at, Kind.BOOLEAN, "", node), _deeper(node.at, part))

    def comparison(self, children: list[Any]) -> _Part:
        if len(children) == 1:
            return _part(children[0])
        if len(children) > 3:  # noqa: PLR2004
            raise _RefusalError(
                children[3].start_pos,
                'comparisons do not chain: join them with "&", or put brackets around one',
            )
        left, sign, right = _part(children[0]), str(children[1]), _part(children[2])
        node = _compared(left.node, _SIGNS.get(sign, sign), right.node)
        return _Part(node, _deeper(node.at, left, right))

    def sum(self, children: list[Any]) -> _Part:
        return _reckoned(children, "+", _sum_of)

    def product(self, children: list[Any]) -> _Part:
        return _reckoned(children, "*", _product_of)

    def minus(self, children: list[Any]) -> _Part:
        part = _number(_part(children[1]))
        at, node = children[0].start_pos, part.node
        if isinstance(node, Constant):
            made: Node = Constant(at, Kind.NUMBER, node.unit, -_worth(node))
        else:
            made = Minus(at, Kind.NUMBER, node.unit, node)
        return _Part(made, _deeper(at, part))

    def inside(self, children: list[Any]) -> _Part:
        return _part(children[0])

    def absolute(self, children: list[Any]) -> _Part:
        return _absolute(children[0].start_pos, _part(children[1]))

    def number(self, children: list[Token]) -> _Part:
        at, unit = children[0].start_pos or 0, str(children[1]) if children[1:] else None
        value = float(children[0])
        if not math.isfinite(value):
            raise _RefusalError(at, "the number is too large")
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
            raise _RefusalError(at, f'"{name}" is no function: there are {", ".join(FUNCTIONS)}')
        given = _parts(children)
        made = _called(at, name, given)
        return _Part(made.node, _deeper(at, made, *given))


def _part(child: Any) -> _Part:
    assert isinstance(child, _Part)
    return child


def _joined(parts: list[_Part], kind: type[Either] | type[All]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    nodes = tuple(_condition(part).node for part in parts)
    at = nodes[0].at
    return _Part(kind(at, Kind.BOOLEAN, "", nodes), _deeper(at, *parts))


def _condition(part: _Part) -> _Part:
    """Return the part if it may be true or false: a boolean, or a number, which is if it is not 0.

    Raises:
        _RefusalError: it is text, or has a unit that nothing is compared with.
    """
    node = part.node
    if node.kind is Kind.TEXT:
        raise _RefusalError(node.at, "a text is no condition: compare it with a string")
    if isinstance(node, Constant) and node.unit is not None:
        raise _RefusalError(node.at, "a number with a unit is no condition: compare it")
    return part


def _number(part: _Part) -> _Part:
    if part.node.kind is Kind.TEXT:
        raise _RefusalError(part.node.at, "expected a number, not a text")
    return part


def _worth(node: Constant) -> float:
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
        raise _RefusalError(right.at, 'a text field is compared with a string, such as "CONNECTED"')
    if sign not in ("==", "!="):
        raise _RefusalError(left.at, "texts are equal (==) or not (!=), neither is less")


def _common_unit(nodes: Sequence[Node]) -> str | None:
    """Return the unit of what is added or compared, None where it has none that is known."""
    varying = [node.unit for node in nodes if not isinstance(node, Constant)]
    if varying:
        return varying[0] if len(set(varying)) == 1 else None
    return next((node.unit for node in nodes if node.unit is not None), None)


def _in_unit(node: Node, unit: str | None) -> Node:
    """Return the node, a number with a unit converted into the one of what it meets.

    Raises:
        _RefusalError: they measure different things.
    """
    if not isinstance(node, Constant) or node.unit is None:
        return node
    if unit is None:
        raise _RefusalError(
            node.at, f"{_worth(node):g} {node.unit}: what it meets has no unit that is known"
        )
    value = units.converted(_worth(node), node.unit, unit)
    if value is None or not math.isfinite(value):
        met = f"is in {unit}" if unit else "is a number without a unit"
        raise _RefusalError(node.at, f"{_worth(node):g} {node.unit}: what it meets {met}")
    return Constant(node.at, Kind.NUMBER, unit, value)


def _reckoned(
    children: list[Any], first: str, make: Callable[[tuple[tuple[str, Node], ...]], Node]
) -> _Part:
    """Return a sum or a product; of one part, that part."""
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
        value += -_worth(node) if sign == "-" else _worth(node)
    return Constant(at, Kind.NUMBER, unit, value) if math.isfinite(value) else made


def _product_of(factors: tuple[tuple[str, Node], ...]) -> Node:
    first = factors[0][1]
    unit, value = first.unit, _worth(first) if isinstance(first, Constant) else None
    for sign, node in factors[1:]:
        other = _worth(node) if isinstance(node, Constant) else None
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
    """Return the unit of a product or quotient; each side is its unit and, if fixed, its value."""
    (unit, value), (other, factor) = left, right
    bare = factor if other is None else None
    if sign == "*" and unit is None and value is not None and bare is None:
        return units.product(other, None, value)
    return units.quotient(unit, other, bare) if sign == "/" else units.product(unit, other, bare)


def _absolute(at: int, part: _Part) -> _Part:
    node = _number(part).node
    if isinstance(node, Constant):
        made: Node = Constant(at, Kind.NUMBER, node.unit, abs(_worth(node)))
    else:
        made = Absolute(at, Kind.NUMBER, node.unit, node)
    return _Part(made, _deeper(at, part))


def _field(at: int, name: str) -> Node:
    """Return what a name stands for: a field, one of its earlier values, or their mean."""
    known = _NAMED.get(name)
    if known is not None:
        return Current(at, KINDS[known.type], known.unit, known)
    stem, _, suffix = name.rpartition("_")
    known = _NAMED.get(stem)
    if known is not None and suffix == "avg":
        return _over(at, "avg", known, Window(updates=HISTORY + 1))
    if known is not None and suffix in [str(steps) for steps in range(1, HISTORY + 1)]:
        return Earlier(at, KINDS[known.type], known.unit, known, int(suffix))
    if name in FUNCTIONS:
        raise _RefusalError(at, f"{name} is a function: write {name}{FUNCTIONS[name][0]}")
    near = difflib.get_close_matches(name[:64], [*_NAMED], 1)
    hint = f"; did you mean {near[0]}?" if near else ", see docs/triggers.md"
    raise _RefusalError(at, f'"{name[:64]}" is no field{hint}')


def _over(at: int, function: str, of: Field, window: Window, percent: float = 50.0) -> Node:
    if KINDS[of.type] is Kind.TEXT and function != "count":
        raise _RefusalError(at, f"{of.name} is a text, of which there is no {function}")
    unit = "" if function == "count" else of.unit
    return Over(at, Kind.NUMBER, unit, function, of, window, percent)


def _called(at: int, name: str, given: Sequence[_Part]) -> _Part:
    """Return what a call stands for.

    Raises:
        _RefusalError: it is given what it does not take.
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
            made = _over(at, name, _plain_field(name, part), Window(updates=2, text="1"))
        case "p", [part, percent, width]:
            of = _plain_field(name, part)
            made = _over(at, name, of, _window(name, of, width), _percent(percent))
        case _, [part, width] if name in _WINDOWED:
            of = _plain_field(name, part)
            made = _over(at, name, of, _window(name, of, width))
        case _:
            takes = FUNCTIONS[name][0]
            raise _RefusalError(at, f"{name} takes {takes}, not {len(given)} arguments")
    return _Part(made, 1)


def _plain_field(name: str, part: _Part) -> Field:
    if isinstance(part.node, Current) and part.bare:
        return part.node.field
    raise _RefusalError(part.node.at, f"{name} takes the name of a field first")


def _window(name: str, of: Field, part: _Part) -> Window:
    node = part.node
    if not isinstance(node, Constant) or node.kind is not Kind.NUMBER or not part.bare:
        raise _RefusalError(node.at, f'{name}: a window is a number of updates, or "5 s"')
    value = _worth(node)
    if node.unit is None:
        if value != int(value) or not 1 <= value <= MOST_UPDATES:
            raise _RefusalError(node.at, f"a window has 1 to {MOST_UPDATES:,} updates")
        # The difference to the value so many updates ago needs one more.
        return Window(updates=int(value) + (name == "delta"), text=f"{value:g}")
    span_s = units.converted(value, node.unit, "s")
    longest_s = MOST_UPDATES * of.period_s
    if span_s is None or not SHORTEST_S <= span_s <= longest_s:
        raise _RefusalError(
            node.at, f"a window of {of.name} is from 1 ms to {longest_s:,.0f} s, or a number"
        )
    return Window(span_ns=round(span_s * 1e9), text=part.text)


def _percent(part: _Part) -> float:
    node = part.node
    if (
        isinstance(node, Constant)
        and node.kind is Kind.NUMBER
        and node.unit in (None, "%")
        and 0 <= _worth(node) <= 100  # noqa: PLR2004
    ):
        return _worth(node)
    raise _RefusalError(node.at, "expected a percentage, 0 to 100")


def _random(at: int, part: _Part) -> Node:
    node = part.node
    if isinstance(node, Constant) and node.kind is Kind.NUMBER:
        rate = units.converted(_worth(node), node.unit or "/s", "/s")
        if rate is not None and 0 < rate <= FASTEST_HZ:
            return Random(at, Kind.BOOLEAN, "", rate, at)
    raise _RefusalError(node.at, f"expected a rate above 0 up to {FASTEST_HZ:g} /s, such as 6 /h")


def _check_whole(tree: Node) -> None:
    windows = {
        (part.function == "before_avg", part.field.name, part.window)
        for part in walk(tree)
        if isinstance(part, Over)
    }
    if len(windows) > MOST_WINDOWS:
        raise _RefusalError(0, f"{len(windows)} different windows, more than {MOST_WINDOWS}")
