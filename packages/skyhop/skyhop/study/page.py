"""Content of a study's page: facts, failures, verdicts, and the command that repeats the study."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyhop.analysis.sentence_words import counted
from skyhop.analysis.tables import Column, Table, three_digits
from skyhop.data.files import as_argument
from skyhop.data.toml import toml_text
from skyhop.study.claims import WITHIN_CHANCE, ClaimResult, Finding
from skyhop.study.expression import Comparison
from skyhop.study.plan import Study
from skyhop.study.run_ids import core_digest, describe
from skyhop.study.running import FailedRun, StudyRun
from skyhop.version import __version__

_FINDINGS_SHOWN = 40
_FAILURES_SHOWN = 10
_WARNINGS_SHOWN = 10
_VALUES_SHOWN = 6


@dataclass(frozen=True)
class ShownFinding:
    """Finding of a claim at one combination of the axis values in its `each`, as text."""

    at: str
    verdict: str
    """Verdict without numbers: "holds", "does not hold" or "cannot be told"."""
    numbers: str


@dataclass(frozen=True)
class ShownClaim:
    """Claim with its verdict, and the numbers behind it."""

    text: str
    check: str
    """Expression of the claim; empty if it has none."""
    note: str
    """Note for readers, and the cause of a claim that does not hold or cannot be told."""
    verdict: str
    verdict_text: str
    """Verdict, with its numbers if other seeds could give another verdict."""
    findings: Sequence[ShownFinding]
    more: int
    """Number of findings that are not shown."""


@dataclass(frozen=True)
class StudyPage:
    """Content of a study's page, except for its panels."""

    title: str
    question: str
    facts: Sequence[tuple[str, str]]
    conditions: Table
    """Conditions of the runs; of those that vary, by the values of an axis, or as a range."""
    notes: Sequence[str]
    failures: Sequence[tuple[str, str]]
    """Distinct errors (if there are many, the first): error and where, and scenario as TOML."""
    failures_left: int
    """Number of distinct errors that `failures` leaves out."""
    failure_count: int
    warnings: Sequence[str]
    """Warnings of runs; if there are many, the most frequent ones."""
    claims: Sequence[ShownClaim]
    command: str
    study_text: str


def study_page(done: StudyRun, verdicts: Sequence[ClaimResult]) -> StudyPage:
    """Return the content of a study's page, with the verdicts on its claims."""
    file = done.study.file
    failures = _failures(done)
    return StudyPage(
        title=file.title,
        question=file.question,
        facts=_facts(done, verdicts),
        conditions=_conditions_table(done),
        notes=file.notes,
        failures=failures[:_FAILURES_SHOWN],
        failures_left=max(0, len(failures) - _FAILURES_SHOWN),
        failure_count=len(done.failures),
        warnings=shown_warnings(done),
        claims=[_claim(result) for result in verdicts],
        command=_command(done),
        study_text=_study_text(done.study),
    )


def shown_warnings(done: StudyRun) -> list[str]:
    """Return a line for each of the most frequent warnings, then one with the number of others."""
    shown = [str(warning) for warning in done.warnings[:_WARNINGS_SHOWN]]
    more = len(done.warnings) - len(shown)
    return [*shown, f"and {more:,} more"] if more else shown


def shown_failures(done: StudyRun) -> list[str]:
    """Return a line per distinct error, with the axis values that all runs with it share."""
    return [text for text, _ in _failures(done)]


def _failures(done: StudyRun) -> list[tuple[str, str]]:
    """Return each distinct error with where it occurred, and the scenario of its first run."""
    by_error: dict[str, list[FailedRun]] = {}
    for failure in done.failures:
        by_error.setdefault(failure.error, []).append(failure)
    lines = []
    for error, failed in by_error.items():
        first = failed[0]
        common = {
            axis: value
            for axis, value in first.labels.items()
            if all(failure.labels[axis] == value for failure in failed)
        }
        where = f" ({describe(common)})" if common else ""
        alone = len(failed) == 1
        text = str(first) if alone else f"{len(failed):,} runs{where}: {error}"
        lines.append((text, first.scenario))
    return lines


def _conditions_table(done: StudyRun) -> Table:
    names = ["condition", "runs", "value"]
    columns = [Column(name, name, "", str, numeric=False) for name in names]
    return Table([], columns, [[c.name, c.runs, c.value] for c in done.conditions])


def _facts(done: StudyRun, verdicts: Sequence[ClaimResult]) -> list[tuple[str, str]]:
    study, frame = done.study, done.results.frame
    seeds = frame.get_column("seed").unique().sort().to_list() if frame.height else []
    facts = [
        ("compared with", study.file.source),
        ("claims", _claims_fact(verdicts)),
        ("set", ", ".join(study.sets)),
        ("runs", f"{frame.get_column('run').n_unique():,} of {study.run_count:,}"),
        ("seeds", ", ".join(map(str, seeds[:6])) + (" …" if len(seeds) > 6 else "")),  # noqa: PLR2004
        ("skyhop", f"{__version__}, core {core_digest()}"),
    ]
    return [(name, text) for name, text in facts if text]


def _claims_fact(verdicts: Sequence[ClaimResult]) -> str:
    if not verdicts:
        return ""
    counts = Counter(result.verdict for result in verdicts)
    failing, undecided = counts["does not hold"], counts["cannot be told"]
    by_chance = sum(result.within_chance for result in verdicts)
    others = [
        f"{failing} {'does' if failing == 1 else 'do'} not hold" if failing else "",
        f"{undecided} cannot be told" if undecided else "",
        f"{by_chance} within chance" if by_chance else "",
    ]
    return ", ".join([f"{counts['holds']} of {len(verdicts)} hold", *filter(None, others)])


def _claim(result: ClaimResult) -> ShownClaim:
    findings = [
        ShownFinding(describe(f.at) if f.at else "", f.verdict, numbers_text(f))
        for f in result.findings[:_FINDINGS_SHOWN]
    ]
    return ShownClaim(
        text=result.claim.text,
        check=result.claim.check or "",
        note=" ".join(filter(None, (result.claim.note, result.cause_text))),
        verdict=result.verdict,
        verdict_text=verdict_text(result),
        findings=findings,
        more=len(result.findings) - len(findings),
    )


def claim_rows(result: ClaimResult) -> list[tuple[str, str]]:
    """Return a claim and its verdict, each combination of `each` with its numbers, its cause."""
    shown, findings = _claim(result), []
    if not result.why_unchecked:
        findings = [
            (f"- {f.at}" if f.at else "", f"{f.numbers} ({f.verdict})" if f.at else f.numbers)
            for f in shown.findings
        ]
    more = [(f"- and {shown.more} more", "")] if shown.more else []
    cause = [("", result.cause_text)] if result.cause_text else []
    return [(shown.text, shown.verdict_text), *findings, *more, *cause]


def verdict_text(result: ClaimResult) -> str:
    """Return a verdict; add its numbers if it is within chance, the reason if it is unknown."""
    if result.why_unchecked:
        return f"{result.verdict}: {result.why_unchecked}"
    return _decided_text(result) + _failed_text(result.failed)


def _failed_text(failed: Sequence[Mapping[str, object]]) -> str:
    """Return which runs are missing from a verdict, by their values of the axes."""
    if not failed:
        return ""
    names = [name for name in failed[0] if name != "seed"] or ["seed"]
    where = "; ".join(f"{name} = {_few(run[name] for run in failed)}" for name in names)
    return f", of those that ran ({counted(len(failed), 'run')} failed: {where})"


def _few(values: Iterable[object]) -> str:
    """Return the distinct values, separated by commas; of many, the first."""
    distinct = list(dict.fromkeys(map(str, values)))
    more = len(distinct) - _VALUES_SHOWN
    return ", ".join(distinct[:_VALUES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _decided_text(result: ClaimResult) -> str:
    if not result.within_chance:
        return result.verdict
    deciding = [f for f in result.findings if f.verdict == result.verdict and f.within_chance]
    first = deciding[0]
    holds = result.verdict == "holds"
    by_chance = [c for c in first.comparisons if c.within_chance]
    numbers = next((_sides(c) for c in by_chance if c.holds == holds), _sides(by_chance[0]))
    at = f" ({describe(first.at)})" if first.at else ""
    more = f", and {len(deciding) - 1} more" if len(deciding) > 1 else ""
    but = "but within chance" if holds else WITHIN_CHANCE
    return f"{result.verdict}, {but}: {numbers}{at}{more}"


def numbers_text(finding: Finding) -> str:
    """Return both sides of each comparison of a finding, or why it was not evaluated."""
    if not finding.comparisons:
        return finding.why
    alone = len(finding.comparisons) == 1
    return "; ".join(
        _sides(c)
        + ("" if c.holds or alone else " (does not hold)")
        + (" (within chance)" if c.within_chance else "")
        for c in finding.comparisons
    )


_ASKED = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most",
          "==": "exactly", "!=": "other than"}  # fmt: skip
_ASKED_OF_RATIOS = {**_ASKED, ">": "at least", "<": "at most"}


def _sides(comparison: Comparison) -> str:
    """Return what was measured and what it is compared with."""
    asked = comparison.asked
    if asked is None:
        return " against ".join(_two_numbers(comparison.left, comparison.right))
    value, limit = _two_numbers(asked.value, asked.limit)
    match asked.kind:
        case "value":
            return f"{value}, {_ASKED[asked.sign]} {limit} was asked for"
        case "ratio":
            return f"{value} times, {_ASKED_OF_RATIOS[asked.sign]} {limit} was asked for"
        case "difference":
            return f"a difference of {value}, {_ASKED[asked.sign]} {limit} was asked for"


def _two_numbers(left: float, right: float) -> tuple[str, str]:
    """Return two numbers, with more than three digits if three do not distinguish them."""
    texts = three_digits(left), three_digits(right)
    if texts[0] == texts[1] and left != right:
        return f"{left:.6g}", f"{right:.6g}"
    return texts


def _command(done: StudyRun) -> str:
    """Return the command that runs or continues the study, without directories of this machine."""
    file = Path(done.study.origin)
    study = _near(file) if file.is_file() else "study.toml"
    words = ["skyhop", "study", "run", as_argument(study), "-o", _near(done.directory.root)]
    for name, card in done.study.policies.items():
        words += ["--policy", f"{name}={_near(card)}"]
    for text in done.study.sets:
        words += ["--set", text]
    return shlex.join(words)


def _near(path: Path) -> str:
    """Return a path from the current directory; of a path elsewhere, only the name."""
    whole, here = path.resolve(), Path.cwd()
    return whole.relative_to(here).as_posix() if whole.is_relative_to(here) else whole.name


def _study_text(study: Study) -> str:
    """Return the text of the study file, or its content as TOML if it was a dictionary."""
    file = Path(study.origin)
    if file.is_file():
        return file.read_text("utf-8")
    return toml_text(study.file.model_dump(mode="json", by_alias=True, exclude_defaults=True))
