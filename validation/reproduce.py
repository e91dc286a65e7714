"""Runs the studies that come with skyhop, and writes their verdicts to docs/results/reproduced.

A run of one of the studies of docs/results/which-sender.md or docs/results/sensitivity.md also
updates that page and its data.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.study import Policies, cards_of
from skyhop.cli.terminal import EXIT_FAILED, print_error, print_note
from skyhop.data.progress import progress_bar
from skyhop.data.quantities import seconds
from skyhop.errors import RunError
from skyhop.report import write_study_report
from skyhop.study import load_study, run_study
from skyhop.study.catalogue import find_study, list_studies
from skyhop.study.claims import judge
from skyhop.study.table_runs import TableKind, find_data
from skyhop_lab.browser.study_runs import BROWSER
from skyhop_lab.browser.watching import check_programs
from validation import ROOT, measured_paths
from validation.provenance import Provenance
from validation.reference import found
from validation.reproduced import (
    Reproduced,
    all_sections,
    build,
    renew_texts,
    times_of,
    write_study,
)
from validation.sensitivity import page as sensitivity
from validation.which_sender import page as which_sender
from validation.which_sender.runs import STUDIES

RUNS = ROOT / "runs" / "studies"
ELEMENTS = ("leoem/starlink_old.tle.gz", "leoem/starlink_new.tle.gz")
"""Element sets that studies compare: snapshots by SaTCP's authors (tests/reference.toml)."""
GATEWAYS = "leoem/ground_stations.csv"
"""Gateways of the paths of SaTCP's emulator, which these studies use where they are at hand."""
OVER_GATEWAYS = ("satcp-fig7", "satcp-fig8", "satcp-fig9", "satcp-table1", "satcp-table2")


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY...", help="Default: all that can run here."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; default: one per core.")] = None,
    policy: Policies = None,
    texts: Annotated[
        bool, typer.Option("--texts", help="Run nothing; write the studies' prose again.")
    ] = False,
) -> int:
    """Run the studies and write the pages."""
    if texts:
        renew_texts()
        return 0
    try:
        failed = run_all(names or [], jobs, cards_of(policy))
    except KeyboardInterrupt:
        print_error("interrupted; the same command continues from here")
        return EXIT_FAILED
    if failed:
        print_error(f"runs failed in {', '.join(failed)}: see failures.json below {RUNS}")
    return EXIT_FAILED if failed else 0


def run_all(
    named: list[str], jobs: int | None, policies: Mapping[str, Path] | None = None
) -> list[str]:
    """Run the named studies, or all that can run; return the names of those whose runs failed.

    `policies` are the cards of learned senders by name, for studies with claims about them.
    """
    measured_paths.make()
    names, failed = list(named), []
    for entry in list_studies() if not named else ():
        if lacking := missing_requirement(find_study(entry.name)):
            print_note(f"{entry.name}: left out: {lacking}")
        else:
            names.append(entry.name)
    left = RemainingStudies({name: simulated_s(name) for name in names}, times_of(all_sections()))
    for place, name in enumerate(names, start=1):
        print_note(f"{place} of {len(names)} studies{left.time_left()}")
        study = reproduce(name, jobs, policies or {})
        left.done(name, study.took_s)
        # Each page is written immediately, so that a later failure loses no finished study.
        write_pages(study)
        if study.done.failures:
            failed.append(name)
    return failed


def missing_requirement(file: Path) -> str | None:
    """Return the measurement or program that a study needs and this machine lacks, or `None`."""
    planned = load_study(file)
    study, kind = planned.file, planned.kind
    if kind is BROWSER:
        try:
            check_programs()
        except RunError as error:
            return str(error)
        return None
    if isinstance(kind, TableKind):
        return None if has_data(file) else "its data or libraries are not here"
    if kind.compares_elements:
        return None if elements() is not None else "its element sets are not here"
    points = [point for axis in study.axis for point in (axis.points or {}).values()]
    paths = [path for point in points if isinstance(path := point.get("path"), dict)]
    named = [str(path["file"]) for path in paths if "file" in path]
    gone = [n for n in named if not ((file.parent / n).is_file() or Path(n).is_file())]
    return f"{gone[0]} is not here" if gone else None


def elements() -> tuple[Path, Path] | None:
    """Return the older and the newer element sets; `None` if one is missing."""
    old, new = (found(name) for name in ELEMENTS)
    return (old, new) if old and new else None


def has_data(file: Path) -> bool:
    """Return whether a study without scenarios has its data and the libraries of its models."""
    from skyhop_lab.predict.kinds import trainers

    modules = {name for trainer in trainers().values() for name in trainer.libraries}
    if not all(importlib.util.find_spec(name) for name in modules):
        return False
    data = [run.resolved["data"] for run in load_study(file).runs()]
    named = {name for of in data for name in ([of] if isinstance(of, str) else of)}
    return all(find_data(name, file.parent).exists() for name in named)


def reproduce(name: str, jobs: int | None, policies: Mapping[str, Path]) -> Reproduced:
    """Run one study and write its report."""
    file = find_study(name)
    named = {claim.policy.lower() for claim in load_study(file).file.claim}
    cards = {key: card for key, card in policies.items() if key.lower() in named}
    study = load_study(file, cards, sets_of(name))
    compared = elements() if study.kind.compares_elements else None
    print_note(f"{name}: {study.run_count} runs")
    with timed(name), progress_bar(name) as progress:
        done = run_study(
            study,
            RUNS / name,
            jobs=jobs,
            elements=compared,
            reuse=others(name),
            progress=progress,
        )
        verdicts = judge(study.claims, done.results)
        report = write_study_report(done, verdicts)
    took_s = time_taken(name)
    print_note(f"{name}: {'' if took_s is None else f'{took_s:.0f} s; '}{report}")
    return Reproduced(name, done, verdicts, took_s)


def sets_of(name: str) -> list[str]:
    """Return the overrides of a study's scenario: the gateways of the paper's emulator."""
    gateways = found(GATEWAYS) if name in OVER_GATEWAYS else None
    return [f"path.gateways={gateways}"] if gateways else []


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Add the block's duration to the study's recorded duration, if the block did any new runs."""
    before_s = time_taken(name) if (RUNS / name).exists() else 0.0
    runs, started_s = runs_in(name), time.monotonic()
    if before_s == 0.0:
        RUNS.mkdir(parents=True, exist_ok=True)
        took_file(name).write_text("0", "utf-8")
    try:
        yield
    finally:
        if before_s is not None and (before_s == 0.0 or runs_in(name) > runs):
            took_s = before_s + time.monotonic() - started_s
            took_file(name).write_text(f"{took_s:.3f}", "utf-8")


def time_taken(name: str) -> float | None:
    """Return a study's duration in s over all its sessions; `None` if it was not recorded."""
    file = took_file(name)
    text = file.read_text("utf-8") if file.exists() else ""
    # The file is empty if the disk was full.
    return float(text) if text else None


def took_file(name: str) -> Path:
    """Return the file that records a study's duration over all its sessions."""
    return RUNS / f"{name}.took_s"


def runs_in(name: str) -> int:
    """Return the number of runs in a study's directory."""
    return sum(1 for _ in (RUNS / name / "runs").glob("*"))


class RemainingStudies:
    """Studies that are still to be run, and the expected duration."""

    def __init__(self, simulated_s: Mapping[str, float], times_s: Mapping[str, float]) -> None:
        """Expect each study's previous duration, or one in proportion to its simulated time."""
        timed = [name for name in simulated_s if name in times_s]
        length_s = sum(simulated_s[name] for name in timed)
        pace = sum(times_s[name] for name in timed) / length_s if length_s else None
        self._left_s = {
            name: times_s[name] if name in times_s else pace and long_s * pace
            for name, long_s in simulated_s.items()
        }
        self._expected_s = self._spent_s = 0.0

    def done(self, name: str, took_s: float | None) -> None:
        """Count a study as finished; `took_s` is its duration, or `None` if unknown."""
        expected_s = self._left_s.pop(name)
        if took_s is not None and expected_s:
            self._expected_s += expected_s
            self._spent_s += took_s

    def time_left(self) -> str:
        """Return, as text, the expected duration of the remaining studies; "" if unknown."""
        left_s = [expected_s for expected_s in self._left_s.values() if expected_s is not None]
        if len(left_s) < len(self._left_s):
            return ""
        # This machine may be faster or slower than the machine of the previous durations.
        scale = self._spent_s / self._expected_s if self._expected_s else 1.0
        return f"; about {sum(left_s) * scale / 60:,.0f} min are left"


def simulated_s(name: str) -> float:
    """Return the simulated time of a study in s, summed over all flows."""
    if isinstance(load_study(find_study(name)).kind, TableKind):
        # The study simulates no flow; only the pages know its duration.
        return 0.0
    return sum(
        seconds(run.resolved["run"]["duration"]) * max(len(run.resolved.get("flow", [])), 1)
        for run in load_study(find_study(name)).runs()
    )


def write_pages(study: Reproduced) -> None:
    """Write the pages that a study's results are on."""
    write_study(study)
    made = Provenance(build(), f"{datetime.now(UTC):%Y-%m-%d}")
    if study.name in sensitivity.STUDIES:
        sensitivity.renew(study.name, study.done.results, made)
    if study.name in STUDIES:
        which_sender.renew(study.name, study.done.results, made)


def others(name: str) -> list[Path]:
    """Return the directories of other studies that have been run, as their runs may be reused."""
    return [mark.parent for mark in sorted(RUNS.glob("*/study.json")) if mark.parent.name != name]
