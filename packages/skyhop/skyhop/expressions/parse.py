"""Operator-precedence parser of expressions: text to a tree of checked types.

    or      = and { OR and }
    and     = not { AND not }
    not     = NOT not | sum { COMPARE sum }
    sum     = product { ("+" | "-") product }
    product = unary { ("*" | "/") unary }
    unary   = "-" unary | operand | "(" or ")" | function "(" or { "," or } ")" | "|" sum "|"

Pending operators and open brackets are on a stack of the parser's own, so that nested brackets
cannot exhaust Python's.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, TypeAlias

from skyhop.errors import InputError
from skyhop.expressions import tree
from skyhop.expressions.tree import Kind, Node

DEEPEST = 50
"""Upper limit on the nesting depth of operators and calls."""
NAME = r"[A-Za-z_][A-Za-z0-9_]*+"
_DIGITS = "[0-9]++(?:_[0-9]++)*+"
NUMBER = rf"(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?"
_NAME = re.compile(NAME)
_SHOWN = re.compile(r"\w{1,40}|.", re.DOTALL)

Words: TypeAlias = Mapping[str, str]
"""Words of operators and their signs; a word comes before those with which it begins."""


class Level(IntEnum):
    """Precedence of brackets and operators, from the loosest."""

    OPEN = 0
    COMMA = 1
    OR = 2
    AND = 3
    NOT = 4
    COMPARE = 5
    SUM = 6
    PRODUCT = 7
    SIGN = 8


_LEVELS = {
    ",": Level.COMMA, "or": Level.OR, "and": Level.AND, "+": Level.SUM, "-": Level.SUM,
    "*": Level.PRODUCT, "/": Level.PRODUCT,
}  # fmt: skip
"""Precedence of the signs between operands, other than comparisons."""
_OPERATIONS: Mapping[Level, type[tree.Operation]] = {
    Level.OR: tree.Or, Level.AND: tree.And, Level.NOT: tree.Not, Level.COMPARE: tree.Compare,
    Level.SUM: tree.Sum, Level.PRODUCT: tree.Product, Level.SIGN: tree.Signed,
}  # fmt: skip


class ParseError(Exception):
    """Text that is not of the language, with the offset at which it is wrong."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True)
class Part:
    """Node, as the parser combines it with others."""

    node: Node
    depth: int = 1
    """Nesting depth; 1 for an operand alone."""
    text: str = ""
    """Text of a number with its unit."""


@dataclass
class _Pending:
    """Open bracket, or operators of one level, whose last operand is not complete."""

    level: Level
    floor: Level
    """Loosest operators that the next operand may contain without brackets."""
    at: int
    signs: list[str] = field(default_factory=list)
    """Signs of the operators so far; the function of a bracket, which is "abs" for a bar."""
    parts: list[Part] = field(default_factory=list)
    closes: str = ""
    """Character that closes the bracket; empty for the end of the text."""


class Parser(ABC):
    """Parser of one text; a language is a subclass with its words, operands and functions."""

    longest: ClassVar[int]
    """Upper limit on the length of a text, in characters."""
    prefixes: ClassVar[Words]
    """Words before an operand: "not", "-" and "+"."""
    infixes: ClassVar[Words]
    """Words between operands: "and", "or", "," and the signs of arithmetic and comparisons."""
    has_bars: ClassVar[bool] = False
    """Whether a bar in place of an operand opens an absolute value."""
    skipped: ClassVar[re.Pattern[str]]
    """White space and comments, or nothing."""
    operands: ClassVar[re.Pattern[str]]
    """Operands; a name that this does not match is a function's, before a bracket."""
    expected: ClassVar[str]
    """Words for an operand, in messages."""

    def __init__(self, text: str) -> None:
        self.text, self._at = text, 0
        self._pending = [_Pending(Level.OPEN, Level.OR, 0)]

    @abstractmethod
    def operand(self, found: re.Match[str]) -> Part:
        """Return the node of a match of `operands`."""

    @abstractmethod
    def called(self, at: int, name: str, given: Sequence[Part]) -> Node:
        """Return the node of a function's call; "abs" is also an absolute value between bars."""

    def check_condition(self, node: Node) -> None:
        """Raise a ParseError if a node cannot be an operand of "and", "or" and "not"."""
        if node.kind is not Kind.BOOLEAN:
            raise ParseError(node.at, "expected a comparison, not a number")

    def check_number(self, node: Node) -> None:
        """Raise a ParseError if a node cannot be an operand of arithmetic."""
        if node.kind is not Kind.NUMBER:
            raise ParseError(node.at, "expected a number, not a comparison")

    def operation(self, level: Level, at: int, signs: tuple[str, ...], nodes: list[Node]) -> Node:
        """Return the node of an operator, or of several of one level in a row."""
        check = self.check_condition if level < Level.COMPARE else self.check_number
        for node in nodes:
            check(node)
        kind, unit = (Kind.BOOLEAN, "") if level < Level.SUM else (Kind.NUMBER, None)
        return _OPERATIONS[level](at, kind, unit, tuple(nodes), signs)

    @classmethod
    def parse(cls, text: str, origin: str) -> Node:
        """Return the tree of a text; `origin` is its place in error messages.

        Raises:
            InputError: the text is wrong or exceeds a limit; the message says where, and what was
                expected.
        """
        if len(text) > cls.longest:
            raise InputError(f"{origin}: longer than {cls.longest:,} characters")
        try:
            return cls(text).read()
        except ParseError as error:
            line = text.count("\n", 0, error.at) + 1
            column = error.at - text.rfind("\n", 0, error.at)
            place = f"column {column}" if "\n" not in text else f"line {line}, column {column}"
            raise InputError(f"{origin}: {place}: {error}") from None

    def read(self) -> Node:
        """Return the tree of the text, or raise a ParseError."""
        while True:
            while self._opens():
                pass
            part = self._operand()
            while (closed := self._closed(part)) is not None:
                part = closed
            if not self._pending:
                return part.node
            self._infix(part)

    def _opens(self) -> bool:
        """Read a bracket, a function's name or a prefix; return whether there was one."""
        at = self._skip()
        word, name = self._word(self.prefixes), _NAME.match(self.text, at)
        if word is not None and (name is None or name[0] == word):
            level = Level.NOT if self.prefixes[word] == "not" else Level.SIGN
            if self._pending[-1].floor <= level:
                self._pending.append(_Pending(level, level, at, [self.prefixes[word]]))
                self._at += len(word)
                return True
        if self.text.startswith("(", at):
            self._pending.append(_Pending(Level.OPEN, Level.OR, at, closes=")"))
        elif self.text.startswith("|", at) and self.has_bars:
            self._pending.append(_Pending(Level.OPEN, Level.SUM, at, ["abs"], closes="|"))
        elif name is not None and not self.operands.match(self.text, at):
            self._pending.append(_Pending(Level.OPEN, Level.COMMA, at, [name[0]], closes=")"))
            self._at = name.end()
            self._skip()
        else:
            return False
        self._at += 1
        return True

    def _operand(self) -> Part:
        found = self.operands.match(self.text, self._at)
        if found is None:
            raise self._unexpected(self.expected)
        self._at = found.end()
        return self.operand(found)

    def _closed(self, part: Part) -> Part | None:
        """Return the part that the next bracket or the end closes; `None` if nothing does."""
        if not self._pending:
            return None
        at, bracket = self._skip(), self._bracket()
        if (self._word(self.infixes) or self.text[at : at + 1]) != bracket.closes:
            return None
        self._at += len(bracket.closes)
        given = [self._joined(part, Level.COMMA)]
        while (top := self._pending.pop()) is not bracket:
            given = [*top.parts, *given]
        if not bracket.signs:
            return given[0]
        return self._part(self.called(bracket.at, bracket.signs[0], given), given)

    def _infix(self, part: Part) -> None:
        """Read an operator after an operand."""
        word, bracket = self._word(self.infixes), self._bracket()
        sign = self.infixes.get(word or "", "")
        level = _LEVELS.get(sign, Level.COMPARE)
        if word is None or level < bracket.floor:
            closing = f'"{bracket.closes}"' if bracket.closes else "the end"
            raise self._unexpected(f"{closing} or an operator")
        self._at += len(word)
        part = self._joined(part, level)
        if self._pending[-1].level is not level:
            self._pending.append(_Pending(level, Level(level + 1), part.node.at))
        self._pending[-1].signs.append(sign)
        self._pending[-1].parts.append(part)

    def _joined(self, part: Part, level: Level) -> Part:
        """Return an operand with the pending operators before it that bind tighter than `level`."""
        while (top := self._pending[-1]).level > level:
            self._pending.pop()
            parts = [*top.parts, part]
            nodes = [each.node for each in parts]
            part = self._part(self.operation(top.level, top.at, tuple(top.signs), nodes), parts)
        return part

    @staticmethod
    def _part(node: Node, parts: Sequence[Part]) -> Part:
        depth = 1 + max(part.depth for part in parts)
        if depth > DEEPEST:
            raise ParseError(node.at, f"more than {DEEPEST} nested brackets, signs and calls")
        return Part(node, depth)

    def _bracket(self) -> _Pending:
        """Return the innermost open bracket; the text itself is the outermost."""
        return next(top for top in reversed(self._pending) if top.level is Level.OPEN)

    def _word(self, words: Words) -> str | None:
        """Return the next characters, if they are one of these words."""
        return next((word for word in words if self.text.startswith(word, self._at)), None)

    def _skip(self) -> int:
        """Skip white space and comments, and return the new offset."""
        found = self.skipped.match(self.text, self._at)
        assert found is not None
        self._at = found.end()
        return self._at

    def _unexpected(self, expected: str) -> ParseError:
        shown = _SHOWN.match(self.text, self._at)
        if shown is not None and shown[0] == "=":
            return ParseError(self._at, 'expected a comparison: equality is written "=="')
        found = f'"{shown[0]}"' if shown else "the end"
        return ParseError(self._at, f"expected {expected}, not {found}")
