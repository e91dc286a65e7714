"""Conversion of published measurements to path files and data frames, which studies use."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import skyhop
from skyhop import predict
from skyhop.cli.terminal import print_note
from validation.reference import found

PLACE = Path("measured")
"""Directory of the path files that scenarios name, relative to the current directory."""


@dataclass(frozen=True)
class Measurement:
    """Source of a path file: entries of tests/reference.toml, and their format."""

    name: str
    format: str
    delays: str | None = None
    keys: dict[str, str] = field(default_factory=dict)


WAYS: tuple[Literal["down", "up"], ...] = ("down", "up")
"""Directions of the traffic, seen from the terminal."""
MEASUREMENTS = {
    **{f"victoria-{n}": Measurement(f"rtt/victoria_{n}.csv.gz", "csv") for n in (1, 2, 3)},
    "iowa": Measurement("rtt/oneweb_iowa.csv.gz", "csv"),
    "lagos": Measurement("throughput/lagos_isl_100ms.csv.gz", "csv", keys={"direction": "down"}),
    "lagos-up": Measurement("throughput/lagos_isl_100ms.csv.gz", "csv", keys={"direction": "up"}),
    "leocc": Measurement(
        "throughput/leocc_bw_example.txt.gz", "leocc", "throughput/leocc_delay_example.txt"
    ),
}


SECONDS = {
    **{f"victoria-{n}-seconds": (f"rtt/victoria_{n}.csv.gz", "down") for n in (1, 2, 3)},
    "iowa-seconds": ("rtt/oneweb_iowa.csv.gz", "down"),
    **{f"lagos-{way}-seconds": ("throughput/lagos_isl_100ms.csv.gz", way) for way in WAYS},
    **{f"drive-{way}-seconds": (f"throughput/drive_udp_{way}.csv.gz", way) for way in WAYS},
}
"""File and direction of each frame of per-second rows, the training data of `skyhop predict`."""


def make(place: Path = PLACE) -> list[Path]:
    """Write missing path files whose measurements are on this machine; return the files written."""
    place.mkdir(exist_ok=True)
    made = make_seconds(place)
    for name, measurement in MEASUREMENTS.items():
        file, source = place / f"{name}.parquet", found(measurement.name)
        delays = found(measurement.delays) if measurement.delays else None
        if file.is_file() or source is None or (measurement.delays and delays is None):
            continue
        keys = measurement.keys | ({"delay_file": str(delays)} if delays else {})
        skyhop.import_path(source, measurement.format, **keys).write(file)
        made.append(file)
    return made


def make_seconds(place: Path) -> list[Path]:
    """Write missing frames of per-second rows; return the files written."""
    made = []
    for name, (measurement, direction) in SECONDS.items():
        file, source = place / f"{name}.parquet", found(measurement)
        if file.is_file() or source is None:
            continue
        options = predict.Options(direction="up" if direction == "up" else "down")
        predict.write_frame(predict.read_data([source], options).frame, file)
        made.append(file)
    return made


def main() -> None:
    """Write the missing files, and print their names."""
    for written in make():
        print_note(str(written))
