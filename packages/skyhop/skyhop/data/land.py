"""Outlines of continents, islands and lakes, for maps."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from skyhop.data.arrays import FloatArray


@cache
def land_deg() -> tuple[FloatArray, ...]:
    """Return the outlines as closed rings, each (n, 2): latitude and longitude in degrees.

    Rings of lakes have the opposite orientation of rings of land. `land.txt` names the source;
    outlines are accurate to 0.2 degrees.
    """
    text = (files("skyhop.data") / "land.txt").read_text("utf-8")
    return tuple(_ring(line) for line in text.splitlines() if not line.startswith("#"))


def _ring(line: str) -> FloatArray:
    steps = np.array(line.split(), dtype=np.int64).reshape(-1, 2)
    return np.cumsum(steps, axis=0)[:, ::-1] / 10
