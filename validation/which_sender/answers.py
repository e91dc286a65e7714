"""Answers of docs/results/which-sender.md: a recommendation per reader, and contradictions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.analysis.sentence_words import listed
from skyhop.analysis.statistics import Interval, stratified_interval
from skyhop.data.arrays import FloatArray
from validation.pages import WIDTH, filled
from validation.which_sender.runs import (
    DELAY,
    DEPLOYABLE,
    FAIRNESS,
    GOODPUT,
    PAIR,
    POWER,
    QUESTIONS,
    Kind,
    Place,
    Question,
    Ranked,
    Runs,
    difference,
    is_access,
    is_download,
    is_upload,
    rank,
)

TRAFFIC = ("CUBIC", "BBR", "BBRv3")
"""Senders of most traffic in the Internet, which a gateway's queue has to serve."""

LIKE = "access"
"""Computed path that is most similar to the measured paths."""

LOSS_OF_QUEUE = 0.95
"""Goodput, as a fraction of FIFO's, that a queue needs to count for the operator."""


@dataclass(frozen=True)
class Reader:
    """Kind of reader of the page, and the runs that answer the reader's question."""

    who: str
    need: str
    question: Question
    is_path: Callable[[str], bool]
    where: str
    """Description of the computed paths, for the page."""


READERS = (
    Reader(
        "CDN edge",
        "serves downloads over unknown paths and queues",
        GOODPUT,
        is_download,
        "computed paths of 100 Mbit/s",
    ),
    Reader(
        "Home upload",
        "sends files over a lossy uplink",
        GOODPUT,
        is_upload,
        "computed uplinks of 20 Mbit/s with 0, 0.5 and 2 % loss",
    ),
    Reader(
        "Video call",
        "shares a home's queue with a download, whose sender makes the delay",
        DELAY,
        is_access,
        "computed Starlink access paths of 100 Mbit/s without and with 0.5 % loss",
    ),
)


def behind_fifo(
    runs: Runs, kind: Kind, is_path: Callable[[str], bool] = lambda _: True
) -> list[Place]:
    """Return the paths of a kind that a reader has, behind FIFO."""
    paths = filter(is_path, runs.paths(kind))
    return [(path, "FIFO") for path in paths if "FIFO" in runs.queues(path)]


def recommendations(runs: Runs) -> Iterator[str]:
    """Yield one list item per kind of reader."""
    for reader in READERS:
        yield recommendation(runs, reader)
    yield from operator(runs)
    yield researcher(runs)


def recommendation(runs: Runs, reader: Reader) -> str:
    """Return the item for a reader: the best deployable sender, its value, and the next best."""
    places = behind_fifo(runs, "computed", reader.is_path)
    ranked = rank(runs, reader.question, places, DEPLOYABLE)
    if not ranked.strata:
        return item(f"**{reader.who}**: the data has no runs.")
    best = ranked.best
    found = quantity(ranked, best)
    others = list(ranked.strata)[1:]
    there = behind_fifo(runs, "measured", reader.is_path)
    measured = rank(runs, reader.question, there, DEPLOYABLE)
    is_open = differs(measured, best)
    lead = "computed paths say" if is_open else "use"
    say = f"; measured paths say **{measured.best}**" if is_open else ""
    text = (
        f"**{reader.who}** ({reader.need}): {lead} **{best}**{say}. {best} has {found} over "
        f"{len(places)} {reader.where} behind FIFO ({ranked.runs(best)} runs)"
    )
    text += f"; next is {others[0]} with {quantity(ranked, others[0])}." if others else "."
    compared = sorted((GOODPUT, DELAY), key=lambda question: question is not reader.question)
    below = [head_to_head(runs, compared, places, there), over_measured(measured, best)]
    return item(text, below)


def differs(measured: Ranked, best: str) -> bool:
    """Return whether a sender other than `best` is the best over measured paths."""
    if not measured.strata or measured.best == best:
        return False
    if best not in measured.strata:
        return True
    return measured.difference(measured.best, best).matters(measured.mean(best))


def over_measured(measured: Ranked, best: str) -> str:
    """Return the text on measured paths: the value of `best` there, and of a better sender."""
    if not measured.strata:
        return ""
    places = measured.places
    what = f"{len(places)} measured paths" if len(places) > 1 else f"the measured {places[0][0]}"
    runs = f"{measured.runs(measured.best)} runs"
    lead = f"Over {what} ({runs})"
    if not differs(measured, best):
        also = "it is best" if measured.best == best else "no sender is better by more than 5 %"
        return f"{lead} {also}: {best} has {quantity(measured, best)}."
    own = quantity(measured, best) if best in measured.strata else "too little goodput to count"
    other = f"{measured.best} has {quantity(measured, measured.best)}"
    return f"**{lead} it differs**: {other}, {best} {own}."


def head_to_head(
    runs: Runs, questions: Sequence[Question], computed: Sequence[Place], measured: Sequence[Place]
) -> str:
    """Return the line that compares BBR with CUBIC over computed and over measured paths."""
    found = []
    for question in questions:
        kinds = {
            f"{question.unit} over computed paths": computed,
            "over measured ones": measured,
        }
        apart = {kind: _bbr_minus_cubic(runs, question, places) for kind, places in kinds.items()}
        values = [f"{value} {kind}" for kind, value in apart.items() if value]
        if values:
            what = question.title.removesuffix(" of a sender alone").lower()
            found.append(f"{what} {', '.join(values)}")
    return f"BBR against CUBIC: {'; '.join(found)}." if found else ""


def _bbr_minus_cubic(runs: Runs, question: Question, places: Sequence[Place]) -> str:
    both = rank(runs, question, places, PAIR, floor=False)
    if len(both.strata) < len(PAIR):
        return ""
    apart = both.difference(*PAIR)
    return f"{signed(apart.value)} {bounds(apart.interval, plus=True)}"


def queues_by_delay(runs: Runs, paths: Sequence[str], senders: Sequence[str]) -> list[str]:
    """Return queues that were run on all paths, in order of delay.

    Queues with too little goodput are left out. Delay and goodput are means of the senders over the
    paths.
    """
    queues = [q for q in runs.levels("queue") if all(q in runs.queues(p) for p in paths)]
    if "FIFO" not in queues or not paths:
        return []
    carried = {q: overall(queue_strata(runs, GOODPUT, paths, q, senders)) for q in queues}
    delays = {q: overall(queue_strata(runs, DELAY, paths, q, senders)) for q in queues}
    enough = [q for q in queues if carried[q] >= LOSS_OF_QUEUE * carried["FIFO"]]
    return sorted(enough, key=lambda q: delays[q])


def operator(runs: Runs) -> Iterator[str]:
    """Yield the recommended queue: the one with the least delay of the senders of most traffic."""
    paths = [p for p in runs.paths("computed") if is_download(p)]
    senders = [s for s in TRAFFIC if s in runs.senders]
    ordered = queues_by_delay(runs, paths, senders)
    if not ordered:
        return
    carried = {q: queue_strata(runs, GOODPUT, paths, q, senders) for q in (*ordered, "FIFO")}
    delays = {q: queue_strata(runs, DELAY, paths, q, senders) for q in (*ordered, "FIFO")}
    best, following = ordered[0], ordered[1:2]

    def delay(queue: str) -> str:
        return f"{number(overall(delays[queue]))} {bounds(stratified_interval(delays[queue]))}"

    count = sum(map(len, delays[best]))
    text = (
        f"**Gateway operator** (chooses the queue, for the senders of most traffic): use "
        f"**{best}**. The 95th percentile of the round trip is {delay(best)} times the base with "
        f"it and {delay('FIFO')} with FIFO, as the mean of {listed(senders)} over {len(paths)} "
        f"computed paths, {count} runs each; goodput is {overall(carried[best]):.1f} in place of "
        f"{overall(carried['FIFO']):.1f} Mbit/s."
    )
    text += f" Next is {following[0]} with {delay(following[0])}." if following else ""
    below = []
    shares = {q: [runs.values(FAIRNESS, (p, q), "BBR") for p in paths] for q in (best, "FIFO")}
    if all(map(len, shares[best])) and all(map(len, shares["FIFO"])):
        halves = [f"{overall(v):.0f} % {bounds(stratified_interval(v))}" for v in shares.values()]
        below.append(
            f"BBR against CUBIC: BBR takes {halves[0]} of both with {best}, {halves[1]} with FIFO."
        )
    below.append(measured_queue(runs, best, senders))
    every = [s for s in DEPLOYABLE if s in runs.senders]
    others = queues_by_delay(runs, paths, every)
    if others[0] != best:
        gone = best not in others
        why = f", because {best} costs more than 5 % of their goodput" if gone else ""
        below.append(f"As the mean of all {len(every)} deployable senders it is {others[0]}{why}.")
    yield item(text, below)


def measured_queue(runs: Runs, best: str, senders: Sequence[str]) -> str:
    """Return the text on whether a queue shortens the delay over measured paths too.

    The text is empty if measured paths have no runs with other queues than FIFO.
    """
    paths = [p for p in runs.paths("measured") if is_download(p)]
    tried = [q for q in runs.levels("queue") if paths and all(q in runs.queues(p) for p in paths)]
    if "FIFO" not in tried or len(tried) == 1:
        return ""
    queue = best if best in tried else next(q for q in tried if q != "FIFO")
    now, before = (queue_strata(runs, DELAY, paths, q, senders) for q in (queue, "FIFO"))
    sign = difference(now, before).sign
    word = {-1: "is the same", 0: "differs: no change beyond chance", 1: "differs"}[sign]
    lead = strong(f"Over measured paths it {word}", sign >= 0)
    only = "" if best in tried else f" (only {listed(tried)} ran)"
    values = [
        f"{name} has {number(overall(strata))} {bounds(stratified_interval(strata))}"
        for name, strata in ((queue, now), ("FIFO", before))
    ]
    return f"{lead}{only}: {', '.join(values)} times the base RTT."


def queue_strata(
    runs: Runs, question: Question, paths: Sequence[str], queue: str, senders: Sequence[str]
) -> list[FloatArray]:
    """Return the values of each sender on each path behind a queue."""
    found = [runs.values(question, (path, queue), sender) for path in paths for sender in senders]
    return [values for values in found if len(values)]


def overall(strata: Sequence[FloatArray]) -> float:
    """Return the mean of the strata's means; infinite if there are none."""
    return float(np.mean([values.mean() for values in strata])) if strata else float("inf")


def researcher(runs: Runs) -> str:
    """Return the item for researchers: deployable baseline and best research sender.

    Both are compared by goodput per delay.
    """
    places = behind_fifo(runs, "computed")
    baseline = rank(runs, POWER, places, DEPLOYABLE)
    research = rank(runs, POWER, places, runs.research)
    if not baseline.strata or not research.strata:
        return item("**Researcher**: the data has no runs.")
    every = rank(runs, POWER, places, runs.senders)
    apart = every.difference(research.best, baseline.best)
    text = (
        f"**Researcher** (needs the baseline that a new sender has to beat): compare with "
        f"**{baseline.best}**, the deployable sender with the most goodput per delay: "
        f"{quantity(baseline, baseline.best)} over {len(places)} computed paths behind FIFO, "
        f"{baseline.runs(baseline.best)} runs. The best research sender is {research.best}, with "
        f"{quantity(research, research.best)}: {signed(apart.value)} "
        f"{bounds(apart.interval, plus=True)}."
    )
    below = [head_to_head(runs, [POWER], places, behind_fifo(runs, "measured"))]
    there = [
        place
        for place in behind_fifo(runs, "measured")
        if all(len(runs.values(POWER, place, s)) for s in (research.best, baseline.best))
    ]
    measured = rank(runs, POWER, there, runs.senders)
    if not measured.strata:
        return item(text, below)
    own = rank(runs, POWER, there, DEPLOYABLE)
    theirs = rank(runs, POWER, there, runs.research)
    is_same = own.best == baseline.best and theirs.best == research.best
    lead = "it is the same" if is_same else "it differs"
    below.append(
        f"{strong(f'Over measured paths {lead}', not is_same)}: {own.best} has "
        f"{quantity(own, own.best)}, {theirs.best} {quantity(theirs, theirs.best)}."
    )
    return item(text, below)


def contradictions(runs: Runs) -> list[str]:
    """Return a sentence for each answer that is different over measured paths.

    Two answers are compared; a difference counts if it is beyond chance and larger than 5 %. The
    first answer is which deployable sender is best over all download paths of a kind. The second is
    the sign of BBR against CUBIC: on each measured path, compared with the computed access path, or
    with all computed paths if there is no access path.
    """
    return [text for question in QUESTIONS for text in _contradictions(runs, question)]


def _contradictions(runs: Runs, question: Question) -> Iterator[str]:
    computed, measured = (
        [(path, "FIFO") for path in runs.paths(kind) if is_download(path)]
        for kind in ("computed", "measured")
    )
    there = rank(runs, question, computed, DEPLOYABLE)
    here = rank(runs, question, measured, DEPLOYABLE)
    if not there.strata or not here.strata:
        return
    if here.best != there.best:
        gone = there.best not in here.strata
        if gone or here.difference(here.best, there.best).matters(here.mean(there.best)):
            yield (
                f"{question.title}: {there.best} is the best deployable sender over computed "
                f"paths, {here.best} over measured ones ({quantity(here, here.best)}"
                + (")." if gone else f"; {there.best} has {quantity(here, there.best)}).")
            )
    alike = [place for place in computed if place[0] == LIKE] or computed
    both = rank(runs, question, alike, PAIR, floor=False)
    if len(both.strata) < len(PAIR):
        return
    apart = both.difference(*PAIR)
    turned = []
    for place in measured:
        pair = rank(runs, question, [place], PAIR, floor=False)
        own = pair.difference(*PAIR) if len(pair.strata) == len(PAIR) else None
        if own is None or not own.matters(pair.mean("CUBIC")):
            continue
        if own.sign * apart.sign < 0:
            turned.append(f"{place[0]} ({signed(own.value)} {bounds(own.interval, plus=True)})")
    if turned:
        reference = "the computed access path" if alike[0][0] == LIKE else "computed paths"
        what = (
            "distance from an even share" if question.better == "even" else question.title.lower()
        )
        yield (
            f"BBR against CUBIC, {what}: {signed(apart.value)} {bounds(apart.interval, plus=True)} "
            f"over {reference}, but the opposite over {listed(turned)}."
        )


def quantity(ranked: Ranked, sender: str) -> str:
    """Return a sender's mean with its interval and unit, as text."""
    unit = f" {ranked.question.unit}" if ranked.question.better != "even" else " points from even"
    return f"{number(ranked.mean(sender))} {bounds(ranked.interval(sender))}{unit}"


# --- numbers and list items ---


def number(value: float) -> str:
    """Return a number as text, with three digits or one decimal."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"  # noqa: PLR2004


def signed(value: float) -> str:
    """Return a number as text, with its sign."""
    return ("+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else "") + number(abs(value))


def bounds(interval: Interval, *, plus: bool = False) -> str:
    """Return an interval in brackets; `plus` adds signs, for intervals of differences."""
    if interval.low is None or interval.high is None:
        return "[no interval]"
    write = signed if plus else number
    return f"[{write(interval.low)}, {write(interval.high)}]"


def strong(text: str, is_strong: bool = True) -> str:
    """Return a text in bold if `is_strong`."""
    return f"**{text}**" if is_strong else text


def item(text: str, below: Sequence[str] = ()) -> str:
    """Return a list item with a nested list below it; empty nested items are left out."""
    lines = [filled(f"- {text}")]
    # Python's Markdown treats items with less than four spaces as part of the same list.
    lines += [textwrap.indent(filled(f"- {own}", WIDTH - 4), "    ") for own in below if own]
    return "\n".join(lines)
