"""Groups of comparable flows: same sender, engine, path, link, queue and application.

Figures and sentences average over the flows of a group, never over several groups. A group's name
gives the sender and those conditions that differ among the compared runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from skyhop.analysis.summary import UNTOLD, kind_text, untold_senders
from skyhop.data.quantities import mbps_or_none, seconds_or_none
from skyhop.data.run_headers import RunHeader

_ARROW = "\N{RIGHTWARDS ARROW}"

FlowKey: TypeAlias = tuple[int, int]
"""Key of a flow: index of its run among the compared runs, and flow id."""

LIKE_DURATIONS = 1.5
"""Largest ratio of the durations of two runs that share a time axis."""

_LEAST_TELLING = (
    "sender", "via", "extra", "loss", "relay", "path", "queue", "rate", "app", "qdisc",
)  # fmt: skip
"""Dimensions of a group's name; those in front are left out first if the others suffice."""

_LONGEST_NAME = 44
"""Largest length of a name in characters; otherwise the run's name replaces the conditions."""

_OWN_KEYS = ("cc", "count", "start", "start_spread", "stop", "bytes", "between")
"""Keys of a `[[flow]]` that are not conditions: they may differ between comparable flows."""

_MOST_PAIRS = 8
"""Largest number of pairs of a network's sites that make groups of their own."""


@dataclass(frozen=True)
class FlowGroup:
    """Comparable flows of one or several runs."""

    name: str
    """Sender and the conditions that distinguish the group, such as "cubic (fq_codel, page)"."""
    cc: str
    flows: tuple[FlowKey, ...]


@dataclass(frozen=True)
class _Conditions:
    """Conditions of one flow, by which flows are comparable."""

    named: Mapping[str, str]
    """Readable value of each dimension, in the order of a group's name."""
    rest: str
    """Other keys of the scenario that affect this flow, as JSON."""


def by_duration(runs: Sequence[RunHeader]) -> list[list[int]]:
    """Return the indices of runs of similar duration (`LIKE_DURATIONS`), the shortest first."""
    groups: list[list[int]] = []
    for index in sorted(range(len(runs)), key=lambda index: runs[index].duration_s):
        if groups and runs[index].duration_s <= LIKE_DURATIONS * runs[groups[-1][0]].duration_s:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [sorted(group) for group in groups]


def flow_groups(runs: Sequence[RunHeader]) -> list[FlowGroup]:
    """Return the groups of all TCP flows of the runs, in the order of their first flows.

    Flows under different conditions never share a group. If the named conditions (engine, path,
    rate, queue, application, …) do not distinguish two groups, the name of the first run does.
    Flows between many pairs of a network's sites are comparable, as are those of its traffic.
    """
    pairs = {_pair(entry) for run in runs for entry in _entries(run.scenario).values()}
    by_pair = len(pairs) <= _MOST_PAIRS
    found: dict[tuple[str, _Key], list[FlowKey]] = {}
    conditions: dict[FlowKey, _Conditions] = {}
    for index, run in enumerate(runs):
        entries = _entries(run.scenario)
        for flow in run.flow_summaries():
            key = index, int(flow["id"])
            entry, cc = entries.get(key[1], {}), str(flow["cc"])
            conditions[key] = of_flow = _conditions(run, entry, key[1], cc, by_pair=by_pair)
            group = cc, (tuple(of_flow.named.items()), of_flow.rest)
            found.setdefault(group, []).append(key)
    of_groups = {group: conditions[keys[0]].named for group, keys in found.items()}
    shown = _telling(of_groups)
    names = {
        group: _name(group[0], [named[name] for name in shown])
        for group, named in of_groups.items()
    }
    return [
        FlowGroup(_unique(names, group, runs, keys), group[0], tuple(keys))
        for group, keys in found.items()
    ]


_Key: TypeAlias = tuple[tuple[tuple[str, str], ...], str]


def link_mbps(run: RunHeader, flow: int, path_mbps: float | None = None) -> float | None:
    """Return the mean rate (Mbit/s) of the path's link, in the direction in which a flow sends.

    Args:
        run: the run.
        flow: the flow's id.
        path_mbps: mean rate of the path itself, for scenarios whose link has the rate of the path.

    Returns:
        None if the rate is not known or the flow uses further links.
    """
    entry = _entries(run.scenario).get(flow, {})
    link = _mapping(run.scenario.get("link"))
    if entry.get("via") or run.scenario.get("links"):
        return None
    forward = _mean_rate(run, link) if link.get("rate") else path_mbps
    if entry.get("from") != "to":
        return forward
    back = mbps_or_none(_mapping(link.get("back")).get("rate"))
    return forward if back is None else back


def directions(run: RunHeader) -> set[str]:
    """Return the ends ("from", "to") from which the run's TCP flows send."""
    entries = _entries(run.scenario)
    flows = (entries.get(int(flow["id"]), {}) for flow in run.flow_summaries())
    return {"to" if entry.get("from") == "to" else "from" for entry in flows}


def routes(run: RunHeader) -> dict[int, str]:
    """Return the direction and links of each TCP flow by id; flows compete only on one route."""
    entries = _entries(run.scenario)
    return {
        flow: f"{'to -> from' if entry.get('from') == 'to' else 'from -> to'}{_via(entry)}"
        for flow in (int(summary["id"]) for summary in run.flow_summaries())
        for entry in (entries.get(flow, {}),)
    }


def has_changing_rate(run: RunHeader) -> bool:
    """Return whether `[[change]]` entries set the rate of the path's link during the run."""
    changes = run.scenario.get("change") or []
    return any(isinstance(change, Mapping) and change.get("rate") for change in changes)


def _mean_rate(run: RunHeader, link: Mapping[str, Any]) -> float | None:
    """Return the mean of the link's rate (Mbit/s) over the run, changes included."""
    rate = mbps_or_none(link.get("rate"))
    if rate is None or run.duration_s <= 0:
        return rate
    steps = [(0.0, rate)]
    for change in run.scenario.get("change") or []:
        at_s = seconds_or_none(change.get("at")) if isinstance(change, Mapping) else None
        changed = mbps_or_none(change.get("rate")) if isinstance(change, Mapping) else None
        if at_s is not None and changed is not None and at_s < run.duration_s:
            steps.append((at_s, changed))
    steps.sort()
    ends_s = [at_s for at_s, _ in steps[1:]] + [run.duration_s]
    carried = (mbps * (end - at) for (at, mbps), end in zip(steps, ends_s, strict=True))
    return sum(carried) / run.duration_s


def _entries(scenario: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the `[[flow]]` entry of each flow id; an entry with `count` has that many ids."""
    flows = scenario.get("flow")
    found: dict[int, Mapping[str, Any]] = {}
    for entry in flows if isinstance(flows, list) else ():
        if isinstance(entry, Mapping):
            count = entry.get("count", 1)
            for _ in range(count if isinstance(count, int) else 1):
                found[len(found)] = entry
    return found


def _conditions(
    run: RunHeader, entry: Mapping[str, Any], flow: int, cc: str, *, by_pair: bool
) -> _Conditions:
    path, link = _mapping(run.scenario.get("path")), _mapping(run.scenario.get("link"))
    goes_back = entry.get("from") == "to"
    way = {**link, **_mapping(link.get("back"))} if goes_back else link
    app = _mapping(entry.get("app"))
    kinds = {app.get("id"): app.get("kind") for app in run.summary.get("apps") or []}
    named = {
        "engine": str(run.summary["engine"]),
        "path": _path(path),
        "pair": _pair(entry) if by_pair else "",
        "relay": str(path.get("relay") or ""),
        "sender": _sender(path, goes_back=goes_back),
        "rate": str(way.get("rate") or ""),
        "loss": f"{kind_text(way['loss'])} loss" if way.get("loss") else "",
        "queue": f"queue {way['queue']}" if way.get("queue") else "",
        "qdisc": _qdisc(way.get("qdisc")),
        "extra": f"extra RTT {entry['extra_rtt']}" if entry.get("extra_rtt") else "",
        "via": _via(entry).strip(),
        "app": str(kinds.get(flow) or app.get("kind") or "bulk"),
        "told": UNTOLD if cc in untold_senders(run.summary) else "",
    }
    rest = {
        "flow": {key: value for key, value in entry.items() if key not in _OWN_KEYS},
        **{key: run.scenario.get(key) for key in ("path", "link", "links", "change")},
    }
    return _Conditions(named, json.dumps(rest, sort_keys=True, default=str))


def _via(entry: Mapping[str, Any]) -> str:
    return f" via {', '.join(map(str, entry['via']))}" if _is_list(entry.get("via")) else ""


def _pair(entry: Mapping[str, Any]) -> str:
    """Return the sites of a network between which a flow goes."""
    ends = entry.get("between")
    return f" {_ARROW} ".join(map(str, ends)) if isinstance(ends, list) else ""


def _sender(path: Mapping[str, Any], *, goes_back: bool) -> str:
    if path.get("from") and path.get("to"):
        return f"from {path['to' if goes_back else 'from']}"
    return "back" if goes_back else "forward"


def _path(path: Mapping[str, Any]) -> str:
    if path.get("from") and path.get("to"):
        return f"{path['from']} {_ARROW} {path['to']}"
    return f"RTT {path['rtt']}" if path.get("rtt") else str(path.get("file") or "")


def _qdisc(qdisc: object) -> str:
    """Return the name of the queue discipline, without its parameters."""
    return str(qdisc.get("kind") if isinstance(qdisc, Mapping) else qdisc or "")


def _telling(of_groups: Mapping[tuple[str, _Key], Mapping[str, str]]) -> list[str]:
    """Return the fewest dimensions that separate groups of one sender as well as all dimensions.

    The engine is included if it differs, because engines differ in the uncertainty of results.
    """

    def count(dimensions: Sequence[str]) -> int:
        return len({(cc, *(named[d] for d in dimensions)) for (cc, _), named in of_groups.items()})

    kept = list(next(iter(of_groups.values()), {}))
    wanted = count(kept)
    for dimension in _LEAST_TELLING:
        rest = [name for name in kept if name != dimension]
        if count(rest) == wanted:
            kept = rest
    engines = {named["engine"] for named in of_groups.values()}
    return [name for name in kept if name != "engine" or len(engines) > 1]


def _name(cc: str, values: Sequence[str]) -> str:
    shown = [value for value in values if value]
    return f"{cc} ({', '.join(shown)})" if shown else cc


def _unique(
    names: Mapping[tuple[str, _Key], str],
    group: tuple[str, _Key],
    runs: Sequence[RunHeader],
    keys: Sequence[FlowKey],
) -> str:
    """Return a group's name; if another group has the same, add the name of a run and a flow."""
    name = names[group]
    if list(names.values()).count(name) == 1 and len(name) <= _LONGEST_NAME:
        return name
    run, flow = keys[0]
    more = "" if {run for run, _ in keys} == {run} else " …"
    which = f"{runs[run].name} #{flow}{more}" if len(runs) > 1 else f"#{flow}"
    if not name.endswith(")") or len(name) > _LONGEST_NAME:
        return f"{group[0]} ({which})"
    return f"{name[:-1]}, {which})"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)
