"""Conversion of published measurements to path files and data frames, which studies use."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl

import skyhop
from skyhop import predict
from skyhop.cli.terminal import print_note
from skyhop.data.files import write_file
from skyhop.predict.frame import complete_frame
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
TERMINAL = ("terminal/history_1hz.csv.gz", "terminal/status.csv.gz")
"""History of a terminal, and its answers about its direction and obstruction."""
TRACES = "terminal/traceroutes.txt.gz"
"""Traceroutes through that terminal."""


def make(place: Path = PLACE) -> list[Path]:
    """Write missing path files whose measurements are on this machine; return the files written."""
    place.mkdir(exist_ok=True)
    made = [*make_seconds(place), *make_terminal(place)]
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


def make_terminal(place: Path) -> list[Path]:
    """Write the missing files of the terminal's telemetry; return the files written."""
    made = []
    file, traces = place / "terminal-seconds.parquet", place / "terminal-traces.txt"
    history, status = (found(name) for name in TERMINAL)
    if history is not None and status is not None and not file.is_file():
        frame = terminal_frame(history, status)
        filled = place / "terminal-filled-seconds.parquet"
        predict.write_frame(frame, file)
        predict.write_frame(filled_frame(frame), filled)
        made += [file, filled]
    source = found(TRACES)
    if source is not None and not traces.is_file():
        write_file(traces, gzip.decompress(source.read_bytes()))
        made.append(traces)
    return made


def terminal_frame(history: Path, status: Path) -> pl.DataFrame:
    """Return the history of a terminal with the direction and obstruction of its status."""
    names = ("azimuth", "elevation", "obstruction")
    seconds, answers = (predict.read_data([file]).frame for file in (history, status))
    known = answers.select("time_ns", *names)
    return complete_frame(seconds.drop(names).join(known, on="time_ns", how="left"))


def filled_frame(seconds: pl.DataFrame) -> pl.DataFrame:
    """Return the seconds in which flows fill a terminal's downlink, with its rate as capacity.

    These are the seconds before and after which the mean rate of 10 s is above 20 Mbit/s.
    """
    mean_bps = pl.col("rx_bps").rolling_mean(10)
    is_filled = (mean_bps > 20e6) & (mean_bps.shift(-9) > 20e6)  # noqa: PLR2004
    known = seconds.with_columns(pl.when(is_filled).then("rx_bps").alias("capacity_bps"))
    return complete_frame(known.drop_nulls("capacity_bps"))


def main() -> None:
    """Write the missing files, and print their names."""
    for written in make():
        print_note(str(written))
