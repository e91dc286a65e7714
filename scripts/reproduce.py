"""Runs the studies that come with skyhop, and writes what came out to docs/reproduced.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skyhop.analysis.tables import Table
from skyhop.cli.terminal import print_error, print_note
from skyhop.data.progress import progress_bar
from skyhop.errors import SkyhopError
from skyhop.report import figures_directory, write_study_report
from skyhop.study import StudyRun, load_study, run_study
from skyhop.study.catalogue import find_study, list_studies
from skyhop.study.claims import ClaimResult, judge
from skyhop.study.file import TablePanel
from skyhop.study.page import numbers_text, verdict_text
from skyhop.study.plan import describe
from skyhop.study.tables import table_of

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "studies"
PAGE = ROOT / "docs" / "reproduced.md"
PICTURE = ROOT / "docs" / "satcp-table1.png"
PICTURED = "satcp-table1"

HEAD = """\
# Published results, run again

Written by `make reproduce`; do not edit. The studies are in [studies/](../studies), and
[studies.md](studies.md) says how they work. Each has a report in runs/studies/ once it ran.
"""


@dataclass(frozen=True)
class Reproduced:
    """A study that has been run."""

    name: str
    done: StudyRun
    verdicts: list[ClaimResult]


def main() -> int:
    """Run the studies and write the page."""
    # Element sets are the user's: such a study is run with --elements by hand.
    known = [
        entry.name
        for entry in list_studies()
        if load_study(find_study(entry.name)).file.engine != "elements"
    ]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="STUDY", help=f"{', '.join(known)}; or all")
    parser.add_argument("--jobs", type=int, help="runs at a time; one per core where not given")
    arguments = parser.parse_args()
    try:
        ran = [reproduce(name, arguments.jobs) for name in arguments.names or known]
    except SkyhopError as error:
        print_error(str(error))
        return 1
    except KeyboardInterrupt:
        print_error("interrupted; the same command goes on from here")
        return 1
    if not arguments.names:
        write_page(ran)
    failed = [study.name for study in ran if study.done.failures]
    if failed:
        print_error(f"runs failed in {', '.join(failed)}: see failures.json below {RUNS}")
    return 1 if failed else 0


def reproduce(name: str, jobs: int | None) -> Reproduced:
    """Run one study and write its report."""
    study = load_study(find_study(name))
    started_s = time.monotonic()
    print_note(f"{name}: {study.run_count} runs")
    with progress_bar(name) as progress:
        done = run_study(study, RUNS / name, jobs=jobs, progress=progress)
    verdicts = judge(study.claims, done.results)
    page = write_study_report(done, verdicts)
    print_note(f"{name}: {time.monotonic() - started_s:.0f} s; {page}")
    return Reproduced(name, done, verdicts)


def write_page(ran: list[Reproduced]) -> None:
    """Write the page about all studies, and the README's picture."""
    PAGE.write_text("\n".join([HEAD, *(part for study in ran for part in section(study))]), "utf-8")
    bars = sorted(figures_directory(RUNS / PICTURED / "report.html").glob("*-goodput-with-*.png"))
    PICTURE.write_bytes(bars[0].read_bytes())
    print_note(f"{PAGE}\n{PICTURE}")


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
    """Write what each comparison of a claim came to."""
    found = []
    for finding in result.findings:
        where = f"{describe(finding.at)}: " if finding.at else ""
        found.append(where + numbers_text(finding))
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
