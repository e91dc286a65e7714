"""`skyhop list`: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyhop.cli.cc import print_congestion_controls
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from skyhop._core import Entry

app = group(
    "List what there is to choose from, with sources.\n\nExample: skyhop list constellations"
)


@app.command()
def constellations(as_json: Json = False) -> None:
    """List the constellations that come with skyhop."""
    from skyhop import _core

    _print(_core.list_constellations(), as_json)


@app.command()
def sites(as_json: Json = False) -> None:
    """List the lists of sites that come with skyhop, gateways among them."""
    from skyhop import _core

    _print(_core.list_sites(), as_json)


@app.command()
def cc(as_json: Json = False) -> None:
    """List the congestion controls: the kernel's and ours (the same as skyhop cc list)."""
    print_congestion_controls(as_json=as_json)


@app.command()
def qdiscs(as_json: Json = False) -> None:
    """List the queue disciplines of the link, with their parameters and defaults."""
    from skyhop import _core

    rows = [
        {
            "name": entry.name,
            "parameters": dict(entry.parameters)
            if as_json
            else ", ".join(f"{name} = {value}" for name, value in entry.parameters),
            "description": entry.description,
            "source": entry.source,
        }
        for entry in _core.list_qdiscs()
    ]
    print_rows(rows, as_json=as_json)


@app.command()
def apps(as_json: Json = False) -> None:
    """List the applications that flows may have."""
    from skyhop import _core

    _print(_core.list_apps(), as_json)


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the Linuxes that hosts may run in the simulator, with how they differ."""
    from skyhop import _core

    _print(_core.list_profiles(), as_json)


@app.command()
def handovers(as_json: Json = False) -> None:
    """List the handover policies."""
    from skyhop import _core

    _print(_core.list_handovers(), as_json)


@app.command()
def studies(as_json: Json = False) -> None:
    """List the studies that come with skyhop."""
    from skyhop.cli.study import study_rows

    print_rows(study_rows(), as_json=as_json)


@app.command()
def examples(as_json: Json = False) -> None:
    """List the scenarios to start from: skyhop live and skyhop sim take their names."""
    from skyhop.data.shipped import list_examples

    entries = list_examples()
    rows = [{"name": entry.name, "description": entry.description} for entry in entries]
    if as_json:
        files = [{"file": str(entry.file)} for entry in entries]
        rows = [row | file for row, file in zip(rows, files, strict=True)]
    print_rows(rows, as_json=as_json)
    for directory in {entry.file.parent for entry in entries}:
        print_note(f"their files, to copy and change, are in {directory}")


def _print(entries: list[Entry], as_json: bool) -> None:
    rows = [
        {"name": entry.name, "description": entry.description, "source": entry.source}
        for entry in entries
    ]
    print_rows(rows, as_json=as_json)
