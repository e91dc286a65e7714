"""`skyhop sim`: run a scenario in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Csv, Each, Force, ForceSize, Json, Scenario, Sets, with_size
from skyhop.cli.runs import (
    check_form,
    print_how_to_report,
    print_json,
    print_places,
    print_runs,
    print_warnings,
)
from skyhop.cli.stopping import stop_on_signals
from skyhop.cli.terminal import print_note
from skyhop.data.progress import progress_bar
from skyhop.errors import InputError

if TYPE_CHECKING:
    from skyhop.engines import Capture

HELP = """\
Run a scenario in virtual time: deterministic, and many times faster than the wall clock.

Takes the same scenarios as skyhop live, with skyhop's congestion controls or a file of your own.

Examples:

  skyhop sim scenario.toml -o runs/cubic

  skyhop sim scenario.toml -o runs/mine --set flow.0.cc=./myidea.c

  skyhop sim scenario.toml -o runs/cubic --pcap cubic.pcapng

  skyhop sim scenario.toml -o runs/bbr --set flow.0.cc=bbr --repeat 20 --jobs 2
"""


def sim(
    scenario: Scenario,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The run directory.")
    ],
    sets: Sets = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Seed; default: the scenario's.")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Run with N successive seeds, each into DIR/seed-SEED."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of concurrent repeats.")
    ] = 1,
    pcap: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Capture the packets too, for Wireshark (pcapng)."),
    ] = None,
    pcap_flow: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Capture this flow only; may be repeated."),
    ] = None,
    pcap_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help='New capture file from "100 MB" on.')
    ] = None,
    pcap_files: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Keep the last N capture files.")
    ] = None,
    force: Force = False,
    force_size: ForceSize = False,
    each: Each = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Simulate a scenario, once or with several seeds."""
    from skyhop.data.runs import read_run
    from skyhop.engines import Capture
    from skyhop.simulation import sim

    check_form(as_json=as_json, as_csv=as_csv)
    overrides = with_size(sets, force_size=force_size)
    capture = None if pcap is None else Capture(pcap, pcap_flow or (), pcap_size, pcap_files)
    _check_capture(capture, [pcap_flow, pcap_size, pcap_files], repeat)
    if repeat is None:
        stop_on_signals()
        sim(scenario, output, seed=seed, sets=overrides, force=force, capture=capture)
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
    _print_if_alike(directories)
    print_places(directories)
    print_how_to_report(output)


def _check_capture(capture: Capture | None, details: Sequence[object], repeat: int | None) -> None:
    """Check that there is a capture if its details are given, and a single run for it."""
    if capture is None and any(detail is not None for detail in details):
        raise InputError("--pcap-flow, --pcap-size and --pcap-files go with --pcap FILE")
    if capture is not None and repeat is not None:
        raise InputError("--pcap captures a single run; leave out --repeat")


def _print_if_alike(directories: Sequence[Path]) -> None:
    """Print a warning if the flows of several repeats have the same results."""
    from skyhop.analysis.summary import NO_CHANCE
    from skyhop.data.run_headers import read_run_headers

    if len(directories) > 1:
        first, *others = (run.summary["flows"] for run in read_run_headers(directories))
        if first and all(flows == first for flows in others):
            print_note(f"warning: {NO_CHANCE}")


def _seeds(scenario: Path, sets: Sequence[str], first: int | None, repeat: int) -> range:
    from skyhop.data.scenarios import load_scenario

    loaded = json.loads(load_scenario(scenario, sets).to_json())
    begin = int(loaded["run"]["seed"]) if first is None else first
    return range(begin, begin + repeat)


def _repeat(
    scenario: Path, places: dict[int, Path], sets: Sequence[str], jobs: int, *, force: bool
) -> None:
    """Run once per seed, `jobs` at a time; skip seeds that an interrupted repeat has finished."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children

    from skyhop.cli.repeat_mark import Mark
    from skyhop.data.processes import check_processes
    from skyhop.data.scenarios import load_cc_files, load_scenario
    from skyhop.errors import InterruptedRunError, RunError, SkyhopError
    from skyhop.study.workers import CONTEXT

    stop_on_signals()
    check_processes(jobs + 1)
    # Compile once, before the workers start; they reuse the compiled files.
    load_cc_files(load_scenario(scenario, sets))
    mark = Mark(next(iter(places.values())).parent, scenario, sets)
    missing = {seed: place for seed, place in places.items() if not mark.is_done(seed, place)}
    if len(missing) < len(places):
        print_note(f"{len(places) - len(missing)} of {len(places)} seeds are done already")
    with (
        progress_bar("simulating") as progress,
        ProcessPoolExecutor(jobs, CONTEXT, _set_up_worker) as pool,
    ):
        waiting = [
            pool.submit(_one, scenario, place, seed, sets, force) for seed, place in missing.items()
        ]
        try:
            for finished, future in enumerate(as_completed(waiting), start=1):
                future.result()
                progress(finished, len(waiting))
        except BaseException as error:
            try:
                if isinstance(error, SkyhopError):
                    # The other runs finish, so that none is left half-written.
                    pool.shutdown(cancel_futures=True)
            finally:
                for worker in active_children():
                    worker.terminate()
                pool.shutdown(cancel_futures=True)
            done = sum(mark.is_done(seed, place) for seed, place in places.items())
            if not done:
                mark.remove()
            if isinstance(error, BrokenProcessPool):
                raise RunError(
                    f"a repeat's process was killed: {done} of {len(places)} seeds are done"
                ) from None
            if isinstance(error, KeyboardInterrupt):
                raise InterruptedRunError(
                    f"interrupted: {done} of {len(places)} seeds are done; "
                    "repeat the command to continue"
                ) from None
            raise
    # All seeds are finished: the same command would run them again.
    mark.remove()


def _set_up_worker() -> None:
    """Set up a worker process: it ignores Ctrl-C, and exits when its parent exits."""
    import signal

    from skyhop.study.workers import end_with_parent

    end_with_parent()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _one(scenario: Path, output: Path, seed: int, sets: Sequence[str], force: bool) -> None:
    from skyhop.simulation import sim

    sim(scenario, output, seed=seed, sets=sets, force=force)
