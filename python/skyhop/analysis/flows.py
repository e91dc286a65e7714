"""Which flow is which: names, colours and strokes that are the same in every figure and table.

Colours are those of Okabe and Ito, which stay apart for colour-blind readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from skyhop.analysis.timeline import Stroke
from skyhop.data.records import RunRecord

FLOW_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
FLOW_DASHES = ("-", "--", "-.", ":")

MANY_FLOWS = 7
"""With more flows than this, flows of one kind share a colour and lines become thin."""

FlowKey: TypeAlias = tuple[int, int]
"""The run's index among the runs shown, and the flow's id."""


@dataclass(frozen=True)
class FlowStyle:
    """How one flow is drawn everywhere in a report."""

    colour: str
    dash: str
    width: float
    alpha: float
    label: str
    """Its name in legends."""
    group: str
    """What flows that share a colour have in common."""

    @property
    def stroke(self) -> Stroke:
        """How its lines are drawn."""
        return Stroke(self.colour, self.width, self.dash, self.alpha)


def flow_styles(runs: Sequence[RunRecord]) -> dict[FlowKey, FlowStyle]:
    """Choose a style for each TCP flow of the runs, with the shortest labels that are unique.

    Runs that share a time axis share a palette; others begin it anew.
    """
    keys = [
        ((index, int(flow["id"])), str(flow["cc"]), run)
        for index, run in enumerate(runs)
        for flow in run.flow_summaries()
    ]
    labels = _labels(keys)
    styles: dict[FlowKey, FlowStyle] = {}
    for together in by_duration(runs):
        styles |= _styles_together([key for key in keys if key[0][0] in together], labels)
    return styles


def _styles_together(
    keys: Sequence[tuple[FlowKey, str, RunRecord]], labels: Mapping[FlowKey, str]
) -> dict[FlowKey, FlowStyle]:
    if len(keys) <= MANY_FLOWS:
        return {
            key: FlowStyle(FLOW_COLOURS[index], "-", 1.4, 0.95, labels[key], labels[key])
            for index, (key, _, _) in enumerate(keys)
        }
    engines = {run.summary["engine"] for _, _, run in keys}
    groups = {
        key: cc if len(engines) == 1 else f"{cc}, {run.summary['engine']}" for key, cc, run in keys
    }
    order = list(dict.fromkeys(groups.values()))
    styles = {}
    for key, _, _ in keys:
        index = order.index(groups[key])
        styles[key] = FlowStyle(
            FLOW_COLOURS[index % len(FLOW_COLOURS)],
            FLOW_DASHES[index // len(FLOW_COLOURS) % len(FLOW_DASHES)],
            0.7,
            0.6,
            labels[key],
            groups[key],
        )
    return styles


def _labels(keys: Sequence[tuple[FlowKey, str, RunRecord]]) -> dict[FlowKey, str]:
    per_cc = Counter(cc for _, cc, _ in keys)
    per_run = Counter((key[0], cc) for key, cc, _ in keys)
    labels: dict[FlowKey, str] = {}
    for key, cc, run in keys:
        label = f"{cc} #{key[1]}" if per_run[key[0], cc] > 1 else cc
        spread = per_cc[cc] > per_run[key[0], cc]
        labels[key] = f"{label} ({run.name})" if spread else label
    return labels


LIKE_DURATIONS = 1.5
"""How many times longer than another a run may be and still share its time axis."""


def by_duration(runs: Sequence[RunRecord]) -> list[list[int]]:
    """Return the indices of runs that lasted about as long as each other, the shortest first."""
    groups: list[list[int]] = []
    for index in sorted(range(len(runs)), key=lambda index: runs[index].duration_s):
        if groups and runs[index].duration_s <= LIKE_DURATIONS * runs[groups[-1][0]].duration_s:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [sorted(group) for group in groups]
