"""Scenarios and studies as TOML: what run.json holds, written so that skyhop reads it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_text(content: Mapping[str, Any]) -> str:
    """Write content as TOML; what has no value, or is an empty list, is left out."""
    # Imported here: most commands write none.
    import tomli_w

    return tomli_w.dumps(_given(content), indent=2)


def toml_value(value: Any) -> str:
    """Write a value as it stands behind the sign of equality, in one line."""
    if isinstance(value, Mapping):
        keys = (f"{json.dumps(str(key))} = {toml_value(inner)}" for key, inner in value.items())
        return f"{{ {', '.join(keys)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value)


def _given(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _given(inner) for key, inner in value.items() if inner not in (None, [])}
    if isinstance(value, list):
        return [_given(inner) for inner in value if inner is not None]
    return value
