"""Running scenarios.

Repeats are a sweep over nothing but seeds: that stands above this module, and is reached by the
package's own names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import skyhop
from skyhop import _core
from skyhop.data.places import position_of
from skyhop.data.progress import Progress, ignore_progress, progress_bar
from skyhop.data.scenarios import Scenario, load_cc_files, load_scenario, whole_cc_name
from skyhop.errors import InterruptedRunError, ProgramError
from skyhop.runs import Run

if TYPE_CHECKING:
    import polars as pl

    from skyhop.data.files import Scratch


@dataclass(frozen=True)
class Program:
    """Programs to run over the path instead of the scenario's TCP flows.

    "{server}" in either stands for the far end's address.
    """

    client: Sequence[str]
    server: str | None = None
    internet: bool = False
    """Whether the far end reaches the net that this machine is in, by slirp4netns."""


@dataclass(frozen=True)
class Observer:
    """Who is told how far the path's computation and the run are: (done, total)."""

    path: Progress = field(default=ignore_progress)
    run: Progress = field(default=ignore_progress)


@overload
def sim(
    scenario: Scenario,
    output: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    sets: Sequence[str] = (),
    force: bool = False,
    observer: Observer | None = None,
) -> Run: ...


@overload
def sim(
    scenario: Scenario,
    output: str | os.PathLike[str] | None = None,
    *,
    repeat: int,
    jobs: int | None = None,
    seed: int | None = None,
    sets: Sequence[str] = (),
) -> pl.DataFrame: ...


def sim(
    scenario: Scenario,
    output: str | os.PathLike[str] | None = None,
    *,
    repeat: int | None = None,
    jobs: int | None = None,
    seed: int | None = None,
    sets: Sequence[str] = (),
    force: bool = False,
    observer: Observer | None = None,
) -> Run | pl.DataFrame:
    """Run a scenario in virtual time: deterministic, and faster than the wall clock.

    >>> import skyhop
    >>> run = skyhop.sim("handover")  # doctest: +SKIP
    >>> frame = skyhop.sim("handover", repeat=20)  # doctest: +SKIP

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        output: the run directory; a temporary one, removed with the result, where not given.
        repeat: run with so many seeds, and return a frame of them all, as `sweep` does.
        jobs: how many repeats run at a time; as many as there are processors where not given.
        seed: instead of the scenario's own; of repeats the first.
        sets: overrides, each "KEY=VALUE".
        force: use `output` even if it is not empty.
        observer: is told how far the run is; a bar where not given.

    Returns:
        The run; with `repeat` a polars frame, one row per flow and seed.

    Raises:
        InputError: scenario, place or output are wrong.
        RunError: the disk is full, …
        InterruptedRunError: Ctrl-C; carries what was measured.
    """
    seeded = [*sets, *([] if seed is None else [f"run.seed={seed}"])]
    if repeat is not None:
        return skyhop.sweep(scenario, output=output, repeat=repeat, jobs=jobs, sets=seeded)
    loaded = load_scenario(scenario, seeded)
    return run_with("sim", loaded, output, force=force, observer=observer)


def live(
    scenario: Scenario,
    output: str | os.PathLike[str] | None = None,
    *,
    sets: Sequence[str] = (),
    program: Program | None = None,
    cc: str | None = None,
    force: bool = False,
    observer: Observer | None = None,
) -> Run:
    """Run a scenario in real time on the real TCP stack of this machine's kernel.

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        output: the run directory; a temporary one, removed with the result, where not given.
        sets: overrides, each "KEY=VALUE".
        program: what to run instead of the scenario's TCP flows.
        cc: the default congestion control inside the namespaces, or a file; cubic where not given.
        force: use `output` even if it is not empty.
        observer: is told how far the run is; a bar where not given.

    Raises:
        InputError: scenario, place, program or output are wrong.
        RunError: namespaces are not allowed here, the disk is full, …
        ProgramError: the program failed; carries what was measured.
        InterruptedRunError: Ctrl-C or SIGTERM; carries what was measured.
    """
    loaded = load_scenario(scenario, sets)
    options: _core.EngineOptions = {
        "client": list(program.client) if program else None,
        "server": program.server if program else None,
        "default_cc": None if cc is None else whole_cc_name(cc),
        "internet": program.internet if program else False,
        "guest": None,
    }
    return run_with("live", loaded, output, options, force=force, observer=observer)


def run_with(
    engine: str,
    scenario: _core.Scenario,
    output: str | os.PathLike[str] | None = None,
    options: _core.EngineOptions | None = None,
    *,
    force: bool = False,
    observer: Observer | None = None,
) -> Run:
    """Run a checked scenario with the engine of this name; otherwise as `sim` and `live`.

    With SKYHOP_MOCK=1 in the environment every engine is the one that makes its numbers up, for
    tests of what reads runs.
    """
    options = options or _NO_OPTIONS
    default_cc, has_program = options["default_cc"], options["client"] is not None
    with _reserved(output, force=force) as place, _watched(observer, options) as watched:
        # A program has no use for the flows'.
        load_cc_files(scenario, for_kernel=engine == "live" and not has_program)
        experiment = _core.Experiment.build(
            scenario, position_of, watched.path, default_cc=default_cc, for_program=has_program,
            foretell=_foretell,
        )  # fmt: skip
        ended_s, interrupted, program_status = _core.run_engine(
            _engine(engine), experiment, place.directory, options, watched.run
        )
    run = Run(place.path, place.keep)
    if interrupted:
        kept = "nothing was kept" if place.keep else f"what was measured is in {run.directory}"
        raise InterruptedRunError(f"interrupted after {ended_s:.1f} s; {kept}", run)
    if program_status:
        raise ProgramError(program_status, run)
    return run


@contextmanager
def _watched(observer: Observer | None, options: _core.EngineOptions) -> Iterator[Observer]:
    """Yield the observer, or bars where there is none."""
    if observer is not None:
        yield observer
        return
    with progress_bar("computing the path") as path, progress_bar("running") as run:
        # A program writes to the terminal itself.
        yield Observer(path, ignore_progress if options["client"] else run)


def run_aside(
    engine: str,
    scenario: _core.Scenario,
    directory: Path,
    path: _core.PathTrace | None = None,
    *,
    options: _core.EngineOptions | None = None,
    progress: Progress = ignore_progress,
) -> int | None:
    """Run into an empty directory of the caller's, who moves it into place when this has ended.

    What fails takes the directory away; what is stopped is for the caller to remove.

    Args:
        engine: its name, as for `run_with`.
        scenario: the checked scenario.
        directory: where to; a path that was read from a file there is linked to it, not copied.
        path: the scenario's path where it is known already.
        options: what the run is told beside its scenario.
        progress: is told how far the run is.

    Returns:
        The exit status of the program that made the traffic; None without one.

    Raises:
        InterruptedRunError: Ctrl-C.
    """
    options = options or _NO_OPTIONS
    experiment = _core.Experiment.build(
        scenario, position_of, ignore_progress, path, default_cc=options["default_cc"],
        for_program=options["client"] is not None, foretell=_foretell,
    )  # fmt: skip
    into = _core.RunDirectory.aside(os.fspath(directory))
    outcome = _core.run_engine(_engine(engine), experiment, into, options, progress)
    _check_whole(outcome)
    return outcome[2]


def summary_with(
    engine: str, scenario: _core.Scenario, path: _core.PathTrace | None = None
) -> dict[str, Any]:
    """Run likewise, but into no directory: return what its summary.json would hold.

    Raises:
        InterruptedRunError: Ctrl-C.
    """
    experiment = _core.Experiment.build(
        scenario, position_of, ignore_progress, path, foretell=_foretell
    )
    outcome, text = _core.run_for_summary(_engine(engine), experiment, _NO_OPTIONS, ignore_progress)
    _check_whole(outcome)
    summary: dict[str, Any] = json.loads(text)
    return summary


def _foretell(
    model: str, path: _core.PathTrace, rates_bps: list[float]
) -> tuple[list[float], float, list[list[float]]]:
    """Return what a model predicts at the end of each second (s), of steps of so long (s)."""
    import numpy as np

    from skyhop.data.paths import Path as MeasuredPath
    from skyhop.predict import foretold

    ahead = foretold(model, MeasuredPath(path), np.array(rates_bps))
    # A second's own rate is known at its end.
    return [float(second) for second in range(1, len(ahead) + 1)], 1.0, ahead.tolist()


def _check_whole(outcome: _core.Outcome) -> None:
    ended_s, interrupted, _ = outcome
    if interrupted:
        raise InterruptedRunError(f"interrupted after {ended_s:.1f} s; nothing was kept", None)


def _engine(name: str) -> str:
    return "mock" if os.environ.get("SKYHOP_MOCK") else name


_NO_OPTIONS: _core.EngineOptions = {
    "client": None,
    "server": None,
    "default_cc": None,
    "internet": False,
    "guest": None,
}


@dataclass(frozen=True)
class _Place:
    path: Path
    directory: _core.RunDirectory
    keep: Scratch | None


@contextmanager
def _reserved(output: str | os.PathLike[str] | None, *, force: bool) -> Iterator[_Place]:
    """Reserve the output before the work, and leave nothing of it when the work fails."""
    keep = _scratch() if output is None else None
    # Tables call a run as its directory.
    path = keep.path / "run" if keep else Path(os.fspath(output or ""))
    directory = _core.RunDirectory.reserve(str(path), force)
    try:
        yield _Place(path, directory, keep)
    except BaseException:
        directory.abandon()
        raise


def _scratch() -> Scratch:
    from skyhop.data.files import Scratch

    return Scratch()
