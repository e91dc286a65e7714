"""Claims of a study: evaluation of each claim's expression on the results, to a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from skyhop.analysis.sentence_words import counted
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
from skyhop.study.key_errors import entry
from skyhop.study.results import POOLED_STATS, is_stat

if TYPE_CHECKING:
    from skyhop.study.metrics import MetricSet
    from skyhop.study.results import Results

Verdict: TypeAlias = Literal["holds", "does not hold", "cannot be told"]

WITHIN_CHANCE = "the difference is within chance"
"""Reason for the verdict "cannot be told" on a comparison that fails, but not for other seeds."""


@dataclass(frozen=True)
class CheckedClaim:
    """Claim with its parsed expression; the expression is None if the claim cannot be checked."""

    claim: Claim
    expression: Expression | None


@dataclass(frozen=True)
class Finding:
    """Verdict on a claim at one combination of the axis values in its `each`."""

    at: Mapping[str, object]
    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    why: str = ""
    """Reason for the verdict "cannot be told"; empty for other verdicts."""
    within_chance: bool = False
    """Whether the verdict depends on a difference whose 95 % interval contains zero."""
    failed: tuple[Mapping[str, object], ...] = ()
    """Axis values and seed of each failed run; the verdict is about those that ran."""


@dataclass(frozen=True)
class ClaimResult:
    """Claim with its findings, one per combination of the axis values in its `each`."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """Verdict on the whole claim, which holds only if it holds at every combination.

        Combinations whose runs failed do not count if others have a verdict.
        """
        ran = [f for f in self.findings if f.comparisons or not f.failed]
        verdicts = {finding.verdict for finding in ran or self.findings}
        if "does not hold" in verdicts:
            return "does not hold"
        return "cannot be told" if "cannot be told" in verdicts else "holds"

    @property
    def failed(self) -> list[Mapping[str, object]]:
        """Axis values and seed of each failed run, without which the verdict was made."""
        found: list[Mapping[str, object]] = []
        for finding in self.findings:
            found += [run for run in finding.failed if run not in found]
        return found

    @property
    def why_unchecked(self) -> str:
        """Reason why the claim was not evaluated, such as a missing sender; empty if it was."""
        whys = {finding.why for finding in self.findings}
        return self.claim.cannot_be_told if self.claim.cannot_be_told in whys else ""

    @property
    def cause_text(self) -> str:
        """Why the claim does not hold or cannot be told, as text; empty if it holds."""
        return "" if self.verdict == "holds" else self.claim.cause_text

    @property
    def within_chance(self) -> bool:
        """Whether other seeds could have given another verdict.

        False for a claim that fails at some combination by more than chance.
        """
        return any(f.within_chance for f in self.findings if f.verdict == self.verdict)


def check_claims(study: StudyFile, metrics: MetricSet, origin: str) -> list[CheckedClaim]:
    """Parse the claims' expressions, and check that their metrics, axes and values exist.

    Raises:
        InputError: a claim cannot be evaluated; the message names it.
    """
    return [
        CheckedClaim(claim, _checked(study, metrics, claim, f"{origin}: {entry('claim', place)}"))
        for place, claim in enumerate(study.claim)
    ]


def judge(claims: Sequence[CheckedClaim], results: Results) -> list[ClaimResult]:
    """Evaluate the claims on the results of a study, and return their verdicts."""
    return [ClaimResult(c.claim, tuple(_findings(c, results))) for c in claims]


def _findings(claim: CheckedClaim, results: Results) -> Iterator[Finding]:
    if claim.expression is None:
        yield Finding({}, "cannot be told", (), claim.claim.cannot_be_told)
        return
    for at in _axis_values(claim.claim):
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
        raise InputError(f'{where}: `{name}`: a metric needs parentheses, such as {name}(cc="bbr")')
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


def _axis_values(claim: Claim) -> Iterator[dict[str, object]]:
    for values in itertools.product(*claim.each.values()):
        yield dict(zip(claim.each, values, strict=True))


def _finding(expression: Expression, at: Mapping[str, object], results: Results) -> Finding:
    selections = [_selection({**at, **selected}) for _, selected in expression.calls()]
    failed = tuple(results.failed_in(selections))
    if failed:
        results = results.without_failed(failed, selections)
    runs = _SelectedRuns(results, at)
    try:
        holds, found = expression.check(runs.call)
    except UnknownValueError as error:
        why = f"{counted(len(failed), 'run')} failed: {error}" if failed else str(error)
        return Finding(at, "cannot be told", (), why, failed=failed)
    comparisons = tuple(_with_intervals(expression, found, runs))
    within_chance = expression.certain(comparisons) is None
    if holds or not within_chance:
        verdict: Verdict = "holds" if holds else "does not hold"
        return Finding(at, verdict, comparisons, "", within_chance, failed)
    return Finding(at, "cannot be told", comparisons, WITHIN_CHANCE, within_chance, failed)


def _selection(chosen: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords of a call that select runs: neither the flow nor the statistic."""
    return {name: value for name, value in chosen.items() if name not in ("flow", "stat")}


def _with_intervals(
    expression: Expression, found: Sequence[Comparison], runs: _SelectedRuns
) -> Iterator[Comparison]:
    """Yield the comparisons with 95 % intervals of their differences, where these are known.

    Intervals of expressions of means come from the jackknife, which leaves out runs. Intervals of
    expressions with medians come from the bootstrap.
    """
    if expression.asks_for_equality() or not (runs.all_means or runs.all_means_or_medians):
        yield from found
        return
    if not runs.all_means:
        yield from _with_bootstrap_intervals(expression, found, runs)
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


def _with_bootstrap_intervals(
    expression: Expression, found: Sequence[Comparison], runs: _SelectedRuns
) -> Iterator[Comparison]:
    """Yield the comparisons with 95 % intervals of the bootstrap, which resamples runs.

    The jackknife fails for medians, which hardly change when one run is left out.
    """
    if min(runs.parts.values()) < 2:  # noqa: PLR2004
        yield from found
        return
    source = np.random.default_rng(_SEED)
    try:
        resamples = [
            expression.check(
                partial(runs.call_resampled, {g: source.random(n) for g, n in runs.counts.items()})
            )[1]
            for _ in range(_DRAWS)
        ]
    except UnknownValueError:
        yield from found
        return
    for place, comparison in enumerate(found):
        differences = [each[place].left - each[place].right for each in resamples]
        low, high = np.percentile(differences, (2.5, 97.5))
        yield replace(comparison, interval=Interval(float(low), float(high)))


_MOST_PARTS = 200
"""Largest number of parts that the jackknife leaves out one at a time."""
_DRAWS, _SEED = 1000, 1
"""Number of resamples of the bootstrap, and the seed of its random numbers."""


class _SelectedRuns:
    """Runs that a claim's expression selects at one combination of the axis values in its `each`.

    Calls that select the same runs share a group, even if their metrics or flows differ: a run that
    the jackknife or the bootstrap leaves out is left out of all calls of the group.

    Attributes:
        parts: number of parts of each group; the jackknife leaves out one part at a time. In
            groups of up to `_MOST_PARTS` runs, a part is a single run.
        counts: number of runs of each group.
        all_means: whether every call so far asked for a mean.
        all_means_or_medians: whether every call so far asked for a mean or a median.
    """

    def __init__(self, results: Results, at: Mapping[str, object]) -> None:
        self._results = results
        self._at = at
        self._values: dict[str, FloatArray] = {}
        self.parts: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.all_means = self.all_means_or_medians = True

    def call(self, name: str, selected: Selected) -> float:
        """Evaluate a call such as `goodput(cc="bbr")`, and store the values of its runs.

        Raises:
            UnknownValueError: no run has a value.
        """
        stat = selected.get("stat", "mean")
        self.all_means &= stat in ("mean", "pooled_mean")
        self.all_means_or_medians &= stat in ("mean", "median")
        chosen = {**self._at, **selected}
        group = self._group(chosen)
        values = self._results.call_values(name, chosen)
        self._values[self._call(name, chosen)] = values
        self.parts[group] = min(len(values), self.parts.get(group, _MOST_PARTS))
        self.counts[group] = max(len(values), self.counts.get(group, 0))
        return self._results.call_result(name, chosen, values)

    def call_without(self, left_out: str, part: int, name: str, selected: Selected) -> float:
        """Evaluate an earlier call again, without part number `part` of the group `left_out`."""
        chosen = {**self._at, **selected}
        group = self._group(chosen)
        values = self._values[self._call(name, chosen)]
        if group == left_out:
            begin, end = (len(values) * edge // self.parts[group] for edge in (part, part + 1))
            values = np.delete(values, slice(begin, end), axis=0)
        return self._results.call_result(name, chosen, values)

    def call_resampled(
        self, resampled: Mapping[str, FloatArray], name: str, selected: Selected
    ) -> float:
        """Evaluate an earlier call again with resampled runs.

        Args:
            resampled: for each group, one position in [0, 1) per run of the group; a run is
                replaced by the run at that position.
            name: name of the metric.
            selected: keywords of the call.
        """
        chosen = {**self._at, **selected}
        values = self._values[self._call(name, chosen)]
        positions = resampled[self._group(chosen)]
        places = (positions[: len(values)] * len(values)).astype(int)
        return self._results.call_result(name, chosen, values[places])

    @staticmethod
    def _group(chosen: Mapping[str, object]) -> str:
        """Return the key of the group of the selected runs."""
        return _selection_key(_selection(chosen))

    @staticmethod
    def _call(name: str, chosen: Mapping[str, object]) -> str:
        """Return the key of a call's values: metric, whether bins are pooled, and selection."""
        pools = chosen.get("stat") in POOLED_STATS
        selection = {key: chosen[key] for key in chosen if key != "stat"}
        return f"{name} {pools} {_selection_key(selection)}"


def _selection_key(chosen: Mapping[str, object]) -> str:
    return repr(sorted(chosen.items()))
