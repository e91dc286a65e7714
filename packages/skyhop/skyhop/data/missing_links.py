"""Satellites that no inter-satellite links join, and the gaps that this makes in paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from skyhop import _core

_MOST_GAPS = 20
"""Number of gaps that are examined for satellites in view."""


@dataclass(frozen=True)
class Gap:
    """Time without a path between two places.

    Attributes:
        at_s: begin of the gap in s since the path's start.
        from_deg: latitude and longitude of one place in degrees.
        to_deg: those of the other place.
        places: names of the two places, for files with several pairs.
    """

    at_s: float
    from_deg: tuple[float, float]
    to_deg: tuple[float, float]
    places: tuple[str, str] | None = None


NEAREST = "nearest"
"""Value of `isl_shells` with which links join the shells."""


def missing_links(constellation: _core.Constellation, isl_shells: str = "apart") -> str | None:
    """Return in one clause which satellites inter-satellite links do not join; None if they do.

    Links join satellites of one shell, by their planes and slots, and with `isl_shells` the shells.
    A satellite of a file of element sets that is moving to another orbit is in no plane.
    """
    rows = constellation.satellites()
    shells = {shell for _, _, _, shell, _, _ in rows if shell is not None}
    outside = sum(plane is None for _, _, _, _, plane, _ in rows)
    clauses = []
    if len(shells) > 1 and isl_shells != NEAREST:
        clauses.append(
            f'no inter-satellite links between the {len(shells)} shells (isl_shells = "nearest" '
            "joins them)"
        )
    if outside:
        none = "none" if clauses else "no inter-satellite links"
        clauses.append(f"{none} to {outside:,} of {len(rows):,} satellites, which are in no plane")
    return ", and ".join(clauses) or None


def gap_note(
    constellation: _core.Constellation, start: str, gaps: Iterable[Gap], isl_shells: str = "apart"
) -> list[str]:
    """Return a note if both ends have satellites in view at the beginning of a gap.

    Args:
        constellation: the constellation of the path or the pairs.
        start: start of the path or the pairs in UTC.
        gaps: gaps in order of preference; only the first few are examined.
        isl_shells: rule for links between shells.
    """
    examined = islice(gaps, _MOST_GAPS)
    gap = next((gap for gap in examined if _both_see(constellation, start, gap)), None)
    missing = missing_links(constellation, isl_shells) if gap is not None else None
    if gap is None or missing is None:
        return []
    between = "" if gap.places is None else f" between {gap.places[0]} and {gap.places[1]}"
    return [
        f"there is no path{between} at {gap.at_s:g} s, although both ends have satellites in view: "
        f"there are {missing}"
    ]


def _both_see(constellation: _core.Constellation, start: str, gap: Gap) -> bool:
    import numpy as np

    from skyhop.data.geometry import seen_from

    at = datetime.fromisoformat(start) + timedelta(seconds=gap.at_s)
    content = constellation.positions(at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), False)
    satellites_m = np.frombuffer(content, "<f8").reshape(-1, 3)
    elevations = (seen_from(*end, satellites_m)[0] for end in (gap.from_deg, gap.to_deg))
    least_deg = constellation.minimum_elevation_deg
    return all(bool((elevation >= least_deg).any()) for elevation in elevations)
