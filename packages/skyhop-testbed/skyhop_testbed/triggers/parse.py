"""Parser of triggers: the grammar of `skyhop.expressions`, with fields, windows and units.

Lengths, depths and windows are limited, because users write triggers and the machines of other
people evaluate them each second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from skyhop.data.near_names import did_you_mean
from skyhop.data.quantities import UNITS, in_unit
from skyhop.errors import InputError
from skyhop.expressions import tree
from skyhop.expressions.parse import NAME, NUMBER, Level, ParseError, Parser, Part, Words
from skyhop.expressions.tree import Kind, Node
from skyhop.telemetry.fields import ALERT_FIELDS, BY_NAME, Field, column_of
from skyhop_testbed.triggers.tree import (
    KINDS,
    Age,
    Changed,
    Current,
    Earlier,
    Random,
    Window,
    WindowFunction,
    fields_of,
)

_NAMED = {**BY_NAME, **ALERT_FIELDS}
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
_SKIPPED = r"(?:[ \t\r\n]|//[^\n]*)*+"
_UNIT = "|".join(map(re.escape, sorted(filter(None, UNITS), key=len, reverse=True)))


def parse(text: str, source: str = "trigger") -> Node:
    """Parse and check a trigger.

    Args:
        text: the condition.
        source: name of the trigger in messages.

    Raises:
        InputError: the text is wrong or exceeds a limit; the message says where, and what was
            expected.
    """
    if not text.strip():
        raise InputError(f"{source}: is empty: give a condition, such as pop_ping_latency_ms > 100")
    return _TriggerParser.parse(text, source)


def fields_in(text: str) -> list[str]:
    """Return the names of the telemetry columns that a trigger uses.

    Raises:
        InputError: the text is no trigger.
    """
    return [column_of(used) for used in fields_of(parse(text))]


class _TriggerParser(Parser):
    longest = 4096
    prefixes: ClassVar[Words] = {"not": "not", "!": "not", "-": "-"}
    infixes: ClassVar[Words] = {
        "||": "or", "|": "or", "or": "or", "&&": "and", "&": "and", "and": "and",
        "===": "==", "==": "==", "!==": "!=", "!=": "!=", "<=": "<=", ">=": ">=",
        **{sign: sign for sign in "<>+-*/,"},
    }  # fmt: skip
    skipped = re.compile(_SKIPPED)
    operands = re.compile(
        rf"(?P<number>{NUMBER})(?:{_SKIPPED}(?P<unit>{_UNIT})(?![A-Za-z0-9_]))?"
        r"""|(?P<string>"[^"\n]*"|'[^'\n]*')"""
        rf"|(?P<name>{NAME})(?!{_SKIPPED}\()"
    )
    expected = 'a number, a field, a function, "(" or "|"'
    has_bars = True

    def read(self) -> Node:
        if "||" in self.text and "||" in self.infixes:
            try:
                return _LeoscopeParser(self.text).read()
            except ParseError:
                pass
        root = super().read()
        self.check_condition(root)
        _check_windows(root)
        return root

    def operand(self, found: re.Match[str]) -> Part:
        at = found.start()
        if found["number"]:
            value = float(found["number"])
            if not math.isfinite(value):
                raise ParseError(at, "the number is too large")
            text = " ".join(filter(None, found.group("number", "unit")))
            return Part(tree.Constant(at, Kind.NUMBER, found["unit"], value), text=text)
        if found["string"]:
            return Part(tree.Constant(at, Kind.TEXT, None, found["string"][1:-1]))
        if found["name"] in ("true", "false"):
            return Part(tree.Constant(at, Kind.BOOLEAN, None, found["name"] == "true"))
        return Part(_field(at, found["name"]))

    def called(self, at: int, name: str, given: Sequence[Part]) -> Node:
        if name not in FUNCTIONS:
            raise ParseError(at, f'"{name}" is no function: there are {", ".join(FUNCTIONS)}')
        if name == "abs" and len(given) == 1:
            self.check_number(given[0].node)
            return _absolute(at, given[0].node)
        return _called(at, name, given)

    def check_condition(self, node: Node) -> None:
        if node.kind is Kind.TEXT:
            raise ParseError(node.at, "a text is no condition: compare it with a string")
        if isinstance(node, tree.Constant) and node.unit is not None:
            raise ParseError(node.at, "a number with a unit is no condition: compare it")

    def check_number(self, node: Node) -> None:
        if node.kind is Kind.TEXT:
            raise ParseError(node.at, "expected a number, not a text")

    def operation(self, level: Level, at: int, signs: tuple[str, ...], nodes: list[Node]) -> Node:
        if level is Level.COMPARE:
            return _compared(nodes, signs)
        node = super().operation(level, at, signs, nodes)
        match node:
            case tree.Signed(operands=(part,)):
                value = _fixed(part)
                if value is not None:
                    return tree.Constant(at, Kind.NUMBER, part.unit, -value)
                return replace(node, unit=part.unit)
            case tree.Sum():
                return _sum_of(node)
            case tree.Product():
                return _product_of(node)
        return node


class _LeoscopeParser(_TriggerParser):
    """Parser for which "||" is two "|", as for LEOScope: or, and an absolute value."""

    infixes: ClassVar[Words] = {w: s for w, s in _TriggerParser.infixes.items() if w != "||"}


def _fixed(node: Node) -> float | None:
    """Return the number of a constant; `None` for texts and for nodes whose value varies."""
    if not isinstance(node, tree.Constant) or isinstance(node.value, str):
        return None
    return float(node.value)


def _compared(nodes: list[Node], signs: tuple[str, ...]) -> Node:
    if len(signs) > 1:
        raise ParseError(
            nodes[2].at, 'comparisons do not chain: join them with "&", or put brackets around one'
        )
    if any(node.kind is Kind.TEXT for node in nodes):
        _check_texts(nodes[0], signs[0], nodes[1])
    else:
        unit = _common_unit(nodes)
        nodes = [_in_unit(node, unit) for node in nodes]
    return tree.Compare(nodes[0].at, Kind.BOOLEAN, "", tuple(nodes), signs)


def _check_texts(left: Node, sign: str, right: Node) -> None:
    constants = sum(isinstance(node, tree.Constant) for node in (left, right))
    if left.kind is not right.kind or constants != 1:
        raise ParseError(right.at, 'a text field is compared with a string, such as "CONNECTED"')
    if sign not in ("==", "!="):
        raise ParseError(left.at, "texts are equal (==) or not (!=), neither is less")


def _common_unit(nodes: Sequence[Node]) -> str | None:
    """Return the common unit of operands that are added or compared; `None` if unknown."""
    varying = [node.unit for node in nodes if not isinstance(node, tree.Constant)]
    if varying:
        return varying[0] if len(set(varying)) == 1 else None
    return next((node.unit for node in nodes if node.unit is not None), None)


def _in_unit(node: Node, unit: str | None) -> Node:
    """Return the node, with a constant converted into the unit of the other operands."""
    number = _fixed(node)
    if number is None or node.unit is None:
        return node
    value = None if unit is None else in_unit(number, node.unit, unit)
    if value is None or not math.isfinite(value):
        met = {None: "has no known unit", "": "is a number without a unit"}.get(
            unit, f"is in {unit}"
        )
        raise ParseError(node.at, f"{number:g} {node.unit}: the other operand {met}")
    return tree.Constant(node.at, Kind.NUMBER, unit, value)


def _sum_of(node: tree.Sum) -> Node:
    unit = _common_unit(node.operands)
    node = replace(node, unit=unit, operands=tuple(_in_unit(one, unit) for one in node.operands))
    value = 0.0
    for sign, one in zip(("+", *node.signs), map(_fixed, node.operands), strict=True):
        if one is None:
            return node
        value += -one if sign == "-" else one
    return tree.Constant(node.at, Kind.NUMBER, unit, value) if math.isfinite(value) else node


def _product_of(node: tree.Product) -> Node:
    first = node.operands[0]
    unit, value = first.unit, _fixed(first)
    for sign, one in zip(node.signs, node.operands[1:], strict=True):
        other = _fixed(one)
        unit = _unit_of(sign, (unit, value), (one.unit, other))
        if value is None or other is None or (sign == "/" and other == 0):
            value = None
        else:
            value = value / other if sign == "/" else value * other
    if value is not None and math.isfinite(value):
        return tree.Constant(node.at, Kind.NUMBER, unit, value)
    return replace(node, unit=unit)


def _unit_of(
    sign: str, left: tuple[str | None, float | None], right: tuple[str | None, float | None]
) -> str | None:
    """Return the unit of a product or quotient of two operands; `None` if it is not in `UNITS`.

    Each operand is given as its unit and, if it is constant, its value.
    """
    (unit, value), (other, factor) = left, right
    is_plain = other is None and factor is not None
    if sign == "*" and unit is None and value is not None and not is_plain:
        unit, factor, is_plain = other, value, True
    if is_plain:
        made = {("*", "byte/s"): "bit/s", ("/", "bit/s"): "byte/s"}.get((sign, unit or ""))
        return made if made and factor == 8 else unit  # noqa: PLR2004
    if sign == "/" and unit is not None and unit == other:
        return ""
    if sign == "*" and unit == "":
        return other
    return unit if other == "" else None


def _absolute(at: int, node: Node) -> Node:
    value = _fixed(node)
    if value is not None:
        return tree.Constant(at, Kind.NUMBER, node.unit, abs(value))
    return tree.Function(at, Kind.NUMBER, node.unit, (node,), ("abs",))


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
        raise ParseError(at, f"{name} is a function: write {name}{FUNCTIONS[name][0]}")
    hint = did_you_mean(name, _NAMED) or ", see skyhop docs triggers"
    raise ParseError(at, f'"{name[:64]}" is no field{hint}')


def _window_function(
    at: int, function: str, of: Field, window: Window, percent: float = 50.0
) -> Node:
    if KINDS[of.type] is Kind.TEXT and function != "count":
        raise ParseError(at, f"{of.name} is a text, and {function} needs a number")
    unit = "" if function == "count" else of.unit
    return WindowFunction(at, Kind.NUMBER, unit, of, function, window, percent)


def _called(at: int, name: str, given: Sequence[Part]) -> Node:
    """Return the node of a function call, or raise a ParseError if its arguments are wrong."""
    match name, list(given):
        case "random", [part]:
            return _random(at, part)
        case "age", [part]:
            return Age(at, Kind.NUMBER, "s", _plain_field(name, part))
        case "changed", [part]:
            return Changed(at, Kind.BOOLEAN, "", _plain_field(name, part))
        case "delta", [part]:
            return _window_function(at, name, _plain_field(name, part), Window(updates=2, text="1"))
        case "p", [part, percent, width]:
            of = _plain_field(name, part)
            window = _window(name, of, width)
            return _window_function(at, name, of, window, _percent(percent))
        case _, [part, width] if name in _WINDOWED:
            of = _plain_field(name, part)
            return _window_function(at, name, of, _window(name, of, width))
    raise ParseError(at, f"{name} takes {FUNCTIONS[name][0]}, not {len(given)} arguments")


def _plain_field(name: str, part: Part) -> Field:
    if isinstance(part.node, Current) and part.depth == 1:
        return part.node.field
    raise ParseError(part.node.at, f"{name} takes the name of a field first")


def _window(name: str, of: Field, part: Part) -> Window:
    node = part.node
    value = _fixed(node)
    if value is None or node.kind is not Kind.NUMBER or part.depth > 1:
        raise ParseError(node.at, f'{name}: a window is a number of updates, or "5 s"')
    if node.unit is None:
        if value != int(value) or not 1 <= value <= MOST_UPDATES:
            raise ParseError(node.at, f"a window has 1 to {MOST_UPDATES:,} updates")
        # A difference over n updates needs n + 1 values.
        return Window(updates=int(value) + (name == "delta"), text=f"{value:g}")
    span_s = in_unit(value, node.unit, "s")
    longest_s = MOST_UPDATES * of.period_s
    if span_s is None or not SHORTEST_S <= span_s <= longest_s:
        raise ParseError(
            node.at, f"a window of {of.name} is from 1 ms to {longest_s:,.0f} s, or a number"
        )
    return Window(span_ns=round(span_s * 1e9), text=part.text)


def _percent(part: Part) -> float:
    node, value = part.node, _fixed(part.node)
    is_percentage = node.kind is Kind.NUMBER and node.unit in (None, "%")
    if value is None or not is_percentage or not 0 <= value <= 100:  # noqa: PLR2004
        raise ParseError(node.at, "expected a percentage, 0 to 100")
    return value


def _random(at: int, part: Part) -> Node:
    node, value = part.node, _fixed(part.node)
    if value is not None and node.kind is Kind.NUMBER:
        rate = in_unit(value, node.unit or "/s", "/s")
        if rate is not None and 0 < rate <= FASTEST_HZ:
            return Random(at, Kind.BOOLEAN, "", rate, at)
    raise ParseError(node.at, f"expected a rate above 0 up to {FASTEST_HZ:g} /s, such as 6 /h")


def _check_windows(root: Node) -> None:
    windows = {
        (part.function == "before_avg", part.field.name, part.window)
        for part in tree.walk(root)
        if isinstance(part, WindowFunction)
    }
    if len(windows) > MOST_WINDOWS:
        raise ParseError(0, f"{len(windows)} different windows, more than {MOST_WINDOWS}")
