"""Time-varying paths between two places: computed, imported, or read from a file."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skyhop import _core, views
from skyhop.data.missing_links import Gap, gap_note, missing_links
from skyhop.data.near_names import did_you_mean
from skyhop.data.places import position_of
from skyhop.data.progress import Progress, progress_or_bar
from skyhop.data.scenarios import Scenario, load_scenario, place_notes
from skyhop.errors import InputError

if TYPE_CHECKING:
    import polars as pl

COMPUTED = "skyhop path"
"""Value of `source` in the header of a path that was computed over a constellation."""


class Path:
    """Time-varying path between two places.

    Attributes:
        header: parameters of the path: ends, constellation, relay, policies, seed.
        account: what was used of the file from which the path was just made, and what was not, in
            one line: element sets with the reasons, or the samples of a log.
        notes: warnings from the computation of the path, such as ambiguous names of places.
    """

    def __init__(self, core: _core.PathTrace) -> None:
        self._core = core
        self.header: dict[str, Any] = json.loads(core.header_json())
        self.account: str | None = None
        self.notes: list[str] = []

    @cached_property
    def frames(self) -> pl.DataFrame:
        """State of the path, one row per frame; a frame is valid from `t_ns` (since the start) on.

        `nodes`: node ids from end to end, -1 for `from` and -2 for `to`; empty if not known.
        `hop_delay_ns`: delay of each hop between these nodes. `delay_ns`, `delay_back_ns`: one-way
        delays in both directions, null without a path. `rate_bps`, `loss` (0 to 1): null if not
        measured; `rate_back_bps`, `loss_back`: only if the other direction has its own.
        `events`: the frame's events, each with `t_ns`, `kind` and `outage_ns`.
        """
        import polars as pl

        return pl.DataFrame(self._core.frames())

    @property
    def segments(self) -> pl.DataFrame:
        """Delay in ns by segment (user links, ISLs, gateway links, fibre), one row per frame."""
        from skyhop.data.delay_segments import delay_segments

        return delay_segments(self)

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the path to a path file, atomically.

        Raises:
            RunError: the file cannot be written.
        """
        self._core.write(os.fspath(file))

    def export(self, file: str | os.PathLike[str], format: str, **options: str) -> None:  # noqa: A002
        """Write the path to a file in the format of another tool, atomically.

        Args:
            file: the file to write.
            format: "csv" (which import_path reads back exactly), "mahimahi", "netem" or "czml".
            options: rate (mahimahi, if the path has none), step (netem, czml), gateways (czml).

        Raises:
            InputError: the format cannot hold this path.
            RunError: the file cannot be written.
        """
        if format == "czml":
            self._export_czml(os.fspath(file), options)
        elif format in _core.EXPORT_FORMATS:
            self._core.export(os.fspath(file), format, options)
        else:
            known = [*_core.EXPORT_FORMATS, "czml"]
            what = f'"{format}" is not a format{did_you_mean(format, known)}'
            expected = ", ".join(known)
            raise InputError(f"{os.fspath(file)}: --format: {what}; expected one of {expected}")

    def _export_czml(self, file: str, options: dict[str, str]) -> None:
        from skyhop.data.czml import STEP, czml_text
        from skyhop.data.files import write_file
        from skyhop.data.positions import GATEWAYS

        unknown = options.keys() - {"step", "gateways"}
        if unknown:
            raise InputError(f"{file}: --{unknown.pop()}: the format czml does not use it")
        step_s = _core.duration_s(f"{file}: --step", options.get("step", STEP))
        text = czml_text(self, step_s, options.get("gateways", GATEWAYS))
        write_file(pathlib.Path(file), text.encode())

    def plot(
        self, output: str | os.PathLike[str] | None = None, *, until_s: float | None = None
    ) -> views.Drawing:
        """Draw one-way delay, number of hops and events over time.

        Args:
            output: PNG, SVG or PDF file to write the figure to; by default none is written.
            until_s: end of the time axis in seconds; by default the end of the path.

        Returns:
            A matplotlib figure, which a notebook shows.

        Raises:
            InputError: the suffix of `output` is not that of such a file.
            RunError: `output` cannot be written.
        """
        return views.plot(self, output=output, until_s=until_s)

    def _repr_html_(self) -> str:
        return views.html(self)

    def __repr__(self) -> str:
        ends = f"{self.header['from']['name']} - {self.header['to']['name']}"
        return f"<skyhop.Path {ends}, {self.frames.height} frames>"


def path(
    from_: str | None = None,
    to: str | None = None,
    *,
    scenario: Scenario | None = None,
    sets: Sequence[str] = (),
    duration: str | None = None,
    progress: Progress | None = None,
    access: str | None = None,
    **keys: str | float,
) -> Path:
    """Compute the path between two places, or the `[path]` of a scenario.

    Args:
        from_: one end: a site, a city, or "lat,lon[,alt_m]".
        to: the other end.
        scenario: scenario file, or scenario as a dictionary; the other arguments override its keys.
        sets: overrides of the scenario's keys, each "KEY=VALUE".
        duration: time that the path covers; by default `[run] duration`.
        progress: callback (frames done, all frames); a progress bar by default.
        access: access profile, by name or file: added to the computed path of relay="starlink" or
            "access", or with kind="access" the only source of the path, which then has no places.
        keys: other keys of `[path]`: constellation, relay, dish, handover, start, step, …

    Raises:
        InputError: a place, key or value is wrong.
        RunError: there is no path between the places at any time.
    """
    profile = "profile" if keys.get("kind") == "access" else "access.profile"
    content: dict[str, str | float | None] = {"from": from_, "to": to, profile: access, **keys}
    keyed = [
        f"path.{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in content.items()
        if value is not None
    ]
    if duration is not None:
        keyed.append(f"run.duration={json.dumps(duration)}")
    source: Scenario = {"path": {}} if scenario is None else scenario
    loaded = load_scenario(source, [*sets, *keyed], origin="the path's options")
    with progress_or_bar(progress, "computing the path") as report:
        trace = Path(_core.PathTrace.compute(loaded, position_of, report))
    trace.notes = [*loaded.path_notes(), *place_notes(json.loads(loaded.to_json()))]
    if trace.header["source"] == COMPUTED:
        constellation = _core.Constellation.of(loaded)
        trace.account = constellation.account
        if trace.header["relay"] == "isl" and trace.header["compat"] == "none":
            _tell_missing_links(trace, constellation)
    return trace


def _tell_missing_links(trace: Path, constellation: _core.Constellation) -> None:
    """Say which satellites inter-satellite links do not join: in a note if this makes a gap."""
    # With an avoidance of the geostationary arc, an end may not use all satellites that it sees.
    keys = trace.header["origin"]["path"]
    gaps = _gaps(trace) if "geo_avoidance" not in keys else ()
    rule = keys.get("isl_shells", "apart")
    notes = gap_note(constellation, trace.header["start"], gaps, rule)
    trace.notes += notes
    missing = missing_links(constellation, rule)
    if not notes and missing is not None and trace.account is not None:
        trace.account += f"; there are {missing}"


def _gaps(trace: Path) -> Iterator[Gap]:
    from skyhop.data.positions import end_deg

    ends = end_deg(trace.header, "from"), end_deg(trace.header, "to")
    without = trace.frames.filter(trace.frames["nodes"].list.len() == 0)["t_ns"]
    return (Gap(time_ns / 1e9, *ends) for time_ns in without)


def import_path(
    file: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    from_: str | None = None,
    to: str | None = None,
    **options: str,
) -> Path:
    """Read a log or measurement of another tool as a path (see `skyhop docs measured-paths`).

    Args:
        file: the log, plain or gzipped.
        format: format of the log: "leoem", "ping", "irtt", "atlas", "csv",
                "iperf3", "mahimahi" or "leocc";
            recognised if not given.
        from_: the end that sent the packets or probes: a site, a city, or "lat,lon".
        to: the other end.
        options: values that the format lacks: interval (ping), direction (csv, iperf3), rtt (files
            with rates alone), delay_file (leocc).

    Returns:
        The path; its `account` says what was taken from the file and what was left.

    Raises:
        InputError: the file cannot be read or is not of that format; the message names the line.
    """
    ends = (
        None if from_ is None else position_of(from_),
        None if to is None else position_of(to),
    )
    core, account = _core.PathTrace.import_log(os.fspath(file), format, ends, options)
    path = Path(core)
    path.account = account
    return path


def read_path(file: str | os.PathLike[str], *, force_size: bool = False) -> Path:
    """Read a path file.

    Args:
        file: name of the file.
        force_size: read the file even if it takes more than a gigabyte of memory.

    Raises:
        InputError: the file is missing, cut off, too large, or not a path file.
    """
    return Path(_core.PathTrace.read(os.fspath(pathlib.Path(file)), force_size))
