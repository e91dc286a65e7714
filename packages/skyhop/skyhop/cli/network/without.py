"""`skyhop network without`: cost of failed satellites, sites and gateways, against the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.network.geometry import (
    Constellation,
    Duration,
    Elevation,
    Gateways,
    Shells,
    Sites,
    Start,
    Step,
)
from skyhop.cli.options import Csv, Json

if TYPE_CHECKING:
    from skyhop.analysis.failures import Cost
    from skyhop.data.constellations import Constellation as Satellites
    from skyhop.data.places import Place

HELP = """\
Compute what failed satellites, sites or gateways cost, against the whole constellation.

The routes are the shortest ones: between all pairs of sites, or from each site to the nearest
gateway (--gateways, or --gateway). They use lasers if the constellation has them. What fails is out
for the whole time. The first table compares all pairs, the second one shows those that lose most;
--json and --csv print all pairs.

Examples:

  skyhop network without --satellites "10 %" --seed 3

  skyhop network without --plane 12 --plane 13 --constellation kuiper-630-hypatia

  skyhop network without London Lagos Tokyo --site Lagos

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
        list[str] | None,
        typer.Option(metavar="ID", help="A satellite by its id in paths, or name; repeatable."),
    ] = None,
    plane: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="A plane: N, or SHELL:N with several shells; repeatable."),
    ] = None,
    site: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="One of the sites; repeatable.")
    ] = None,
    gateway: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A gateway by its name in the list; repeatable."),
    ] = None,
    gateways: Gateways = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of --satellites.")] = 1,
    duration: Duration = "10 min",
    step: Step = "1 min",
    start: Start = None,
    elevation: Elevation = None,
    shells: Shells = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compute what failures cost."""
    from skyhop.analysis.failures import cost_of
    from skyhop.cli.network.geometry import (
        check_times,
        errors_with_options,
        keys_of,
        places_of,
        print_notes,
    )
    from skyhop.cli.runs import check_form
    from skyhop.data.progress import progress_bar
    from skyhop.data.site_routes import site_routes
    from skyhop.errors import InputError

    check_form(as_json=as_json, as_csv=as_csv)
    if not (satellites or satellite or plane or site or gateway):
        raise InputError("say what fails: --satellites, --satellite, --plane, --site or --gateway")
    places = places_of(sites)
    check_times(duration, step)
    keys = keys_of(constellation, step, start, elevation, shells)
    failing = _failing((satellites, seed), satellite or [], _planes(keys, plane or []))
    ends, failed_gateways = _gateways(gateway or [], gateways)
    failed_sites = _sites(places, site or [])
    with progress_bar("computing routes") as progress:
        compute = partial(
            site_routes, places, None if ends is None else [ends], duration=duration, **keys
        )
        with errors_with_options([option for option, _ in failing]):
            # First, so that an error in what fails comes at once.
            without = compute(
                failures=[entry for _, entry in failing],
                failed_places=[*failed_sites, *failed_gateways],
                progress=lambda done, times: progress(done, 2 * times),
            )
            whole = compute(progress=lambda done, times: progress(times + done, 2 * times))
    print_notes(whole.notes)
    cost = cost_of([place.name for place in places], whole, without)
    failed = {
        "failed_satellites": len(without.failed_satellites),
        "failed_sites": [place.name for place in failed_sites],
        "failed_gateways": [place.name for place in failed_gateways],
    }
    if as_json or as_csv:
        _print_all(cost, failed, as_json=as_json)
    else:
        _print_tables(cost, failed, whole.constellation)


def _print_all(cost: Cost, failed: Mapping[str, Any], *, as_json: bool) -> None:
    from skyhop.analysis.failures import cost_rows, cost_summary
    from skyhop.cli.runs import print_csv, print_json

    if as_json:
        print_json({**failed, "summary": cost_summary(cost), "pairs": cost_rows(cost)})
    else:
        print_csv(cost_rows(cost))


def _print_tables(cost: Cost, failed: Mapping[str, Any], of: Satellites) -> None:
    from skyhop.analysis.failures import cost_rows, cost_summary
    from skyhop.cli.network.tables import print_columns, print_some

    said = f"{failed['failed_satellites']:,} of {of.satellites.height:,} satellites fail"
    for what in ("sites", "gateways"):
        if failed[f"failed_{what}"]:
            said += f"; {what}: {', '.join(failed[f'failed_{what}'])}"
    print(f"{of.name}: {said}")
    print_columns(cost_summary(cost))
    print()
    print_some(cost_rows(cost), (0, 1), _MOST_SHOWN)


def _failing(
    share: tuple[str | None, int], satellites: Sequence[str], planes: Sequence[Mapping[str, int]]
) -> list[tuple[str, dict[str, object]]]:
    """Return each failing part: the option that names it, and its table as in `[[failure]]`."""
    of_all, seed = share
    failing: list[tuple[str, dict[str, object]]] = []
    if of_all is not None:
        failing.append(("--satellites", {"satellites": of_all, "seed": seed}))
    failing += [("--satellite", {"satellite": name}) for name in satellites]
    return failing + [("--plane", {**plane}) for plane in planes]


def _planes(keys: Mapping[str, str], planes: Sequence[str]) -> list[dict[str, int]]:
    """Return planes as in `[[failure]]`."""
    from skyhop.cli.network.geometry import errors_with_options
    from skyhop.data.constellations import constellation
    from skyhop.errors import InputError

    found = []
    for text in planes:
        shell, _, number = text.rpartition(":")
        if not number.isdecimal() or (shell and not shell.isdecimal()):
            raise InputError(f'--plane: "{text}" is not a plane; expected N or SHELL:N')
        found.append({"plane": int(number)} | ({"shell": int(shell)} if shell else {}))
    if all("shell" in plane for plane in found):
        return found
    with errors_with_options():
        of = constellation(keys["constellation"], **{k: keys[k] for k in ("start",) if k in keys})
    shells = of.satellites["shell"].drop_nulls().n_unique()
    if shells > 1:
        raise InputError(f"--plane: {of.name} has {shells} shells; expected SHELL:N")
    return found


def _sites(places: Sequence[Place], names: Sequence[str]) -> list[Place]:
    """Return those of the places that have these names, whole ("Lagos, NG") or without country."""
    from skyhop.data.near_names import did_you_mean
    from skyhop.errors import InputError

    found = []
    for name in names:
        short = [place for place in places if place.name.partition(", ")[0] == name]
        whole = [place for place in places if place.name == name]
        if not whole and len(short) != 1:
            known = [place.name for place in places]
            hint = did_you_mean(name, [place.name for place in short] or known)
            raise InputError(f'--site: the sites have no "{name}"{hint}; expected one of them')
        found += whole or short
    return found


def _gateways(failed: Sequence[str], listed: str | None) -> tuple[list[Place] | None, list[Place]]:
    """Return the gateways and those that fail; None for routes between sites."""
    from skyhop.cli.network.geometry import gateways_of
    from skyhop.data.near_names import did_you_mean
    from skyhop.data.positions import GATEWAYS
    from skyhop.errors import InputError

    if listed is None and not failed:
        return None, []
    name = listed or GATEWAYS
    found = gateways_of(name)
    known = [gateway.name for gateway in found]
    for gateway in failed:
        if gateway not in known:
            hint = did_you_mean(gateway, known)
            raise InputError(f'--gateway: {name} has no gateway "{gateway}"{hint}')
    return found, [gateway for gateway in found if gateway.name in failed]
