"""Styles and labels of flows: the same in every figure and table of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skyhop.analysis.flow_groups import FlowKey, by_duration, flow_groups
from skyhop.analysis.styles import Dash, Marker, styles_of
from skyhop.analysis.timeline import Stroke
from skyhop.data.records import RunRecord

MANY_FLOWS = 7
"""Largest number of flows with styles of their own; with more, groups share styles."""


@dataclass(frozen=True)
class FlowStyle:
    """Style and names of one flow, the same in every figure of a report."""

    colour: str
    dash: Dash
    marker: Marker
    width: float
    alpha: float
    label: str
    """Name of the flow in legends, unique among the flows of the report."""
    group: str
    """Name of the flows with this style: `FlowGroup.name`, or `label` if there are few flows."""

    @property
    def stroke(self) -> Stroke:
        """Stroke of the flow's lines."""
        return Stroke(self.colour, self.width, self.dash, self.alpha, self.marker)


def flow_styles(runs: Sequence[RunRecord]) -> dict[FlowKey, FlowStyle]:
    """Choose a style for each TCP flow of the runs, with the shortest labels that are unique.

    Each congestion control has its own style; its flows differ in shade and dash. If runs that
    share a time axis have many flows, the flows of a group (`flow_groups`) share a style.
    """
    keys = [
        ((index, int(flow["id"])), str(flow["cc"]), run)
        for index, run in enumerate(runs)
        for flow in run.flow_summaries()
    ]
    labels = _labels_by_conditions(runs) or _labels(keys)
    styles: dict[FlowKey, FlowStyle] = {}
    for indices in by_duration(runs):
        own = [key for key in keys if key[0][0] in indices]
        styles |= (
            _styles_of_few(own, labels)
            if len(own) <= MANY_FLOWS
            else _styles_of_many(runs, indices, labels)
        )
    return styles


def _styles_of_few(
    keys: Sequence[tuple[FlowKey, str, RunRecord]], labels: Mapping[FlowKey, str]
) -> dict[FlowKey, FlowStyle]:
    """Return a different style for each flow."""
    styles = styles_of(cc for _, cc, _ in keys)
    return {
        key: FlowStyle(
            style.colour, style.dash, style.marker, 1.4, 0.95, labels[key], labels[key]
        )
        for (key, _, _), style in zip(keys, styles, strict=True)
    }  # fmt: skip


def _styles_of_many(
    runs: Sequence[RunRecord], indices: Sequence[int], labels: Mapping[FlowKey, str]
) -> dict[FlowKey, FlowStyle]:
    """Return the style of each flow: one style per group, for the runs with these indices."""
    groups = flow_groups([runs[index] for index in indices])
    styles = {}
    for group, style in zip(groups, styles_of(group.cc for group in groups), strict=True):
        for place, flow in group.flows:
            key = indices[place], flow
            styles[key] = FlowStyle(
                style.colour, style.dash, style.marker, 0.7, 0.6, labels[key], group.name
            )
    return styles


def _labels_by_conditions(runs: Sequence[RunRecord]) -> dict[FlowKey, str]:
    """Return labels such as "cubic (fq_codel)", if no two flows have the same conditions."""
    groups = flow_groups(runs)
    if any(len(group.flows) > 1 for group in groups):
        return {}
    return {flow: group.name for group in groups for flow in group.flows}


def _labels(keys: Sequence[tuple[FlowKey, str, RunRecord]]) -> dict[FlowKey, str]:
    per_cc = Counter(cc for _, cc, _ in keys)
    per_run = Counter((key[0], cc) for key, cc, _ in keys)
    # If one label needs the name of its run, all have it: readers look for the missing one.
    in_several_runs = any(per_cc[cc] > per_run[key[0], cc] for key, cc, _ in keys)
    labels: dict[FlowKey, str] = {}
    for key, cc, run in keys:
        label = f"{cc} #{key[1]}" if per_run[key[0], cc] > 1 else cc
        labels[key] = f"{label} ({run.name})" if in_several_runs else label
    return labels
