"""`skyhop path compare`: compare paths of constellations, relays or path files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completion
from skyhop.cli.figures import Footer, Height, Width, figure_file_or_none
from skyhop.cli.options import Csv, ForceSize, Json, with_size
from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    import skyhop

HELP = """\
Compare paths: one table, and with -o one figure.

Each WHAT is a path file, or a path to compute between --from and --to: CONSTELLATION:RELAY, or one
of the two alone. Without --start, each path begins at the epoch of its constellation.

Examples:

  skyhop path compare isl bent-pipe access --from Seattle --to "New York" -o relays.png

  skyhop path compare starlink-shell1:isl kuiper-630-hypatia:isl geo:-95.2 --from Seattle --to "New York"

  skyhop path compare monday.parquet tuesday.parquet -o days.pdf --width one-column
"""  # noqa: E501


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="Path files, or paths to compute.",
            autocompletion=completion.constellations,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FIGURE", help="Draw a figure: PNG, SVG or PDF."),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help="One end of the computed paths.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The other end.")] = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="Length of the computed paths.")
    ] = "10 min",
    start: Annotated[
        str | None, typer.Option(metavar="UTC", help="Start of the computed paths.")
    ] = None,
    handover: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Handover policy (skyhop list handovers).")
    ] = None,
    gateways: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="List of gateways (skyhop list sites), or a CSV file."),
    ] = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    as_json: Json = False,
    as_csv: Csv = False,
    force_size: ForceSize = False,
) -> None:
    """Compare paths in a table and a figure."""
    from skyhop.analysis.path_comparison import compare_paths, comparison_rows, comparison_table
    from skyhop.cli.runs import check_form, print_csv, print_json
    from skyhop.cli.tables import cells_of, print_table
    from skyhop.data.reading import path_record

    check_form(as_json=as_json, as_csv=as_csv)
    figure = figure_file_or_none(output, width, height, footer=footer)
    keys = {"duration": duration, "start": start, "handover": handover, "gateways": gateways}
    given = {key: value for key, value in keys.items() if value is not None}
    # Comparing a path with itself is useless: drop duplicates.
    paths = _paths(list(dict.fromkeys(sources)), (from_, to), given, force_size=force_size)
    records = {name: path_record(path) for name, path in paths.items()}
    rows = comparison_rows(records)
    if as_json:
        print_json(rows)
    elif as_csv:
        print_csv(rows)
    else:
        table = comparison_table(rows)
        print_table(cells_of(table))
    if figure is not None:
        from skyhop.figures.path_comparison import draw_path_comparison

        figure.write(partial(draw_path_comparison, compare_paths(records)))


def _paths(
    sources: Sequence[str],
    ends: tuple[str | None, str | None],
    given: Mapping[str, Any],
    *,
    force_size: bool,
) -> dict[str, skyhop.Path]:
    """Return the paths, by the names to display.

    Raises:
        InputError: a file is not a path file, or a path cannot be computed.
    """
    import skyhop
    from skyhop.data.progress import progress_bar
    from skyhop.errors import InputError

    (from_, to), sets = ends, with_size(None, force_size=force_size)
    found: list[tuple[str, skyhop.Path]] = []
    for what in sources:
        if _is_path_file(what):
            found.append((Path(what).stem, skyhop.read_path(what, force_size=force_size)))
            continue
        if from_ is None or to is None:
            raise InputError(
                f"{what}: there is no such path file; to compute a path, give --from and --to"
            )
        keys = {**given, **_keys_of(what)}
        with progress_bar(f"computing {what}") as progress:
            trace = skyhop.path(from_, to, sets=sets, progress=progress, **keys)
        found.append((_name_of(trace), trace))
        for note in trace.notes:
            print_note(f"warning: {what}: {note}")
    names = [name for name, _ in found]
    # Paths that would have the same name keep the text that the user wrote.
    return {
        name if names.count(name) == 1 else what: path
        for what, (name, path) in zip(sources, found, strict=True)
    }


def _is_path_file(what: str) -> bool:
    """Return whether the text names a Parquet file; another file may hold element sets."""
    file = Path(what)
    if not file.is_file():
        return file.suffix == ".parquet"
    with file.open("rb") as opened:
        return opened.read(4) == b"PAR1"


def _keys_of(what: str) -> dict[str, Any]:
    """Return the scenario keys for CONSTELLATION:RELAY; one of the two parts may be missing.

    geo:LONGITUDE stands for a constellation of one satellite, with the relay geo.
    """
    constellation, _, relay = what.rpartition(":")
    if relay in completion.RELAYS:
        return {"relay": relay} | ({"constellation": constellation} if constellation else {})
    return {"constellation": what} | ({"relay": "geo"} if what.startswith("geo:") else {})


def _name_of(path: skyhop.Path) -> str:
    constellation = Path(str(path.header.get("constellation"))).name
    return f"{constellation}, {path.header.get('relay')}"
