"""Run scenarios with an engine, such as `live` on this machine's kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop import _core
from skyhop.data.places import CITIES, position_of
from skyhop.data.progress import Progress, ignore_progress, progress_bar
from skyhop.data.runs import Run
from skyhop.data.scenarios import (
    Scenario,
    absolute_cc_name,
    forces_size,
    load_cc_files,
    load_scenario,
)
from skyhop.errors import InterruptedRunError, ProgramError

if TYPE_CHECKING:
    from skyhop.data.files import Scratch


@dataclass(frozen=True)
class Program:
    """Program to run over the path instead of the scenario's TCP flows, and its server.

    "{server}" in either command is replaced by the far end's address.
    """

    client: Sequence[str]
    server: str | None = None
    internet: bool = False
    """Whether the program can reach the Internet through the far end (by slirp4netns)."""


@dataclass(frozen=True)
class Capture:
    """Packets of a simulated run to write to capture files (pcapng), as tcpdump would.

    Attributes:
        file: first file; further ones have "-2", "-3", … before the ending.
        flows: ids of the flows; all if empty.
        file_size: size from which on a new file begins, such as "100 MB".
        files: number of files that stay; older ones are removed.
    """

    file: str | os.PathLike[str]
    flows: Sequence[int] = ()
    file_size: str | None = None
    files: int | None = None

    def options(self) -> _core.CaptureOptions:
        """Return the options as the core takes them."""
        return {
            "file": os.fspath(self.file),
            "flows": list(self.flows),
            "file_size": self.file_size,
            "files": self.files,
        }


@dataclass(frozen=True)
class Observer:
    """Progress callbacks, called with (done, total), for computing the path and for the run."""

    path: Progress = field(default=ignore_progress)
    run: Progress = field(default=ignore_progress)


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
        program: program to run instead of the scenario's TCP flows.
        cc: default congestion control inside the namespaces, or its file; cubic by default.
        force: use `output` even if it is not empty.
        observer: receives the progress; by default a progress bar is shown.

    Raises:
        InputError: the scenario, a place, the program or `output` is wrong.
        RunError: namespaces are not allowed here, the disk is full, …
        ProgramError: the program failed; the error carries the measurements until then.
        InterruptedRunError: Ctrl-C or SIGTERM; the error carries the measurements until then.
    """
    loaded = load_scenario(scenario, sets)
    options: _core.EngineOptions = {
        "client": list(program.client) if program else None,
        "server": program.server if program else None,
        "default_cc": None if cc is None else absolute_cc_name(cc),
        "internet": program.internet if program else False,
        "guest": None,
        "capture": None,
    }
    # A program replaces the flows, so the kernel needs none of their congestion controls.
    for_kernel = program is None
    return run_with(
        "live", loaded, output, options, for_kernel=for_kernel, force=force, observer=observer
    )


def run_with(
    engine: str,
    scenario: _core.Scenario,
    output: str | os.PathLike[str] | None = None,
    options: _core.EngineOptions | None = None,
    *,
    for_kernel: bool = False,
    force: bool = False,
    observer: Observer | None = None,
) -> Run:
    """Run a checked scenario with the named engine; arguments and errors as for `sim` and `live`.

    With `for_kernel`, files of congestion controls are also compiled for this machine's kernel.

    With SKYHOP_MOCK=1 in the environment, every engine is replaced by a mock with invented numbers,
    for tests of code that reads runs.
    """
    options = options or _NO_OPTIONS
    default_cc, has_program = options["default_cc"], options["client"] is not None
    with (
        _reserved_output(output, force=force) as place,
        _observer_or_bars(observer, options) as progress,
    ):
        load_cc_files(scenario, for_kernel=for_kernel)
        experiment = _core.Experiment.build(
            scenario, position_of, progress.path, default_cc=default_cc, for_program=has_program,
            predict_rates=_predict_rates, cities=CITIES,
        )  # fmt: skip
        ended_s, interrupted, program_status = _core.run_engine(
            _engine(engine), experiment, place.directory, options, progress.run
        )
    run = Run(place.path, place.scratch, force_size=forces_size(scenario))
    if interrupted:
        kept = "nothing was kept" if place.scratch else f"the measurements are in {run.directory}"
        raise InterruptedRunError(f"interrupted after {ended_s:.1f} s; {kept}", run)
    if program_status:
        raise ProgramError(program_status, run)
    return run


@contextmanager
def _observer_or_bars(
    observer: Observer | None, options: _core.EngineOptions
) -> Iterator[Observer]:
    """Yield the caller's observer, or one that shows progress bars."""
    if observer is not None:
        yield observer
        return
    with progress_bar("computing the path") as path, progress_bar("running") as run:
        # A program writes to the terminal itself, so it gets no bar there.
        yield Observer(path, ignore_progress if options["client"] else run)


def run_into(
    engine: str,
    scenario: _core.Scenario,
    directory: Path,
    path: _core.PathTrace | None = None,
    *,
    options: _core.EngineOptions | None = None,
    progress: Progress = ignore_progress,
) -> int | None:
    """Run into an empty directory, which the caller moves to its final place afterwards.

    The directory is removed if the run fails; after an interruption, the caller has to remove it.

    Args:
        engine: name of the engine, as for `run_with`.
        scenario: the checked scenario.
        directory: run directory; its copy of a path that was read from a file is a hard link.
        path: the scenario's path, if it is already computed.
        options: options of the engine that are not in the scenario.
        progress: progress callback of the run.

    Returns:
        The exit status of the program that generates the traffic; None without one.

    Raises:
        InterruptedRunError: Ctrl-C.
    """
    options = options or _NO_OPTIONS
    experiment = _core.Experiment.build(
        scenario, position_of, ignore_progress, path, default_cc=options["default_cc"],
        for_program=options["client"] is not None, predict_rates=_predict_rates,
        cities=CITIES,
    )  # fmt: skip
    into = _core.RunDirectory.aside(os.fspath(directory))
    outcome = _core.run_engine(_engine(engine), experiment, into, options, progress)
    _check_not_interrupted(outcome)
    return outcome[2]


def run_for_summary(
    engine: str, scenario: _core.Scenario, path: _core.PathTrace | None = None
) -> dict[str, Any]:
    """Run without a run directory; return the content that summary.json would have.

    Raises:
        InterruptedRunError: Ctrl-C.
    """
    experiment = _core.Experiment.build(
        scenario,
        position_of,
        ignore_progress,
        path,
        predict_rates=_predict_rates,
        cities=CITIES,
    )
    outcome, text = _core.run_for_summary(_engine(engine), experiment, _NO_OPTIONS, ignore_progress)
    _check_not_interrupted(outcome)
    summary: dict[str, Any] = json.loads(text)
    return summary


def _predict_rates(
    model: str, path: _core.PathTrace, rates_bps: list[float]
) -> tuple[list[float], float, list[list[float]]]:
    """Return a model's rate predictions along a path, in the form that the core expects.

    Returns:
        The ends of the path's seconds (s); the length of a step of a prediction (s); and for each
        end of a second, the predicted rates (bit/s) of the steps that follow.
    """
    import numpy as np

    from skyhop.data.paths import Path as MeasuredPath
    from skyhop.predict import rates_along_path

    ahead = rates_along_path(model, MeasuredPath(path), np.array(rates_bps))
    # The measured rate of a second is known at its end.
    return [float(second) for second in range(1, len(ahead) + 1)], 1.0, ahead.tolist()


def _check_not_interrupted(outcome: _core.Outcome) -> None:
    ended_s, interrupted, _ = outcome
    if interrupted:
        raise InterruptedRunError(f"interrupted after {ended_s:.1f} s; nothing was kept", None)


def capturing(capture: Capture | None) -> _core.EngineOptions | None:
    """Return an engine's options for a capture; None without one."""
    return None if capture is None else {**_NO_OPTIONS, "capture": capture.options()}


def _engine(name: str) -> str:
    return "mock" if os.environ.get("SKYHOP_MOCK") else name


_NO_OPTIONS: _core.EngineOptions = {
    "client": None,
    "server": None,
    "default_cc": None,
    "internet": False,
    "guest": None,
    "capture": None,
}


@dataclass(frozen=True)
class _Output:
    path: Path
    directory: _core.RunDirectory
    scratch: Scratch | None
    """Temporary directory with the run; None if the caller named an output."""


@contextmanager
def _reserved_output(output: str | os.PathLike[str] | None, *, force: bool) -> Iterator[_Output]:
    """Reserve the run directory before the run; remove it if the run fails."""
    scratch = _scratch() if output is None else None
    # Tables show the directory's name as the run's name.
    path = scratch.path / "run" if scratch else Path(os.fspath(output or ""))
    directory = _core.RunDirectory.reserve(str(path), force)
    try:
        yield _Output(path, directory, scratch)
    except BaseException:
        directory.abandon()
        raise


def _scratch() -> Scratch:
    from skyhop.data.files import Scratch

    return Scratch()
