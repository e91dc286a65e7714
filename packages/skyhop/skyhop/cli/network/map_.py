"""`skyhop network map`: latency, availability and handovers per hour over a grid of cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.figures import Footer, Height, Width
from skyhop.cli.network.geometry import (
    Constellation,
    Duration,
    Elevation,
    Gateways,
    Handovers,
    Shells,
    Start,
    Step,
)
from skyhop.cli.options import Csv, Json
from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    from skyhop.analysis.coverage import Coverage
    from skyhop.data.places import Place

HELP = """\
Compute latency, availability and handovers per hour over a grid of cells.

The routes of each cell's centre go to one place (--to), or to the nearest gateway (--gateways). The
handover policy (--handover) chooses the satellites of the cell and of the place; gateways use all
that they see. --relay bent-pipe uses no lasers. The table has means over bands of latitude; --json
and --csv print every cell. -o writes maps (PNG, SVG, PDF), or the cells as .geojson or .csv.

Examples:

  skyhop network map --constellation starlink-shell1 --to Frankfurt --cell "5 deg" -o map.png

  skyhop network map --gateways starlink-gateways --relay bent-pipe --region 25,-125,50,-65 --cell "1 deg" -o us.geojson

  skyhop network map --to Frankfurt --handover immediate --handover sticky --cell "15 deg" --step "1 s"
"""  # noqa: E501

_TABLES = (".geojson", ".csv")


def map_(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="PNG, SVG or PDF; .geojson or .csv."),
    ] = None,
    constellation: Constellation = "starlink-shell1",
    to: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help="Place at which the routes end.")
    ] = None,
    gateways: Gateways = None,
    relay: Annotated[
        str,
        typer.Option(help="isl: over lasers; bent-pipe: over one satellite, to a gateway."),
    ] = "isl",
    cell: Annotated[
        str, typer.Option("--cell", metavar="ANGLE", help="Height and width of a cell.")
    ] = "5 deg",
    region: Annotated[
        str,
        typer.Option(metavar="S,W,N,E", help="Region in degrees; default: the whole Earth."),
    ] = "-90,-180,90,180",
    handover: Handovers = None,
    duration: Duration = "10 min",
    step: Step = "10 s",
    start: Start = None,
    elevation: Elevation = None,
    shells: Shells = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compute latency, availability and handovers over a grid of cells."""
    from skyhop.analysis.coverage import coverage_of, grid_of
    from skyhop.cli.figures import figure_file_or_none
    from skyhop.cli.network.geometry import check_times, errors_with_options, keys_of, print_notes
    from skyhop.cli.runs import check_form
    from skyhop.data.files import check_place
    from skyhop.data.progress import progress_bar
    from skyhop.data.site_routes import site_routes
    from skyhop.errors import InputError

    check_form(as_json=as_json, as_csv=as_csv)
    policies = list(dict.fromkeys(handover or ["immediate"]))
    is_table = output is not None and output.suffix.lower() in _TABLES
    figure = figure_file_or_none(None if is_table else output, width, height, footer=footer)
    if output is not None:
        check_place(output)
        if len(policies) > 1:
            raise InputError("-o: a file is about one --handover; name one, or leave out -o")
    ends, what = _ends(to, gateways, relay)
    grid = grid_of(_degrees("--cell", cell), _region(region))
    check_times(duration, step)
    compute = partial(
        site_routes, grid.places, ends if to else [ends], duration=duration, lasers=relay == "isl",
        **keys_of(constellation, step, start, elevation, shells),
    )  # fmt: skip
    coverages = {}
    for policy in policies:
        with progress_bar(f"computing {policy}") as progress, errors_with_options():
            routes = compute(handover=policy, progress=progress)
        coverages[policy] = coverage_of(routes, grid)
    print_notes(routes.notes)
    _print(coverages, as_json=as_json, as_csv=as_csv)
    if figure is not None:
        from skyhop.figures.coverage import draw_coverage

        title = f"{routes.constellation.name} to {what}, {policy} handovers"
        title += f", {len(routes.times_s):,} times in {duration}"
        figure.write(partial(draw_coverage, coverages[policy], title, ends))
    elif output is not None:
        _write(coverages[policy], policy, output)


def _ends(to: str | None, gateways: str | None, relay: str) -> tuple[list[Place], str]:
    """Return the places at which routes end, and what they are in words."""
    from skyhop.cli.network.geometry import gateways_of
    from skyhop.data.places import find_place
    from skyhop.errors import InputError

    if relay not in ("isl", "bent-pipe"):
        raise InputError(f'--relay: expected isl or bent-pipe, not "{relay}"')
    if (to is None) == (gateways is None):
        raise InputError("--to, --gateways: say where the routes end with one of the two")
    if to is not None:
        place = find_place(to)
        return [place], place.name
    assert gateways is not None
    found = gateways_of(gateways)
    return found, f"the nearest of {len(found):,} gateways"


def _degrees(option: str, text: str) -> float:
    """Return an angle in degrees, with or without its unit."""
    from skyhop.errors import InputError

    number, _, unit = text.strip().partition(" ")
    try:
        value = float(number.removesuffix("deg"))
    except ValueError:
        value = float("nan")
    if not 0 < value <= 180 or unit.strip() not in ("", "deg"):  # noqa: PLR2004 - half the Earth
        raise InputError(f'{option}: "{text}" is not an angle; expected one such as "5 deg"')
    return value


def _region(text: str) -> list[float]:
    from skyhop.errors import InputError

    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != 4:  # noqa: PLR2004 - four sides
        raise InputError(f'--region: "{text}" is not a region; expected SOUTH,WEST,NORTH,EAST')
    return found


def _print(coverages: Mapping[str, Coverage], *, as_json: bool, as_csv: bool) -> None:
    from skyhop.analysis.coverage import band_rows, coverage_rows
    from skyhop.cli.network.tables import print_columns
    from skyhop.cli.runs import print_csv, print_json

    def rows(of: Callable[[Coverage], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        all_rows = ((policy, of(coverage)) for policy, coverage in coverages.items())
        return [{"policy": policy, **row} for policy, some in all_rows for row in some]

    if as_json:
        print_json(rows(coverage_rows))
    elif as_csv:
        print_csv(rows(coverage_rows))
    else:
        print_columns(rows(band_rows), (0, 1))


def _write(coverage: Coverage, policy: str, output: Path) -> None:
    import csv
    import io
    import json

    from skyhop.analysis.coverage import coverage_geojson, coverage_rows
    from skyhop.data.files import write_file

    if output.suffix.lower() == ".geojson":
        text = json.dumps(coverage_geojson(coverage, policy)) + "\n"
    else:
        rows = [{"policy": policy, **row} for row in coverage_rows(coverage)]
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        text = table.getvalue()
    write_file(output, text.encode())
    print_note(f"{output}: {coverage.grid.rows * coverage.grid.columns:,} cells")
