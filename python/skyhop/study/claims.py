"""Claims of a study: checked against its results, one verdict each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from skyhop.analysis.statistics import Interval, jackknife_interval
from skyhop.data.arrays import FloatArray
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
from skyhop.study.results import POOLED_STATS, is_stat

if TYPE_CHECKING:
    from skyhop.study.metrics import MetricSet
    from skyhop.study.results import Results

Verdict: TypeAlias = Literal["holds", "does not hold", "cannot be told"]


@dataclass(frozen=True)
class CheckedClaim:
    """A claim whose expression can be evaluated, or which says why it has none."""

    claim: Claim
    expression: Expression | None


@dataclass(frozen=True)
class Finding:
    """What came out at one of a claim's values."""

    at: Mapping[str, object]
    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    why: str = ""
    """Why it cannot be told, where it cannot."""
    within_chance: bool = False
    """Whether the verdict hangs on a difference whose interval holds zero."""


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

    @property
    def unasked(self) -> str:
        """Why nothing was asked of the results, such as a sender that is not here; or nothing."""
        whys = {finding.why for finding in self.findings}
        return self.claim.cannot_be_told if self.claim.cannot_be_told in whys else ""

    @property
    def within_chance(self) -> bool:
        """Whether other seeds could well have given another verdict.

        A claim that is false somewhere beyond chance is false beyond chance.
        """
        deciding = [f.within_chance for f in self.findings if f.verdict == self.verdict]
        if self.verdict == "does not hold":
            return all(deciding)
        return self.verdict == "holds" and any(deciding)


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
    return [ClaimResult(c.claim, tuple(_findings(c, results))) for c in claims]


def _findings(claim: CheckedClaim, results: Results) -> Iterator[Finding]:
    if claim.expression is None:
        yield Finding({}, "cannot be told", (), claim.claim.cannot_be_told)
        return
    for at in _each(claim.claim):
        yield _finding(claim.expression, at, results)


def _checked(study: StudyFile, metrics: MetricSet, claim: Claim, origin: str) -> Expression | None:
    check_choice(study, claim.each, f"{origin}.each")
    if claim.check is None or (claim.policy and not _has_policy(study, claim.policy)):
        return None
    where = f"{origin}.check"
    expression = parse_expression(claim.check, where)
    if not expression.is_comparison():
        raise InputError(f'{where}: expected a comparison, such as goodput(cc="bbr") > 100')
    for name in sorted(expression.names()):
        raise InputError(f'{where}: `{name}`: metrics are called, such as {name}(cc="bbr")')
    for name, selected in expression.calls():
        info = metrics.find(name, where)
        chosen = dict(selected)
        stat = str(chosen.pop("stat", "mean"))
        if not is_stat(stat, info):
            pools = "; pooled_mean and pooled_sd need a metric with `pool = true`"
            raise InputError(
                f"{where}: stat: expected mean, median, sd, min, max, p10, …"
                + (pools if stat.startswith("pooled") else "")
            )
        check_choice(study, chosen, f"{where}: {name}")
    return expression


def _has_policy(study: StudyFile, name: str) -> bool:
    return any(axis.points is not None and name in axis.points for axis in study.axis)


def _each(claim: Claim) -> Iterator[dict[str, object]]:
    for values in itertools.product(*claim.each.values()):
        yield dict(zip(claim.each, values, strict=True))


def _finding(expression: Expression, at: Mapping[str, object], results: Results) -> Finding:
    runs = _Runs(results, at)
    try:
        holds, found = expression.check(runs.call)
    except UnknownValueError as error:
        return Finding(at, "cannot be told", (), str(error))
    comparisons = tuple(_with_intervals(expression, found, runs))
    within_chance = expression.certain(comparisons) is None
    return Finding(at, "holds" if holds else "does not hold", comparisons, "", within_chance)


def _with_intervals(
    expression: Expression, found: Sequence[Comparison], runs: _Runs
) -> Iterator[Comparison]:
    """Yield the comparisons with what each run's absence would do to them."""
    if expression.asks_for_equality() or not (runs.are_means or runs.are_medians):
        yield from found
        return
    if not runs.are_means:
        yield from _with_drawn_intervals(expression, found, runs)
        return
    try:
        without = [
            [expression.check(partial(runs.call_without, group, part))[1] for part in range(parts)]
            for group, parts in runs.parts.items()
        ]
    except UnknownValueError:
        yield from found
        return
    for place, comparison in enumerate(found):
        samples = [
            np.array([each[place].left - each[place].right for each in group]) for group in without
        ]
        interval = jackknife_interval(comparison.left - comparison.right, samples)
        yield replace(comparison, interval=interval)


def _with_drawn_intervals(
    expression: Expression, found: Sequence[Comparison], runs: _Runs
) -> Iterator[Comparison]:
    """Yield the comparisons with what came out where runs were drawn anew, with repetition.

    A median hardly moves with one run's absence: leaving them out says nothing about it.
    """
    if min(runs.parts.values()) < 2:  # noqa: PLR2004
        yield from found
        return
    source = np.random.default_rng(_SEED)
    try:
        drawn = [
            expression.check(
                partial(runs.call_drawn, {g: source.random(n) for g, n in runs.counts.items()})
            )[1]
            for _ in range(_DRAWS)
        ]
    except UnknownValueError:
        yield from found
        return
    for place, comparison in enumerate(found):
        differences = [each[place].left - each[place].right for each in drawn]
        low, high = np.percentile(differences, (2.5, 97.5))
        yield replace(comparison, interval=Interval(float(low), float(high)))


_MOST_PARTS = 200
_DRAWS, _SEED = 1000, 1


class _Runs:
    """The runs that an expression asks for at one of a claim's values.

    Calls that choose the same runs share them, whichever flows of them they ask for: what one
    metric, or one flow, loses with a run, so does the other.

    Attributes:
        parts: by choice, into how many parts its runs fall, of which one is left out at a time; a
            part is a run where there are not too many.
        counts: by choice, how many runs there are.
        are_means: whether means are all that was asked for.
        are_medians: whether medians are, or means.
    """

    def __init__(self, results: Results, at: Mapping[str, object]) -> None:
        self._results = results
        self._at = at
        self._values: dict[str, FloatArray] = {}
        self.parts: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.are_means = self.are_medians = True

    def call(self, name: str, selected: Selected) -> float:
        """Return what a call is worth.

        Raises:
            UnknownValueError: one of its runs failed, or none has it.
        """
        stat = selected.get("stat", "mean")
        self.are_means &= stat in ("mean", "pooled_mean")
        self.are_medians &= stat in ("mean", "median")
        chosen = {**self._at, **selected}
        failed = self._results.failed_in(chosen)
        if failed:
            told = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
            raise UnknownValueError(f"{name}({told}): {failed} of its runs failed")
        group = self._group(chosen)
        values = self._results.values_called(name, chosen)
        self._values[self._call(name, chosen)] = values
        self.parts[group] = min(len(values), self.parts.get(group, _MOST_PARTS))
        self.counts[group] = max(len(values), self.counts.get(group, 0))
        return self._results.worth(name, chosen, values)

    def call_without(self, left_out: str, part: int, name: str, selected: Selected) -> float:
        """Return what a call that was made is worth without one part of a choice's runs."""
        chosen = {**self._at, **selected}
        group = self._group(chosen)
        values = self._values[self._call(name, chosen)]
        if group == left_out:
            begin, end = (len(values) * edge // self.parts[group] for edge in (part, part + 1))
            values = np.delete(values, slice(begin, end), axis=0)
        return self._results.worth(name, chosen, values)

    def call_drawn(self, drawn: Mapping[str, FloatArray], name: str, selected: Selected) -> float:
        """Return what a call that was made is worth with runs drawn from a choice's.

        Args:
            drawn: by choice, for each run which one takes its place, as a part of all.
            name: of the metric.
            selected: the call's keywords.
        """
        chosen = {**self._at, **selected}
        values = self._values[self._call(name, chosen)]
        drawn_of = drawn[self._group(chosen)]
        places = (drawn_of[: len(values)] * len(values)).astype(int)
        return self._results.worth(name, chosen, values[places])

    @staticmethod
    def _group(chosen: Mapping[str, object]) -> str:
        """Name the runs that are chosen."""
        return _named({key: chosen[key] for key in chosen if key not in ("flow", "stat")})

    @staticmethod
    def _call(name: str, chosen: Mapping[str, object]) -> str:
        """Name what they have that is asked for."""
        pools = chosen.get("stat") in POOLED_STATS
        return f"{name} {pools} {_named({key: chosen[key] for key in chosen if key != 'stat'})}"


def _named(chosen: Mapping[str, object]) -> str:
    return repr(sorted(chosen.items()))
