"""`skyhop path stats`: statistics of a path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from skyhop.cli.options import ForceSize, Json, PathFile
from skyhop.cli.terminal import print_rows

HELP = """\
Print statistics of a path: round-trip times, handovers per hour, outages, stretch.

Round-trip times are without queueing. Stretch is the ratio of the mean round-trip time to that of
light: in vacuum along the great circle, and in fibre (2/3 of the speed) of 1.4 times that length.
For several paths side by side: skyhop path compare.

Examples:

  skyhop path stats sd-ny.parquet

  skyhop path stats sd-ny.parquet --json
"""


def stats(
    file: PathFile,
    as_json: Json = False,
    force_size: ForceSize = False,
) -> None:
    """Print the statistics of a path."""
    import skyhop
    from skyhop.analysis.path_statistics import path_statistics
    from skyhop.data.reading import path_record

    figures = path_statistics(path_record(skyhop.read_path(file, force_size=force_size)))
    if as_json:
        print(json.dumps({"file": str(file), **figures}, indent=2, ensure_ascii=False))
    else:
        print_rows(_rows(figures), as_json=False, title=f"{figures['from']} - {figures['to']}")


def _rows(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one row per known statistic, in a fixed order."""
    from skyhop.analysis.tables import three_digits

    rows: list[dict[str, str]] = []
    for name, value in figures.items():
        if name in ("from", "to", "handovers"):
            continue
        if name == "outage_share" and value is not None:
            # Three decimals would show the outages of most paths as 0.000.
            rows.append({"figure": "outage %", "value": three_digits(100 * value)})
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
