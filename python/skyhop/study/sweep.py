"""Sweeps: a scenario with every combination of some keys' values, as one frame.

A sweep is a study without a file: the same plan, processes and metrics.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from skyhop import _core
from skyhop.data.files import Scratch
from skyhop.data.progress import Progress
from skyhop.data.scenarios import Scenario, with_now, with_whole_cc
from skyhop.data.shipped import find_scenario
from skyhop.errors import InputError, RunError
from skyhop.study.file import Axis, parse_study
from skyhop.study.metrics import BUILT_IN, MetricInfo
from skyhop.study.plan import Study
from skyhop.study.running import StudyRun, run_study

if TYPE_CHECKING:
    import polars as pl

Values: TypeAlias = Iterable[bool | int | float | str] | Mapping[str, Mapping[str, Any]]
"""The values of a key; or what several keys are set to, by a label."""

_ORIGIN = "the sweep"
_OF_UNITS = {"Mbit/s": "mbps", "ms": "ms", "s": "s", "%": "percent", "kB": "kb", "Mbit": "mbit"}


def sweep(
    scenario: Scenario,
    axes: Mapping[str, Values] | None = None,
    *,
    repeat: int = 1,
    output: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    sets: Sequence[str] = (),
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Simulate a scenario with every combination of some keys' values, side by side.

    >>> import skyhop
    >>> skyhop.sweep(
    ...     "handover",
    ...     {
    ...         "flow.0.cc": ["cubic", "bbr"],
    ...         "queue": {
    ...             "shallow": {"link.queue": "0.5 BDP"},
    ...             "deep": {"link.queue": "4 BDP"},
    ...         },
    ...     },
    ...     repeat=5,
    ... )  # doctest: +SKIP

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        axes: by a key of the scenario the values that it takes; or by any other name, labels with
            what they set, a key of a path's or several. All are crossed, the last one fastest.
        repeat: how many seeds each combination runs with; they count up from the scenario's.
        output: a directory for all runs, each with its tables; a sweep that was stopped goes on
            there. Where not given, nothing is kept but the frame.
        jobs: how many runs go on at a time; as many as there are processors where not given.
        sets: overrides of all runs, each "KEY=VALUE"; a path's start may be "now".
        progress: is told how many runs are done, and how many there are; a bar where not given.

    Returns:
        One row per run, flow and seed: a column per axis, `seed`, `flow` (its id), `cc`; then the
        metrics of docs/studies.md, named with the unit that they are in: `goodput_mbps`, `srtt_ms`,
        `utilisation_percent`, `cwnd_mean_packets`, …, without those that no run has. With an
        `output` the column `directory` says where each run is, for `read_run`.

    Raises:
        InputError: the scenario, a key, a value or the output is wrong.
        RunError: all runs failed. Of others that failed there is a warning.
    """
    study = _study(scenario, axes or {}, repeat, sets, keep=output is not None)
    if output is not None:
        done = run_study(study, output, jobs=jobs, progress=progress)
        return _told(done, list(axes or {}), Path(output) / "runs")
    with Scratch() as place:
        done = run_study(study, place, jobs=jobs, progress=progress)
    return _told(done, list(axes or {}), None)


def _study(
    scenario: Scenario,
    axes: Mapping[str, Values],
    repeat: int,
    sets: Sequence[str],
    *,
    keep: bool,
) -> Study:
    if repeat < 1:
        raise InputError(f"repeat={repeat}: expected at least 1")
    content = {
        "title": "A sweep",
        "question": "",
        "keep": "series" if keep else "rows",
        "repeats": repeat,
        **_base(scenario),
    }
    # Claims, which a sweep has none of, could not call axes by their keys.
    varied = {"axis": [_axis(name, values) for name, values in axes.items()]}
    file = parse_study(content, _ORIGIN).model_copy(update=varied)
    return Study(file, _ORIGIN, [with_now(with_whole_cc(one)) for one in sets])


def _base(scenario: Scenario) -> dict[str, Any]:
    """Return what says in a study which scenario it is about."""
    if isinstance(scenario, _core.Scenario):
        return {"scenario": json.loads(scenario.to_json())}
    if isinstance(scenario, Mapping):
        return {"scenario": dict(scenario)}
    return {"base": str(find_scenario(scenario).resolve())}


def _axis(name: str, values: Values) -> Axis:
    if isinstance(values, Mapping) and all(isinstance(keys, Mapping) for keys in values.values()):
        points = {label: dict(keys) for label, keys in values.items()}
        return Axis.model_construct(name=name, points=points)
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InputError(
            f"{name}: expected a list of values, or labels with the keys that they set"
        )
    listed = list(values)
    if not listed:
        raise InputError(f"{name}: no values")
    return Axis.model_construct(name=name, key=name, values=listed)


def _told(done: StudyRun, axes: Sequence[str], runs: Path | None) -> pl.DataFrame:
    """Return the frame of a sweep, and warn of what has to be known of it."""
    if done.failures and done.results.frame.is_empty():
        raise RunError(f"all {len(done.failures)} runs failed: {done.failures[0].error}")
    for text in (*done.failures, *done.warnings):
        # Whoever called sweep().
        warnings.warn(str(text), stacklevel=3)
    return _frame(done.results.frame, axes, runs)


def _frame(rows: pl.DataFrame, axes: Sequence[str], runs: Path | None) -> pl.DataFrame:
    import polars as pl

    heads = [pl.col(*axes, "seed", "flow"), pl.col("flow_cc").alias("cc")]
    known = [
        info
        for info in BUILT_IN
        if info.column in rows.columns and rows.get_column(info.column).null_count() < len(rows)
    ]
    columns = [(pl.col(info.column) * info.factor).alias(_name(info)) for info in known]
    if runs is not None:
        columns.append(pl.format(f"{runs}/{{}}", pl.col("run")).alias("directory"))
    return rows.select(*heads, *columns)


def _name(info: MetricInfo) -> str:
    """Return a column's name: that of summary.json where its unit is the same."""
    return info.column if info.factor == 1 else f"{info.name}_{_OF_UNITS[info.unit]}"
