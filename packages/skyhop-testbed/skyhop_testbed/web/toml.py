"""Formatting of jobs and policies as readable TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_LIST = re.compile(r"\[\n((?: +[^\n]*,\n)+)\]")
_LONGEST_LINE = 100


def to_toml(values: Mapping[str, Any]) -> str:
    """Return a table as TOML, with short lists on one line; keys that are `None` are omitted.

    TOML has no null.
    """
    import tomli_w

    return _LIST.sub(_in_one_line, tomli_w.dumps(_without_none(values)))


def _in_one_line(found: re.Match[str]) -> str:
    # Newlines in strings are escaped, so each line is one element.
    items = [line.strip().removesuffix(",") for line in found[1].splitlines()]
    short = f"[{', '.join(items)}]"
    return short if len(short) <= _LONGEST_LINE and items[0] != "[" else found[0]


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_none(each) for each in value if each is not None]
    return value
