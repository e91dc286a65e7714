"""`skyhop telemetry`: what terminals measured: brought in, looked at, and made a path of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completing
from skyhop.cli.options import Csv, Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    import polars as pl

    from skyhop.telemetry.fields import Sample

HELP = """\
Telemetry of terminals: import it, look at it, find what is wrong, make paths of it.

It is kept in a directory, one Parquet file per node and day. docs/telemetry.md has the fields, the
formats and the methods.
"""

IMPORT_HELP = """\
Bring files of others into telemetry. Samples are seconds; what is finer becomes means of seconds.

Examples:

  skyhop telemetry import status.csv --node bcn-1 -o telemetry

  skyhop telemetry import rtt.csv.gz --format rtt --node victoria -o telemetry
"""

SHOW_HELP = """\
Show telemetry: which days there are, or the values of some fields.

Examples:

  skyhop telemetry show telemetry

  skyhop telemetry show telemetry --node bcn-1 --fields pop_ping_latency_ms,state --step "15 s"

  skyhop telemetry show telemetry --from 2026-11-24 --to 2026-11-25T12:00 --csv
"""

_CHUNK = 5000
_MOST_SHOWN = 40
"""Rows of a table; --json and --csv have all."""

app = group(HELP)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Where telemetry is kept.")]
Node = Annotated[str, typer.Option("--node", metavar="NAME", help="The terminal's node.")]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="From this time on, such as 2026-11-24T12:00."),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Until this time; without a zone UTC.")
]


def _formats_beginning(incomplete: str) -> list[str]:
    from skyhop.telemetry.importers import formats

    return completing.one_of(*formats())(incomplete)


@app.command("import", help=IMPORT_HELP)
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Plain or gzipped.")],
    node: Node,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Where telemetry is kept.")
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Of the files; recognised if not given.",
            autocompletion=_formats_beginning,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When files begin that do not say it; 1970 if not given"),
    ] = None,
    direction: Annotated[
        str | None, typer.Option(help="Of rates without one: down (the default) or up.")
    ] = None,
) -> None:
    """Import files."""
    from skyhop.telemetry.importers import Options, imported
    from skyhop.telemetry.store import Store

    options = Options(_time_ns("--start", start), direction)
    store = Store(output)
    for file in files:
        # All of it is read before any of it is kept.
        first_ns, last_ns, count = _checked(imported(file, file_format, options))
        for chunk in _chunks(imported(file, file_format, options)):
            store.append(node, chunk)
        print_note(f"{file}: {count:,} samples, {_written(first_ns)} to {_written(last_ns)}")
    store.close()


def _checked(samples: Iterator[Sample]) -> tuple[int, int, int]:
    """Return the first and last time of samples, and how many there are."""
    from skyhop.telemetry.columns import checked, time_of

    first_ns, last_ns, count = 2**63, 0, 0
    for sample in samples:
        time_ns = time_of(checked(sample))
        first_ns, last_ns, count = min(first_ns, time_ns), max(last_ns, time_ns), count + 1
    return first_ns, last_ns, count


@app.command("show", help=SHOW_HELP)
def show(
    directory: Directory,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="Of this node; give it for each."),
    ] = None,
    from_: From = None,
    to: To = None,
    fields: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Fields, with commas; those known if not.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='One row per so much time, such as "15 s": means.'),
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Show telemetry."""
    store = opened_store(directory)
    if not any((from_, to, fields, step, as_csv)):
        print_rows(list(_days(store, nodes)), as_json=as_json)
        return
    frame = read_frame(
        directory, nodes, fields.split(",") if fields else None, from_, to, _step_ns(step)
    )
    if fields is None:
        frame = _known(frame)
    if as_csv:
        print(frame.write_csv(), end="")
    elif as_json:
        print(json.dumps(frame.to_dicts(), indent=2, ensure_ascii=False))
    else:
        print_rows(list(map(_shown, frame.head(_MOST_SHOWN).to_dicts())), as_json=False)
        if frame.height > _MOST_SHOWN:
            print(f"{frame.height - _MOST_SHOWN:,} rows more; --csv and --json have them")


def opened_store(directory: Path) -> Any:
    """Return the store of a directory that has to be there.

    Raises:
        InputError: it is not.
    """
    from skyhop.errors import InputError
    from skyhop.telemetry.store import Store

    if not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory of telemetry")
    return Store(directory)


def read_frame(
    directory: Path,
    nodes: Sequence[str] | None,
    fields: Sequence[str] | None,
    from_: str | None,
    to: str | None,
    step_ns: int | None = None,
) -> pl.DataFrame:
    """Return telemetry as the options of a command ask for it.

    Raises:
        InputError: there is no such directory, node, field or time, or nothing in it.
    """
    from skyhop.errors import InputError

    store = opened_store(directory)
    frame: pl.DataFrame = store.read(
        nodes,
        None if fields is None else [name.strip() for name in fields],
        _time_ns("--from", from_),
        _time_ns("--to", to),
        step_ns,
    )
    if frame.height == 0:
        raise InputError(f"{directory}: there is no telemetry of these nodes and times")
    return frame


def _time_ns(option: str, text: str | None) -> int | None:
    from skyhop.errors import InputError
    from skyhop.telemetry.importers.source import iso_ns

    if text is None:
        return None
    found_ns = iso_ns(text)
    if found_ns is None or found_ns < 0:
        raise InputError(f'{option}: expected a time such as 2026-11-24T12:00, not "{text}"')
    return found_ns


def _step_ns(text: str | None) -> int | None:
    from skyhop import _core

    return None if text is None else round(_core.duration_s("--step", text) * 1e9)


def _chunks(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    while chunk := list(islice(samples, _CHUNK)):
        yield chunk


def _days(store: Any, nodes: Sequence[str] | None) -> Iterator[dict[str, Any]]:
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
                "from": _written(_whole(frame[TIME].min()))[11:],
                "to": _written(_whole(frame[TIME].max()))[11:],
                "fields": ", ".join(frame.columns[2:]),
            }


def _known(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame without the fields that are not known at all."""
    names = frame.columns[2:]
    return frame.select(
        *frame.columns[:2], *(name for name in names if frame[name].null_count() < frame.height)
    )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a table has it: the time in words, numbers with six digits."""
    shown: dict[str, Any] = {"node": row["node"], "time": _written(row["time_ns"])}
    for name, value in row.items():
        if name not in ("node", "time_ns"):
            shown[name] = f"{value:.6g}" if isinstance(value, float) else value
    return shown


def _whole(found: object) -> int:
    assert isinstance(found, int), "times are whole"
    return found


def _written(time_ns: int) -> str:
    """Return a time in UTC, with as many decimals as it has."""
    from datetime import UTC, datetime

    second, rest = divmod(time_ns, 10**9)
    moment = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return moment + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"
