"""`skyhop network without`: cost of failed satellites and gateways, against the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.network.geometry import (
    Constellation,
    Duration,
    Elevation,
    Gateways,
    Sites,
    Start,
    Step,
)
from skyhop.cli.options import Csv, Json

if TYPE_CHECKING:
    from skyhop.data.arrays import BoolArray
    from skyhop.data.mesh import Mesh
    from skyhop.data.places import Place

HELP = """\
Compute what failed satellites or gateways cost, against the whole constellation.

The routes are the shortest ones over lasers: between all pairs of sites, or from each site to the
nearest gateway (--gateways, or --gateway). What fails is out for the whole time. The first table
compares all pairs, the second one shows those that lose most; --json and --csv print all pairs.

Examples:

  skyhop network without --satellites "10 %" --seed 3

  skyhop network without --plane 12 --plane 13 --constellation kuiper-630-hypatia

  skyhop network without "New York" London --gateway "Frankfurt" --gateways gateways.csv
"""


_MOST_SHOWN = 10
"""Number of pairs that the printed table shows."""


def without(
    sites: Sites = None,
    constellation: Constellation = "starlink-shell1",
    satellites: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help='A share of all satellites, at random: "10 %".'),
    ] = None,
    satellite: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="A satellite by its id, as in paths; repeatable."),
    ] = None,
    plane: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="A plane: N, or SHELL:N with several shells; repeatable."),
    ] = None,
    gateway: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A gateway by its name in the list; repeatable."),
    ] = None,
    gateways: Gateways = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of --satellites.")] = 1,
    duration: Duration = "10 min",
    step: Step = "1 min",
    start: Start = None,
    elevation: Elevation = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compute what failures cost."""
    from skyhop.analysis.failures import cost_of, cost_rows, cost_summary
    from skyhop.cli.network.geometry import has_lasers, mesh_for, places_of, times_of
    from skyhop.cli.network.tables import print_columns, print_some
    from skyhop.cli.runs import check_form, print_csv, print_json
    from skyhop.data.progress import progress_bar
    from skyhop.errors import InputError

    check_form(as_json=as_json, as_csv=as_csv)
    if not (satellites or satellite or plane or gateway):
        raise InputError("say what fails: --satellites, --satellite, --plane or --gateway")
    places, times_s = places_of(sites), times_of(duration, step)
    ends = _gateways(gateway or [], gateways)
    mesh = mesh_for(constellation, start, times_s, elevation, with_lasers=has_lasers(constellation))
    failed = _share(mesh, satellites, seed)
    failed |= _numbered(mesh, satellite or [])
    failed |= _planes(mesh, plane or [])
    with progress_bar("computing routes") as progress:
        cost = cost_of(mesh, places, times_s, failed, ends, progress=progress)
    rows, summary = cost_rows(cost), cost_summary(cost)
    if as_json:
        print_json(
            {"failed_satellites": cost.failed_satellites, "failed_gateways": cost.failed_gateways,
             "summary": summary, "pairs": rows}
        )  # fmt: skip
    elif as_csv:
        print_csv(rows)
    else:
        named = ", ".join(cost.failed_gateways)
        said = f"{cost.failed_satellites:,} of {mesh.satellites:,} satellites fail"
        print(f"{mesh.constellation.name}: {said}{f'; gateways: {named}' if named else ''}")
        print_columns(summary)
        print()
        print_some(rows, (0, 1), _MOST_SHOWN)


def _gateways(failed: Sequence[str], listed: str | None) -> tuple[list[Place], BoolArray] | None:
    """Return the gateways and which of them fail; None for routes between sites."""
    import numpy as np

    from skyhop.cli.network.geometry import gateways_of
    from skyhop.data.near_names import did_you_mean
    from skyhop.data.positions import GATEWAYS
    from skyhop.errors import InputError

    if listed is None and not failed:
        return None
    name = listed or GATEWAYS
    found = gateways_of(name)
    known = [gateway.name for gateway in found]
    for gateway in failed:
        if gateway not in known:
            hint = did_you_mean(gateway, known)
            raise InputError(f'--gateway: {name} has no gateway "{gateway}"{hint}')
    return found, np.array([gateway in failed for gateway in known])


def _share(mesh: Mesh, share: str | None, seed: int) -> BoolArray:
    """Return a random share of the satellites, as a mask."""
    import numpy as np

    from skyhop.errors import InputError

    failed = np.zeros(mesh.satellites, np.bool_)
    if share is None:
        return failed
    number, _, unit = share.strip().partition("%")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100 or unit or "%" not in share:  # noqa: PLR2004 - per cent
        raise InputError(f'--satellites: "{share}" is not a share; expected one such as "10 %"')
    count = round(mesh.satellites * percent / 100)
    failed[np.random.default_rng(seed).permutation(mesh.satellites)[:count]] = True
    return failed


def _numbered(mesh: Mesh, numbers: Sequence[int]) -> BoolArray:
    import numpy as np

    from skyhop.errors import InputError

    for number in numbers:
        if not 0 <= number < mesh.satellites:
            raise InputError(
                f"--satellite: there is no satellite {number}; expected 0 to "
                f"{mesh.satellites - 1:,}"
            )
    return np.isin(np.arange(mesh.satellites), list(numbers))


def _planes(mesh: Mesh, planes: Sequence[str]) -> BoolArray:
    """Return the satellites of planes, as a mask."""
    import numpy as np
    import polars as pl

    from skyhop.errors import InputError

    table = mesh.constellation.satellites
    failed = np.zeros(mesh.satellites, np.bool_)
    shells = table["shell"].drop_nulls().n_unique()
    for text in planes:
        shell, _, number = text.rpartition(":")
        if not number.isdecimal() or (shell and not shell.isdecimal()):
            raise InputError(f'--plane: "{text}" is not a plane; expected N or SHELL:N')
        if not shell and shells > 1:
            raise InputError(f"--plane: {text}: the constellation has {shells} shells; say SHELL:N")
        of_shell = pl.lit(value=True) if not shell else pl.col("shell") == int(shell)
        found = table.select(((pl.col("plane") == int(number)) & of_shell).fill_null(value=False))
        chosen = found.to_series().to_numpy()
        if not chosen.any():
            raise InputError(f"--plane: the constellation has no plane {text}")
        failed |= chosen
    return failed
