"""Where land is: the outlines of continents and islands, for maps."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from skyhop.data.arrays import FloatArray


@cache
def land_deg() -> tuple[FloatArray, ...]:
    """Return the rings around land, and around lakes the other way: latitude and longitude (n, 2).

    `land.txt` says where they come from; they are good to 0.2 degrees.
    """
    text = (files("skyhop.data") / "land.txt").read_text("utf-8")
    return tuple(_ring(line) for line in text.splitlines() if not line.startswith("#"))


def _ring(line: str) -> FloatArray:
    ways = np.array(line.split(), dtype=np.int64).reshape(-1, 2)
    return np.cumsum(ways, axis=0)[:, ::-1] / 10
