"""Answers of docs/results/which-sender.md: a recommendation per reader, and contradictions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    KINDS,
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
"""Computed path that is most similar to the modelled and measured paths."""

MEASURED_OF = {
    "Victoria, model": ("Victoria 1", "Victoria 2", "Victoria 3"),
    "OneWeb, model": ("Iowa",),
    "Lagos, model": ("Lagos",),
}
"""Measured paths of the link that each modelled path stands for."""

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

RESEARCHER = Reader(
    "Researcher",
    "needs the baseline that a new sender has to beat",
    POWER,
    lambda _: True,
    "computed paths",
)

Judges = Mapping[Kind, Ranked]
"""Deployable senders in the order of a reader's question, by kind of path."""


def behind_fifo(
    runs: Runs, kind: Kind, is_path: Callable[[str], bool] = lambda _: True
) -> list[Place]:
    """Return the paths of a kind that a reader has, behind FIFO."""
    paths = filter(is_path, runs.paths(kind))
    return [(path, "FIFO") for path in paths if "FIFO" in runs.queues(path)]


def recommendations(runs: Runs) -> Iterator[str]:
    """Yield one list item per kind of reader."""
    for reader in READERS:
        yield recommendation(runs, reader, [GOODPUT, DELAY])
    yield from operator(runs)
    yield recommendation(runs, RESEARCHER, [POWER])


def recommendation(runs: Runs, reader: Reader, compared: Sequence[Question]) -> str:
    """Return the item for a reader: the best deployable sender, its value, and the next best.

    Modelled and measured paths decide, and computed ones only if the data has no others.
    """
    places = {kind: behind_fifo(runs, kind, reader.is_path) for kind in KINDS}
    every = {kind: rank(runs, reader.question, places[kind], DEPLOYABLE) for kind in KINDS}
    known = {kind: ranked for kind, ranked in every.items() if ranked.strata}
    if not known:
        return item(f"**{reader.who}**: the data has no runs.")
    deciding: Judges = {kind: known[kind] for kind in KINDS[1:] if kind in known} or known
    agreed = best_in_all(deciding)
    best = agreed or next(iter(deciding.values())).best
    lead = f"use **{best}**" if agreed else "; ".join(
        f"{kind} paths say **{ranked.best}**" for kind, ranked in deciding.items()
    )  # fmt: skip
    named = [agreed] if agreed else list(dict.fromkeys(r.best for r in deciding.values()))
    values = [f"{sender} has {in_each(deciding, sender)}" for sender in named]
    text = f"**{reader.who}** ({reader.need}): {lead}. {'; '.join(values)}, behind FIFO"
    others = [s for s in next(iter(deciding.values())).strata if s not in named]
    text += f"; next is {others[0]} with {in_each(deciding, others[0])}." if others else "."
    ordered = sorted(compared, key=lambda question: question is not reader.question)
    below = [head_to_head(runs, ordered, places)]
    if "computed" not in deciding and "computed" in known:
        below.append(over_computed(known["computed"], best, reader.where))
    if reader is RESEARCHER:
        below.append(best_research(runs, best))
    return item(text, below)


def best_in_all(deciding: Judges) -> str | None:
    """Return the first sender that no other surpasses over any kind of path, or `None`."""
    every = list(deciding.values())
    names = dict.fromkeys(name for ranked in every for name in ranked.strata)
    return next((n for n in names if not any(differs(ranked, n) for ranked in every)), None)


def in_each(deciding: Judges, sender: str) -> str:
    """Return a sender's value over each kind of path, as text."""
    texts = []
    for kind, ranked in deciding.items():
        count = len(ranked.places)
        if sender in ranked.strata:
            where = f"{count} {kind} paths" if count > 1 else f"the {kind} {ranked.places[0][0]}"
            runs = f"{ranked.runs(sender)} runs"
            texts.append(f"{quantity(ranked, sender)} over {where} ({runs})")
        else:
            texts.append(f"too little goodput to count over {kind} paths")
    return " and ".join(texts)


def differs(ranked: Ranked, best: str) -> bool:
    """Return whether a sender other than `best` is the best over paths of one kind."""
    if ranked.best == best:
        return False
    if best not in ranked.strata:
        return True
    return ranked.difference(ranked.best, best).matters(ranked.mean(best))


def over_computed(ranked: Ranked, best: str, where: str) -> str:
    """Return the text on computed paths: the value of `best` there, and of a better sender."""
    lead = f"Over {len(ranked.places)} {where} ({ranked.runs(ranked.best)} runs)"
    if not differs(ranked, best):
        also = "it is best" if ranked.best == best else "no sender is better by more than 5 %"
        return f"{lead} {also}: {best} has {quantity(ranked, best)}."
    own = quantity(ranked, best) if best in ranked.strata else "too little goodput to count"
    other = f"{ranked.best} has {quantity(ranked, ranked.best)}"
    return f"**{lead} it differs**: {other}, {best} {own}."


def best_research(runs: Runs, baseline: str) -> str:
    """Return the text on the best research sender of each kind, where all research senders ran."""
    texts = []
    for kind in KINDS:
        places = [
            place
            for place in behind_fifo(runs, kind)
            if all(len(runs.values(POWER, place, sender)) for sender in runs.research)
        ]
        ranked = rank(runs, POWER, places, [*runs.research, baseline])
        theirs = next((sender for sender in ranked.strata if sender != baseline), None)
        if theirs is not None and baseline in ranked.strata:
            apart = ranked.difference(theirs, baseline)
            against = f"{signed(apart.value)} {bounds(apart.interval, plus=True)}"
            texts.append(
                f"{theirs} over {len(places)} {kind} paths, with {quantity(ranked, theirs)} "
                f"({against} against {baseline})"
            )
    return f"The best research sender is {listed(texts)}." if texts else ""


def head_to_head(
    runs: Runs, questions: Sequence[Question], places: Mapping[Kind, Sequence[Place]]
) -> str:
    """Return the line that compares BBR with CUBIC over each kind of path."""
    found = []
    for question in questions:
        apart = {kind: _bbr_minus_cubic(runs, question, own) for kind, own in places.items()}
        values = [f"{value} over {kind} paths" for kind, value in apart.items() if value]
        if values:
            what = question.title.removesuffix(" of a sender alone").lower()
            found.append(f"{what} ({question.unit}) {', '.join(values)}")
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
    below += [other_queue(runs, kind, best, senders) for kind in KINDS[1:]]
    every = [s for s in DEPLOYABLE if s in runs.senders]
    others = queues_by_delay(runs, paths, every)
    if others[0] != best:
        gone = best not in others
        why = f", because {best} costs more than 5 % of their goodput" if gone else ""
        below.append(f"As the mean of all {len(every)} deployable senders it is {others[0]}{why}.")
    yield item(text, below)


def other_queue(runs: Runs, kind: Kind, best: str, senders: Sequence[str]) -> str:
    """Return the text on whether a queue shortens the delay over another kind of path too.

    The text is empty if paths of that kind have no runs with other queues than FIFO.
    """
    paths = [p for p in runs.paths(kind) if is_download(p)]
    tried = [q for q in runs.levels("queue") if paths and all(q in runs.queues(p) for p in paths)]
    if "FIFO" not in tried or len(tried) == 1:
        return ""
    queue = best if best in tried else next(q for q in tried if q != "FIFO")
    now, before = (queue_strata(runs, DELAY, paths, q, senders) for q in (queue, "FIFO"))
    sign = difference(now, before).sign
    word = {-1: "is the same", 0: "differs: no change beyond chance", 1: "differs"}[sign]
    lead = strong(f"Over {kind} paths it {word}", sign >= 0)
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


def contradictions(runs: Runs) -> list[str]:
    """Return a sentence for each answer that is different over another kind of path.

    Answers are compared over downloads behind FIFO; a difference counts if it is beyond chance and
    larger than 5 %. The first answer is which deployable sender is best over all paths of a kind.
    The second is the sign of BBR against CUBIC: on each modelled and measured path, compared with
    the computed access path (or all computed paths, without one); and on each measured path,
    compared with the model of the same link.
    """
    return [text for question in QUESTIONS for text in _contradictions(runs, question)]


def _contradictions(runs: Runs, question: Question) -> Iterator[str]:
    places = {kind: behind_fifo(runs, kind, is_download) for kind in KINDS}
    every = {kind: rank(runs, question, places[kind], DEPLOYABLE) for kind in KINDS}
    known = {kind: ranked for kind, ranked in every.items() if ranked.strata}
    yield from _best_by_kind(question, known)
    if "computed" in known:
        alike = [place for place in places["computed"] if place[0] == LIKE] or places["computed"]
        name = "the computed access path" if alike[0][0] == LIKE else "computed paths"
        others = [*places["modelled"], *places["measured"]]
        yield from _turned(runs, question, (name, alike), others)
    for model, names in MEASURED_OF.items():
        own = [place for place in places["modelled"] if place[0] == model]
        yield from _turned(runs, question, (model, own), [(name, "FIFO") for name in names])


def _best_by_kind(question: Question, known: Judges) -> Iterator[str]:
    """Yield the sentence that no sender is the best over all kinds of paths, if it is so."""
    if not known or best_in_all(known):
        return
    texts = []
    for kind, ranked in known.items():
        text = f"{ranked.best} over {kind} paths ({quantity(ranked, ranked.best)}"
        rivals = dict.fromkeys(other.best for other in known.values())
        values = [
            f"{rival} has {quantity(ranked, rival)}"
            if rival in ranked.strata
            else f"{rival} has too little goodput to count"
            for rival in rivals
            if rival != ranked.best
        ]
        texts.append("; ".join([text, *values]) + ")")
    yield f"{question.title}: the best deployable sender is {listed(texts)}."


def _turned(
    runs: Runs, question: Question, reference: tuple[str, Sequence[Place]], places: Sequence[Place]
) -> Iterator[str]:
    """Yield the sentence that BBR against CUBIC has the opposite sign on some places."""
    name, alike = reference
    both = rank(runs, question, alike, PAIR, floor=False)
    if len(both.strata) < len(PAIR):
        return
    apart = both.difference(*PAIR)
    turned = []
    for place in places:
        pair = rank(runs, question, [place], PAIR, floor=False)
        own = pair.difference(*PAIR) if len(pair.strata) == len(PAIR) else None
        if own is not None and own.matters(pair.mean("CUBIC")) and own.sign * apart.sign < 0:
            turned.append(f"{place[0]} ({signed(own.value)} {bounds(own.interval, plus=True)})")
    if turned:
        what = (
            "distance from an even share" if question.better == "even" else question.title.lower()
        )
        yield (
            f"BBR against CUBIC, {what}: {signed(apart.value)} {bounds(apart.interval, plus=True)} "
            f"over {name}, but the opposite over {listed(turned)}."
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
