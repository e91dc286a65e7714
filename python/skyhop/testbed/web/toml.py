"""Jobs and policies as TOML that people would write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_LIST = re.compile(r"\[\n((?: +[^\n]*,\n)+)\]")
_LONGEST_LINE = 100


def written(values: Mapping[str, Any]) -> str:
    """Return a table as TOML, short lists in one line; TOML has no word for null."""
    import tomli_w

    return _LIST.sub(_in_one_line, tomli_w.dumps(_without_none(values)))


def _in_one_line(found: re.Match[str]) -> str:
    # Line ends inside of strings are written as escapes: each line is a value of its own.
    items = [line.strip().removesuffix(",") for line in found[1].splitlines()]
    short = f"[{', '.join(items)}]"
    return short if len(short) <= _LONGEST_LINE and items[0] != "[" else found[0]


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_none(each) for each in value if each is not None]
    return value
