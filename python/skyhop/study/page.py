"""What the page about a study says: facts, failures, verdicts, how to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import skyhop
from skyhop.analysis.tables import three_digits
from skyhop.data.toml import toml_text
from skyhop.study.claims import ClaimResult, Finding
from skyhop.study.plan import Study, core_digest, describe
from skyhop.study.running import StudyRun

_FINDINGS_SHOWN = 40
_FAILURES_SHOWN = 10


@dataclass(frozen=True)
class ShownFinding:
    """What came out at one of a claim's values."""

    at: str
    verdict: str
    numbers: str


@dataclass(frozen=True)
class ShownClaim:
    """A claim, its verdict, and the numbers behind it."""

    text: str
    check: str
    note: str
    verdict: str
    findings: Sequence[ShownFinding]
    more: int
    """Findings beyond those."""


@dataclass(frozen=True)
class StudyPage:
    """A page about a study, but for its panels."""

    title: str
    question: str
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str]
    failures: Sequence[tuple[str, str]]
    """What failed, and its scenario; not all of many."""
    failure_count: int
    claims: Sequence[ShownClaim]
    command: str
    study_text: str


def study_page(done: StudyRun, verdicts: Sequence[ClaimResult]) -> StudyPage:
    """Return what the page about a study says."""
    file = done.study.file
    return StudyPage(
        title=file.title,
        question=file.question,
        facts=_facts(done, verdicts),
        notes=file.notes,
        failures=[(str(failure), failure.scenario) for failure in done.failures[:_FAILURES_SHOWN]],
        failure_count=len(done.failures),
        claims=[_claim(result) for result in verdicts],
        command=_command(done),
        study_text=_study_text(done.study),
    )


def _facts(done: StudyRun, verdicts: Sequence[ClaimResult]) -> list[tuple[str, str]]:
    study, frame = done.study, done.results.frame
    seeds = frame.get_column("seed").unique().sort().to_list() if frame.height else []
    held = sum(result.verdict == "holds" for result in verdicts)
    facts = [
        ("beside", study.file.source),
        ("claims", f"{held} of {len(verdicts)} hold" if verdicts else ""),
        ("runs", f"{frame.get_column('run').n_unique():,} of {study.run_count:,}"),
        ("seeds", ", ".join(map(str, seeds[:6])) + (" …" if len(seeds) > 6 else "")),  # noqa: PLR2004
        ("engine", study.file.engine),
        ("skyhop", f"{skyhop.__version__}, core {core_digest()}"),
    ]
    return [(name, text) for name, text in facts if text]


def _claim(result: ClaimResult) -> ShownClaim:
    findings = [
        ShownFinding(describe(f.at) if f.at else "", f.verdict, _numbers(f))
        for f in result.findings[:_FINDINGS_SHOWN]
    ]
    return ShownClaim(
        text=result.claim.text,
        check=result.claim.check,
        note=result.claim.note,
        verdict=result.verdict,
        findings=findings,
        more=len(result.findings) - len(findings),
    )


def _numbers(finding: Finding) -> str:
    if finding.why:
        return finding.why
    return "; ".join(
        f"{three_digits(c.left)} against {three_digits(c.right)}"
        + ("" if c.holds else " (does not hold)" if len(finding.comparisons) > 1 else "")
        for c in finding.comparisons
    )


def _command(done: StudyRun) -> str:
    """Return what goes on with the study, from any directory."""
    file = Path(done.study.origin)
    study = file.resolve() if file.is_file() else "study.toml"
    return shlex.join(
        ["skyhop", "study", "run", str(study), "-o", str(done.directory.root.resolve())]
    )


def _study_text(study: Study) -> str:
    """Return the study file as it was written, else its content as TOML."""
    file = Path(study.origin)
    if file.is_file():
        return file.read_text("utf-8")
    return toml_text(study.file.model_dump(mode="json", by_alias=True, exclude_defaults=True))
