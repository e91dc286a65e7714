"""`skyhop path compare`: several constellations, relays or path files side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completing
from skyhop.cli.figures import Width, figure_width
from skyhop.cli.options import Csv, ForceSize, Json, with_size
from skyhop.cli.path.output import check_figure
from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    import skyhop

HELP = """\
Compare paths: one table, and with -o one figure.

Each WHAT is a path file, or computed here between --from and --to: CONSTELLATION:RELAY, or one of
the two alone. Without --start each begins at its constellation's own epoch.

Examples:

  skyhop path compare isl bent-pipe access --from Seattle --to "New York" -o relays.png

  skyhop path compare starlink-shell1:isl kuiper-630-hypatia:isl geo:-95.2 --from Seattle --to "New York"

  skyhop path compare monday.parquet tuesday.parquet -o days.pdf --width one-column
"""  # noqa: E501

_RELAYS = ("isl", "bent-pipe", "access", "geo")


def compare(
    whats: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="Path files, or what to compute.",
            autocompletion=completing.constellations,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FIGURE", help="Draw them: a PNG, SVG or PDF."),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help="One end of what is computed.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The other end.")] = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How much time to compute.")
    ] = "10 min",
    start: Annotated[
        str | None, typer.Option(metavar="UTC", help="When what is computed begins.")
    ] = None,
    handover: Annotated[
        str | None, typer.Option(metavar="POLICY", help="See skyhop list handovers.")
    ] = None,
    gateways: Annotated[
        str | None, typer.Option(metavar="LIST", help="See skyhop list sites; or a CSV file.")
    ] = None,
    width: Width = "page",
    as_json: Json = False,
    as_csv: Csv = False,
    force_size: ForceSize = False,
) -> None:
    """Compare paths."""
    from skyhop.analysis.path_comparison import compare_paths, comparison_rows, comparison_table
    from skyhop.cli.runs import check_form, print_csv, print_json
    from skyhop.cli.tables import cells_of, print_table
    from skyhop.data.reading import path_record

    check_form(as_json=as_json, as_csv=as_csv)
    check_figure(output)
    laid_out = figure_width(width)
    keys = {"duration": duration, "start": start, "handover": handover, "gateways": gateways}
    given = {key: value for key, value in keys.items() if value is not None}
    # The same twice says nothing.
    paths = _paths(list(dict.fromkeys(whats)), (from_, to), given, force_size=force_size)
    records = {name: path_record(path) for name, path in paths.items()}
    rows = comparison_rows(records)
    if as_json:
        print_json(rows)
    elif as_csv:
        print_csv(rows)
    else:
        table = comparison_table(rows)
        print_table(cells_of(table), more="--json and --csv have them")
    if output is not None:
        from skyhop.figures import save
        from skyhop.figures.path_comparison import draw_path_comparison

        save(draw_path_comparison(compare_paths(records), laid_out), output)
        print_note(f"figure: {output}")


def _paths(
    whats: Sequence[str],
    ends: tuple[str | None, str | None],
    given: Mapping[str, Any],
    *,
    force_size: bool,
) -> dict[str, skyhop.Path]:
    """Return the paths by what to call them.

    Raises:
        InputError: a file is no path, or what is to be computed cannot be.
    """
    import skyhop
    from skyhop.data.progress import progress_bar
    from skyhop.errors import InputError

    (from_, to), sets = ends, with_size(None, force_size=force_size)
    found: list[tuple[str, skyhop.Path]] = []
    for what in whats:
        if _is_path_file(what):
            found.append((Path(what).stem, skyhop.read_path(what, force_size=force_size)))
            continue
        if from_ is None or to is None:
            raise InputError(
                f"{what}: no path file is called so; to compute it, give --from and --to"
            )
        keys = {**given, **_asked(what)}
        with progress_bar(f"computing {what}") as progress:
            trace = skyhop.path(from_, to, sets=sets, progress=progress, **keys)
        found.append((_called(trace), trace))
        for note in trace.notes:
            print_note(f"warning: {what}: {note}")
    names = [name for name, _ in found]
    # What the user wrote tells paths of one name apart.
    return {
        name if names.count(name) == 1 else what: path
        for what, (name, path) in zip(whats, found, strict=True)
    }


def _is_path_file(what: str) -> bool:
    """Tell whether it is a Parquet file, or meant to be one; else it may be one of element sets."""
    file = Path(what)
    if not file.is_file():
        return file.suffix == ".parquet"
    with file.open("rb") as opened:
        return opened.read(4) == b"PAR1"


def _asked(what: str) -> dict[str, Any]:
    """Return the keys of CONSTELLATION:RELAY; only what ends in a relay's name has one.

    A satellite of geo:LONGITUDE is its own relay.
    """
    constellation, _, relay = what.rpartition(":")
    if relay in _RELAYS:
        return {"relay": relay} | ({"constellation": constellation} if constellation else {})
    return {"constellation": what} | ({"relay": "geo"} if what.startswith("geo:") else {})


def _called(path: skyhop.Path) -> str:
    constellation = Path(str(path.header.get("constellation"))).name
    return f"{constellation}, {path.header.get('relay')}"
