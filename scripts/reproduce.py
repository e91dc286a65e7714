"""Runs the studies that come with skyhop, and writes what came out to docs/reproduced.md."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import measured_paths
import which_sender
from reference import found

from skyhop.analysis.tables import Table
from skyhop.cli.terminal import print_error, print_note
from skyhop.data.files import write_file
from skyhop.data.progress import progress_bar
from skyhop.data.quantities import seconds
from skyhop.errors import RunError, SkyhopError
from skyhop.report import figures_directory, write_study_report
from skyhop.study import StudyRun, load_study, run_study
from skyhop.study.catalogue import find_study, list_studies
from skyhop.study.claims import ClaimResult, judge
from skyhop.study.file import TablePanel
from skyhop.study.others import OTHERS
from skyhop.study.page import numbers_text, verdict_text
from skyhop.study.plan import describe
from skyhop.study.prediction import find_data
from skyhop.study.tables import table_of
from skyhop.video.browser.watching import check_programs

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "studies"
PAGE = ROOT / "docs" / "reproduced.md"
ANSWER = ROOT / "docs" / "which-sender.md"

HEAD = """\
# Published results, run again

Written by `make reproduce`; do not edit. The studies are in [studies/](../studies), and
[studies.md](studies.md) says how they work. Each has a report in runs/studies/ once it ran.
With names, `.venv/bin/python scripts/reproduce.py STUDY …`, it runs those, and replaces what
stands here of them.

A build is named by a digest of the sources that decide what a simulated run comes to, as they lay
there when the study was run: the crates below the engines and the simulator with their parameters,
`cc/`, `data/`, and `Cargo.lock`. What measures runs and judges claims is not in it.
"""
SIMULATOR = ("cc", "data", "Cargo.lock", "Cargo.toml")
"""What decides what a simulated run comes to, beside crates/ …"""
NOT_SIMULATOR = {"gym", "host", "kernel", "live", "needs", "policyd", "python", "signald"}
"""… but for these crates, whatever they hold …"""
NO_SOURCES = {"tests", "benches", "tests.rs", "proptest-regressions", "README.md"}
"""… and for files and directories called so."""
ELEMENTS = ("leoem/starlink_old.tle.gz", "leoem/starlink_new.tle.gz")
"""What studies of element sets compare: snapshots of SaTCP's authors (tests/reference.toml)."""
MARK = re.compile(
    r"^<!-- (?P<name>\S+): build (?P<core>\w+), (?P<runs>\d+) runs(?: in (?P<took>\d+) s)?, "
    r"(?P<holds>\d+) hold, (?P<fails>\d+) do not, (?P<unknown>\d+) cannot be told -->$",
    re.MULTILINE,
)
"""What stands before each study of the page."""


@dataclass(frozen=True)
class Picture:
    """A figure of a study that stands in the documents."""

    figure: str
    """Among the study's figures: a pattern that one of them matches."""
    file: str


PICTURES = {
    "leo-fig1": [Picture("*-figure-1a-*.png", "leo-fig1.png")],
    which_sender.STUDY: [
        Picture("*-goodput-alone-fifo.png", "which-sender-goodput.png"),
        Picture("*-delay-inflation-alone-fifo.png", "which-sender-delay.png"),
        Picture("*-share-beside-cubic-fifo.png", "which-sender-share.png"),
    ],
}


@dataclass(frozen=True)
class Reproduced:
    """A study that has been run."""

    name: str
    done: StudyRun
    verdicts: list[ClaimResult]
    took_s: float | None = None
    """How long it took, with what it took before it went on; None where that is not known."""


def main() -> int:
    """Run the studies and write the page."""
    try:
        measured_paths.make()
        known = [entry.name for entry in list_studies() if is_whole(find_study(entry.name))]
    except (SkyhopError, OSError) as error:
        print_error(str(error))
        return 1
    parser = argparse.ArgumentParser(description=__doc__)
    every = f"{', '.join(known)}; all of them where none is given"
    parser.add_argument("names", nargs="*", metavar="STUDY", help=every)
    parser.add_argument("--jobs", type=int, help="runs at a time; one per core where not given")
    arguments = parser.parse_args()
    ran = []
    try:
        names = arguments.names or known
        for entry in list_studies() if not arguments.names else ():
            if entry.name not in known:
                print_note(f"{entry.name}: left out: {lacking(find_study(entry.name))}")
        left = Left({name: simulated_s(name) for name in names}, times_of(read_sections(page())))
        for place, name in enumerate(names, start=1):
            print_note(f"{place} of {len(names)} studies{left.told()}")
            ran.append(reproduce(name, arguments.jobs))
            left.done(name, ran[-1].took_s)
            # What has been run stands there, whatever becomes of the rest.
            write_page(ran[-1])
    except (SkyhopError, OSError) as error:
        print_error(str(error))
        return 1
    except KeyboardInterrupt:
        print_error("interrupted; the same command goes on from here")
        return 1
    failed = [study.name for study in ran if study.done.failures]
    if failed:
        print_error(f"runs failed in {', '.join(failed)}: see failures.json below {RUNS}")
    return 1 if failed else 0


def is_whole(file: Path) -> bool:
    """Return whether a study can be run with what is here."""
    return lacking(file) is None


def lacking(file: Path) -> str | None:
    """Return what a study lacks here: others' measurements may be missing, or programs."""
    study = load_study(file).file
    if study.engine == "browser":
        return no_browser()
    if study.engine in OTHERS:
        return None if has_data(file) else "its data or libraries are not here"
    if study.engine == "elements":
        return None if elements() is not None else "its element sets are not here"
    points = [point for axis in study.axis for point in (axis.points or {}).values()]
    paths = [path for point in points if isinstance(path := point.get("path"), dict)]
    named = [str(path["file"]) for path in paths if "file" in path]
    gone = [n for n in named if not ((file.parent / n).is_file() or Path(n).is_file())]
    return f"{gone[0]} is not here" if gone else None


def no_browser() -> str | None:
    """Return which program is missing that studies in a browser need."""
    try:
        check_programs()
    except RunError as error:
        return str(error)
    return None


def elements() -> tuple[Path, Path] | None:
    """Return the older and the newer element sets; None where one is missing."""
    old, new = (found(name) for name in ELEMENTS)
    return (old, new) if old and new else None


def has_data(file: Path) -> bool:
    """Return whether a study without scenarios has its data, and models their libraries."""
    from skyhop.predict.models import kinds

    modules = {name for kind in kinds().values() for name in kind.libraries}
    if not all(importlib.util.find_spec(name) for name in modules):
        return False
    data = [run.resolved["data"] for run in load_study(file).runs()]
    named = {name for of in data for name in ([of] if isinstance(of, str) else of)}
    return all(find_data(name, file.parent).exists() for name in named)


def reproduce(name: str, jobs: int | None) -> Reproduced:
    """Run one study and write its report."""
    study = load_study(find_study(name))
    compared = elements() if study.file.engine == "elements" else None
    print_note(f"{name}: {study.run_count} runs")
    with timed(name), progress_bar(name) as progress:
        done = run_study(
            study,
            RUNS / name,
            jobs=jobs,
            elements=compared,
            reuse=beside(name),
            progress=progress,
        )
        verdicts = judge(study.claims, done.results)
        report = write_study_report(done, verdicts)
    took_s = time_taken(name)
    print_note(f"{name}: {'' if took_s is None else f'{took_s:.0f} s; '}{report}")
    return Reproduced(name, done, verdicts, took_s)


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Add to the time that a study has taken, however this ends, unless no run was missing."""
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
    """Return for how long a study has been run, in s; None where nobody has written that down."""
    file = took_file(name)
    text = file.read_text("utf-8") if file.exists() else ""
    # A full disk leaves it empty.
    return float(text) if text else None


def took_file(name: str) -> Path:
    """Return where the time stands that a study has taken, over all the times that it went on."""
    return RUNS / f"{name}.took_s"


def runs_in(name: str) -> int:
    """Return how many runs a study has in its directory."""
    return sum(1 for _ in (RUNS / name / "runs").glob("*"))


class Left:
    """What is left to be run, and how long that will take."""

    def __init__(self, simulated_s: Mapping[str, float], times_s: Mapping[str, float]) -> None:
        """Expect of studies the times that they took before, of others what their length says."""
        timed = [name for name in simulated_s if name in times_s]
        length_s = sum(simulated_s[name] for name in timed)
        pace = sum(times_s[name] for name in timed) / length_s if length_s else None
        self._left_s = {
            name: times_s[name] if name in times_s else pace and long_s * pace
            for name, long_s in simulated_s.items()
        }
        self._expected_s = self._spent_s = 0.0

    def done(self, name: str, took_s: float | None) -> None:
        """Count a study as run, in so long if it had to be."""
        expected_s = self._left_s.pop(name)
        if took_s is not None and expected_s:
            self._expected_s += expected_s
            self._spent_s += took_s

    def told(self) -> str:
        """Return how long the rest will take; nothing where nothing is known of it."""
        left_s = [expected_s for expected_s in self._left_s.values() if expected_s is not None]
        if len(left_s) < len(self._left_s):
            return ""
        # This machine may be faster or slower than that of before.
        scale = self._spent_s / self._expected_s if self._expected_s else 1.0
        return f"; about {sum(left_s) * scale / 60:,.0f} min are left"


def times_of(sections: Mapping[str, str]) -> dict[str, float]:
    """Return how long studies took, as the page has it."""
    marks = [mark for text in sections.values() if (mark := MARK.match(text))]
    return {mark["name"]: float(mark["took"]) for mark in marks if mark["took"]}


def simulated_s(name: str) -> float:
    """Return how long a study's flows run in all."""
    if load_study(find_study(name)).file.engine in OTHERS:
        # Nothing is simulated; how long it took before is known of the page.
        return 0.0
    return sum(
        seconds(run.resolved["run"]["duration"]) * max(len(run.resolved.get("flow", [])), 1)
        for run in load_study(find_study(name)).runs()
    )


def write_page(study: Reproduced) -> None:
    """Put a study into the page in the place of what was there of it."""
    sections = read_sections(page())
    name = study.name
    took_s = study.took_s or times_of(sections).get(name)
    time_taken = f" in {took_s:.0f} s" if took_s else ""
    verdicts = Counter(result.verdict for result in study.verdicts)
    mark = (
        f"<!-- {name}: build {build()}, {study.done.study.run_count} runs{time_taken}, "
        f"{verdicts['holds']} hold, {verdicts['does not hold']} do not, "
        f"{verdicts['cannot be told']} cannot be told -->"
    )
    sections[name] = "\n".join([mark, *section(study)])
    ordered = [sections[entry.name] for entry in list_studies() if entry.name in sections]
    # What stands there of other studies stands nowhere else: it is whole at any moment.
    write_file(PAGE, "\n".join([HEAD, *overview(ordered), *ordered]).encode())
    if name == which_sender.STUDY:
        further = {
            label: anchor(load_study(find_study(of)).file.title)
            for label, of in which_sender.FURTHER.items()
        }
        links = which_sender.Links(anchor(study.done.study.file.title), further)
        write_file(ANSWER, which_sender.page(study.done, links).encode())
    for picture in PICTURES.get(name, ()):
        drawn = figures_directory(RUNS / name / "report.html")
        # There is none where its runs failed.
        for figure in drawn.glob(picture.figure):
            write_file(ROOT / "docs" / picture.file, figure.read_bytes())


@cache
def build() -> str:
    """Return what names the simulator: a digest of the sources that decide what runs come to."""
    crates = [crate for crate in (ROOT / "crates").iterdir() if crate.name not in NOT_SIMULATOR]
    roots = [*crates, *(ROOT / name for name in SIMULATOR)]
    files = {file for root in roots for file in (root, *root.rglob("*")) if file.is_file()}
    digest = hashlib.sha256()
    for name in sorted(file.relative_to(ROOT) for file in files):
        if NO_SOURCES.isdisjoint(name.parts):
            content = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
            digest.update(f"{name.as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]


def page() -> str:
    """Return what the page has now."""
    return PAGE.read_text("utf-8") if PAGE.exists() else ""


def read_sections(page: str) -> dict[str, str]:
    """Return what a page has of each study, by its name."""
    marks = list(MARK.finditer(page))
    ends = [*(mark.start() for mark in marks[1:]), len(page)]
    return {
        mark["name"]: page[mark.start() : end].rstrip("\n") + "\n"
        for mark, end in zip(marks, ends, strict=False)
    }


def overview(sections: Sequence[str]) -> Iterator[str]:
    """Yield the lines about all studies, and whether one build made them all."""
    marks = [mark for text in sections if (mark := MARK.match(text))]
    cores = sorted({mark["core"] for mark in marks})
    yield (
        "All of it was made by one build."
        if len(cores) == 1
        else f"Made by {len(cores)} builds: {', '.join(cores)}."
    )
    yield "\n| study | runs | claims that hold | that do not | that cannot be told |"
    yield "|---|---|---|---|---|"
    for mark, text in zip(marks, sections, strict=True):
        title = text.split("## ", 1)[1].split("\n", 1)[0]
        build = "" if len(cores) == 1 else f" ({mark['core']})"
        yield (
            f"| [{title}](#{anchor(title)}){build} | {int(mark['runs']):,} | {mark['holds']} "
            f"| {mark['fails']} | {mark['unknown']} |"
        )
    yield ""


def anchor(title: str) -> str:
    """Return where Markdown's readers put a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def beside(name: str) -> list[Path]:
    """Return where other studies have been run: some have runs in common."""
    return [mark.parent for mark in sorted(RUNS.glob("*/study.json")) if mark.parent.name != name]


def section(study: Reproduced) -> Iterator[str]:
    """Yield the lines about one study: claims, then the tables that have published values."""
    file = study.done.study.file
    yield f"## {file.title}\n"
    yield f"{file.question}\n"
    if file.source:
        yield f"Beside: {file.source}.\n"
    for failure in study.done.failures:
        yield f"- failed: {failure}"
    if study.verdicts:
        yield "| claim | verdict | what came out |\n|---|---|---|"
        for result in study.verdicts:
            yield f"| {result.claim.text} | {verdict_text(result)} | {numbers(result)} |"
        yield ""
    published = {published.metric for published in file.published}
    for panel in file.panel:
        if isinstance(panel, TablePanel) and published & set(panel.metrics):
            yield markdown(table_of(panel, study.done.study, study.done.results).table)
    yield from (f"- {note}" for note in file.notes)
    yield ""


def numbers(result: ClaimResult) -> str:
    """Write what each comparison of a claim came to, and its note; nothing where it has none."""
    if result.unasked:
        return ""
    found = []
    for finding in result.findings:
        where = f"{describe(finding.at)}: " if finding.at else ""
        found.append(where + numbers_text(finding))
    if result.claim.note:
        found.append(f"*{result.claim.note}*")
    return "<br>".join(found)


def markdown(table: Table) -> str:
    """Return a report's table as Markdown, its headings in one row."""
    groups = [name for name, span in table.groups for _ in range(span)]
    titles = [
        f"{group}, {column.title}" if group else column.title
        for group, column in zip(groups, table.columns, strict=True)
    ]
    lines = [titles, ["---"] * len(titles), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
