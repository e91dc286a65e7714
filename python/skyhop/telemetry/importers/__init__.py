"""What others published as telemetry: one file per format, each found by being here.

A format's file offers `FORMAT`, an `Importer`: its name, what it is, how it is recognised by its
first lines, and how its rows become samples. Nothing else has to be changed for a new one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from skyhop.errors import InputError
from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.source import Importer, Options, Probe, Source, opened
from skyhop.telemetry.store import OneFile, is_telemetry_file

__all__ = ["Importer", "Options", "Probe", "Source", "detected", "formats", "imported", "probes"]

_SHARED = "source"


@cache
def formats() -> dict[str, Importer]:
    """Return the formats by name, in the order of the names."""
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


def detected(source: Source) -> Importer:
    """Return the format of a file, as its first lines and its name have it.

    Raises:
        InputError: it is of none of the formats.
    """
    for importer in formats().values():
        if importer.is_it(source):
            return importer
    raise InputError(
        f"{source.file}: is of no known format: give one of {', '.join(formats())} with --format"
    )


def imported(
    file: Path, name: str | None = None, options: Options | None = None
) -> Iterator[Sample]:
    """Yield the samples of a file, plain or gzipped, or of telemetry in a Parquet file.

    Args:
        file: where it is.
        name: its format; recognised if not given.
        options: what the file does not say.

    Raises:
        InputError: there is no such file or format, or a line is not of it.
    """
    if name is None and is_telemetry_file(file):
        yield from _kept(file)
        return
    source, importer = _found(file, name, options)
    count = 0
    for sample in importer.samples(source):
        count += 1
        yield sample
    if count == 0:
        raise InputError(f"{file}: holds no rows of the format {importer.name}")


def _kept(file: Path) -> Iterator[Sample]:
    """Yield the samples of telemetry that was kept, such as a run's, without what is not known."""
    frame = OneFile(file).read().drop("node")
    if frame.height == 0:
        raise InputError(f"{file}: holds no samples")
    for row in frame.iter_rows(named=True):
        yield {name: value for name, value in row.items() if value is not None}


def probes(file: Path, name: str | None = None, options: Options | None = None) -> list[Probe]:
    """Return the round trips of a file as they are, in their order.

    Args:
        file: where it is.
        name: its format; recognised if not given.
        options: what the file does not say.

    Raises:
        InputError: there is no such file or format, a line is not of it, or it holds no round
            trips, or those of seconds alone.
    """
    source, importer = _found(file, name, options)
    if importer.probes is None:
        raise InputError(
            f"{file}: the format {importer.name} holds no single round trips: import it and give "
            "the directory"
        )
    found = list(importer.probes(source))
    if not found:
        raise InputError(f"{file}: holds no rows of the format {importer.name}")
    return found


def _found(file: Path, name: str | None, options: Options | None) -> tuple[Source, Importer]:
    if name is not None and name not in formats():
        raise InputError(f'--format: expected one of {", ".join(formats())}, not "{name}"')
    source = opened(file, options or Options())
    return source, detected(source) if name is None else formats()[name]
