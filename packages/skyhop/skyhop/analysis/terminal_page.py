"""Page part about a run's terminal: spikes, orientation, obstructions, latency by segment.

A testbed's run stores the terminal's telemetry in the directory of its files; these may include a
run directory of skyhop. The page shows the figures for which there is data, and gives the reason
for each figure that it lacks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME
from skyhop.telemetry.maps import FILE as MAP

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from skyhop.analysis.dissection import Dissection
    from skyhop.analysis.orientation import Orientation
    from skyhop.analysis.spikes import Spikes
    from skyhop.telemetry.obstruction import ObstructionMap

    TerminalView: TypeAlias = Spikes | Orientation | Dissection | ObstructionMap

TELEMETRY, MANIFEST, CLIENT = "telemetry.parquet", "manifest.json", "client"
_TRACES = ("traceroute", "mtr", "scamper")
_OUTPUT, _TRACES_BEGIN = "stdout", b"traceroute to "
_PERMUTATIONS = 199


@dataclass(frozen=True)
class TerminalFigure:
    """Figure about a terminal, with its texts."""

    name: str
    """Name of the figure: "spikes", "orientation", "sky" or "segments"."""
    heading: str
    caption: str
    view: TerminalView


@dataclass(frozen=True)
class TerminalPart:
    """Facts and figures about the terminal of one run."""

    directory: Path
    facts: Sequence[tuple[str, str]] = ()
    figures: Sequence[TerminalFigure] = ()
    missing: Sequence[str] = field(default=())
    """Reasons why figures are not shown, one per missing figure."""

    @property
    def name(self) -> str:
        """Name of the run."""
        whole = self.directory.resolve()
        return whole.parent.name if whole.name == CLIENT else whole.name


def telemetry_of_run(run: Path) -> Path | None:
    """Return the directory of a run's telemetry: the run's, or its parent for a testbed's run."""
    if (run / TELEMETRY).is_file():
        return run
    above = run.resolve().parent
    return above if (above / TELEMETRY).is_file() and (above / MANIFEST).is_file() else None


def fetched(directory: Path) -> Path | None:
    """Return the telemetry directory of a run that was fetched from a testbed; None for others.

    None also for a run directory of skyhop, even one among the files of a testbed's run.
    """
    for place in (directory, directory / CLIENT):
        is_skyhops = (place / "run.json").exists() or any(place.glob("*/run.json"))
        if (place / TELEMETRY).is_file() and not is_skyhops:
            return place
    return None


def terminal_part(place: Path) -> TerminalPart:
    """Return the part about a run's terminal, from the files of a directory.

    Raises:
        InputError: the run's telemetry or manifest is damaged.
        RunError: a file cannot be read.
    """
    from skyhop.telemetry.store import TelemetryFile

    manifest = _manifest(place / MANIFEST)
    node = str(manifest.get("node") or place.resolve().name)
    frame = TelemetryFile(place / TELEMETRY).read([node])
    figures: list[TerminalFigure] = []
    missing: list[str] = []
    for make in _makers(place, frame, node):
        try:
            figures.append(make())
        except InputError as error:
            missing.append(str(error))
    return TerminalPart(place, _facts(manifest, node, frame), figures, missing)


def _makers(place: Path, frame: pl.DataFrame, node: str) -> Iterator[Callable[[], TerminalFigure]]:
    yield partial(_spikes, frame, node)
    yield partial(_orientation, frame)
    if (place / MAP).is_file():
        yield partial(_sky, place / MAP)
    for file in sorted(place.iterdir()):
        if file.is_file() and _holds_traces(file):
            yield partial(_segments, file)


def _spikes(frame: pl.DataFrame, node: str) -> TerminalFigure:
    from skyhop.analysis.spikes import find_spikes, series_of
    from skyhop.telemetry.paths import LATENCIES

    known = [name for name in LATENCIES if frame[name].null_count() < frame.height]
    chosen = known[0] if known else next(iter(LATENCIES))
    found = find_spikes(series_of(frame, chosen, LATENCIES[chosen], f"{node}, {chosen}"))
    return TerminalFigure("spikes", "Spikes", found.title, found)


def _orientation(frame: pl.DataFrame) -> TerminalFigure:
    from skyhop.analysis.orientation import LEAST_SAMPLES, by_orientation

    found = by_orientation(frame, permutations=_PERMUTATIONS)
    if found.worst.is_empty():
        raise InputError(f"orientation: no cell of the sky has {LEAST_SAMPLES} samples")
    return TerminalFigure("orientation", "Orientation", found.title, found)


def _sky(file: Path) -> TerminalFigure:
    from skyhop.telemetry.maps import read_map

    found = read_map(file)
    if not found.seen:
        raise InputError("obstruction map: the terminal has not seen any of the sky yet")
    caption = f"Obstruction map: {found.seen:,} pixels seen, {found.obstructed:,} obstructed"
    return TerminalFigure("sky", "Obstruction map", caption, found)


def _segments(file: Path) -> TerminalFigure:
    from skyhop.analysis.dissection import dissect
    from skyhop.telemetry.traces import read_traces

    found = dissect(read_traces(file))
    return TerminalFigure("segments", "Where latency arises", found.title, found)


def _holds_traces(file: Path) -> bool:
    """Return whether a file contains traced routes, by its name or its first words."""
    if any(word in file.name.lower() for word in _TRACES) or file.suffix == ".trace":
        return True
    if file.name != _OUTPUT:
        return False
    with file.open("rb") as stream:
        return stream.read(len(_TRACES_BEGIN)) == _TRACES_BEGIN


def _manifest(file: Path) -> dict[str, Any]:
    try:
        read: Any = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{file}: is not a testbed's manifest") from None
    if not isinstance(read, dict):
        raise InputError(f"{file}: is not a testbed's manifest")
    return read


def _facts(manifest: dict[str, Any], node: str, frame: pl.DataFrame) -> list[tuple[str, str]]:
    facts = [("node", node)]
    facts += [(key, str(manifest[key])) for key in ("run", "side") if manifest.get(key)]
    if frame.height:
        begin_ns, end_ns = int(frame[TIME][0]), int(frame[TIME][-1])
        facts.append(("telemetry", f"{_written(begin_ns)} to {_written(end_ns)} UTC"))
        facts.append(("samples", f"{frame.height:,}"))
    return facts


def _written(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
