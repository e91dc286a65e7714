"""Answers which sender and which queue serve whom, from the runs of the study leo-beyond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from skyhop.analysis.statistics import bootstrap_interval, differences
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
95 % intervals. Several names in one cell are the best and those that chance cannot tell from it
(Welch's t-test, 5 %, Bonferroni's correction), the best first; the number is the first one's.
"""


@dataclass(frozen=True)
class Need:
    """What somebody wants of a sender."""

    who: str
    what: str
    metric: str
    unit: str
    where: Mapping[str, object]


NEEDS = (
    Need("A bulk transfer, alone", "the most goodput", "used", "Mbit/s", ALONE),
    Need(
        "An interactive user",
        f"the least delay inflation (95th percentile) with {ENOUGH:.0%} of the best goodput",
        "inflation_p95",
        "",
        ALONE,
    ),
    Need(
        "A neighbour with Cubic",
        "a share of both goodputs next to half",
        "share",
        "%",
        BESIDE,
    ),
)


def page(done: StudyRun, anchor: str) -> str:
    """Return the page, pictures and tables and what they say."""
    results = done.results
    queues = [str(queue) for queue in results.levels("queue", {})]
    lines = [HEAD.format(anchor=anchor), *in_short(results, queues)]
    lines += ["![Goodput alone behind FIFO](which-sender-goodput.png)\n"]
    lines += ["![Delay inflation alone behind FIFO](which-sender-delay.png)\n"]
    lines += ["![Share beside Cubic behind FIFO](which-sender-share.png)\n"]
    for need in NEEDS:
        lines += [f"## {need.who}: {need.what}\n", *best_table(results, need, queues)]
    lines += ["## Which queue: what each does to all senders\n", *queue_table(results, queues)]
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


def best_table(results: Results, need: Need, queues: Sequence[str]) -> Iterator[str]:
    """Yield who serves a need best over each path behind each queue."""
    yield f"| path | {' | '.join(queues)} |"
    yield "|---" * (1 + len(queues)) + "|"
    for path in results.levels("path", {}):
        cells = [
            named(need, best(results, need, {**need.where, "path": path, "queue": queue}))
            for queue in queues
        ]
        yield f"| {path} | {' | '.join(cells)} |"
    yield ""


def best(results: Results, need: Need, where: Mapping[str, object]) -> list[tuple[str, FloatArray]]:
    """Return the best sender and those that chance cannot tell from it, with their runs."""
    info = results.metrics.infos[need.metric]
    senders = [str(sender) for sender in results.levels("sender", where)]
    found = {name: results.values(info, {**where, "sender": name}) for name in senders}
    found = {name: values for name, values in found.items() if len(values)}
    if need.metric == "inflation_p95":
        found = fast_enough(results, where, found)
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


def named(need: Need, ranked: Sequence[tuple[str, FloatArray]]) -> str:
    """Write a cell: the names, and the first one's mean with its interval."""
    if not ranked:
        return "-"
    names = [name for name, _ in ranked[:MOST_NAMED]]
    more = len(ranked) - len(names)
    text = ", ".join(names) + (f" and {more} more" if more else "")
    return f"{text}: {estimate(ranked[0][1], need.unit)}"


def estimate(values: FloatArray, unit: str) -> str:
    """Write a mean with its interval."""
    interval = bootstrap_interval(values)
    digits = 2 if abs(values.mean()) < 10 else 1  # noqa: PLR2004
    text = f"{values.mean():.{digits}f}"
    if interval.low is not None and interval.high is not None:
        text += f" [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
    return f"{text} {unit}".rstrip()


def queue_table(results: Results, queues: Sequence[str]) -> Iterator[str]:
    """Yield each queue's means over all senders and paths, and Cubic's."""
    rows = (
        ("goodput alone, all senders (Mbit/s)", "used", ALONE),
        ("delay inflation alone, all senders", "inflation", ALONE),
        ("delay inflation alone, Cubic", "inflation", {**ALONE, "sender": "Cubic"}),
        ("distance of the share beside Cubic from half, all senders (points)", "share", BESIDE),
    )
    yield f"| mean over paths | {' | '.join(queues)} |"
    yield "|---" * (1 + len(queues)) + "|"
    for title, metric, where in rows:
        info = results.metrics.infos[metric]
        cells = []
        for queue in queues:
            values = results.values(info, {**where, "queue": queue})
            values = abs(values - 50.0) if metric == "share" else values
            cells.append(estimate(values, "") if len(values) else "-")
        yield f"| {title} | {' | '.join(cells)} |"
    yield ""
