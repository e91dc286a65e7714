"""Conversion steps from published originals to reference files, named in tests/reference.toml."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow
from openpyxl import load_workbook
from scipy.io import loadmat

Step = Callable[..., str]


def drives(original: Path, *, drives: Sequence[tuple[int, int]], utc_offset_h: int) -> str:
    """Select drives from a table `time,throughput,speed,...`, whose times are in one time zone.

    `drives` has the first second (Unix time) and the number of rows of each drive.
    """
    zone = timezone(timedelta(hours=utc_offset_h))
    with original.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    starts = {_unix_s(row["time"], zone): index for index, row in reversed([*enumerate(rows)])}
    lines = ["segment,unix_s,mbps,speed"]
    for segment, (start_s, length) in enumerate(drives):
        first = starts[start_s]
        for row in rows[first : first + length]:
            rate_mbps, speed_mph = float(row["throughput"]), float(row["speed"])
            at_s = _unix_s(row["time"], zone)
            lines.append(f"{segment},{at_s},{rate_mbps:.3f},{speed_mph:.1f}")
    return _text(lines)


def _unix_s(text: str, zone: timezone) -> int:
    """Parse a time such as "2023-04-12 10:40:20 CDT".

    The zone's name is ambiguous, so it is ignored.
    """
    return int(datetime.fromisoformat(text[:19]).replace(tzinfo=zone).timestamp())


def matrix(original: Path, *, variable: str, column: str, decimals: int) -> str:
    """Convert a MATLAB vector to a table with one column."""
    values = loadmat(original)[variable].ravel()
    return _text([column, *(f"{value:.{decimals}f}" for value in values)])


def ping(original: Path, *, member: str, first_unix_ns: int, last_unix_ns: int) -> str:
    """Select replies from the output of `ping -D`, which is a file in an archive.

    The result has the columns `unix_ns,rtt_ms`.
    """
    lines = []
    for line in _member_lines(original, member):
        # Example of a line: [1733452471.810872] 64 bytes from ...: icmp_seq=1 ttl=62 time=103 ms
        stamp, _, answer = line.partition("] ")
        if not line.startswith("[") or "time=" not in answer:
            continue
        at_ns = int(float(stamp[1:]) * 1e9)
        if first_unix_ns <= at_ns <= last_unix_ns:
            rtt_ms = float(answer.partition("time=")[2].split()[0])
            lines.append(f"{at_ns},{rtt_ms}")
    return _text(lines)


def _member_lines(archive: Path, member: str) -> Iterator[str]:
    """Yield the lines of an archive's file whose name ends in `member`."""
    packing = {".zst": "zstd", ".gz": "gzip", ".bz2": "bz2"}.get(archive.suffix)
    with (
        pyarrow.input_stream(archive, compression=packing) as unpacked,
        tarfile.open(fileobj=unpacked, mode="r|") as tar,
    ):
        for entry in tar:
            if entry.isfile() and f"/{entry.name}".endswith(f"/{member}"):
                content = tar.extractfile(entry)
                assert content is not None
                yield from (line.decode() for line in content)
                return
    raise KeyError(member)


def sheet(original: Path, *, columns: Sequence[str], decimals: int) -> str:
    """Convert the first columns of an Excel sheet with a heading to a table with numbered rows."""
    rows = load_workbook(original, read_only=True, data_only=True).worksheets[0].values
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["row", *columns])
    for number, row in enumerate(list(rows)[1:]):
        table.writerow([number, *(_rounded(cell, decimals) for cell in row[: len(columns)])])
    return text.getvalue()


def _rounded(cell: Any, decimals: int) -> Any:
    return round(float(cell), decimals) if isinstance(cell, int | float) else str(cell).strip()


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


STEPS: dict[str, Step] = {"drives": drives, "matrix": matrix, "ping": ping, "sheet": sheet}
