"""The figures of the previous release state, to put beside those of today."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("bench_previous.toml")


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text("utf-8"))


def previous(part: str, row: str, figure: str) -> float | None:
    """Return a figure of the row of a part of the bench, None where there was none."""
    value = _content().get(part, {}).get(row, {}).get(figure)
    return None if value is None else float(value)


def source() -> str:
    """Return when and where the figures were taken, as a line."""
    content = _content()
    return f"Figures of before: {content['when']}, {content['machine']}"
