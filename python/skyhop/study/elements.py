"""How wrong predictions from element sets are: two snapshots of one constellation compared.

SaTCP, section V-B: the older elements predict where each satellite is, the newer ones say where it
was. The time in which a satellite covers the distance between the two is its report timing error:
so much too early or too late would a handover be announced, if all of the distance lay along the
track. That is the upper bound which the paper takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from skyhop.errors import InputError
from skyhop.plot.records import FloatArray

_STEP_S = 1
"""Between the two moments that a speed is taken from."""


def timing_error_rows(old: Path, new: Path) -> list[dict[str, object]]:
    """Return a row per satellite of both files: catalogue number and report timing error in s.

    Raises:
        InputError: a file is no element sets, or they have no satellite in common.
    """
    from skyhop.constellations import constellation

    before, after = constellation(str(old)), constellation(str(new))
    at = after.epoch
    places = {
        name: _by_number(found.satellites["catalogue_number"].to_pylist(), found.positions(moment))
        for name, found, moment in (
            ("old", before, at),
            ("new", after, at),
            ("later", after, _later(at)),
        )
    }
    common = sorted(set(places["old"]) & set(places["new"]) & set(places["later"]))
    if not common:
        raise InputError(f"{old}, {new}: no satellite is in both: give two snapshots of one fleet")
    rows: list[dict[str, object]] = []
    for number in common:
        apart_m = float(np.linalg.norm(places["old"][number] - places["new"][number]))
        speed = float(np.linalg.norm(places["later"][number] - places["new"][number])) / _STEP_S
        rows.append(
            {
                "seed": 0,
                "run": str(number),
                "report_timing_error_s": apart_m / speed,
                "position_error_m": apart_m,
            }
        )
    return rows


def _by_number(numbers: Sequence[int | None], places: FloatArray) -> Mapping[int, FloatArray]:
    """Return the known positions by catalogue number."""
    return {
        number: place
        for number, place in zip(numbers, places, strict=True)
        if number is not None and np.isfinite(place).all()
    }


def _later(moment: str) -> str:
    return (datetime.fromisoformat(moment) + timedelta(seconds=_STEP_S)).isoformat()
