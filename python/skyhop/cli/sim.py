"""`skyhop sim`: a scenario in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.options import Csv, Each, Force, Json, Scenario, Sets
from skyhop.cli.runs import check_form, print_json, print_runs, print_warnings
from skyhop.cli.stopping import stop_on_signals
from skyhop.cli.terminal import print_note, progress_bar

HELP = """\
Run a scenario in virtual time: deterministic, and many times faster than the wall clock.

The same scenario as skyhop live takes, with the congestion controls of cc/.

Examples:

  skyhop sim scenario.toml -o runs/cubic

  skyhop sim scenario.toml -o runs/bbr --set flow.0.cc=bbr --repeat 20 --jobs 2
"""


def sim(
    scenario: Scenario,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The run directory.")
    ],
    sets: Sets = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Instead of the scenario's seed.")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Run with N seeds, each into DIR/seed-N."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many repeats run at a time.")
    ] = 1,
    force: Force = False,
    each: Each = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Simulate a scenario."""
    from skyhop.engines import Observer, sim
    from skyhop.runs import read_run

    check_form(as_json=as_json, as_csv=as_csv)
    overrides = sets or []
    if repeat is None:
        stop_on_signals()
        with progress_bar("computing the path") as path, progress_bar("simulating") as run:
            observer = Observer(path, run)
            sim(scenario, output, seed=seed, sets=overrides, force=force, observer=observer)
        directories = [output]
    else:
        seeds = _seeds(scenario, overrides, seed, repeat)
        directories = [output / f"seed-{number}" for number in seeds]
        _repeat(scenario, dict(zip(seeds, directories, strict=True)), overrides, jobs, force=force)
    if as_json:
        summaries = [read_run(directory).summary for directory in directories]
        print_json(summaries if repeat else summaries[0])
    else:
        print_runs(directories, as_csv=as_csv, each=each)
    print_warnings(directories)
    print_note(f"{output}: done; skyhop report {output} -o report.html draws it")


def _seeds(scenario: Path, sets: Sequence[str], first: int | None, repeat: int) -> range:
    from skyhop.data.scenarios import load_scenario

    loaded = json.loads(load_scenario(scenario, sets).to_json())
    begin = int(loaded["run"]["seed"]) if first is None else first
    return range(begin, begin + repeat)


def _repeat(
    scenario: Path, places: dict[int, Path], sets: Sequence[str], jobs: int, *, force: bool
) -> None:
    """Run once per seed, `jobs` at a time."""
    from concurrent.futures import ProcessPoolExecutor, as_completed

    with progress_bar("simulating") as progress, ProcessPoolExecutor(jobs) as pool:
        waiting = [
            pool.submit(_one, scenario, place, seed, sets, force) for seed, place in places.items()
        ]
        try:
            for done, future in enumerate(as_completed(waiting), start=1):
                future.result()
                progress(done, len(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _one(scenario: Path, output: Path, seed: int, sets: Sequence[str], force: bool) -> None:
    from skyhop.engines import sim

    sim(scenario, output, seed=seed, sets=sets, force=force)
