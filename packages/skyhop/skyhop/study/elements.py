"""Rows of a study with engine = "elements", which compares two snapshots of element sets."""

from __future__ import annotations

from pathlib import Path

from skyhop.analysis.report_timing import report_timing


def timing_error_rows(old: Path, new: Path) -> list[dict[str, object]]:
    """Return a row per satellite in both files, with timing error in s and position error in m.

    The column `run` holds the satellite's catalogue number.

    Raises:
        InputError: a file holds no element sets, or the files have no satellite in common.
    """
    found = report_timing(old, new)
    return [
        {
            "seed": 0,
            "run": str(number),
            "report_timing_error_s": float(error_s),
            "position_error_m": float(error_m),
        }
        for number, error_s, error_m in zip(
            found.catalogue_numbers, found.errors_s, found.position_errors_m, strict=True
        )
    ]
