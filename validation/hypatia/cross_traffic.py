"""Cities and pairs of Hypatia's experiments with cross traffic, as other experiments use them.

The files belong to the study hypatia-fig10, which repeats the experiments themselves.
"""

from __future__ import annotations

from validation import ROOT

CITIES = ROOT / "studies" / "hypatia-cities.csv"
"""Hypatia's list of the 100 most populous cities."""
PAIRING = ROOT / "studies" / "hypatia-pairing.csv"
"""Its 88 flows between these cities."""
PAIR = ("Rio de Janeiro", "Saint Petersburg")


def laser(a: int, b: int) -> tuple[str, str]:
    """Return the name of the laser between two satellites, and the direction from a to b."""
    return f"satellite {min(a, b)} - {max(a, b)}", "forward" if a < b else "back"
