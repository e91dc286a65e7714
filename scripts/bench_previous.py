"""Benchmark results of the previous release, for comparison."""

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
    """Return a previous result: `figure` of `row` in `part` of the benchmarks.

    `None` if the previous release did not measure it.
    """
    value = _content().get(part, {}).get(row, {}).get(figure)
    return None if value is None else float(value)


def source() -> str:
    """Return a line with date and machine of the previous results."""
    content = _content()
    return f"Figures of before: {content['when']}, {content['machine']}"
