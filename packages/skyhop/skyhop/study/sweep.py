"""Sweeps: runs of a scenario with every combination of the values of some keys, as one frame.

A sweep is a study without a file: it uses the same plan, worker processes and metrics.
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
from skyhop.data.scenarios import Scenario, resolved_sets
from skyhop.data.shipped import find_scenario
from skyhop.errors import InputError, RunError
from skyhop.study.file import Axis, parse_study
from skyhop.study.metrics import BUILT_IN, MetricInfo
from skyhop.study.plan import Study
from skyhop.study.running import StudyRun, run_study

if TYPE_CHECKING:
    import polars as pl

Values: TypeAlias = Iterable[bool | int | float | str] | Mapping[str, Mapping[str, Any]]
"""Values of one key; or labelled points, each with the scenario keys that it sets."""

_ORIGIN = "the sweep"
_UNIT_SUFFIXES = {
    "Mbit/s": "mbps",
    "ms": "ms",
    "s": "s",
    "%": "percent",
    "kB": "kb",
    "Mbit": "mbit",
}


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
    """Simulate a scenario with every combination of the values of some keys, in parallel.

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
        scenario: a scenario file, the name of an example, or a scenario as a dictionary.
        axes: by scenario key, the values of the key; or, by a name that you choose, labelled points
            with the scenario keys that each point sets. All axes are crossed; the last one varies
            fastest.
        repeat: number of runs of each combination; their seeds count up from the scenario's seed.
        output: directory for all runs with their tables; a stopped sweep continues there. By
            default only the frame is kept.
        jobs: number of concurrent runs; the number of processors by default.
        sets: overrides for all runs, each "KEY=VALUE"; the start of a path may be "now".
        progress: callback (done, total) over the runs; a progress bar by default.

    Returns:
        One row per run, flow and seed: a column per axis, `seed`, `flow` (its id), `cc`; then the
        metrics of `skyhop docs study-file` that any run has, with their units in the names:
        `goodput_mbps`, `srtt_ms`, `utilisation_percent`, `cwnd_mean_packets`, … With an `output`,
        the column `directory` holds each run's directory, for `read_run`.

    Raises:
        InputError: the scenario, a key, a value or the output is wrong.
        RunError: all runs failed. If only some fail, a Python warning names each.
    """
    study = _study(scenario, axes or {}, repeat, sets, keep=output is not None)
    if output is not None:
        done = run_study(study, output, jobs=jobs, progress=progress)
        return _frame_with_warnings(done, list(axes or {}), Path(output) / "runs")
    with Scratch() as place:
        done = run_study(study, place, jobs=jobs, progress=progress)
    return _frame_with_warnings(done, list(axes or {}), None)


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
    # Added after the check, which forbids dots in the names of axes only because of claims.
    varied = {"axis": [_axis(name, values) for name, values in axes.items()]}
    file = parse_study(content, _ORIGIN).model_copy(update=varied)
    return Study(file, _ORIGIN, resolved_sets(sets))


def _base(scenario: Scenario) -> dict[str, Any]:
    """Return the key of a study file that holds the scenario: `scenario` or `base`."""
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


def _frame_with_warnings(done: StudyRun, axes: Sequence[str], runs: Path | None) -> pl.DataFrame:
    """Return the frame of a sweep; issue a Python warning per failed run and run warning."""
    if done.failures and done.results.frame.is_empty():
        raise RunError(f"all {len(done.failures)} runs failed: {done.failures[0].error}")
    for text in (*done.failures, *done.warnings):
        # Frame 3 is the caller of `sweep`.
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
    columns = [(pl.col(info.column) * info.factor).alias(_column_name(info)) for info in known]
    if runs is not None:
        columns.append(pl.format(f"{runs}/{{}}", pl.col("run")).alias("directory"))
    return rows.select(*heads, *columns)


def _column_name(info: MetricInfo) -> str:
    """Return a column's name: its key in summary.json, or the metric's name with its unit."""
    return info.column if info.factor == 1 else f"{info.name}_{_UNIT_SUFFIXES[info.unit]}"
