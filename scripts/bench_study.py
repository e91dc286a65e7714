"""What running a study costs beside the runs themselves."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any

import skyhop
from skyhop.cli.terminal import print_rows
from skyhop.study import load_study, run_study

JOBS = 2


@dataclass(frozen=True)
class StudyLoad:
    """A study of equal runs with loss, one seed each."""

    name: str
    runs: int
    rate: str
    duration: str
    bare: bool = True
    """Whether to do the same runs without a study, for comparison."""


LOADS = (
    # Starting the workers takes a second or two of processor time, whatever they run.
    StudyLoad("runs of 10 simulated minutes", 80, "150 Mbit/s", "600 s"),
    StudyLoad("short runs", 10_000, "5 Mbit/s", "0.5 s", bare=False),
)


@dataclass(frozen=True)
class StudyCost:
    """Processor time in s, and the parent's memory."""

    parent_s: float
    workers_s: float
    peak_bytes: int


def bench_studies() -> None:
    """Print how much processor time a study takes above its runs', and its parent's memory."""
    rows = []
    for load in LOADS:
        cost, bare_s = _alone(study_cost, load), _alone(bare_cost_s, load) if load.bare else None
        total_s = cost.parent_s + cost.workers_s
        rows.append(
            {
                "study": f"{load.runs:,} {load.name}",
                "CPU s": round(total_s, 2),
                "of it the parent": round(cost.parent_s, 2),
                "CPU s of the same runs alone": None if bare_s is None else round(bare_s, 2),
                "overhead %": None if bare_s is None else round(100 * (total_s / bare_s - 1), 1),
                "parent's peak MB": round(cost.peak_bytes / 1e6),
            }
        )
    print_rows(rows, as_json=False, title=f"studies, {JOBS} at a time")


def _alone(measure: Any, load: StudyLoad) -> Any:
    """Measure in a process of its own: what came before must not count."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, load).result()


def scenario(load: StudyLoad) -> Mapping[str, Any]:
    """Return the scenario of each run."""
    return {
        "path": {"kind": "fixed", "rtt": "40 ms"},
        "link": {"rate": load.rate, "loss": "0.01 %"},
        "flow": [{"cc": "cubic"}],
        "run": {"duration": load.duration},
    }


def study_cost(load: StudyLoad) -> StudyCost:
    """Run the study."""
    study = load_study(
        {
            "title": load.name,
            "question": "What does a study cost?",
            "repeats": load.runs,
            "keep": "rows",
            "scenario": scenario(load),
        }
    )
    before_s = _cpu_s(resource.RUSAGE_SELF)
    with TemporaryDirectory(prefix="skyhop-bench-") as directory:
        run_study(study, directory, jobs=JOBS)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return StudyCost(
        parent_s=_cpu_s(resource.RUSAGE_SELF) - before_s,
        workers_s=_cpu_s(resource.RUSAGE_CHILDREN),
        peak_bytes=own.ru_maxrss * 1024,
    )


def bare_cost_s(load: StudyLoad) -> float:
    """Do the same runs, and nothing else."""
    skyhop.sim(scenario(load))
    before_s = _cpu_s(resource.RUSAGE_SELF)
    for seed in range(1, load.runs + 1):
        skyhop.sim(scenario(load), seed=seed)
    return _cpu_s(resource.RUSAGE_SELF) - before_s


def _cpu_s(of: int) -> float:
    usage = resource.getrusage(of)
    return usage.ru_utime + usage.ru_stime
