"""`skyhop path stats`: a path in figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from skyhop.cli.options import ForceSize, Json, PathFile
from skyhop.cli.terminal import print_rows

HELP = """\
Print what a path is like: round trips, handovers per hour, outages, stretch.

Round trips are without queueing. Stretch is how many times as long as light the mean round trip
takes: along the great circle, and through 1.4 times as much fibre at 2/3 of its speed.

Examples:

  skyhop path stats sd-ny.parquet

  skyhop path stats sd-ny.parquet --json
"""


def stats(
    file: PathFile,
    as_json: Json = False,
    force_size: ForceSize = False,
) -> None:
    """Print the figures of a path."""
    import skyhop
    from skyhop.analysis.path_statistics import path_statistics
    from skyhop.data.reading import path_record

    figures = path_statistics(path_record(skyhop.read_path(file, force_size=force_size)))
    if as_json:
        print(json.dumps({"file": str(file), **figures}, indent=2, ensure_ascii=False))
    else:
        print_rows(_rows(figures), as_json=False, title=f"{figures['from']} - {figures['to']}")


def _rows(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one row per figure that is known, in the order of the figures."""
    rows: list[dict[str, str]] = []
    for name, value in figures.items():
        if name in ("from", "to", "handovers"):
            continue
        parts = value.items() if isinstance(value, Mapping) else [("", value)]
        rows += [
            {"figure": f"{name} {part}".replace("_", " ").strip(), "value": _rounded(number)}
            for part, number in parts
            if number is not None
        ]
    return rows


def _rounded(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.3f}"
