"""Run the studies that come with skyhop, and write their verdicts to docs/results/reproduced/.

The page of verdicts, index.md, is made from the papers' pages and papers.toml. Each paper's page
has the details of its studies. A run of one of the studies of docs/results/which-sender.md also
updates that page's data.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import sys
import textwrap
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path

import measured_paths
import which_sender
import which_sender_runs
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
from skyhop.study.file import Claim, StudyFile, read_study_file
from skyhop.study.page import numbers_text, verdict_text
from skyhop.study.panel_kinds import TablePanel
from skyhop.study.run_ids import describe
from skyhop.study.table_runs import TableKind, find_data
from skyhop.study.tables import table_of
from skyhop_lab.browser.study_runs import BROWSER
from skyhop_lab.browser.watching import check_programs

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "studies"
PAGES = ROOT / "docs" / "results" / "reproduced"
PAPERS = Path(__file__).with_name("papers.toml")

VERDICTS = """\
# Reproduced papers

Written by `make reproduce` from the papers' pages and scripts/papers.toml; do not edit.

Of {claims} claims of five papers and of skyhop's own studies {holds} hold, {fails} do not hold, and
{unknown} cannot be told. A claim is a sentence of a paper, or one of ours, written as a comparison
that a program checks. It holds only if it holds on every path and with every setting that it names.
"""
DETAILS = """\
# {name}: studies and claims

Written by `make reproduce`; do not edit. [Reproduced papers](index.md) has the verdicts in short;
[the study file](../../reference/study-file.md) says how studies work.
`.venv/bin/python scripts/reproduce.py STUDY …` runs single studies again and replaces their
sections here.

{citation}

A build is named by a digest of the sources that decide the result of a simulated run, as they were
when the study was run: the crates of the simulator and below it with their parameters, `cc/`,
`data/`, and `Cargo.lock`. Code that measures runs or judges claims is not in it.
"""
SIMULATOR = ("cc", "data", "Cargo.lock", "Cargo.toml")
"""Source directories and files that determine the result of a simulated run, in addition to those
in crates/.
"""
NOT_SIMULATOR = {"gym", "host", "kernel", "live", "needs", "policyd", "python", "signald"}
"""Crates that do not influence simulated results and are left out of the digest."""
NO_SOURCES = {"tests", "benches", "tests.rs", "proptest-regressions", "README.md"}
"""Files and directories within crates that are left out of the digest."""
ELEMENTS = ("leoem/starlink_old.tle.gz", "leoem/starlink_new.tle.gz")
"""Element sets that studies compare: snapshots by SaTCP's authors (tests/reference.toml)."""
MARK = re.compile(
    r"^<!-- (?P<name>\S+): build (?P<core>\w+), (?P<runs>\d+) runs(?: in (?P<took>\d+) s)?, "
    r"(?P<holds>\d+) hold, (?P<fails>\d+) do not, (?P<unknown>\d+) cannot be told -->$",
    re.MULTILINE,
)
"""Comment before each study on a page: its build, number of runs, duration and verdicts."""
CLAIMS = "| claim | verdict | numbers |"
OPEN = "cannot be told: "
WIDTH = 120
"""Upper limit on the length of lines in the pages, outside tables, in characters."""


@dataclass(frozen=True)
class Paper:
    """Paper, or group of skyhop's own studies: an entry of papers.toml."""

    page: str
    """File name of the paper's page, without suffix."""
    name: str
    citation: str
    studies: tuple[str, ...]
    holds: str
    """Summary, in a sentence, of the claims that hold."""
    fails: str
    """Summary of the claims that do not hold, and why."""
    unknown: str = ""
    """Summary of the claims that cannot be decided, and why; empty if there are none."""

    @property
    def file(self) -> Path:
        """Path of the page with the details of the paper's studies."""
        return PAGES / f"{self.page}.md"


def papers() -> list[Paper]:
    """Read papers.toml; papers are in the order in which the page of verdicts lists them."""
    entries = tomllib.loads(PAPERS.read_text("utf-8"))["paper"]
    return [Paper(**{**entry, "studies": tuple(entry["studies"])}) for entry in entries]


def paper_of(name: str) -> Paper:
    """Return the paper that a study belongs to.

    Raises:
        SkyhopError: papers.toml does not name the study.
    """
    found = [paper for paper in papers() if name in paper.studies]
    if not found:
        raise SkyhopError(f"{PAPERS.name} names no paper for the study {name}; add it to one")
    return found[0]


@dataclass(frozen=True)
class Picture:
    """Figure of a study that the documentation shows."""

    figure: str
    """Glob pattern of the figure's file name in the study's report."""
    file: str


PICTURES = {
    "leo-fig1": [Picture("*-figure-1a-*.png", "leo-fig1.png")],
}


@dataclass(frozen=True)
class Reproduced:
    """Study that has been run, and its verdicts."""

    name: str
    done: StudyRun
    verdicts: list[ClaimResult]
    took_s: float | None = None
    """Duration in s, summed over all sessions in which the study was run; `None` if unknown."""


def main() -> int:
    """Run the studies and write the pages."""
    if sys.argv[1:] == ["--texts"]:
        renew_texts()
        return 0
    try:
        measured_paths.make()
        known = [entry.name for entry in list_studies() if can_run(find_study(entry.name))]
    except (SkyhopError, OSError) as error:
        print_error(str(error))
        return 1
    parser = argparse.ArgumentParser(description=__doc__)
    every = f"{', '.join(known)}; all of them where none is given"
    parser.add_argument("names", nargs="*", metavar="STUDY", help=every)
    parser.add_argument("--jobs", type=int, help="runs at a time; one per core where not given")
    parser.add_argument(
        "--texts", action="store_true", help="run nothing; write the studies' prose again (alone)"
    )
    arguments = parser.parse_args()
    ran = []
    try:
        names = arguments.names or known
        for entry in list_studies() if not arguments.names else ():
            if entry.name not in known:
                print_note(f"{entry.name}: left out: {missing_requirement(find_study(entry.name))}")
        left = RemainingStudies(
            {name: simulated_s(name) for name in names}, times_of(all_sections())
        )
        for place, name in enumerate(names, start=1):
            print_note(f"{place} of {len(names)} studies{left.time_left()}")
            ran.append(reproduce(name, arguments.jobs))
            left.done(name, ran[-1].took_s)
            # Each page is written immediately, so that a later failure loses no finished study.
            write_page(ran[-1])
    except (SkyhopError, OSError) as error:
        print_error(str(error))
        return 1
    except KeyboardInterrupt:
        print_error("interrupted; the same command continues from here")
        return 1
    failed = [study.name for study in ran if study.done.failures]
    if failed:
        print_error(f"runs failed in {', '.join(failed)}: see failures.json below {RUNS}")
    return 1 if failed else 0


def can_run(file: Path) -> bool:
    """Return whether this machine has everything that a study needs."""
    return missing_requirement(file) is None


def missing_requirement(file: Path) -> str | None:
    """Return the measurement or program that a study needs and this machine lacks, or `None`."""
    planned = load_study(file)
    study, kind = planned.file, planned.kind
    if kind is BROWSER:
        return no_browser()
    if isinstance(kind, TableKind):
        return None if has_data(file) else "its data or libraries are not here"
    if kind.compares_elements:
        return None if elements() is not None else "its element sets are not here"
    points = [point for axis in study.axis for point in (axis.points or {}).values()]
    paths = [path for point in points if isinstance(path := point.get("path"), dict)]
    named = [str(path["file"]) for path in paths if "file" in path]
    gone = [n for n in named if not ((file.parent / n).is_file() or Path(n).is_file())]
    return f"{gone[0]} is not here" if gone else None


def no_browser() -> str | None:
    """Return why studies in a browser cannot run here (a missing program), or `None`."""
    try:
        check_programs()
    except RunError as error:
        return str(error)
    return None


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


def reproduce(name: str, jobs: int | None) -> Reproduced:
    """Run one study and write its report."""
    study = load_study(find_study(name))
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


def times_of(sections: Mapping[str, str]) -> dict[str, float]:
    """Return the durations of studies in s that the pages record."""
    marks = marks_of(sections.values())
    return {mark["name"]: float(mark["took"]) for mark in marks if mark["took"]}


def simulated_s(name: str) -> float:
    """Return the simulated time of a study in s, summed over all flows."""
    if isinstance(load_study(find_study(name)).kind, TableKind):
        # The study simulates no flow; only the pages know its duration.
        return 0.0
    return sum(
        seconds(run.resolved["run"]["duration"]) * max(len(run.resolved.get("flow", [])), 1)
        for run in load_study(find_study(name)).runs()
    )


def write_page(study: Reproduced) -> None:
    """Replace a study's section in its paper's page, and write the page of verdicts."""
    name = study.name
    paper = paper_of(name)
    sections = sections_of(paper)
    took_s = study.took_s or times_of(sections).get(name)
    time_taken = f" in {took_s:.0f} s" if took_s else ""
    verdicts = Counter(result.verdict for result in study.verdicts)
    mark = (
        f"<!-- {name}: build {build()}, {study.done.study.run_count} runs{time_taken}, "
        f"{verdicts['holds']} hold, {verdicts['does not hold']} do not, "
        f"{verdicts['cannot be told']} cannot be told -->"
    )
    sections[name] = "\n".join([mark, *section(study)])
    write_paper(paper, sections)
    write_verdicts()
    if name in which_sender_runs.STUDIES:
        made = which_sender_runs.Provenance(build(), f"{datetime.now(UTC):%Y-%m-%d}")
        which_sender.renew(name, study.done.results, made)
    for picture in PICTURES.get(name, ()):
        drawn = figures_directory(RUNS / name / "report.html")
        # No figure exists if the study's runs failed.
        for figure in drawn.glob(picture.figure):
            write_file(ROOT / "docs" / picture.file, figure.read_bytes())


def write_paper(paper: Paper, sections: Mapping[str, str]) -> None:
    """Write the page of a paper from the sections of its studies."""
    ordered = [sections[name] for name in paper.studies if name in sections]
    head = wrapped(DETAILS.format(name=paper.name, citation=paper.citation))
    paper.file.parent.mkdir(parents=True, exist_ok=True)
    # The page is written as a whole and atomically, as the sections of other studies exist only
    # there.
    write_file(paper.file, "\n".join([head, *overview(ordered), *ordered]).encode())


def write_verdicts() -> None:
    """Write the page of verdicts, from the pages of all papers."""
    write_file(PAGES / "index.md", verdicts_page().encode())


def verdicts_page() -> str:
    """Return the page of verdicts: a table, then what holds and what fails for each paper."""
    counted = [(paper, tally(sections_of(paper).values())) for paper in papers()]
    total = sum((counts for _, counts in counted), Counter[str]())
    numbers = {key: total[key] for key in ("claims", "holds", "fails", "unknown")}
    lines = [
        wrapped(VERDICTS.format(**numbers)),
        "| paper | claims | hold | do not hold | cannot be told | runs |",
        "|---|---|---|---|---|---|",
    ]
    for paper, counts in counted:
        lines.append(
            f"| [{paper.name}](#{anchor(paper.name)}) | {counts['claims']} | {counts['holds']} "
            f"| {counts['fails']} | {counts['unknown']} | {counts['runs']:,} |"
        )
    for paper, counts in counted:
        lines += ["", *verdict(paper, counts)]
    marks = [mark for paper in papers() for mark in marks_of(sections_of(paper).values())]
    cores = sorted({mark["core"] for mark in marks})
    builds = f"{len(cores)} builds" if len(cores) > 1 else "one build"
    text = f"All runs are by {builds} ({', '.join(cores)}); each page names the build of a study."
    return "\n".join([*lines, "", wrapped(text), ""])


def verdict(paper: Paper, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines on one paper for the page of verdicts."""
    yield f"## {paper.name}\n"
    yield f"{wrapped(paper.citation)}\n"
    yield wrapped(f"- **Holds** ({counts['holds']}): {paper.holds}")
    yield wrapped(f"- **Does not hold** ({counts['fails']}): {paper.fails}")
    if paper.unknown:
        yield wrapped(f"- **Cannot be told** ({counts['unknown']}): {paper.unknown}")
    yield f"\n[Every claim and its numbers, {len(paper.studies)} studies]({paper.page}.md)"


def anchor(title: str) -> str:
    """Return the anchor that Markdown processors give to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def tally(sections: Iterable[str]) -> Counter[str]:
    """Return the numbers of runs, of claims and of each verdict over sections of studies."""
    found: Counter[str] = Counter()
    for mark in marks_of(sections):
        found["runs"] += int(mark["runs"])
        for key in ("holds", "fails", "unknown"):
            found[key] += int(mark[key])
            found["claims"] += int(mark[key])
    return found


def marks_of(sections: Iterable[str]) -> list[re.Match[str]]:
    """Return the comments that precede the sections of studies."""
    return [mark for text in sections if (mark := MARK.match(text))]


@cache
def build() -> str:
    """Return the simulator's build name: a digest of the sources that determine results of runs."""
    crates = [crate for crate in (ROOT / "crates").iterdir() if crate.name not in NOT_SIMULATOR]
    roots = [*crates, *(ROOT / name for name in SIMULATOR)]
    files = {file for root in roots for file in (root, *root.rglob("*")) if file.is_file()}
    digest = hashlib.sha256()
    for name in sorted(file.relative_to(ROOT) for file in files):
        if NO_SOURCES.isdisjoint(name.parts):
            content = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
            digest.update(f"{name.as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]


def all_sections() -> dict[str, str]:
    """Return the section of each study, by the study's name, from the pages of all papers."""
    return {name: text for paper in papers() for name, text in sections_of(paper).items()}


def sections_of(paper: Paper) -> dict[str, str]:
    """Return the sections of a paper's page, by the study's name."""
    return read_sections(paper.file.read_text("utf-8")) if paper.file.exists() else {}


def read_sections(page: str) -> dict[str, str]:
    """Return the section of each study on a page, by the study's name."""
    marks = list(MARK.finditer(page))
    ends = [*(mark.start() for mark in marks[1:]), len(page)]
    return {
        mark["name"]: page[mark.start() : end].rstrip("\n") + "\n"
        for mark, end in zip(marks, ends, strict=False)
    }


def overview(sections: Sequence[str]) -> Iterator[str]:
    """Yield the table of the studies on a page, and the builds that ran them."""
    marks = marks_of(sections)
    cores = sorted({mark["core"] for mark in marks})
    yield (
        f"All runs are by one build, {cores[0]}."
        if len(cores) == 1
        else f"The runs are by {len(cores)} builds: {', '.join(cores)}."
    )
    yield "\n| study | runs | claims that hold | that do not | that cannot be told |"
    yield "|---|---|---|---|---|"
    for mark, text in zip(marks, sections, strict=True):
        title = text.split("## ", 1)[1].split("\n", 1)[0]
        build = "" if len(cores) == 1 else f" ({mark['core']})"
        yield (
            f"| [{title}](#{mark['name']}){build} | {int(mark['runs']):,} | {mark['holds']} "
            f"| {mark['fails']} | {mark['unknown']} |"
        )
    yield ""


def others(name: str) -> list[Path]:
    """Return the directories of other studies that have been run, as their runs may be reused."""
    return [mark.parent for mark in sorted(RUNS.glob("*/study.json")) if mark.parent.name != name]


def section(study: Reproduced) -> Iterator[str]:
    """Yield the lines on one study: claims, then the tables that have published values."""
    file = study.done.study.file
    failures = [str(failure) for failure in study.done.failures]
    rows = [(verdict_text(result), numbers(result)) for result in study.verdicts]
    published = {published.metric for published in file.published}
    tables = [
        markdown(table_of(panel, study.done.study, study.done.results).table)
        for panel in file.panel
        if isinstance(panel, TablePanel) and published & set(panel.metrics)
    ]
    yield from section_of(study.name, file, failures, rows, tables)


def section_of(
    name: str,
    file: StudyFile,
    failures: Sequence[str],
    rows: Sequence[tuple[str, str]],
    tables: Sequence[str],
) -> Iterator[str]:
    """Yield the lines on a study, from its file and its results; claims are in the file's order."""
    yield f'<a id="{name}"></a>\n\n## {file.title}\n'
    yield wrapped(file.question) + "\n"
    if file.source:
        yield wrapped(f"Compared with: {file.source}.") + "\n"
    yield from (wrapped(f"- failed: {failure}") for failure in failures)
    if rows:
        yield f"{CLAIMS}\n|---|---|---|"
        for claim, (verdict, found) in zip(file.claim, rows, strict=True):
            note = f"*{claim.note}*" if claim.note and (found or claim.check) else ""
            is_open = verdict.startswith(OPEN) and not found
            cell = "" if is_open else "<br>".join(filter(None, (found, note)))
            yield f"| {claim.text} | {verdict} | {cell} |"
        yield ""
    yield from tables
    yield from (wrapped(f"- {note}") for note in file.notes)
    yield ""


def renew_texts() -> None:
    """Rewrite the prose on all pages from the study files; verdicts and numbers stay."""
    for paper in papers():
        sections = sections_of(paper)
        write_paper(paper, {name: renewed(name, text) for name, text in sections.items()})
    write_verdicts()


def renewed(name: str, text: str) -> str:
    """Return a section with the prose replaced from its study file.

    Raises:
        SkyhopError: the file and the section differ in the number of claims: run the study again.
    """
    file = read_study_file(find_study(name))
    mark, *lines = text.split("\n")
    blocks = [
        list(block) for is_row, block in groupby(lines, lambda line: line[:1] == "|") if is_row
    ]
    claims = blocks.pop(0)[2:] if blocks and blocks[0][0] == CLAIMS else []
    if len(claims) != len(file.claim):
        raise SkyhopError(f"{name} has other claims than its section: run it again")
    rows = [row_of(claim, line) for claim, line in zip(file.claim, claims, strict=True)]
    failures = [line.removeprefix("- failed: ") for line in lines if line.startswith("- failed: ")]
    tables = ["\n".join(block) + "\n" for block in blocks]
    return "\n".join([mark, *section_of(name, file, failures, rows, tables)])


def row_of(claim: Claim, line: str) -> tuple[str, str]:
    """Return the verdict and the numbers in a claim's row, without the old note."""
    *_, verdict, found = line.removesuffix(" |").removeprefix("| ").split(" | ")
    if found.endswith("*"):
        found = found[: max(found.rfind("<br>*"), 0)]
    if verdict.startswith(OPEN) and claim.cannot_be_told:
        verdict = f"{OPEN}{claim.cannot_be_told}"
    return verdict, found


def numbers(result: ClaimResult) -> str:
    """Return the numbers of each comparison of a claim as text; empty if there are none."""
    if result.why_unchecked:
        return ""
    return "<br>".join(
        (f"{describe(finding.at)}: " if finding.at else "") + numbers_text(finding)
        for finding in result.findings
    )


def wrapped(text: str) -> str:
    """Wrap the long lines of Markdown outside tables; list items continue under their own text."""
    lines = text.split("\n")
    return "\n".join(
        broken(line) if len(line) > WIDTH and line[0] not in "|#<" else line for line in lines
    )


def broken(line: str) -> str:
    """Break one line at spaces, so that each part is at most `WIDTH` long."""
    indent = "  " if line.startswith("- ") else ""
    return "\n".join(
        textwrap.wrap(
            line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    )


def markdown(table: Table) -> str:
    """Return a report's table as Markdown, with its headings in one row."""
    groups = [name for name, span in table.groups for _ in range(span)]
    titles = [
        f"{group}, {column.title}" if group else column.title
        for group, column in zip(groups, table.columns, strict=True)
    ]
    lines = [titles, ["---"] * len(titles), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
