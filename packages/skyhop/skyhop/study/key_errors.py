"""Error messages about the keys of a file, in terms of TOML rather than of Python."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_Table: TypeAlias = type[BaseModel]
_Location: TypeAlias = tuple[int | str, ...]


def first_error(error: ValidationError, file: _Table) -> str:
    """Return the first error in one line: the key in a file of this type, and what was expected."""
    first = error.errors(include_url=False)[0]
    keys, given = _keys_and_tables(first["loc"], file)[0], first["input"]
    match first["type"]:
        case "extra_forbidden":
            return _about_a_wrong_key(first["loc"], file)
        case "missing" if _keys_and_tables(first["loc"][:-1], file)[2]:
            kind = json.dumps(first["loc"][-2])
            return f"{'.'.join(keys[:-1])}: kind = {kind} needs `{keys[-1]}`"
        case "union_tag_invalid" | "union_tag_not_found":
            keys, given = [*keys, "kind"], first.get("ctx", {}).get("tag")
    actual = f" (it is {given!r})" if isinstance(given, str | int | float) else ""
    message = f"{_plain_message(first)}{actual}"
    return f"{'.'.join(keys)}: {message}" if keys else message


def _about_a_wrong_key(location: _Location, file: _Table) -> str:
    keys, _, _ = _keys_and_tables(location, file)
    _, (table, *_), kinds = _keys_and_tables(location[:-1], file)
    expected = ", ".join(sorted(_names(table)))
    with_it = [json.dumps(_kind(kind)) for kind in kinds if keys[-1] in _names(kind)]
    where_it_goes = f"; `{keys[-1]}` goes with kind = {' or '.join(with_it)}" if with_it else ""
    return f"{'.'.join(keys)}: unknown key; expected one of {expected}{where_it_goes}"


def _plain_message(error: ErrorDetails) -> str:
    """Return a validation error's message in terms of TOML rather than of Python."""
    if error["loc"] and error["loc"][-1] in _VALUES:
        others = ", a list of those, or a table" if "points" in error["loc"] else ""
        return f"expected a number, text, true or false{others}"
    kind, context = error["type"], error.get("ctx", {})
    kind = kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    if kind in ("missing", "union_tag_not_found"):
        return "is missing"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind in ("literal_error", "union_tag_invalid"):
        return f"expected {context.get('expected') or context.get('expected_tags')}"
    return error["msg"].removeprefix("Value error, ")


_EXPECTED = {
    "bool": "true or false", "dict": "a table", "float": "a number", "int": "a whole number",
    "list": "a list", "model": "a table", "model_attributes": "a table", "string": "text",
}  # fmt: skip
_VALUES = frozenset(
    {"bool", "int", "float", "str", "list[union[bool,int,float,str]]", "dict[str,any]"}
)


def _keys_and_tables(
    location: _Location, file: _Table
) -> tuple[list[str], Sequence[_Table], Sequence[_Table]]:
    """Follow the location of an error, which also contains the branches of unions.

    Returns:
        The keys of the location; the types that the last of them can have as a table; and if its
        `kind` chose among several types, all of these.
    """
    keys: list[str] = []
    tables, kinds = [file], list[_Table]()
    for step in location:
        if isinstance(step, int):
            keys.append(str(step))
        elif len(tables) > 1:
            kinds, tables = tables, [table for table in tables if _kind(table) == step]
        elif step not in _VALUES:
            keys.append(step)
            field = tables[0].model_fields.get(step) if tables else None
            kinds, tables = [], [] if field is None else _tables_in(field.annotation)
    return keys, tables, kinds


def _kind(table: _Table) -> object:
    return next(iter(typing.get_args(table.model_fields["kind"].annotation)))


def _names(table: _Table) -> list[str]:
    return [field.alias or name for name, field in table.model_fields.items()]


def _tables_in(annotation: Any) -> list[_Table]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [table for part in typing.get_args(annotation) for table in _tables_in(part)]
