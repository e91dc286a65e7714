"""Scenarios and studies as TOML: what run.json holds, written so that skyhop reads it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w


def toml_text(content: Mapping[str, Any]) -> str:
    """Write content as TOML; what has no value, or is an empty list, is left out."""
    return tomli_w.dumps(_given(content), indent=2)


def _given(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _given(inner) for key, inner in value.items() if inner not in (None, [])}
    if isinstance(value, list):
        return [_given(inner) for inner in value if inner is not None]
    return value
