"""Which flow is which: names and looks that are the same in every figure and table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from skyhop.analysis.looks import Dash, Marker, looks_of
from skyhop.analysis.timeline import Stroke
from skyhop.data.records import RunRecord

MANY_FLOWS = 7
"""With more flows than this, flows of one kind share a look and lines become thin."""

FlowKey: TypeAlias = tuple[int, int]
"""The run's index among the runs shown, and the flow's id."""


@dataclass(frozen=True)
class FlowStyle:
    """How one flow is drawn everywhere in a report."""

    colour: str
    dash: Dash
    marker: Marker
    width: float
    alpha: float
    label: str
    """Its name in legends."""
    group: str
    """What flows that share a look have in common."""

    @property
    def stroke(self) -> Stroke:
        """How its lines are drawn."""
        return Stroke(self.colour, self.width, self.dash, self.alpha, self.marker)


def flow_styles(runs: Sequence[RunRecord]) -> dict[FlowKey, FlowStyle]:
    """Choose a style for each TCP flow of the runs, with the shortest labels that are unique.

    Congestion controls look as everywhere; their several flows are told apart by shade and dash.
    With many flows in runs that share a time axis, those of a kind look alike.
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
        looks = looks_of(cc for _, cc, _ in keys)
        return {
            key: FlowStyle(look.colour, look.dash, look.marker, 1.4, 0.95, labels[key], labels[key])
            for (key, _, _), look in zip(keys, looks, strict=True)
        }
    engines = {run.summary["engine"] for _, _, run in keys}
    groups = {
        key: cc if len(engines) == 1 else f"{cc}, {run.summary['engine']}" for key, cc, run in keys
    }
    ccs = {groups[key]: cc for key, cc, _ in keys}
    of_group = dict(zip(ccs, looks_of(ccs.values()), strict=True))
    styles = {}
    for key, _, _ in keys:
        look, group = of_group[groups[key]], groups[key]
        styles[key] = FlowStyle(
            look.colour, look.dash, look.marker, 0.7, 0.6, labels[key], group
        )  # fmt: skip
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
