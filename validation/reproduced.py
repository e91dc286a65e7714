"""Pages of docs/results/reproduced: a page per paper with its studies, and the page of verdicts.

The page of verdicts, index.md, is made from the papers' pages and papers.toml. Each study has a
section in its paper's page, after a comment with its build, runs and verdicts.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from skyhop import _core
from skyhop.analysis.tables import Table
from skyhop.data.files import write_file
from skyhop.errors import SkyhopError
from skyhop.study import StudyRun
from skyhop.study.catalogue import find_study
from skyhop.study.claims import ClaimResult
from skyhop.study.file import CAUSES, Claim, StudyFile, read_study_file
from skyhop.study.page import numbers_text, verdict_text
from skyhop.study.panel_kinds import TablePanel
from skyhop.study.run_ids import describe
from skyhop.study.tables import table_of
from validation import ROOT, pages
from validation.sensitivity.data import figures

PAGES = pages.RESULTS / "reproduced"
PAPERS = Path(__file__).with_name("papers.toml")
SIMULATOR = ("cc", "data", "Cargo.lock", "Cargo.toml")
"""Source directories and files that determine the result of a simulated run, in addition to those
in crates/.
"""
NOT_SIMULATOR = {"gym", "host", "kernel", "live", "needs", "policyd", "python", "signald"}
"""Crates that do not influence simulated results and are left out of the digest."""
NO_SOURCES = {"tests", "benches", "tests.rs", "proptest-regressions", "README.md"}
"""Files and directories within crates that are left out of the digest."""
MARK = re.compile(
    r"^<!-- (?P<name>\S+): build (?P<core>\w+), (?P<runs>\d+) runs(?: in (?P<took>\d+) s)?, "
    r"(?P<holds>\d+) hold, (?P<fails>\d+) do not, (?P<unknown>\d+) cannot be told -->$",
    re.MULTILINE,
)
"""Comment before each study on a page: its build, number of runs, duration and verdicts."""
CLAIMS = "| claim | verdict | numbers |"
OPEN = "cannot be told: "
NETWORK = "- network of the user: "
"""Beginning of the line about a learned sender's network, which does not come with skyhop."""


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
class Reproduced:
    """Study that has been run, and its verdicts."""

    name: str
    done: StudyRun
    verdicts: list[ClaimResult]
    took_s: float | None = None
    """Duration in s, summed over all sessions in which the study was run; `None` if unknown."""


# --- pages ---


def write_study(study: Reproduced) -> None:
    """Replace a study's section in its paper's page, and write the page of verdicts."""
    paper = paper_of(study.name)
    sections = sections_of(paper)
    took_s = study.took_s or times_of(sections).get(study.name)
    time_taken = f" in {took_s:.0f} s" if took_s else ""
    verdicts = Counter(result.verdict for result in study.verdicts)
    mark = (
        f"<!-- {study.name}: build {build()}, {study.done.study.run_count} runs{time_taken}, "
        f"{verdicts['holds']} hold, {verdicts['does not hold']} do not, "
        f"{verdicts['cannot be told']} cannot be told -->"
    )
    write_paper(paper, sections | {study.name: section(study, mark)})
    write_verdicts()


def write_paper(paper: Paper, sections: Mapping[str, str]) -> None:
    """Write the page of a paper from the sections of its studies."""
    ordered = [sections[name] for name in paper.studies if name in sections]
    marks = marks_of(ordered)
    studies = list(zip(marks, ordered, strict=True))
    page = pages.render(
        "paper",
        paper=paper,
        counts=tally(sections),
        causes=CAUSES,
        unexplained=list(unexplained_claims(sections)),
        is_mapped=any(figure.paper == paper.page for figure in figures()),
        builds=builds_of(marks),
        studies=studies,
        sections=ordered,
    )
    paper.file.parent.mkdir(parents=True, exist_ok=True)
    # The page is written as a whole and atomically, as the sections of other studies exist only
    # there.
    write_file(paper.file, page.encode())


def write_verdicts() -> None:
    """Write the page of verdicts, from the pages of all papers."""
    write_file(PAGES / "index.md", verdicts_page().encode())


def verdicts_page() -> str:
    """Return the page of verdicts: a table, then what holds and what fails for each paper."""
    counted = [(paper, tally(sections_of(paper))) for paper in papers()]
    builds = builds_of(marks_of(all_sections().values()))
    return pages.render(
        "reproduced",
        counted=counted,
        total=sum((counts for _, counts in counted), Counter[str]()),
        causes=CAUSES,
        builds=builds,
        builds_text=f"{len(builds)} builds" if len(builds) > 1 else "one build",
    )


def tally(sections: Mapping[str, str]) -> Counter[str]:
    """Return the numbers of runs, of claims, of each verdict, and of failed claims by cause.

    Args:
        sections: section of each study, by the study's name.
    """
    found = Counter(dict.fromkeys(("runs", "claims", "holds", "fails", "unknown", *CAUSES), 0))
    for mark in marks_of(sections.values()):
        found["runs"] += int(mark["runs"])
        for key in ("holds", "fails", "unknown"):
            found[key] += int(mark[key])
            found["claims"] += int(mark[key])
    for claim, verdict in judged_claims(sections):
        if verdict.startswith("does not hold"):
            found[claim.cause or "unexplained"] += 1
    return found


def judged_claims(sections: Mapping[str, str]) -> Iterator[tuple[Claim, str]]:
    """Yield each claim on a page that is in its study file, with the text of its verdict."""
    for name, text in sections.items():
        file = ROOT / "studies" / f"{name}.toml"
        claims = {c.text: c for c in read_study_file(file).claim} if file.is_file() else {}
        for line in claim_lines(text):
            claim = claims.get(line.removeprefix("| ").split(" | ")[0])
            if claim is not None:
                yield claim, row_of(claim, line)[0]


def unexplained_claims(sections: Mapping[str, str]) -> Iterator[Claim]:
    """Yield the claims on a page that do not hold, and for which no cause is found."""
    for claim, verdict in judged_claims(sections):
        if verdict.startswith("does not hold") and claim.cause in (None, "unexplained"):
            yield claim


# --- sections of pages ---


def marks_of(sections: Iterable[str]) -> list[re.Match[str]]:
    """Return the comments that precede the sections of studies."""
    return [mark for text in sections if (mark := MARK.match(text))]


def builds_of(marks: Iterable[re.Match[str]]) -> list[str]:
    """Return the builds that ran the studies of some sections."""
    return sorted({mark["core"] for mark in marks})


def times_of(sections: Mapping[str, str]) -> dict[str, float]:
    """Return the durations of studies in s that the pages record."""
    marks = marks_of(sections.values())
    return {mark["name"]: float(mark["took"]) for mark in marks if mark["took"]}


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


def section(study: Reproduced, mark: str) -> str:
    """Return the section of one study: claims, then the tables that have published values."""
    done, file = study.done, study.done.study.file
    published = {published.metric for published in file.published}
    tables = [
        markdown(table_of(panel, done.study, done.results).table)
        for panel in file.panel
        if isinstance(panel, TablePanel) and published & set(panel.metrics)
    ]
    rows = [(verdict_text(result), numbers(result)) for result in study.verdicts]
    failures = [str(failure) for failure in done.failures]
    networks = networks_of(done.study.policies)
    return section_text(
        study.name, mark, file, networks=networks, failures=failures, rows=rows, tables=tables
    )


def networks_of(policies: Mapping[str, Path]) -> list[str]:
    """Return a line per network of the learned senders that the user added, with its digest."""
    return [
        f"{NETWORK}{Path(file).name}: SHA-256 {digest}"
        for card in policies.values()
        for file, digest in _core.check_policy(str(card))[3].items()
        if not file.endswith(".toml")
    ]


def section_text(
    name: str,
    mark: str,
    file: StudyFile,
    *,
    networks: Sequence[str],
    failures: Sequence[str],
    rows: Sequence[tuple[str, str]],
    tables: Sequence[str],
) -> str:
    """Return the section of a study; `rows` has verdict and numbers of each claim of its file."""
    claims = []
    for claim, (verdict, found) in zip(file.claim, rows, strict=bool(rows)):
        note = claim.note if found else ""
        cause = "" if verdict.startswith("holds") else claim.cause_text
        remark = " ".join(filter(None, (note, cause)))
        cell = "<br>".join(filter(None, (found, f"*{remark}*" if remark else "")))
        claims.append((claim, verdict, cell))
    values = {"networks": networks, "failures": failures, "claims": claims, "tables": tables}
    return pages.render("study", name=name, mark=mark, file=file, **values)


def numbers(result: ClaimResult) -> str:
    """Return the numbers of each comparison of a claim as text; empty if there are none."""
    if result.why_unchecked:
        return ""
    return "<br>".join(
        (f"{describe(finding.at)}: " if finding.at else "") + numbers_text(finding)
        for finding in result.findings
    )


def markdown(table: Table) -> str:
    """Return a report's table as Markdown, with its headings in one row."""
    groups = [name for name, span in table.groups for _ in range(span)]
    titles = [
        f"{group}, {column.title}" if group else column.title
        for group, column in zip(groups, table.columns, strict=True)
    ]
    lines = [titles, ["---"] * len(titles), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- prose of pages again, without a run ---


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
    claims, blocks = claim_lines(text), table_blocks(text)
    blocks = blocks[1:] if claims else blocks
    if len(claims) != len(file.claim):
        raise SkyhopError(f"{name} has other claims than its section: run it again")
    rows = [row_of(claim, line) for claim, line in zip(file.claim, claims, strict=True)]
    failures = [line.removeprefix("- failed: ") for line in lines if line.startswith("- failed: ")]
    networks = [line for line in lines if line.startswith(NETWORK)]
    tables = ["\n".join(block) for block in blocks]
    return section_text(
        name, mark, file, networks=networks, failures=failures, rows=rows, tables=tables
    )


def claim_lines(text: str) -> list[str]:
    """Return the lines of a section's table of claims, without its head."""
    blocks = table_blocks(text)
    return blocks[0][2:] if blocks and blocks[0][0] == CLAIMS else []


def table_blocks(text: str) -> list[list[str]]:
    """Return the lines of each table in a section."""
    lines = text.split("\n")
    return [list(block) for is_row, block in groupby(lines, lambda line: line[:1] == "|") if is_row]


def row_of(claim: Claim, line: str) -> tuple[str, str]:
    """Return the verdict and the numbers in a claim's row, without the old note."""
    *_, verdict, found = line.removesuffix(" |").removeprefix("| ").split(" | ")
    if found.endswith("*"):
        found = found[: max(found.rfind("<br>*"), 0)]
    if verdict.startswith(OPEN) and claim.cannot_be_told:
        verdict = f"{OPEN}{claim.cannot_be_told}"
    return verdict, found


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
