"""Importers of published telemetry: one module per format; all modules of this package are used.

The module of a format defines `FORMAT`, an `Importer`. It has the name and description of the
format, a function that recognises its files, and a function that converts their rows to samples. A
new format needs no other change.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers.input_file import (
    CUT_LINE,
    CutLineError,
    Importer,
    InputFile,
    Options,
    Probe,
    read_input,
)
from skyhop.telemetry.store import TelemetryFile, is_telemetry_file

__all__ = [
    "Importer",
    "InputFile",
    "Options",
    "Probe",
    "detect_format",
    "formats",
    "import_samples",
    "probes",
]

T = TypeVar("T")

_SHARED = "input_file"
_TIMED_ROW = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]{5,20}Z?,.*,.*,")
"""Row of a table whose first cell is a time, where names of columns belong."""
_ROUND_TRIP = re.compile(r"(rtt|latency|ping)(_ns|_us|_ms|_s)?$", re.IGNORECASE)
"""Name of a column of round trips."""
_LONGEST_HEAD = 200
"""Largest number of characters of a file's first line that an error shows."""


@cache
def formats() -> dict[str, Importer]:
    """Return the importers by the names of their formats, sorted."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if module.name != _SHARED
    ]
    return {module.FORMAT.name: module.FORMAT for module in sorted(modules, key=_name)}


def _name(module: object) -> str:
    importer = module.FORMAT  # type: ignore[attr-defined]
    assert isinstance(importer, Importer), "a format's file offers FORMAT"
    return importer.name


def detect_format(source: InputFile) -> Importer:
    """Return the importer for a file, whose format is recognised by its first lines and name.

    Raises:
        InputError: no format matches the file.
    """
    for importer in sorted(formats().values(), key=lambda one: one.is_general):
        if importer.matches(source):
            return importer
    if _TIMED_ROW.match(source.lines[0]):
        raise InputError(
            f"{source.file}: has no names of columns in its first line: write the file with them "
            "(starlink-grpc-tools: dish_grpc_text.py -H), or add that line"
        )
    # As `skyhop path import`: any table of a time and a round trip.
    if len(source.columns) > 1 and any(map(_ROUND_TRIP.match, source.columns)):
        return formats()["rtt"]
    from skyhop.telemetry.traces import begins_trace

    if any(map(begins_trace, source.head)):
        raise InputError(f"{source.file}: holds traces of the route: skyhop dissect reads it")
    raise InputError(
        f"{source.file}: is of no known format: give one of {', '.join(formats())} with --format"
    )


def import_samples(
    file: Path,
    name: str | None = None,
    options: Options | None = None,
    accounts: list[str] | None = None,
) -> Iterator[Sample]:
    """Yield the samples of a text file (plain or gzipped), or of a Parquet file of telemetry.

    Args:
        file: the file.
        name: its format; recognised if not given.
        options: values that the file lacks.
        accounts: list to which a line is added at the end: what was taken and what was left.

    Raises:
        InputError: there is no such file or format, or a line does not have the format.
    """
    if name is None and is_telemetry_file(file):
        yield from _stored_samples(file)
        return
    source, importer = _found(file, name, options)
    count, has_values = 0, False
    for sample in _until_cut(source, importer.samples(source)):
        count += 1
        has_values = has_values or any(sample[name] is not None for name in sample.keys() - {TIME})
        yield sample
    if count == 0:
        raise InputError(f"{file}: holds no rows of the format {importer.name}")
    if not has_values:
        raise InputError(
            f"{file}: holds no value that the format {importer.name} knows; its first line is "
            f"{textwrap.shorten(source.lines[0], _LONGEST_HEAD, placeholder='…')}"
        )
    if accounts is not None and source.account:
        accounts.append(source.account)


def _until_cut(source: InputFile, parts: Iterator[T]) -> Iterator[T]:
    """Yield the parts of a file, without that of its last line if this is cut off.

    Raises:
        InputError: a line is wrong, or the last one before any part.
    """
    is_empty = True
    try:
        for part in parts:
            is_empty = False
            yield part
    except CutLineError:
        if is_empty:
            raise
        source.notes.append(CUT_LINE)


def _stored_samples(file: Path) -> Iterator[Sample]:
    """Yield the samples of a Parquet file, such as a run's telemetry, without unknown values."""
    frame = TelemetryFile(file).read().drop("node")
    if frame.height == 0:
        raise InputError(f"{file}: holds no samples")
    for row in frame.iter_rows(named=True):
        yield {name: value for name, value in row.items() if value is not None}


def probes(file: Path, name: str | None = None, options: Options | None = None) -> list[Probe]:
    """Return the single RTTs of a file, in the file's order.

    Args:
        file: the file.
        name: its format; recognised if not given.
        options: values that the file lacks.

    Raises:
        InputError: there is no such file or format, a line does not have the format, or the format
            has no RTTs or only means of seconds.
    """
    source, importer = _found(file, name, options)
    if importer.probes is None:
        raise InputError(
            f"{file}: the format {importer.name} holds no single round trips: import it and give "
            "the directory"
        )
    found = list(_until_cut(source, importer.probes(source)))
    if not found:
        raise InputError(f"{file}: holds no rows of the format {importer.name}")
    return found


def _found(file: Path, name: str | None, options: Options | None) -> tuple[InputFile, Importer]:
    if name is not None and name not in formats():
        raise InputError(f'--format: expected one of {", ".join(formats())}, not "{name}"')
    source = read_input(file, options or Options())
    return source, detect_format(source) if name is None else formats()[name]
