"""Portrait of an access link: the rows by which a log is described, and a model compared with it.

A portrait is made from a log, a path file or a run: of each input the rows that it tells. Two
portraits are compared row by row: a row matches if it lies within the range of the reference logs,
widened by 15 % (quantiles of round trips 10 %).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from skyhop import _core, views
from skyhop.analysis.portrait_curves import Curve
from skyhop.analysis.portrait_grid import PERIOD_S, Grid, find_grid
from skyhop.analysis.portrait_packets import packet_curves, packet_rows, spectral_lines_hz
from skyhop.analysis.portrait_round_trips import round_trip_curves, round_trip_rows
from skyhop.analysis.portrait_rows import LINES, ROWS, Row
from skyhop.analysis.portrait_series import series_curves, series_rows
from skyhop.data.paths import Path as MeasuredPath
from skyhop.data.run_headers import read_run_headers
from skyhop.data.runs import Run
from skyhop.errors import InputError
from skyhop.telemetry.measured_link import MeasuredLink, Source, plain_name, read_measured_link

Input: TypeAlias = str | os.PathLike[str] | Run | MeasuredPath
"""Input of a portrait: a file or directory, a run, or a path."""

_LINE_HZ = 2.0
"""Distance in Hz within which a spectral line is that of a reference log."""
_SAME_EDGE = 1e-9


@dataclass(frozen=True)
class Portrait:
    """Portrait of one input."""

    name: str
    what: str
    """Kind of the input: "round trips", "series", "packet times, down", "path", "run", …"""
    duration_s: float
    grid: Grid
    values: Mapping[str, float]
    """Values of the rows that the input tells, by the keys of `ROWS`."""
    lines_hz: tuple[float, ...]
    """Spectral lines of the packets per ms, in ascending order."""
    curves: Mapping[str, Curve]
    """Curves of the figure, by panel."""
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The input in one line: name, kind, length, marks, remarks."""
        length = f"{self.duration_s / 60:.1f} min"
        return "; ".join([f"{self.name}: {self.what}, {length}", self.grid.text, *self.notes])


@dataclass(frozen=True)
class Verdict:
    """Row of a portrait compared with the same row of reference logs."""

    row: Row
    value: float
    low: float
    """Least value of the reference logs."""
    high: float
    """Greatest value of the reference logs."""

    @property
    def matches(self) -> bool:
        """Whether the value lies within the range, widened by the row's share."""
        below = self.low - self.row.wider * abs(self.low) - _SAME_EDGE
        above = self.high + self.row.wider * abs(self.high) + _SAME_EDGE
        return below <= self.value <= above


@dataclass(frozen=True)
class Judgement:
    """Comparison of a portrait with those of reference logs, row by row."""

    name: str
    verdicts: tuple[Verdict, ...]
    """Rows that the portrait and at least one reference log have."""
    missing: tuple[Row, ...]
    """Rows that a reference log has and the portrait lacks."""
    lines: tuple[tuple[float, bool], ...]
    """Spectral lines (Hz) that all reference logs have, and whether the portrait has them."""

    @property
    def text(self) -> str:
        """The result in one line."""
        count = sum(verdict.matches for verdict in self.verdicts)
        found = f"{self.name}: {count} of {len(self.verdicts)} rows within the range"
        if self.lines:
            has = sum(is_there for _, is_there in self.lines)
            found += f", {has} of {len(self.lines)} spectral lines"
        return found + (f", {len(self.missing)} rows missing" if self.missing else "")


@dataclass(frozen=True)
class Portraits:
    """Portraits of several inputs side by side, and of the logs that they are compared with."""

    portraits: tuple[Portrait, ...]
    references: tuple[Portrait, ...] = ()

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """Comparison of each portrait with the reference logs; empty without these."""
        if not self.references:
            return ()
        return tuple(judge(portrait, self.references) for portrait in self.portraits)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows of `ROWS` that at least one portrait has."""
        return tuple(row for row in ROWS if any(row.key in one.values for one in self.portraits))

    def document(self) -> dict[str, Any]:
        """Return the portraits as JSON."""
        return {
            "rows": [
                {"key": row.key, "section": row.section, "title": row.title, "unit": row.unit}
                for row in self.rows
            ],
            "portraits": [_document(one) for one in self.portraits],
            "references": [_document(one) for one in self.references],
            "judgements": [_judged(one) for one in self.judgements],
        }

    def plot(self, output: str | os.PathLike[str] | None = None) -> views.Drawing:
        """Draw distributions, memory, and what happens around the marks.

        Args:
            output: PNG, SVG or PDF file to write the figure to; by default none is written.

        Returns:
            A matplotlib figure, which a notebook shows.

        Raises:
            InputError: the suffix of `output` is not that of such a file.
            RunError: `output` cannot be written.
        """
        return views.plot(self, output=output)

    def _repr_html_(self) -> str:
        return views.html(self)


def portrait(
    *inputs: Input,
    against: Sequence[Input] = (),
    mark: str | Mapping[str, str] | None = None,
    direction: str | None = None,
    period: str = f"{PERIOD_S:g} s",
    force_size: bool = False,
) -> Portraits:
    """Return the portraits of access links from logs, path files and run directories.

    >>> import skyhop
    >>> skyhop.portrait("rtt.csv.gz", "runs/dish").plot()  # doctest: +SKIP

    Args:
        inputs: logs of round trips, series of 100 ms, packet times, path files, run directories,
            directories of runs; or runs and paths that were read.
        against: reference logs to compare each input with, row by row.
        mark: a moment of the grid by the inputs' own clocks, such as "11.8 s", or "none" for links
            without a grid; a dictionary gives them by the names of inputs. By default the marks are
            looked for in each input.
        direction: "up" or "down", the direction of packet times and of logs with a single rate, and
            that from the end `from` to the end `to` of paths and runs.
        period: time between two marks.
        force_size: read tables of runs and paths even if they take more than a gigabyte of memory.

    Raises:
        InputError: an input cannot be read, or an argument is wrong.
    """
    if not inputs:
        raise InputError("no input given: name at least one log, path file or run directory")
    period_s = _core.duration_s("--period", period)
    if period_s < 1:
        raise InputError(f'--period: expected at least 1 s, not "{period}"')
    sources, references = _sources(inputs), _sources(against)
    names = _names([*sources, *references])
    marks = marks_of(mark, names)
    drawn = tuple(
        portrait_of(
            read_measured_link(source, name, direction, force_size=force_size),
            marks.get(name, marks.get("")),
            period_s,
        )
        for source, name in zip([*sources, *references], names, strict=True)
    )
    return Portraits(drawn[: len(sources)], drawn[len(sources) :])


def portrait_of(
    link: MeasuredLink, mark: float | str | None = None, period_s: float = PERIOD_S
) -> Portrait:
    """Return the portrait of a measured link.

    Args:
        link: the measurement.
        mark: phase of the marks by the link's clock in seconds; "none" for a link without a grid;
            None to look for it.
        period_s: time between two marks in seconds.
    """
    if isinstance(mark, str):
        grid = Grid(period_s, None, "none")
    else:
        grid = find_grid(link, mark, period_s)
    values: dict[str, float] = {}
    curves: dict[str, Curve] = {}
    if link.round_trips is not None:
        values |= round_trip_rows(link.round_trips, link.start_ns, grid)
        curves |= round_trip_curves(link.round_trips, link.start_ns, grid)
    for way, series in link.series.items():
        values |= series_rows(way, series, link.start_ns, grid)
        curves |= series_curves(way, series, link.start_ns, grid)
    lines_hz: tuple[float, ...] = ()
    if link.packets_per_ms is not None:
        values |= packet_rows(link.packets_per_ms)
        curves |= packet_curves(link.packets_per_ms)
        lines_hz = spectral_lines_hz(link.packets_per_ms)
    return Portrait(
        link.name, link.what, link.duration_s, grid, values, lines_hz, curves, link.notes
    )


def judge(portrait: Portrait, references: Sequence[Portrait]) -> Judgement:
    """Compare a portrait with those of reference logs, row by row."""
    verdicts, missing = [], []
    for row in (row for row in ROWS if row.is_judged):
        known = [one.values[row.key] for one in references if row.key in one.values]
        if known and row.key in portrait.values:
            verdicts.append(Verdict(row, portrait.values[row.key], min(known), max(known)))
        elif known:
            missing.append(row)
    with_lines = [one for one in references if one.lines_hz]
    common = [
        line
        for line in (with_lines[0].lines_hz if with_lines else ())
        if all(_has(one, line) for one in with_lines)
    ]
    lines = tuple((line, _has(portrait, line)) for line in common) if portrait.lines_hz else ()
    return Judgement(portrait.name, tuple(verdicts), tuple(missing), lines)


def _has(portrait: Portrait, line_hz: float) -> bool:
    return any(abs(line - line_hz) <= _LINE_HZ for line in portrait.lines_hz)


def _sources(inputs: Sequence[Input]) -> list[Source]:
    """Return the inputs; a directory of runs (`seed-1/`, …) stands for all of its runs."""
    found: list[Source] = []
    for one in inputs:
        if isinstance(one, Run | MeasuredPath):
            found.append(one)
        elif Path(one).is_dir():
            found += [run.directory for run in read_run_headers([Path(one)])]
        else:
            found.append(Path(one))
    return found


def _names(sources: Sequence[Source]) -> list[str]:
    """Return a name for each input: without suffixes, or the whole path where these are alike."""
    short = [plain_name(source) for source in sources]
    return [
        str(source) if isinstance(source, Path) and short.count(name) > 1 else name
        for name, source in zip(short, sources, strict=True)
    ]


def marks_of(mark: str | Mapping[str, str] | None, names: Sequence[str]) -> dict[str, float | str]:
    """Return the given marks by the names of inputs; that of "" is for all others."""
    given = {"": mark} if isinstance(mark, str) else dict(mark or {})
    for name in given:
        if name and name not in names:
            raise InputError(f'--mark: no input is called "{name}"; there are {", ".join(names)}')
    return {
        name: text if text == "none" else _core.duration_s("--mark", text)
        for name, text in given.items()
    }


def _document(one: Portrait) -> dict[str, Any]:
    return {
        "name": one.name,
        "what": one.what,
        "duration_s": one.duration_s,
        "grid": {
            "period_s": one.grid.period_s,
            "mark_s": one.grid.mark_s,
            "origin": one.grid.origin,
        },
        "notes": list(one.notes),
        "values": {key: float(f"{value:.6g}") for key, value in one.values.items()},
        LINES.key: list(one.lines_hz),
    }


def _judged(one: Judgement) -> dict[str, Any]:
    return {
        "name": one.name,
        "rows": [
            {
                "key": verdict.row.key,
                "value": verdict.value,
                "low": verdict.low,
                "high": verdict.high,
                "wider": verdict.row.wider,
                "matches": verdict.matches,
            }
            for verdict in one.verdicts
        ],
        "missing": [row.key for row in one.missing],
        "lines_hz": [{"line_hz": line, "matches": has} for line, has in one.lines],
    }
