"""Error messages about the keys of a file, in terms of TOML rather than of Python."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from skyhop.analysis.sentence_words import listed
from skyhop.data.near_names import did_you_mean
from skyhop.data.toml import toml_value

_Table: TypeAlias = type[BaseModel]
_Location: TypeAlias = tuple[int | str, ...]


def entry(key: str, place: int) -> str:
    """Return the name of an entry of a list in messages, which count from 1: "panel 1"."""
    return f"{key} {place + 1}"


def first_error(error: ValidationError, file: _Table) -> str:
    """Return the first error in one line: the key in a file of this type, and what was expected."""
    found = error.errors(include_url=False)
    first = found[0]
    if first["type"] == "missing":
        # A key that is missing may be there under a wrong name.
        table = first["loc"][:-1]
        beside = [other for other in found if other["loc"][:-1] == table]
        first = next((e for e in beside if e["type"] == "extra_forbidden"), first)
        if first["type"] == "missing":
            missing = [str(e["loc"][-1]) for e in beside if e["type"] == "missing"]
            return _about_missing_keys(first["loc"], missing, file)
    keys, tables, _ = _keys_and_tables(first["loc"], file)
    given = first["input"]
    match first["type"]:
        case "extra_forbidden":
            return _about_a_wrong_key(first["loc"], file)
        case "union_tag_not_found":
            expected = ", ".join(repr(_kind(table)) for table in tables)
            return f"{'.'.join([*keys, 'kind'])}: is missing; expected one of {expected}"
        case "union_tag_invalid":
            keys, given = [*keys, "kind"], first.get("ctx", {}).get("tag")
    message = f"{_plain_message(first)}{_actual(first, given)}"
    return f"{'.'.join(keys)}: {message}" if keys else message


def _about_missing_keys(location: _Location, missing: Sequence[str], file: _Table) -> str:
    """Return the message about keys that one table lacks; `location` is that of the first."""
    keys, _, kinds = _keys_and_tables(location[:-1], file)
    if kinds:
        names = listed([f"`{name}`" for name in missing])
        return f"{'.'.join(keys)}: kind = {json.dumps(location[-2])} needs {names}"
    are = "is" if len(missing) == 1 else "are"
    return f"{'.'.join([*keys, listed(missing)])}: {are} missing"


def _actual(error: ErrorDetails, given: object) -> str:
    """Return the wrong value in brackets, and what the user may have meant."""
    if isinstance(given, list | dict):
        return " (it is a list)" if isinstance(given, list) else " (it is a table)"
    if not isinstance(given, str | int | float):
        return ""
    if error["type"] == "dict_type" and _IS_KEY(str(given)):
        return f", such as {{ {given} = … }} (it is {toml_value(given)})"
    if error["type"] == "list_type":
        return f", such as {toml_value([given])} (it is {toml_value(given)}, without brackets)"
    return f" (it is {toml_value(given)}){did_you_mean(given, _choices(error))}"


_IS_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*").fullmatch


def _choices(error: ErrorDetails) -> list[str]:
    """Return the texts that a key may be, if pydantic names them."""
    context = error.get("ctx", {})
    expected = str(context.get("expected") or context.get("expected_tags") or "")
    return re.findall(r"'([^']*)'", expected)


def _about_a_wrong_key(location: _Location, file: _Table) -> str:
    keys, _, _ = _keys_and_tables(location, file)
    _, (table, *_), kinds = _keys_and_tables(location[:-1], file)
    expected = ", ".join(sorted(_names(table)))
    with_it = [json.dumps(_kind(kind)) for kind in kinds if keys[-1] in _names(kind)]
    where_it_goes = f"; `{keys[-1]}` goes with kind = {' or '.join(with_it)}" if with_it else ""
    hint = did_you_mean(keys[-1], _names(table))
    return f"{'.'.join(keys)}: unknown key{hint}; expected one of {expected}{where_it_goes}"


def _plain_message(error: ErrorDetails) -> str:
    """Return a validation error's message in terms of TOML rather than of Python."""
    if error["loc"] and error["loc"][-1] in _VALUES:
        is_setting = "points" in error["loc"]
        others = ", a list of those, a table, or a list of tables" if is_setting else ""
        return f"expected a number, text, true or false{others}"
    kind = error["type"]
    kind = kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind in ("literal_error", "union_tag_invalid"):
        context = error.get("ctx", {})
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
            keys[-1:] = [entry(keys[-1], step)]
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
