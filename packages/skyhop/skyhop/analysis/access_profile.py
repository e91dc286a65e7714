"""Access profiles fitted to logs: each part from the logs that tell it."""

from __future__ import annotations

import os
import re
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from skyhop import _core
from skyhop.analysis.access_fit import Probes, holes_table, round_trip_parts
from skyhop.analysis.access_packets_fit import rate_parts
from skyhop.analysis.access_process import RANKS
from skyhop.analysis.access_series_fit import Steps, holes_of_series, way_parts
from skyhop.analysis.portrait import Judgement, Portrait, judge, marks_of, portrait_of
from skyhop.analysis.portrait_grid import Grid
from skyhop.data.files import write_file
from skyhop.data.paths import path
from skyhop.errors import InputError
from skyhop.telemetry.measured_link import (
    DIRECTIONS,
    MeasuredLink,
    link_of_path,
    plain_name,
    read_measured_link,
)

UTC_PERIOD_S = 15.0
DRAWS = 6
"""Number of drawn paths whose mean portrait is compared with the logs'."""
LONGEST_S = 3600.0
"""Longest duration of each."""
WIDTH, SHORT = 100, 6
"""Columns of a profile's file, and lines of an array that fits in one."""
UNMEASURED_MS = 10.0
"""One-way delay of the paths that are drawn to judge a profile without delays."""


@dataclass(frozen=True)
class AccessProfile:
    """Access profile fitted to logs, with its goodness of fit.

    Attributes:
        content: the profile's tables, as in its file.
        portraits: portraits of the logs.
        judgement: comparison of paths drawn from the profile with the logs, row by row.
        notes: what was taken from each log.
    """

    content: Mapping[str, Any]
    portraits: tuple[Portrait, ...]
    judgement: Judgement
    notes: tuple[str, ...]

    @property
    def toml(self) -> str:
        """Text of the profile's file, with the rows of its goodness of fit."""
        rows = {
            verdict.row.key: [float(f"{v:.4g}") for v in (verdict.low, verdict.high, verdict.value)]
            for verdict in self.judgement.verdicts
        }
        return with_arrays_in_lines(tomli_w.dumps({**self.content, "fit": rows}))

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the profile's file atomically.

        Raises:
            RunError: the file cannot be written.
        """
        write_file(Path(file), self.toml.encode())


def with_arrays_in_lines(text: str) -> str:
    """Return TOML with each array of numbers in lines of at most `WIDTH` columns."""

    def joined(match: re.Match[str]) -> str:
        numbers = " ".join(match.group(1).split()).rstrip(",")
        if len(match.group(0).splitlines()) <= SHORT:
            return f"[{numbers}]"
        lines = textwrap.fill(f"{numbers},", WIDTH, initial_indent="    ", subsequent_indent="    ")
        return f"[\n{lines}\n]"

    return re.sub(r"\[\n([-+0-9.,eE\s]+)\]", joined, text)


def fit_access(
    *logs: str | os.PathLike[str],
    marks: str | Mapping[str, str] | None = None,
    direction: str | None = None,
    propagation: str | None = None,
    description: str | None = None,
    source: str | None = None,
    licence: str = "not stated",
    date: str = "not stated",
) -> AccessProfile:
    """Fit an access profile to logs of one link.

    Args:
        logs: logs of round trips, series of 100 ms, packet times, logs of rates. Logs of round
            trips are fitted together; each other part comes from the first log that tells it.
        marks: marks of the grid, as for `portrait`.
        direction: direction of packet times and of logs with a single rate.
        propagation: round trip of propagation alone on the measured path, such as "7.5 ms", from
            `skyhop path stats` of the computed one; what the median floor has in addition becomes
            the profile's `ground_ms`, which counts over computed paths.
        description: what the profile describes, in one line.
        source: where the logs come from; by default their names.
        licence: licence of the logs.
        date: month or year of the logs.

    Raises:
        InputError: a log cannot be read, or no log tells anything about an access link.
    """
    if not logs:
        raise InputError("no log given: name at least one log of an access link")
    files = [Path(log) for log in logs]
    names = [plain_name(file) for file in files]
    links = [
        read_measured_link(file, name, direction) for file, name in zip(files, names, strict=True)
    ]
    given = marks_of(marks, names)
    portraits = tuple(portrait_of(link, given.get(link.name, given.get(""))) for link in links)
    pairs = [(link, one.grid) for link, one in zip(links, portraits, strict=True)]
    content: dict[str, Any] = {
        "description": description or f"Access link fitted to {', '.join(names)}",
        "source": source or ", ".join(file.name for file in files),
        "licence": licence,
        "date": date,
        **fitted_profile(pairs),
    }
    if propagation is not None and "round_trip" in content:
        floor_ms = float(np.interp(0.5, RANKS, content["round_trip"]["floor_ms"]["quantiles"]))
        propagation_ms = _core.duration_s("--propagation", propagation) * 1e3
        content["ground_ms"] = round(max(0.0, floor_ms - propagation_ms), 2)
    return AccessProfile(
        content,
        portraits,
        judge(_drawn(content, links, portraits), portraits),
        tuple(one.text for one in portraits),
    )


def _drawn(
    content: Mapping[str, Any], links: Sequence[MeasuredLink], portraits: Sequence[Portrait]
) -> Portrait:
    """Return the mean portrait of paths that are drawn from a profile."""
    whole = dict(content)
    if "round_trip" not in whole and not all(
        "floor_ms" in whole.get(way, {}) for way in DIRECTIONS
    ):
        constant = {"quantiles": [UNMEASURED_MS] * len(_core.access_ranks()), "every": "15 s"}
        for way in DIRECTIONS:
            whole[way] = {**whole.get(way, {}), "floor_ms": constant}
    duration_s = min(LONGEST_S, max(link.duration_s for link in links))
    mark_s = next((one.grid.mark_s for one in portraits if one.grid.mark_s is not None), "none")
    drawn = []
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "profile.toml"
        file.write_text(tomli_w.dumps(whole), encoding="utf-8")
        for seed in range(1, DRAWS + 1):
            scenario = {
                "path": {"kind": "access", "profile": str(file)},
                "run": {"duration": f"{duration_s:.3f} s", "seed": seed},
            }
            link = link_of_path("drawn", path(scenario=scenario), None)
            drawn.append(portrait_of(link, mark_s))
    keys = set.intersection(*(set(one.values) for one in drawn))
    means = {key: float(np.mean([one.values[key] for one in drawn])) for key in keys}
    return replace(drawn[0], values=means)


def fitted_profile(links: Sequence[tuple[MeasuredLink, Grid]]) -> dict[str, Any]:
    """Return the parts of a profile that is fitted to measured links.

    Logs of round trips are fitted together. Each other part comes from the first link that tells
    it; packet times add their frames to the rate of their direction.

    Args:
        links: measured links, each with its grid.
    """
    grids = [grid for _, grid in links if grid.mark_s is not None]
    profile: dict[str, Any] = {}
    if grids:
        profile["grid"] = _grid_table(links)
    probed = [
        Probes.of(link.round_trips, link.start_ns, grid)
        for link, grid in links
        if link.round_trips is not None and link.what == "round trips"
    ]
    if probed:
        period_s = grids[0].period_s if grids else UTC_PERIOD_S
        profile |= round_trip_parts(probed, period_s, has_grid=bool(grids))
    for way in DIRECTIONS:
        parts = _way(links, way, with_delays=not probed)
        if parts:
            profile[way] = parts
    if grids and "reconfiguration" not in profile:
        profile |= holes_table(_holes_of_series(links))
    return profile


def _grid_table(links: Sequence[tuple[MeasuredLink, Grid]]) -> dict[str, str]:
    """Return the table `grid`: marks in UTC if a log has them there, otherwise on its own clock."""
    marked = [(link.is_utc, grid) for link, grid in links if grid.mark_s is not None]
    grid = max(marked, key=lambda pair: pair[0])[1]
    return {"period": f"{grid.period_s:g} s", "offset": f"{grid.mark_s:.6g} s"}


def _way(
    links: Sequence[tuple[MeasuredLink, Grid]], way: str, *, with_delays: bool
) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for link, grid in links:
        series = next((found for name, found in link.series.items() if name == way), None)
        if series is None or link.packets_per_ms is not None:
            continue
        for name, table in way_parts(series, Steps.of(series, link.start_ns, grid)).items():
            if with_delays or not name.endswith("_ms"):
                parts.setdefault(name, table)
    for link, grid in links:
        series = link.series.get("up" if way == "up" else "down")
        # Packet times are of one direction; a path tells those of the direction down.
        is_of_way = way == "down" or len(link.series) == 1
        if (
            link.packets_per_ms is not None
            and is_of_way
            and series is not None
            and series.rate_mbps is not None
        ):
            whole = way_parts(series, Steps.of(series, link.start_ns, grid))
            fine = rate_parts(link.packets_per_ms, round(grid.period_s * 1e3))
            if "rate" in parts:
                # The fluctuation is that of the link whose levels the profile has.
                parts["rate"]["frames"] = fine["frames"]
            else:
                parts["rate"] = whole["rate"] | fine
    return parts


def _holes_of_series(
    links: Sequence[tuple[MeasuredLink, Grid]],
) -> tuple[list[tuple[float, float]], int, list[float]]:
    holes: list[tuple[float, float]] = []
    marks = 0
    for link, grid in links:
        delays = [
            (series.delay_ms, Steps.of(series, link.start_ns, grid))
            for series in link.series.values()
            if series.delay_ms is not None
        ]
        if delays:
            both = np.mean([values for values, _ in delays], axis=0)
            found = holes_of_series(both, delays[0][1])
            holes += found
            marks += len(np.unique(delays[0][1].slots))
    return holes, max(marks, 1), []
