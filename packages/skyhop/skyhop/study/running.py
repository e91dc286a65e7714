"""Execution of a study: unfinished runs in parallel, then the dataset of all runs."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skyhop import _core, views
from skyhop.analysis.summary import NO_CHANCE
from skyhop.data.progress import Progress, progress_or_bar
from skyhop.data.scenarios import place_notes
from skyhop.data.toml import toml_text
from skyhop.errors import InputError
from skyhop.study.axes import numeric_axes
from skyhop.study.conditions import Condition, conditions_of
from skyhop.study.directory import StudyDirectory
from skyhop.study.elements import timing_error_rows
from skyhop.study.execution import Failure, Recipe, Task
from skyhop.study.metrics import QUEUES, WARNINGS
from skyhop.study.plan import Study
from skyhop.study.relative import with_relative
from skyhop.study.results import Results, dataset
from skyhop.study.run_ids import PlannedRun, core_digest, describe
from skyhop.study.workers import run_locally
from skyhop.version import __version__


@dataclass(frozen=True)
class FailedRun:
    """Failed run: its point and seed, and the error message in one line."""

    labels: Mapping[str, object]
    seed: int
    error: str
    scenario: str
    """Resolved scenario of the run, as TOML."""

    def __str__(self) -> str:
        return f"{describe(self.labels)}, seed {self.seed}: {self.error}"


@dataclass(frozen=True)
class StudyWarning:
    """Warning with the same text in one or several runs."""

    text: str
    runs: int
    """Number of runs that have the warning."""
    total: int
    """Number of all finished runs."""
    where: Mapping[str, object]
    """Axis values that all runs with this warning share, and that some other run does not have."""

    def __str__(self) -> str:
        where = f" ({describe(self.where)})" if self.where else ""
        noun = "run" if self.total == 1 else "runs"
        return f"{self.runs:,} of {self.total:,} {noun}{where}: {self.text}"


@dataclass(frozen=True)
class StudyRun:
    """Outcome of running a study: its results, failures and warnings."""

    study: Study
    directory: StudyDirectory
    results: Results
    failures: Sequence[FailedRun]
    warnings: Sequence[StudyWarning]
    """Warnings of the runs, each text once, the most frequent first."""
    places: Sequence[str] = ()
    """Notes on ambiguous names of places, each with the place that was used."""
    conditions: Sequence[Condition] = ()
    """Conditions of the runs: path, rate, queue, loss, duration, engine."""

    def _repr_html_(self) -> str:
        return views.html(self)


def run_study(
    study: Study,
    output: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    elements: tuple[Path, Path] | None = None,
    reuse: Sequence[str | os.PathLike[str]] = (),
    progress: Progress | None = None,
) -> StudyRun:
    """Execute the unfinished runs of a study, and write its dataset.

    A stopped study continues where it stopped: a hash of the resolved scenario, seed, engine and
    core identifies each run, and finished runs are not repeated. If a run fails, the others
    continue, and `StudyRun.failures` lists it.

    Args:
        study: the study to run.
        output: directory of the study; it is created, or the study in it is continued.
        jobs: number of concurrent runs; the number of processors by default.
        engine: where runs execute: "local" on this machine, "ray" on a Ray cluster.
        elements: older and newer snapshot of element sets, for studies with engine "elements".
        reuse: directories of other studies; their finished runs are reused if identical.
        progress: callback (done, total) over the runs to execute; a progress bar by default.

    Raises:
        InputError: a scenario is wrong, the directory has other content, or ray or the element
            sets are missing.
    """
    if study.kind.compares_elements:
        return _compare_elements(study, StudyDirectory(Path(output)), elements)
    if elements is not None:
        raise InputError(f"{study.origin}: takes no element sets: leave --elements out")
    runs = list(study.runs())
    study.kind.prepare(study, runs)
    directory, others = StudyDirectory(Path(output)), _others(reuse)
    with directory.opened(_description(study)):
        for run_id in dict.fromkeys(run.run_id for run in runs):
            directory.link_finished_run(run_id, study.metrics.digest, others)
        errors = _run_missing(
            study, runs, directory, _Workers(engine, _jobs(study, jobs)), progress
        )
        rows = _gather(study, runs, directory)
        frame = dataset(rows, numeric_axes(study.file))
        failures = [_failed(run, errors[run.run_id]) for run in runs if run.run_id in errors]
        results = Results(
            with_relative(frame, study.file, study.metrics),
            study.metrics,
            [{**failure.labels, "seed": failure.seed} for failure in failures],
        )
        directory.write_results(results.frame)
        directory.write_failures(_failure_entry(failure) for failure in failures)
    queues = {row["run"]: row[QUEUES] for row in rows if QUEUES in row}
    return StudyRun(
        study, directory, results, failures, _warnings(study, rows), places_of(runs),
        conditions_of(study, runs, queues),
    )  # fmt: skip


def _others(reuse: Sequence[str | os.PathLike[str]]) -> list[StudyDirectory]:
    others = [StudyDirectory(Path(place)) for place in reuse]
    for other in others:
        if not other.is_study():
            raise InputError(f"{other.root}: no study has been run there: leave it out of --reuse")
    return others


def places_of(runs: Iterable[PlannedRun]) -> list[str]:
    """Return distinct notes on ambiguous names of places, each with the place that is used."""
    notes = (note for run in runs if "path" in run.resolved for note in place_notes(run.resolved))
    return list(dict.fromkeys(notes))


def path_file_notes(study: Study, runs: Iterable[PlannedRun]) -> list[str]:
    """Return distinct notes on the measured values of path files that the runs replace."""
    distinct: dict[str, PlannedRun] = {}
    for run in runs:
        if run.resolved.get("path", {}).get("kind") == "trace":
            given = [text for text in run.sets if text.startswith("link")]
            distinct.setdefault(json.dumps([run.resolved["path"], given], sort_keys=True), run)
    notes: dict[str, None] = {}
    base = json.dumps(study.base)
    for run in distinct.values():
        scenario = _core.Scenario.from_json(base, study.scenario_origin, list(run.sets))
        # The run itself reports a file that is missing or damaged.
        with suppress(InputError):
            notes |= dict.fromkeys(scenario.path_notes())
    return list(notes)


def _compare_elements(
    study: Study, directory: StudyDirectory, elements: tuple[Path, Path] | None
) -> StudyRun:
    if elements is None:
        raise InputError(
            f"{study.origin}: compares two snapshots of element sets: give --elements OLD NEW, "
            "for example two downloads from celestrak.org"
        )
    with directory.opened(_description(study)):
        frame = dataset(timing_error_rows(*elements), {})
        directory.write_results(frame)
    results = Results(frame, study.metrics)
    return StudyRun(study, directory, results, [], [], conditions=conditions_of(study, []))


@dataclass(frozen=True)
class _Workers:
    engine: Literal["local", "ray"]
    jobs: int


def _jobs(study: Study, jobs: int | None) -> int:
    if study.kind.is_live:
        # Concurrent live runs would compete for processors and disturb each other.
        return 1
    return jobs or len(os.sched_getaffinity(0))


def _run_missing(
    study: Study,
    runs: Sequence[PlannedRun],
    directory: StudyDirectory,
    workers: _Workers,
    progress: Progress | None,
) -> dict[str, str]:
    """Execute the runs that have no rows yet; return the errors of failed runs by run id."""
    digest = study.metrics.digest
    missing = {
        run.run_id: run for run in runs if not directory.rows_file(run.run_id, digest).is_file()
    }
    errors: dict[str, str] = {}
    if not missing:
        return errors
    tasks = (Task(run.run_id, run.sets, run.path_id, run.seed) for run in missing.values())
    outcomes = _start(study, workers, tasks, directory.root)
    with progress_or_bar(progress, f"{len(missing)} runs") as report:
        for done, outcome in enumerate(outcomes, start=1):
            if outcome is not None:
                errors[outcome.run_id] = outcome.error
            report(done, len(missing))
    return errors


def _start(
    study: Study, workers: _Workers, tasks: Iterator[Task], root: Path
) -> Iterator[Failure | None]:
    recipe = Recipe(
        study.base, study.scenario_origin, study.file.engine, study.file.keep, study.metrics
    )
    if workers.engine == "local":
        return run_locally(recipe, tasks, root, workers.jobs)
    if study.kind.is_live:
        raise InputError("--engine ray: live runs need this machine to themselves; leave it out")
    from skyhop.study.cluster import run_on_ray

    return run_on_ray(recipe, tasks, root, workers.jobs)


def _gather(
    study: Study, runs: Sequence[PlannedRun], directory: StudyDirectory
) -> list[dict[str, Any]]:
    """Return the rows of all finished runs, each with its axis values, seed and run id."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        found = directory.read_rows(run.run_id, study.metrics.digest) or []
        head = {**run.labels, "seed": run.seed, "run": run.run_id}
        rows.extend({**head, **row} for row in found)
    return rows


def _warnings(study: Study, rows: Sequence[Mapping[str, Any]]) -> list[StudyWarning]:
    """Return the warnings of the runs, each text once, the most frequent first."""
    by_run = {row["run"]: row for row in rows}
    alike = _runs_without_chance(study, rows)
    warned = {
        run: [*row[WARNINGS], *([NO_CHANCE] if run in alike else [])] for run, row in by_run.items()
    }
    texts = Counter(text for given in warned.values() for text in given)
    found = []
    for text, count in texts.most_common():
        concerned = [row for run, row in by_run.items() if text in warned[run]]
        others = [row for run, row in by_run.items() if text not in warned[run]]
        where = {
            axis.name: concerned[0][axis.name]
            for axis in study.file.axis
            if len({row[axis.name] for row in concerned}) == 1
            and any(row[axis.name] != concerned[0][axis.name] for row in others)
        }
        found.append(StudyWarning(text, count, len(by_run), where))
    return found


def _runs_without_chance(study: Study, rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the runs whose flows have the same results with each of several seeds."""
    results: dict[str, list[object]] = {}
    points: dict[tuple[str, ...], dict[int, str]] = {}
    for row in rows:
        if row.get("sent_packets") is None:
            continue
        shown = [row.get(key) for key in ("flow", "goodput_bps", "srtt_mean_us", "sent_packets")]
        results.setdefault(row["run"], []).append(shown)
        point = tuple(str(row[axis.name]) for axis in study.file.axis)
        points.setdefault(point, {})[row["seed"]] = row["run"]
    return {
        run
        for runs in points.values()
        if len(runs) > 1 and len({str(results[run]) for run in runs.values()}) == 1
        for run in runs.values()
    }


def _failed(run: PlannedRun, error: str) -> FailedRun:
    return FailedRun(run.labels, run.seed, error, toml_text(run.resolved))


def _failure_entry(failure: FailedRun) -> dict[str, Any]:
    return {
        "at": dict(failure.labels),
        "seed": failure.seed,
        "error": failure.error,
        "scenario": failure.scenario,
    }


def _description(study: Study) -> dict[str, Any]:
    return {
        "skyhop": __version__,
        "core": core_digest(),
        "origin": study.origin,
        "set": list(study.sets),
        "study": study.file.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }
