"""Sentences that open a study's report, from its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from skyhop.analysis.sentence_words import counted, listed, spaced
from skyhop.analysis.tables import three_digits


@dataclass(frozen=True)
class RankedValues:
    """Levels of an axis at which a metric is highest and lowest."""

    metric: str
    """The metric's title, such as "goodput"."""
    unit: str
    axis: str
    count: int
    """Number of levels compared."""
    averaged: tuple[str, ...]
    """Names of the other axes, over whose values the metric is averaged."""
    highest: str
    highest_value: float
    lowest: str
    lowest_value: float
    interval: tuple[float, float] | None
    """95 % confidence interval of the difference; None if repeats are missing."""


@dataclass(frozen=True)
class StudyOutcome:
    """Numbers of a study from which its three sentences are written."""

    ranked: RankedValues | None
    holding: int
    failing: int
    undecided: int
    """Number of claims with the verdict "cannot be told"."""
    within_chance: int
    """Number of verdicts that other seeds could change."""
    finished: int
    planned: int
    failed: int
    warnings: int


def study_sentences(study: StudyOutcome) -> list[str]:
    """Return three sentences about a study: best and worst level, claims, and missing runs."""
    return [_best(study.ranked), _claims(study), _missing(study)]


def _best(ranked: RankedValues | None) -> str:
    if ranked is None:
        return "No finished run has numbers that can be compared."
    over = (
        f", averaged over {listed([spaced(name) for name in ranked.averaged])}"
        if ranked.averaged
        else ""
    )
    unit = f" {ranked.unit}" if ranked.unit else ""

    def write(value: float) -> str:
        return f"{three_digits(value)}{unit}"

    difference = ranked.highest_value - ranked.lowest_value
    if ranked.count == 1:
        value = write(ranked.highest_value)
        return f"The {ranked.metric} of {spaced(ranked.axis)} {ranked.highest} is {value}{over}."
    if ranked.interval is None:
        spread = "without an interval, for want of repeats"
    else:
        low, high = ranked.interval
        chance = ", which is within chance" if low <= 0 <= high else ""
        chosen = ", not corrected for the choice of these two" if ranked.count > 2 else ""  # noqa: PLR2004
        spread = f"95 % interval {three_digits(low)} to {three_digits(high)}{chance}{chosen}"
    return (
        f"Of {ranked.count} values of {spaced(ranked.axis)}, {ranked.highest} has the highest "
        f"{ranked.metric} ({write(ranked.highest_value)}) and {ranked.lowest} the lowest "
        f"({write(ranked.lowest_value)}){over}: a difference of {write(difference)} ({spread})."
    )


def _claims(study: StudyOutcome) -> str:
    total = study.holding + study.failing + study.undecided
    if not total:
        return "The study makes no claims."
    holds = "holds" if 1 in (study.holding, total) else "hold"
    parts = [f"{study.holding:,} of {counted(total, 'claim')} {holds}"]
    if study.failing:
        parts.append(f"{study.failing:,} {'does' if study.failing == 1 else 'do'} not hold")
    if study.undecided:
        parts.append(f"{study.undecided:,} cannot be told")
    chance = study.within_chance
    verdicts = "verdict is" if chance == 1 else "verdicts are"
    return listed(parts) + (f"; {chance:,} {verdicts} within chance" if chance else "") + "."


def _missing(study: StudyOutcome) -> str:
    absent = max(study.planned - study.finished - study.failed, 0)
    if study.finished == study.planned:
        text = (
            f"All {study.planned:,} runs finished" if study.planned > 1 else "The only run finished"
        )
    else:
        text = f"{study.finished:,} of {counted(study.planned, 'run')} finished"
        if study.failed:
            text += f", {study.failed:,} failed"
        if absent:
            text += f" and {absent:,} {'is' if absent == 1 else 'are'} missing"
    are = "is" if study.warnings == 1 else "are"
    warned = f"; {counted(study.warnings, 'warning')} {are} listed below"
    unwarned = ", and none has a warning" if study.finished else ""
    return text + (warned if study.warnings else unwarned) + "."
