"""Simulation of a scenario in virtual time, once or with several seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from skyhop.data.runs import Run
from skyhop.data.scenarios import Scenario, load_scenario
from skyhop.engines import Capture, Observer, capturing, run_with

if TYPE_CHECKING:
    import polars as pl


@overload
def sim(
    scenario: Scenario,
    output: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    sets: Sequence[str] = (),
    force: bool = False,
    observer: Observer | None = None,
    capture: Capture | None = None,
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
    capture: Capture | None = None,
) -> Run | pl.DataFrame:
    """Run a scenario in virtual time: deterministic, and faster than the wall clock.

    >>> import skyhop
    >>> run = skyhop.sim("handover")  # doctest: +SKIP
    >>> frame = skyhop.sim("handover", repeat=20)  # doctest: +SKIP

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        output: the run directory; a temporary one, removed with the result, where not given.
        repeat: number of seeds to run with; the result is one frame of all runs, as from `sweep`.
        jobs: number of concurrent repeats; by default the number of processors.
        seed: seed instead of the scenario's; with `repeat`, the first of the seeds.
        sets: overrides, each "KEY=VALUE".
        force: use `output` even if it is not empty.
        observer: receives the progress; by default a progress bar is shown.
        capture: capture files of the run's packets; not with `repeat`.

    Returns:
        The run; with `repeat` a polars frame, one row per flow and seed.

    Raises:
        InputError: the scenario, a place or `output` is wrong.
        RunError: the disk is full, …
        InterruptedRunError: Ctrl-C; the error carries the measurements until then.
    """
    seeded = [*sets, *([] if seed is None else [f"run.seed={seed}"])]
    if repeat is not None:
        from skyhop.study.sweep import sweep

        return sweep(scenario, output=output, repeat=repeat, jobs=jobs, sets=seeded)
    loaded = load_scenario(scenario, seeded)
    options = capturing(capture)
    return run_with("sim", loaded, output, options, force=force, observer=observer)
