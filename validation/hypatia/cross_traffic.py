"""Cities and pairs of Hypatia's experiments with cross traffic, as other experiments use them.

The files belong to the study hypatia-fig10, which repeats the experiments themselves.
"""

from __future__ import annotations

from pathlib import Path

CITIES = Path(__file__).with_name("cities.csv")
"""Hypatia's list of the 100 most populous cities; pairing.csv next to it has 88 flows of them."""
PAIR = ("Rio de Janeiro", "Saint Petersburg")


def laser(a: int, b: int) -> tuple[str, str]:
    """Return the name of the laser between two satellites, and the direction from a to b."""
    return f"satellite {min(a, b)} - {max(a, b)}", "forward" if a < b else "back"
