"""`skyhop telemetry`: import, show and analyse terminals' telemetry, and convert it to paths."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completion
from skyhop.cli.figures import (
    Footer,
    Height,
    PanelName,
    Plot,
    Width,
    figure_file_or_none,
)
from skyhop.cli.options import Csv, Json, group
from skyhop.cli.path.output import Output
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    import polars as pl

    from skyhop.analysis.orientation import Orientation
    from skyhop.analysis.spikes import Series, Spikes
    from skyhop.telemetry.fields import Sample
    from skyhop.telemetry.store import Telemetry

HELP = """\
Telemetry of terminals: import it, show it, analyse its latency, convert it to paths.

It is stored in a directory, as one Parquet file per node and day. skyhop docs telemetry-fields has
the fields and the formats, skyhop docs telemetry the methods.
"""

IMPORT_HELP = """\
Import other tools' files into a telemetry directory. Samples are per second; finer data become
means over seconds.

Examples:

  skyhop telemetry import status.csv --node bcn-1 -o telemetry

  skyhop telemetry import rtt.csv.gz --format rtt --node victoria -o telemetry
"""

SHOW_HELP = """\
Show the days that have telemetry; with a period, --fields, --step or --csv, show values.

Examples:

  skyhop telemetry show telemetry

  skyhop telemetry show telemetry --node bcn-1 --fields pop_ping_latency_ms,state --step "15 s"

  skyhop telemetry show telemetry --from 2026-11-24 --to 2026-11-25T12:00 --csv
"""

ORIENTATION_HELP = """\
Show latency by the orientation of a terminal's boresight.

Shows how often each orientation occurred, its latency, and which are significantly worse.

Example:

  skyhop telemetry orientation telemetry --node bcn-1 -o orientation.png
"""

SPIKES_HELP = """\
Find sustained latency spikes: periods of at least 3 s above twice the median of 15 minutes.

The argument is a telemetry directory (then give the node), a run's telemetry.parquet, or a file of
single round trips: ping -D, unix_ns,rtt_ms or LENS' CSV.

Examples:

  skyhop telemetry spikes rtt.csv.gz -o spikes.png

  skyhop telemetry spikes telemetry --node bcn-1 --from 2026-11-24T12:00 --to 2026-11-24T12:15
"""

PATH_HELP = """\
Convert telemetry to a path file.

The path has the latency and loss of every second; skyhop docs measured-paths has the rules.

Examples:

  skyhop telemetry path telemetry --node bcn-1 --from 2026-11-24T12:00 --to 2026-11-24T12:30 \
    -o path.parquet

  skyhop telemetry path fetched/telemetry.parquet -o path.parquet
"""

_CHUNK = 5000
_MOST_PERMUTATIONS = 100_000
_MOST_SHOWN = 40
"""Largest number of rows of a printed table; --json and --csv print all rows."""

app = group(HELP)

TelemetrySource = Annotated[
    Path,
    typer.Argument(metavar="DIR|FILE", help="Telemetry directory, or a run's telemetry.parquet."),
]
Node = Annotated[str, typer.Option("--node", metavar="NAME", help="The terminal's node.")]
Whose = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NAME", help="The terminal's node, if the directory has several."
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Start time, such as 2026-11-24T12:00."),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="End time; UTC without a time zone.")
]
Figure = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FIGURE", help="Also draw a figure: PNG, SVG or PDF."),
]


def _formats_beginning(incomplete: str) -> list[str]:
    from skyhop.telemetry.importers import formats

    return completion.one_of(*formats())(incomplete)


@app.command("import", help=IMPORT_HELP)
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files to import, plain or gzipped.")
    ],
    node: Node,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Telemetry directory to add to.")
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the files; detected if not given.",
            autocompletion=_formats_beginning,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start of files without absolute times; default: 1970."),
    ] = None,
    direction: Annotated[
        str | None, typer.Option(help="Direction of rates without one: down (the default) or up.")
    ] = None,
) -> None:
    """Import files into a telemetry directory."""
    from skyhop.analysis.sentence_words import counted
    from skyhop.telemetry.importers import Options, import_samples
    from skyhop.telemetry.store import Store

    options = Options(_time_ns("--start", start), direction)
    store = None
    for file in files:
        # Check the whole file before storing any sample of it.
        accounts: list[str] = []
        samples = import_samples(file, file_format, options, accounts)
        first_ns, last_ns, count = _checked(samples)
        store = store or Store(output)
        for chunk in _chunks(import_samples(file, file_format, options)):
            store.append(node, chunk)
        summary = f"{counted(count, 'sample')}, {_iso_time(first_ns)} to {_iso_time(last_ns)}"
        print_note("; ".join([f"{file}: {summary}", *accounts]))
    if store is not None:
        store.close()


def _checked(samples: Iterator[Sample]) -> tuple[int, int, int]:
    """Check samples; return the first and last time in ns, and their number.

    Raises:
        InputError: a sample is invalid.
    """
    from skyhop.telemetry.columns import checked, time_of

    first_ns, last_ns, count = 2**63, 0, 0
    for sample in samples:
        time_ns = time_of(checked(sample))
        first_ns, last_ns, count = min(first_ns, time_ns), max(last_ns, time_ns), count + 1
    return first_ns, last_ns, count


@app.command("show", help=SHOW_HELP)
def show(
    source: TelemetrySource,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="Node to show; repeatable."),
    ] = None,
    from_: From = None,
    to: To = None,
    fields: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Fields, separated by commas; default: all fields with values."
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help='Print means over intervals of this length, such as "15 s".'
        ),
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Show days or values of telemetry."""
    from skyhop.telemetry.store import open_telemetry

    store = open_telemetry(source)
    if not any((from_, to, fields, step, as_csv)):
        rows = list(_days(store, nodes))
        if rows or as_json:
            print_rows(rows, as_json=as_json)
        else:
            print_note(f"{source}: there is no telemetry yet")
        return
    frame = read_frame(
        source, nodes, fields.split(",") if fields else None, from_, to, _step_ns(step)
    )
    if fields is None:
        frame = _known(frame)
    if as_csv:
        print(frame.write_csv(), end="")
    elif as_json:
        print(json.dumps(frame.to_dicts(), indent=2, ensure_ascii=False))
    else:
        print_rows(list(map(_table_row, frame.head(_MOST_SHOWN).to_dicts())), as_json=False)
        if frame.height > _MOST_SHOWN:
            print(f"{frame.height - _MOST_SHOWN:,} more rows; --csv and --json print all")


@app.command("orientation", help=ORIENTATION_HELP)
def orientation(
    source: TelemetrySource,
    node: Whose = None,
    from_: From = None,
    to: To = None,
    block: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Length of the blocks that the test permutes; samples correlate within a block.",
        ),
    ] = "15 s",
    permutations: Annotated[int, typer.Option(help="Number of random permutations.")] = 999,
    seed: Annotated[int, typer.Option(help="Seed of the permutations.")] = 1,
    as_json: Json = False,
    figure: Figure = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Show latency by the terminal's orientation."""
    from skyhop.errors import InputError

    wanted = figure_file_or_none(figure, width, height, footer=footer)
    block_ns = _step_ns(block, "--block")
    if not 1 <= permutations <= _MOST_PERMUTATIONS or seed < 0 or not block_ns:
        raise InputError(
            f"--permutations: expected 1 to {_MOST_PERMUTATIONS:,}; --seed: from 0; --block: "
            "longer than 0"
        )

    from skyhop.analysis import orientation as analysed

    frame = read_frame(source, _named(node), analysed.FIELDS, from_, to)
    found = analysed.by_orientation(
        frame, seed=seed, permutations=permutations, block_s=block_ns / 1e9
    )
    if as_json:
        print(json.dumps(_orientation_document(found), indent=2))
    else:
        print_rows(list(map(_cell_row, found.worst.to_dicts())), as_json=False, title=found.title)
        print("\n".join(_orientation_lines(found)))
    if wanted is not None:
        from skyhop.figures.orientation import orientation_figure

        wanted.write(partial(orientation_figure, found))


@app.command("spikes", help=SPIKES_HELP)
def spikes(
    source: Annotated[Path, typer.Argument(metavar="DIR|FILE")],
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="For a directory: the terminal's node."),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="For a directory: field, probe_rtt_ms or pop_ping_latency_ms."),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="For a file: its format; detected if not given."
        ),
    ] = None,
    from_: From = None,
    to: To = None,
    window: Annotated[
        str, typer.Option(metavar="TIME", help="Length of the windows whose medians set the limit.")
    ] = "15 min",
    as_json: Json = False,
    figure: Figure = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Find sustained latency spikes."""
    wanted = figure_file_or_none(figure, width, height, footer=footer)
    window_ns = _step_ns(window, "--window") or 0

    from skyhop.analysis.spikes import find_spikes
    from skyhop.telemetry.store import is_telemetry_file

    series = (
        _series_of_telemetry(source, node, field, from_, to)
        if source.is_dir() or is_telemetry_file(source)
        else _series_of_file(source, file_format, from_, to)
    )
    found = find_spikes(series, window_ns / 1e9)
    if as_json:
        print(json.dumps(_spikes_document(found), indent=2))
    else:
        rows = [
            {
                "start": _iso_time(spike.start_ns)[:23].removesuffix("Z"),
                "length (s)": f"{spike.length_s:.1f}",
                "peak (ms)": f"{spike.peak_ms:.1f}",
                "x median": f"{spike.times_median:.2f}",
                "starts on grid": "yes" if spike.starts_on_grid else "no",
                "ends on grid": "yes" if spike.ends_on_grid else "no",
                "loss at edges": ""
                if spike.loss_at_edges is None
                else f"{spike.loss_at_edges:.3f}",
            }
            for spike in found.spikes
        ]
        if rows:
            print_rows(rows, as_json=False)
        print("\n".join(_spikes_lines(found)))
    if wanted is not None:
        from skyhop.figures.spikes import spikes_figure

        wanted.write(partial(spikes_figure, found))


@app.command("path", help=PATH_HELP)
def path(
    source: TelemetrySource,
    output: Output,
    node: Whose = None,
    from_: From = None,
    to: To = None,
    field: Annotated[
        str | None,
        typer.Option(
            help="Latency: probe_rtt_ms or pop_ping_latency_ms; default: the first with values."
        ),
    ] = None,
    place: Annotated[
        str | None, typer.Option("--from-place", metavar="PLACE", help="Location of the node.")
    ] = None,
    other: Annotated[
        str | None,
        typer.Option("--to-place", metavar="PLACE", help="Location of the probes' destination."),
    ] = None,
    direction: Annotated[
        str, typer.Option(help="Direction whose capacity is the path's rate: down or up.")
    ] = "down",
    rtt: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Round-trip time of telemetry without a latency."),
    ] = None,
    plot: Plot = None,
    panel: PanelName = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Convert telemetry to a path file."""
    from skyhop.cli.path.output import finish
    from skyhop.data.files import check_place
    from skyhop.telemetry.paths import FIELDS, path_from_telemetry

    figure = figure_file_or_none(plot, width, height, footer=footer)
    check_place(output)
    frame = read_frame(source, _named(node), FIELDS, from_, to)
    trace, used, unknown = path_from_telemetry(
        frame, field, from_=place, to=other, direction=direction, rtt=rtt
    )
    finish(trace, output, figure, panel)
    print_note(f"made from {used}: {trace.account}")
    if unknown:
        print_note(f"{unknown:,} s without values repeat the second before")


def _named(node: str | None) -> list[str] | None:
    return None if node is None else [node]


def _series_of_telemetry(
    source: Path, node: str | None, field: str | None, from_: str | None, to: str | None
) -> Series:
    from skyhop.analysis.spikes import series_of
    from skyhop.errors import InputError
    from skyhop.telemetry.paths import FIELDS, LATENCIES

    if field is not None and field not in LATENCIES:
        raise InputError(f'--field: expected {" or ".join(LATENCIES)}, not "{field}"')
    frame = read_frame(source, _named(node), FIELDS, from_, to)
    known = [name for name in LATENCIES if frame[name].null_count() < frame.height]
    chosen = field or (known[0] if known else next(iter(LATENCIES)))
    return series_of(frame, chosen, LATENCIES[chosen], f"{frame['node'][0]}, {chosen}")


def _series_of_file(
    file: Path, file_format: str | None, from_: str | None, to: str | None
) -> Series:
    import numpy as np

    from skyhop.analysis.spikes import Series
    from skyhop.telemetry.importers import probes

    from_ns, to_ns = _time_ns("--from", from_) or 0, _time_ns("--to", to) or 2**63
    found = [p for p in probes(file, file_format) if from_ns <= p.time_ns < to_ns]
    has_losses = any(probe.rtt_ms is None for probe in found)
    return Series(
        np.array([probe.time_ns for probe in found], np.int64),
        np.array([np.nan if p.rtt_ms is None else p.rtt_ms for p in found], float),
        np.array([float(p.rtt_ms is None) if has_losses else np.nan for p in found], float),
        0.0,
        file.name,
    )


def _spikes_lines(found: Spikes) -> list[str]:
    """Return the lines of text below the table of spikes."""
    from skyhop.analysis.spikes import BY_CHANCE

    lines = [found.title, f"{100 * found.share_above:.2f} % of the time above the limit"]
    on_grid = found.on_grid()
    if on_grid is not None:
        starts, ends = (f"{100 * share:.0f} %" for share in on_grid)
        lines.append(
            f"within 1 s of the grid: {starts} of starts, {ends} of ends; by chance "
            f"{100 * BY_CHANCE:.0f} %"
        )
    return lines


def _spikes_document(found: Spikes) -> dict[str, Any]:
    on_grid = found.on_grid()
    return {
        "median_ms": found.median_ms,
        "hours": found.hours,
        "share_above": found.share_above,
        "starts_on_grid": None if on_grid is None else on_grid[0],
        "ends_on_grid": None if on_grid is None else on_grid[1],
        "spikes": [vars(spike) for spike in found.spikes],
    }


def _cell_row(cell: dict[str, Any]) -> dict[str, Any]:
    return {
        "azimuth (deg)": f"{cell['azimuth_deg']:.2f}",
        "elevation (deg)": f"{cell['elevation_deg']:.2f}",
        "samples": cell["n"],
        "share": f"{100 * cell['share']:.2f} %",
        "p50 (ms)": f"{cell['p50_ms']:.1f}",
        "p95 (ms)": f"{cell['p95_ms']:.1f}",
        "drop": "" if cell["drop"] is None else f"{cell['drop']:.4f}",
        "visits": cell["visits"],
        "worse by": f"{cell['worse_by']:.1f}",
        "p": f"{cell['p']:.3f}",
    }


def _orientation_lines(found: Orientation) -> list[str]:
    """Return the lines of text below the table of orientations."""
    lines = []
    for name, (low, high), slew in zip(
        ("azimuth", "elevation"),
        (found.azimuth_deg, found.elevation_deg),
        found.slew_deg_per_s,
        strict=True,
    ):
        lines.append(
            f"{name}: 90 % between {low:.2f} and {high:.2f} deg, median slew {slew:.5f} deg/s"
        )
    if found.uncertainty_deg is not None:
        lines.append(f"the terminal's own uncertainty: {found.uncertainty_deg:.2f} deg (median)")
    if found.caution is not None:
        lines.append(found.caution)
    count = found.significant().height
    lines.append(f"{count or 'no'} {'cell is' if count == 1 else 'cells are'} worse at 5 %")
    return lines


def _orientation_document(found: Orientation) -> dict[str, Any]:
    return {
        "node": found.node,
        "samples": found.samples,
        "azimuth_deg": found.azimuth_deg,
        "elevation_deg": found.elevation_deg,
        "slew_deg_per_s": found.slew_deg_per_s,
        "uncertainty_deg": found.uncertainty_deg,
        "block_s": found.block_s,
        "alike": found.alike,
        "cells": found.cells.to_dicts(),
    }


def read_frame(
    source: Path,
    nodes: Sequence[str] | None,
    fields: Sequence[str] | None,
    from_: str | None,
    to: str | None,
    step_ns: int | None = None,
) -> pl.DataFrame:
    """Read the telemetry that the options of a command select.

    Raises:
        InputError: the directory, node, field or time is wrong, or no telemetry matches.
    """
    from skyhop.errors import InputError
    from skyhop.telemetry.store import open_telemetry

    frame = open_telemetry(source).read(
        nodes,
        None if fields is None else [name.strip() for name in fields],
        _time_ns("--from", from_),
        _time_ns("--to", to),
        step_ns,
    )
    if frame.height == 0:
        raise InputError(f"{source}: there is no telemetry of these nodes and times")
    return frame


def _time_ns(option: str, text: str | None) -> int | None:
    from skyhop.errors import InputError
    from skyhop.telemetry.importers.input_file import iso_ns

    if text is None:
        return None
    found_ns = iso_ns(text)
    if found_ns is None or found_ns < 0:
        raise InputError(f'{option}: expected a time such as 2026-11-24T12:00, not "{text}"')
    return found_ns


def _step_ns(text: str | None, option: str = "--step") -> int | None:
    from skyhop import _core

    return None if text is None else round(_core.duration_s(option, text) * 1e9)


def _chunks(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    while chunk := list(islice(samples, _CHUNK)):
        yield chunk


def _days(store: Telemetry, nodes: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    from skyhop.telemetry.fields import TIME

    for node in nodes or store.nodes():
        for day in store.days(node):
            begin = f"{day}T00:00"
            begin_ns = _time_ns("", begin) or 0
            frame = _known(store.read([node], None, begin_ns, begin_ns + 86_400 * 10**9))
            yield {
                "node": node,
                "day": str(day),
                "samples": frame.height,
                "from": _iso_time(_as_int(frame[TIME].min()))[11:],
                "to": _iso_time(_as_int(frame[TIME].max()))[11:],
                "fields": ", ".join(frame.columns[2:]),
            }


def _known(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame without those fields that have no value in any row."""
    names = frame.columns[2:]
    return frame.select(
        *frame.columns[:2], *(name for name in names if frame[name].null_count() < frame.height)
    )


def _table_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for a printed table: time in ISO 8601, numbers with six significant digits."""
    shown: dict[str, Any] = {"node": row["node"], "time": _iso_time(row["time_ns"])}
    for name, value in row.items():
        if name not in ("node", "time_ns"):
            shown[name] = f"{value:.6g}" if isinstance(value, float) else value
    return shown


def _as_int(found: object) -> int:
    assert isinstance(found, int), "times are whole"
    return found


def _iso_time(time_ns: int) -> str:
    """Return a time in ISO 8601 (UTC), without trailing zeros of the fraction."""
    from datetime import UTC, datetime

    second, rest = divmod(time_ns, 10**9)
    moment = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return moment + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"
