"""Claims of a study: checked against its results, one verdict each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from skyhop.analysis.statistics import is_statistic
from skyhop.errors import InputError
from skyhop.study.axes import check_choice
from skyhop.study.expression import (
    Comparison,
    Expression,
    Selected,
    UnknownValueError,
    parse_expression,
)
from skyhop.study.file import Claim, StudyFile

if TYPE_CHECKING:
    from skyhop.study.metrics import MetricSet
    from skyhop.study.results import Results

Verdict: TypeAlias = Literal["holds", "does not hold", "cannot be told"]


@dataclass(frozen=True)
class CheckedClaim:
    """A claim whose expression can be evaluated."""

    claim: Claim
    expression: Expression


@dataclass(frozen=True)
class Finding:
    """What came out at one of a claim's values."""

    at: Mapping[str, object]
    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    why: str = ""
    """Why it cannot be told."""


@dataclass(frozen=True)
class ClaimResult:
    """A claim and what came out."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """One answer: a claim that is false somewhere is false."""
        verdicts = {finding.verdict for finding in self.findings}
        if "does not hold" in verdicts:
            return "does not hold"
        return "cannot be told" if "cannot be told" in verdicts else "holds"


def check_claims(study: StudyFile, metrics: MetricSet, origin: str) -> list[CheckedClaim]:
    """Check that the claims can be evaluated: metrics, axes and values exist.

    Raises:
        InputError: one cannot; the message names it.
    """
    return [
        CheckedClaim(claim, _checked(study, metrics, claim, f"{origin}: claim.{place}"))
        for place, claim in enumerate(study.claim)
    ]


def judge(claims: Sequence[CheckedClaim], results: Results) -> list[ClaimResult]:
    """Return the verdict on each claim."""
    return [
        ClaimResult(c.claim, tuple(_finding(c.expression, at, results) for at in _each(c.claim)))
        for c in claims
    ]


def _checked(study: StudyFile, metrics: MetricSet, claim: Claim, origin: str) -> Expression:
    check_choice(study, claim.each, f"{origin}.each")
    where = f"{origin}.check"
    expression = parse_expression(claim.check, where)
    if not expression.is_comparison():
        raise InputError(f'{where}: expected a comparison, such as goodput(cc="bbr") > 100')
    for name in sorted(expression.names()):
        raise InputError(f'{where}: `{name}`: metrics are called, such as {name}(cc="bbr")')
    for name, selected in expression.calls():
        metrics.find(name, where)
        chosen = dict(selected)
        stat = chosen.pop("stat", "mean")
        if not is_statistic(str(stat)):
            raise InputError(f"{where}: stat: expected mean, median, sd, min, max, p10, …")
        check_choice(study, chosen, f"{where}: {name}")
    return expression


def _each(claim: Claim) -> Iterator[dict[str, object]]:
    for values in itertools.product(*claim.each.values()):
        yield dict(zip(claim.each, values, strict=True))


def _finding(expression: Expression, at: Mapping[str, object], results: Results) -> Finding:
    try:
        holds, comparisons = expression.check(partial(_call_at, results, at))
    except UnknownValueError as error:
        return Finding(at, "cannot be told", (), str(error))
    return Finding(at, "holds" if holds else "does not hold", tuple(comparisons))


def _call_at(results: Results, at: Mapping[str, object], name: str, selected: Selected) -> float:
    return results.call(name, {**at, **selected})
