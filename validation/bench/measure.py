"""Time and CPU time of a measured call, and figures of the previous release, for all benchmarks."""

from __future__ import annotations

import resource
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("previous.toml")


@dataclass
class Cost:
    """Cost of a block in s: wall-clock time, and CPU time of this process and of its children."""

    wall_s: float = 0.0
    own_s: float = 0.0
    children_s: float = 0.0


@contextmanager
def cost() -> Iterator[Cost]:
    """Measure a block; children count when they have ended."""
    found, before_s = Cost(), _now_s()
    yield found
    found.wall_s, found.own_s, found.children_s = (
        after_s - begin_s for after_s, begin_s in zip(_now_s(), before_s, strict=True)
    )


def _now_s() -> list[float]:
    usages = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return [time.monotonic(), *(usage.ru_utime + usage.ru_stime for usage in usages)]


@cache
def earlier() -> dict[str, Any]:
    """Return all results of the previous release, and their date and machine."""
    return tomllib.loads(FILE.read_text("utf-8"))


def previous(part: str, row: str, figure: str) -> float | None:
    """Return `figure` of `row` in a part of the previous results; `None` if it has none."""
    value = earlier().get(part, {}).get(row, {}).get(figure)
    return None if value is None else float(value)
