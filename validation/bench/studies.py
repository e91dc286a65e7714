"""Benchmark of studies: runs per second, and overhead compared with the same runs alone."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import skyhop
from skyhop.cli.terminal import print_rows
from skyhop.study import load_study, run_study
from validation.bench.measure import Cost, cost, previous

JOBS = 2


@dataclass(frozen=True)
class StudyLoad:
    """Study of many equal runs with random loss, one seed per run."""

    name: str
    runs: int
    rate: str
    duration: str
    path: Mapping[str, str] = field(default_factory=lambda: {"kind": "fixed", "rtt": "40 ms"})
    keep: str = "rows"
    bare: bool = False
    """Whether to execute the same runs without a study, for comparison."""

    @property
    def row(self) -> str:
        """Name of the load in the table."""
        return f"{self.runs:,} {self.name}"


# Use coordinates: reading the list of cities takes longer than the path.
_ORBITS = {"from": "32.72,-117.16", "to": "40.71,-74.01"}

LOADS = (
    StudyLoad("runs of 10 simulated seconds", 1_000, "20 Mbit/s", "10 s", _ORBITS, "series"),
    StudyLoad("such runs, of which rows stay", 1_000, "20 Mbit/s", "10 s", _ORBITS),
    StudyLoad("short runs", 10_000, "5 Mbit/s", "0.5 s"),
    # Whatever the load, starting the workers takes a second or two of CPU time.
    StudyLoad("runs of 10 simulated minutes", 80, "150 Mbit/s", "600 s", bare=True),
)


def bench_studies() -> None:
    """Print speed, CPU overhead and parent's memory of studies."""
    # Remove the directory only at the end: after a removal some file systems create files slowly
    # for minutes.
    with TemporaryDirectory(prefix="skyhop-bench-") as place:
        rows = [study_row(load, Path(place) / str(number)) for number, load in enumerate(LOADS)]
    print(f"studies, {JOBS} at a time")
    print_rows(rows, as_json=False)


def study_row(load: StudyLoad, directory: Path) -> dict[str, object]:
    """Measure a study that writes its output to `directory`."""
    took, peak_bytes = _in_process(study_cost, load, directory)
    bare_s = _in_process(bare_cost_s, load) if load.bare else None
    total_s = took.own_s + took.children_s
    return {
        "study": load.row,
        "runs/s": round(load.runs / took.wall_s),
        "before": previous("studies", load.row, "runs_per_s"),
        "CPU s": round(total_s, 2),
        "CPU s before": previous("studies", load.row, "cpu_s"),
        "of it the parent": round(took.own_s, 2),
        "CPU s of the same runs alone": None if bare_s is None else round(bare_s, 2),
        "overhead %": None if bare_s is None else round(100 * (total_s / bare_s - 1), 1),
        "parent's peak MB": round(peak_bytes / 1e6),
    }


def _in_process(measure: Any, *arguments: object) -> Any:
    """Call `measure` in a new process, so that earlier work of this process does not count."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def scenario(load: StudyLoad) -> Mapping[str, Any]:
    """Return the scenario for a load's runs."""
    return {
        "path": load.path,
        "link": {"rate": load.rate, "loss": "0.01 %"},
        "flow": [{"cc": "cubic"}],
        "run": {"duration": load.duration},
    }


def study_cost(load: StudyLoad, directory: Path) -> tuple[Cost, int]:
    """Run the study of a load; return its cost, and the peak memory of its parent in bytes."""
    table = {
        "title": load.name,
        "question": "What does a study cost?",
        "repeats": load.runs,
        "keep": load.keep,
        "scenario": scenario(load),
    }
    study = load_study(table)
    with cost() as took:
        run_study(study, directory, jobs=JOBS)
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bare_cost_s(load: StudyLoad) -> float:
    """Return the CPU time in s of the same runs without a study."""
    skyhop.sim(scenario(load))
    with cost() as took:
        for seed in range(1, load.runs + 1):
            skyhop.sim(scenario(load), seed=seed)
    return took.own_s
