"""Answers which sender and which queue serve whom, from the runs of the study leo-beyond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.analysis.statistics import (
    Interval,
    bootstrap_interval,
    cohens_d,
    differences,
    stratified_effect,
    stratified_interval,
)
from skyhop.data.arrays import FloatArray
from skyhop.study import StudyRun
from skyhop.study.results import Results

STUDY = "leo-beyond"
ALONE, BESIDE = {"beside": "nobody"}, {"beside": "Cubic", "flow": 0}
ENOUGH = 0.8
"""Of the best goodput: what an interactive user wants to keep."""
MOST_NAMED = 3
MOST_IN_SHORT = 4

HEAD = """\
# Which sender, which queue, for whom

Written by `make reproduce` from the study [leo-beyond](../studies/leo-beyond.toml); do not edit.
Its claims, and what came out, stand in [reproduced.md](reproduced.md#{anchor}).

Nine senders, six queues, six paths of 100 Mbit/s, five seeds each. Numbers are means with their
95 % intervals, and lead to the study that they are of. Several names in one cell are the best and
those that chance cannot tell from it (Welch's t-test, 5 %, Bonferroni's correction), the best
first; the number is the first one's. "before" names the best of those that can be told from it, its
mean, and by how much the first one is ahead: Cohen's d, in the standard deviations of runs with
other seeds. A simulator's runs differ little, which makes d large; the difference says more. Paths
and queues lead to others' experiments with them.
"""
FURTHER = {
    "LeoEM, bent pipe": "leo-fig1",
    "LeoEM, ISL": "leo-fig1",
    "true, bent pipe": "satcp-table1",
    "true, ISL": "satcp-table1",
    "access": "satpipe-fig14",
    "access, 0.5 % loss": "satpipe-fig14",
    "FQ-CoDel": "leo-fig9c",
    "CAKE": "leo-fig9c",
}
"""Which study has others' experiments with a path or a queue of the matrix."""


@dataclass(frozen=True)
class Need:
    """What somebody wants of a sender."""

    who: str
    what: str
    metric: str
    unit: str
    where: Mapping[str, object]
    note: str = ""
    """What a reader has to know who compares the table with the picture."""


NEEDS = (
    Need("A bulk transfer, alone", "the most goodput", "used", "Mbit/s", ALONE),
    Need(
        "An interactive user",
        "the least delay inflation (95th percentile) "
        f"with {100 * ENOUGH:.0f} % of the best goodput",
        "inflation_p95",
        "",
        ALONE,
        "The picture has means; here it is the 95th percentile that counts, of those alone that "
        "have enough goodput.",
    ),
    Need(
        "A neighbour with Cubic",
        "a share of both goodputs next to half",
        "share",
        "%",
        BESIDE,
        "Next to half is judged run by run: who has 30 % and 70 % by turns is not even, whatever "
        "the mean.",
    ),
)


@dataclass(frozen=True)
class Links:
    """Where reproduced.md has what the page is about."""

    study: str
    """The anchor of the study that all numbers are of."""
    further: Mapping[str, str]
    """Those of `FURTHER`, by path or queue."""

    def number(self, text: str) -> str:
        """Write a number of the study."""
        return f"[{text}](reproduced.md#{self.study})"

    def label(self, name: str) -> str:
        """Write a path or a queue."""
        return f"[{name}](reproduced.md#{self.further[name]})" if name in self.further else name


def page(done: StudyRun, links: Links) -> str:
    """Return the page, pictures and tables and what they say."""
    results = done.results
    queues = [str(queue) for queue in results.levels("queue", {})]
    lines = [HEAD.format(anchor=links.study), *in_short(results, queues)]
    lines += ["![Goodput alone behind FIFO](which-sender-goodput.png)\n"]
    lines += ["![Delay inflation alone behind FIFO](which-sender-delay.png)\n"]
    lines += ["![Share beside Cubic behind FIFO](which-sender-share.png)\n"]
    for need in NEEDS:
        lines += [f"## {need.who}: {need.what}\n"]
        lines += [f"{need.note}\n"] if need.note else []
        lines += best_table(results, need, queues, links)
    lines += ["## Which queue: what each does to all senders\n"]
    lines += queue_table(results, queues, links)
    return "\n".join(lines)


def in_short(results: Results, queues: Sequence[str]) -> Iterator[str]:
    """Yield for each need how often which senders are the best, or as good as chance can tell."""
    places = [
        {"path": path, "queue": queue} for path in results.levels("path", {}) for queue in queues
    ]
    for need in NEEDS:
        ranked = [best(results, need, {**need.where, **place}) for place in places]
        tally = Counter(name for cell in ranked for name, _ in cell)
        foremost = [f"{name} {times}" for name, times in tally.most_common(MOST_IN_SHORT)]
        yield f"- {need.who} ({need.what}): {', '.join(foremost)}"
    yield f"\nThese are how many of the {len(places)} cells below a sender stands in, the best or "
    yield "what chance cannot tell from it; the most frequent four.\n"


def best_table(results: Results, need: Need, queues: Sequence[str], links: Links) -> Iterator[str]:
    """Yield who serves a need best over each path behind each queue."""
    yield f"| path | {' | '.join(map(links.label, queues))} |"
    yield "|---" * (1 + len(queues)) + "|"
    for path in map(str, results.levels("path", {})):
        wheres = [{**need.where, "path": path, "queue": queue} for queue in queues]
        cells = [cell(results, need, where, links) for where in wheres]
        yield f"| {links.label(path)} | {' | '.join(cells)} |"
    yield ""


def cell(results: Results, need: Need, where: Mapping[str, object], links: Links) -> str:
    """Write who serves a need best somewhere, how well, and how far before the next."""
    ranked = best(results, need, where)
    if not ranked:
        return "-"
    text = named(need, ranked, links)
    behind = candidates(results, need, where)
    worth = {name: worth_of(need, values) for name, values in behind.items()}
    told = [name for name in worth if name not in dict(ranked)]
    if not told:
        return text
    second = max(told, key=lambda name: float(worth[name].mean()))
    d = cohens_d(worth[ranked[0][0]], worth[second])
    effect = "" if d is None else f", d {d:.1f}"
    return f"{text}, before {second} {number_text(behind[second])}{effect}"


def best(results: Results, need: Need, where: Mapping[str, object]) -> list[tuple[str, FloatArray]]:
    """Return the best sender and those that chance cannot tell from it, with their runs."""
    found = candidates(results, need, where)
    if not found:
        return []
    worth = {name: worth_of(need, values) for name, values in found.items()}
    first = max(worth, key=lambda name: float(worth[name].mean()))
    told = {d.name for d in differences(worth, first) if d.significant()}
    # Without spread there is no test, and no chance either.
    even = {name for name in worth if name != first and name not in told}
    even = {name for name in even if worth[name].std() > 0 or worth[first].std() > 0}
    ranked = sorted({first, *even}, key=lambda name: -float(worth[name].mean()))
    return [(name, found[name]) for name in ranked]


def candidates(results: Results, need: Need, where: Mapping[str, object]) -> dict[str, FloatArray]:
    """Return the runs of those senders somewhere that come into question for a need."""
    info = results.metrics.infos[need.metric]
    senders = [str(sender) for sender in results.levels("sender", where)]
    found = {name: results.values(info, {**where, "sender": name}) for name in senders}
    found = {name: values for name, values in found.items() if len(values)}
    return fast_enough(results, where, found) if need.metric == "inflation_p95" else found


def worth_of(need: Need, values: FloatArray) -> FloatArray:
    """Return how good values are: more is better."""
    if need.metric == "share":
        return -abs(values - 50.0)
    return -values if need.metric == "inflation_p95" else values


def fast_enough(
    results: Results, where: Mapping[str, object], found: Mapping[str, FloatArray]
) -> dict[str, FloatArray]:
    """Return those whose mean goodput is near enough to the best."""
    info = results.metrics.infos["used"]
    means = {name: float(results.values(info, {**where, "sender": name}).mean()) for name in found}
    least = ENOUGH * max(means.values(), default=0.0)
    return {name: values for name, values in found.items() if means[name] >= least}


def named(need: Need, ranked: Sequence[tuple[str, FloatArray]], links: Links) -> str:
    """Write the names, and the first one's mean with its interval."""
    names = [name for name, _ in ranked[:MOST_NAMED]]
    more = len(ranked) - len(names)
    text = ", ".join(names) + (f" and {more} more" if more else "")
    values = ranked[0][1]
    found = estimate(values, bootstrap_interval(values), links)
    return f"{text}: {found} {need.unit}".rstrip()


def estimate(values: FloatArray, interval: Interval, links: Links) -> str:
    """Write a mean, which leads to its study, with its interval."""
    text = links.number(number_text(values))
    if interval.low is None or interval.high is None:
        return text
    digits = digits_of(values)
    return f"{text} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def number_text(values: FloatArray) -> str:
    """Write the mean of values."""
    return f"{values.mean():.{digits_of(values)}f}"


def digits_of(values: FloatArray) -> int:
    """Return how many digits a mean has behind the point."""
    return 2 if abs(values.mean()) < 10 else 1  # noqa: PLR2004


def queue_table(results: Results, queues: Sequence[str], links: Links) -> Iterator[str]:
    """Yield each queue's means over all senders and paths, and Cubic's."""
    rows = (
        ("goodput alone, all senders (Mbit/s)", "used", ALONE),
        ("delay inflation alone, all senders", "inflation", ALONE),
        ("delay inflation alone, Cubic", "inflation", {**ALONE, "sender": "Cubic"}),
        ("distance of the share beside Cubic from half, all senders (points)", "share", BESIDE),
    )
    yield "Intervals are of the mean over these senders and these paths: runs are drawn anew within"
    yield "each sender and path, which are no sample of others. d: against the first queue, in the"
    yield "standard deviations of runs with other seeds.\n"
    yield f"| mean over paths | {' | '.join(map(links.label, queues))} |"
    yield "|---" * (1 + len(queues)) + "|"
    for title, metric, where in rows:
        strata = [runs_of(results, metric, {**where, "queue": queue}) for queue in queues]
        cells = [queue_cell(found, strata[0], links) for found in strata]
        yield f"| {title} | {' | '.join(cells)} |"
    yield ""


def runs_of(
    results: Results, metric: str, where: Mapping[str, object]
) -> dict[tuple[str, str], FloatArray]:
    """Return what the runs of each sender over each path have."""
    info = results.metrics.infos[metric]
    found = {}
    for path in map(str, results.levels("path", where)):
        for sender in map(str, results.levels("sender", {**where, "path": path})):
            values = results.values(info, {**where, "path": path, "sender": sender})
            found[path, sender] = abs(values - 50.0) if metric == "share" else values
    return {at: values for at, values in found.items() if len(values)}


def queue_cell(
    found: Mapping[tuple[str, str], FloatArray],
    first: Mapping[tuple[str, str], FloatArray],
    links: Links,
) -> str:
    """Write a queue's mean over senders and paths with its interval, and its effect."""
    if not found:
        return "-"
    means = np.array([values.mean() for values in found.values()])
    text = estimate(means, stratified_interval(list(found.values())), links)
    both = [at for at in found if at in first]
    d = stratified_effect([found[at] for at in both], [first[at] for at in both])
    return text if d is None or found is first else f"{text}, d {d:+.1f}"
