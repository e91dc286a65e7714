"""Time-varying paths between two places: computed, imported, read from a file.

What draws a path stands above this module, and is reached by the package's own names.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import skyhop
from skyhop import _core
from skyhop.data.places import position_of
from skyhop.data.progress import Progress, shown
from skyhop.data.scenarios import Scenario, load_scenario, place_notes
from skyhop.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

COMPUTED = "skyhop path"
"""What the header of a path computed over a constellation says about its source."""


class Path:
    """The path between two places as it changes over time.

    Attributes:
        header: how it was made: ends, constellation, relay, policies, seed.
        account: of a path just computed over a file of element sets: how many were used, how many
            were not and why, in a line.
        notes: what to know of a path just computed before believing it.
    """

    def __init__(self, core: _core.PathTrace) -> None:
        self._core = core
        self.header: dict[str, Any] = json.loads(core.header_json())
        self.account: str | None = None
        self.notes: list[str] = []
        self._frames: pa.Table | None = None

    @property
    def frames(self) -> pa.Table:
        """One row per frame, from whose `t_ns` (since the path's start) on it is so.

        `nodes`: ids in order, -1 and -2 for the ends, empty where not known; `hop_delay_ns`: one
        for each hop between them; `delay_ns` and `delay_back_ns`: one-way delays, null without a
        path; `rate_bps` and `loss` (0 to 1), null where not measured; `events`: what happens then,
        each with `t_ns`, `kind` and `outage_ns`.
        """
        if self._frames is None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            # Nor read_table: threads of Arrow may outlive the interpreter, which then aborts.
            file = pq.ParquetFile(pa.BufferReader(self._core.to_parquet()))
            self._frames = file.read(use_threads=False)
        return self._frames

    @property
    def segments(self) -> pa.Table:
        """In ns, a row per frame, where the delay arises: user links, ISLs, gateways, fibre."""
        from skyhop.data.delay_segments import delay_segments

        return delay_segments(self)

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write a path file, whole or not at all.

        Raises:
            RunError: the file cannot be written.
        """
        self._core.write(os.fspath(file))

    def export(self, file: str | os.PathLike[str], format: str, **options: str) -> None:  # noqa: A002
        """Write the path for another tool, whole or not at all.

        Args:
            file: where to.
            format: "csv" (which import_path reads back exactly), "mahimahi", "netem" or "czml".
            options: rate (mahimahi, where the path has none), step (netem, czml), gateways (czml).

        Raises:
            InputError: the format cannot hold this path.
            RunError: the file cannot be written.
        """
        if format == "czml":
            self._export_czml(os.fspath(file), options)
        elif format in _core.EXPORT_FORMATS:
            self._core.export(os.fspath(file), format, options)
        else:
            known = ", ".join([*_core.EXPORT_FORMATS, "czml"])
            raise InputError(
                f'{os.fspath(file)}: --format: "{format}" is not a format; expected one of {known}'
            )

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
    ) -> skyhop.figures.Sheet:
        """Draw one-way delay, number of hops and events over time.

        Args:
            output: a PNG, SVG or PDF file to write the figure to, where one is wanted.
            until_s: where to stop, in seconds; where the path ends, if not given.

        Returns:
            A matplotlib figure, which a notebook shows.

        Raises:
            InputError: `output` is not the name of such a file.
            RunError: `output` cannot be written.
        """
        file = None if output is None else os.fspath(output)
        return skyhop.figures.path_figure(self, file, until_s=until_s)

    def _repr_html_(self) -> str:
        return skyhop.report.path_html(self)

    def __repr__(self) -> str:
        ends = f"{self.header['from']['name']} - {self.header['to']['name']}"
        return f"<skyhop.Path {ends}, {self.frames.num_rows} frames>"


def path(
    from_: str | None = None,
    to: str | None = None,
    *,
    scenario: Scenario | None = None,
    sets: Sequence[str] = (),
    duration: str | None = None,
    progress: Progress | None = None,
    **keys: str | float,
) -> Path:
    """Compute the path between two places, or the `[path]` of a scenario.

    Args:
        from_: one end: a site, a city, or "lat,lon[,alt_m]".
        to: the other end.
        scenario: a scenario file or its content as a dictionary, instead of or beneath the rest.
        sets: overrides of the scenario's keys, each "KEY=VALUE".
        duration: how much time the path covers; `[run] duration` where not given.
        progress: called with the frames done and the frames in all; a bar where not given.
        keys: other keys of `[path]`: constellation, relay, handover, start, step, …

    Raises:
        InputError: a place, key or value is wrong.
        RunError: the path never exists.
    """
    content: dict[str, str | float | None] = {"from": from_, "to": to, **keys}
    keyed = [
        f"path.{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in content.items()
        if value is not None
    ]
    if duration is not None:
        keyed.append(f"run.duration={json.dumps(duration)}")
    source: Scenario = {"path": {}} if scenario is None else scenario
    loaded = load_scenario(source, [*sets, *keyed], origin="the path's options")
    with shown(progress, "computing the path") as told:
        trace = Path(_core.PathTrace.compute(loaded, position_of, told))
    if trace.header["source"] == COMPUTED:
        trace.account = _core.Constellation.of(loaded).account
    trace.notes = [*loaded.path_notes(), *place_notes(json.loads(loaded.to_json()))]
    return trace


def import_path(
    file: str | os.PathLike[str],
    format: str,  # noqa: A002
    *,
    from_: str | None = None,
    to: str | None = None,
    **options: str,
) -> Path:
    """Read another tool's log or measurement as a path; docs/measured-paths.md has the rules.

    Args:
        file: the log, plain or gzipped.
        format: what wrote it: "leoem", "ping", "irtt", "csv", "mahimahi" or "leocc".
        from_: the end that sends, or that probed: a site, a city, or "lat,lon".
        to: the other end.
        options: what the format cannot say itself: interval (ping), direction (csv), rtt
            (mahimahi), delay_file (leocc).

    Raises:
        InputError: the file cannot be read or is not such a log; the message names the line.
    """
    ends = (
        None if from_ is None else position_of(from_),
        None if to is None else position_of(to),
    )
    return Path(_core.PathTrace.import_log(os.fspath(file), format, ends, options))


def read_path(file: str | os.PathLike[str], *, force_size: bool = False) -> Path:
    """Read a path file.

    Args:
        file: its name.
        force_size: read it even if it takes more than a gigabyte of memory.

    Raises:
        InputError: the file is missing, cut, too large, or something else.
    """
    return Path(_core.PathTrace.read(os.fspath(pathlib.Path(file)), force_size))
