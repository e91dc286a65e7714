"""`skyhop list`: constellations, sites, qdiscs and other names that scenarios can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.app_ import print_applications
from skyhop.cli.cc import OneName, print_congestion_controls
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from skyhop._core import ConstellationEntry, Entry, QdiscEntry

app = group(
    "List the available choices, with their sources.\n\nExample: skyhop list constellations"
)


One = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="An entry of the list, to show its parameters."),
]


@app.command()
def constellations(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A constellation, to show its source.",
            autocompletion=completion.constellations,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the constellations that come with skyhop, or show the source of one."""
    from skyhop import _core
    from skyhop.cli.tables import print_wrapped
    from skyhop.errors import InputError

    entries = [e for e in _core.list_constellations() if name is None or e.name == name]
    if not entries:
        raise InputError(f"no constellation {name!r}: see skyhop list constellations")
    if as_json:
        print_rows([_whole(entry) for entry in entries], as_json=True)
    elif name is not None:
        print_wrapped(entries[0].description)
        print_wrapped(entries[0].source)
    else:
        print_rows([_line(entry) for entry in entries], as_json=False)
        print_note("skyhop list constellations NAME shows the source of its parameters")


def _line(entry: ConstellationEntry) -> dict[str, str | int]:
    return {
        "name": entry.name,
        "satellites": entry.satellites,
        "altitude (km)": _range(entry.altitudes_km),
        "inclination (deg)": _range(entry.inclinations_deg),
        "ISLs": "yes" if entry.isl else "no",
    }


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,g}" if low == high else f"{low:,g} - {high:,g}"


def _whole(entry: ConstellationEntry) -> dict[str, object]:
    names = ("name", "description", "satellites", "altitudes_km", "inclinations_deg", "isl")
    return {name: getattr(entry, name) for name in (*names, "source")}


@app.command()
def access(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="An access profile, to show its source.",
            autocompletion=completion.access_profiles,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the access profiles of paths, or show the measurements behind one."""
    from skyhop import _core
    from skyhop.cli.tables import print_wrapped
    from skyhop.data.near_names import did_you_mean
    from skyhop.errors import InputError

    known = _core.list_access()
    entries = [entry for entry in known if name is None or entry.name == name]
    if not entries:
        hint = did_you_mean(str(name), [entry.name for entry in known])
        raise InputError(f'"{name}" is not in the list of skyhop list access{hint}')
    if as_json or name is None:
        _print(entries, as_json)
    else:
        print_wrapped(entries[0].description)
        print_wrapped(entries[0].source)


@app.command()
def sites(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A list, to print its sites as CSV, as --gateways reads them."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the site lists that come with skyhop, such as lists of gateways, or print one.

    Example: skyhop list sites starlink-gateways > mine.csv
    """
    from skyhop import _core
    from skyhop.cli.runs import print_csv, print_json
    from skyhop.data.near_names import did_you_mean
    from skyhop.errors import InputError

    entries = _core.list_sites()
    if name is None:
        _print(entries, as_json)
        return
    known = [entry.name for entry in entries]
    if name not in known:
        hint = did_you_mean(name, known)
        raise InputError(
            f'no list of sites is called "{name}"{hint}; there are: {", ".join(known)}'
        )
    columns = ("name", "latitude_deg", "longitude_deg", "altitude_m")
    rows = [dict(zip(columns, site, strict=True)) for site in _core.sites(name)]
    if as_json:
        print_json(rows)
    else:
        print_csv(rows)


@app.command()
def cc(name: OneName = None, as_json: Json = False) -> None:
    """List congestion controls of the kernel and of skyhop, or the parameters of one.

    The command is the same as skyhop cc list.

    Example: skyhop list cc cubic
    """
    print_congestion_controls(name, as_json=as_json)


@app.command()
def qdiscs(name: One = None, as_json: Json = False) -> None:
    """List the queue disciplines of links, with their parameters and defaults, or show one."""
    from skyhop import _core

    _print_with_parameters(_core.list_qdiscs(), "qdiscs", name, as_json=as_json)


@app.command()
def films(as_json: Json = False) -> None:
    """List the films that come with skyhop."""
    from skyhop import _core

    _print(_core.list_films(), as_json)


@app.command()
def controllers(name: One = None, as_json: Json = False) -> None:
    """List the bitrate controllers of films, with their parameters and defaults, or show one."""
    from skyhop import _core

    _print_with_parameters(_core.list_controllers(), "controllers", name, as_json=as_json)


@app.command()
def qoes(as_json: Json = False) -> None:
    """List the quality-of-experience functions, by which controllers plan and films are scored."""
    from skyhop import _core

    _print(_core.list_qoes(), as_json)


@app.command()
def apps(as_json: Json = False) -> None:
    """List the applications of flows (same as skyhop app list)."""
    print_applications(as_json=as_json)


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the simulator's profiles of Linux versions, and how they differ."""
    from skyhop import _core

    _print(_core.list_profiles(), as_json)


@app.command()
def handovers(as_json: Json = False) -> None:
    """List the handover policies of paths."""
    from skyhop import _core

    _print(_core.list_handovers(), as_json)


@app.command()
def studies(as_json: Json = False) -> None:
    """List the studies that come with skyhop."""
    from skyhop.cli.study import print_studies

    print_studies(as_json=as_json)


@app.command()
def examples(as_json: Json = False) -> None:
    """List example scenarios; skyhop live and skyhop sim accept their names."""
    from skyhop.data.shipped import list_examples

    entries = list_examples()
    rows = [{"name": entry.name, "description": entry.description} for entry in entries]
    if as_json:
        files = [{"file": str(entry.file)} for entry in entries]
        rows = [row | file for row, file in zip(rows, files, strict=True)]
    print_rows(rows, as_json=as_json)
    for directory in {entry.file.parent for entry in entries}:
        print_note(f"their files, to copy and edit, are in {directory}")


def _print(entries: list[Entry], as_json: bool) -> None:
    rows = [
        {"name": entry.name, "description": entry.description, "source": entry.source}
        for entry in entries
    ]
    print_rows(rows, as_json=as_json)


def _print_with_parameters(
    entries: list[QdiscEntry], command: str, name: str | None, *, as_json: bool
) -> None:
    """Print all entries, or the parameters of the entry `name`."""
    from skyhop.data.near_names import did_you_mean
    from skyhop.errors import InputError

    if name is not None:
        hint = did_you_mean(name, [entry.name for entry in entries])
        entries = [entry for entry in entries if entry.name == name]
        if not entries:
            raise InputError(f'"{name}" is not in the list of skyhop list {command}{hint}')
        if not as_json:
            print(f"{name}: {entries[0].description} ({entries[0].source})")
            parameters = [{"parameter": key, "default": of} for key, of in entries[0].parameters]
            if parameters:
                print_rows(parameters, as_json=False)
            else:
                print("it has no parameters")
            return
    rows = [
        {
            "name": entry.name,
            "parameters": dict(entry.parameters)
            if as_json
            else ", ".join(f"{name} = {value}" for name, value in entry.parameters),
            "description": entry.description,
            "source": entry.source,
        }
        for entry in entries
    ]
    print_rows(rows, as_json=as_json)
