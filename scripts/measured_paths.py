"""Path files of the measurements that others published, as studies look for them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from reference import found

import skyhop
from skyhop.cli.terminal import print_note

PLACE = Path("measured")
"""In the current directory, where scenarios look for files that are not beside them."""


@dataclass(frozen=True)
class Measurement:
    """Which files of tests/reference.toml a path file is made of, and how."""

    name: str
    format: str
    delays: str | None = None
    keys: dict[str, str] = field(default_factory=dict)


MEASUREMENTS = {
    "victoria-1": Measurement("rtt/victoria_1.csv.gz", "csv"),
    "victoria-2": Measurement("rtt/victoria_2.csv.gz", "csv"),
    "victoria-3": Measurement("rtt/victoria_3.csv.gz", "csv"),
    "iowa": Measurement("rtt/oneweb_iowa.csv.gz", "csv"),
    "lagos": Measurement("throughput/lagos_isl_100ms.csv.gz", "csv", keys={"direction": "down"}),
    "lagos-up": Measurement("throughput/lagos_isl_100ms.csv.gz", "csv", keys={"direction": "up"}),
    "leocc": Measurement(
        "throughput/leocc_bw_example.txt.gz", "leocc", "throughput/leocc_delay_example.txt"
    ),
}


def make(place: Path = PLACE) -> list[Path]:
    """Make the path files whose measurements are here, where they are not there yet."""
    place.mkdir(exist_ok=True)
    made = []
    for name, measurement in MEASUREMENTS.items():
        file, source = place / f"{name}.parquet", found(measurement.name)
        delays = found(measurement.delays) if measurement.delays else None
        if file.is_file() or source is None or (measurement.delays and delays is None):
            continue
        keys = measurement.keys | ({"delay_file": str(delays)} if delays else {})
        skyhop.import_path(source, measurement.format, **keys).write(file)
        made.append(file)
    return made


if __name__ == "__main__":
    for written in make():
        print_note(str(written))
    sys.exit(0)
