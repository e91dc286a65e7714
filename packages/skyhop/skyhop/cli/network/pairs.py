"""`skyhop network pairs`: round trips and handovers between all pairs of sites."""

from __future__ import annotations

from typing import Annotated

import typer

from skyhop.cli.network.geometry import (
    Constellation,
    Duration,
    Elevation,
    Gateways,
    Handovers,
    Shells,
    Sites,
    Start,
    Step,
)
from skyhop.cli.options import Csv, Json

HELP = """\
Compute round trips and handovers between all pairs of sites, by handover policy.

The table has a row per pair, those with the longest round trips first, and a second one means over
all pairs of each policy; --json and --csv print all pairs.

Examples:

  skyhop network pairs London "New York" Tokyo --constellation starlink-shell1

  skyhop network pairs top-50 --handover immediate --handover sticky --duration "1 h" --csv
"""


_MOST_SHOWN = 20
"""Largest number of rows of the printed table of pairs."""


def pairs(
    sites: Sites = None,
    constellation: Constellation = "starlink-shell1",
    handover: Handovers = None,
    relay: Annotated[str, typer.Option(help="isl: over lasers; bent-pipe: over gateways.")] = "isl",
    gateways: Gateways = None,
    duration: Duration = "10 min",
    step: Step = "1 s",
    start: Start = None,
    elevation: Elevation = None,
    shells: Shells = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compute round trips between all pairs of sites."""
    import warnings

    import skyhop
    from skyhop.analysis.pair_rows import pair_rows, policy_rows
    from skyhop.cli.network.geometry import (
        check_times,
        errors_with_options,
        keys_of,
        places_of,
        position_text,
        print_notes,
    )
    from skyhop.cli.network.tables import print_columns, print_some
    from skyhop.cli.runs import check_form, print_csv, print_json
    from skyhop.data.files import Scratch
    from skyhop.data.progress import progress_bar

    check_form(as_json=as_json, as_csv=as_csv)
    places = places_of(sites)
    check_times(duration, step)
    keys = keys_of(constellation, step, start, elevation, shells) | {"relay": relay}
    if gateways is not None:
        keys["gateways"] = gateways
    rows, names = [], [place.name for place in places]
    positions = [position_text(place) for place in places]
    for policy in dict.fromkeys(handover or ["immediate"]):
        with Scratch() as scratch, progress_bar(f"computing {policy}") as progress:
            with warnings.catch_warnings(), errors_with_options():
                # Notes are printed below, each once.
                warnings.simplefilter("ignore")
                found = skyhop.all_pairs(
                    positions, scratch / "pairs.parquet", duration=duration, progress=progress,
                    handover=policy, **keys,
                )  # fmt: skip
            rows += pair_rows(found, policy, names)
    print_notes(found.notes)
    if as_json:
        print_json(rows)
    elif as_csv:
        print_csv(rows)
    else:
        longest = sorted(rows, key=lambda row: -(row["rtt_median_ms"] or float("inf")))
        print_some(longest, (0, 1, 2), _MOST_SHOWN)
        print()
        print_columns(policy_rows(rows))
