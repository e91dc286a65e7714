"""Conditions of a study's runs: path, rate, queue, loss, duration and engine.

They come from the resolved scenario of each run, and the queue's size from the run's summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from skyhop.analysis.network_links import link_texts, network_text
from skyhop.analysis.summary import kind_text, queue_range, queue_texts
from skyhop.data.quantities import UNITS, leading_number
from skyhop.study.plan import Study
from skyhop.study.run_ids import PlannedRun

_LEVELS_SHOWN = 6
_VALUES_SHOWN = 4

Queues = Mapping[str, Mapping[str, Any]]
"""Sizes of the queues of each link of a run, as its summary has them (`queue`, `queue_back`)."""


@dataclass(frozen=True)
class Condition:
    """Condition of a study's runs, or of those with some values of an axis."""

    name: str
    runs: str
    """The runs, such as "path = access"; "all" for all of them."""
    value: str


@dataclass(frozen=True)
class _Varied:
    """Values of a condition: one per run."""

    name: str
    texts: Sequence[str]
    merge: Callable[[Sequence[str]], str]
    """Function that returns many values as one text."""


def conditions_of(
    study: Study, runs: Sequence[PlannedRun], queues: Mapping[str, Queues] | None = None
) -> list[Condition]:
    """Return the conditions of a study's runs: once if all runs share it, else by an axis or range.

    Args:
        study: the study.
        runs: its planned runs.
        queues: sizes of the queues of each finished run, by run id.
    """
    found = []
    networks = [run for run in runs if "network" in run.resolved]
    for varied in _varied_networks(networks) if networks else ():
        found += _condition(study, networks, varied)
    scenarios = [run for run in runs if "path" in run.resolved]
    if scenarios:
        for varied in _varied(study, scenarios, queues or {}):
            if any(varied.texts):
                found += _condition(study, scenarios, varied)
    return [*found, Condition("engine", "all", study.file.engine)]


def _varied(
    study: Study, runs: Sequence[PlannedRun], queues: Mapping[str, Queues]
) -> Iterator[_Varied]:
    """Yield each condition with its value in every run; an empty value where it does not apply."""
    yield _Varied("path", [_path_text(run.resolved["path"]) for run in runs], _paths)
    yield _Varied("handovers", [_handover_text(run.resolved["path"]) for run in runs], _listed)
    links = [run.resolved["link"] for run in runs]
    backs = [link.get("back") or {} for link in links]
    for side, of_side in (("", links), (" back", backs)):
        for key in ("rate", "loss"):
            texts = [
                _of_link(study, run, link, key) for run, link in zip(runs, of_side, strict=True)
            ]
            yield _Varied(f"{key}{side}", texts, _range)
        qdiscs = [link.get("qdisc", "") for link in of_side]
        yield _Varied(f"queue discipline{side}", _qdisc_texts(qdiscs), _listed)
    yield _queue_of_path(runs, links, queues)
    names = dict.fromkeys(name for run in runs for name in run.resolved.get("links", {}))
    yield from _alike(_further_link(name, runs, queues) for name in names)
    changes = [len(run.resolved.get("change", ())) for run in runs]
    texts = [f"{count} during a run" if count else "" for count in changes]
    yield _Varied("changes", texts, _range)
    yield _Varied("duration", [run.resolved["run"]["duration"] for run in runs], _range)


def _varied_networks(runs: Sequence[PlannedRun]) -> Iterator[_Varied]:
    """Yield each condition of runs over networks with its value in every run."""
    networks = [run.resolved["network"] for run in runs]
    yield _Varied("network", [network_text(network) for network in networks], _listed)
    links = [link_texts(network) for network in networks]
    for kind in links[0]:
        yield _Varied(kind, [texts[kind] for texts in links], _listed)
    yield _Varied("duration", [run.resolved["run"]["duration"] for run in runs], _range)


def _path_text(path: Mapping[str, Any]) -> str:
    """Return a path as text: constellation, relay and places; path file; access profile; RTT."""
    if path["kind"] == "fixed":
        return f"fixed, RTT {path['rtt']}" + (", with jitter" if path.get("jitter") else "")
    if path["kind"] == "trace":
        offset = f", from {path['offset']} on" if path.get("offset") else ""
        return f"{path['file']}{offset}"
    jitter = ", with jitter" if path.get("jitter") else ""
    if path["kind"] == "access":
        return f"access profile {path['profile']}{jitter}"
    compat = "" if path["compat"] == "none" else f" (as {path['compat']})"
    ends = f"{path['from']} \N{RIGHTWARDS ARROW} {path['to']}"
    profile = path.get("access", {}).get("profile")
    access = f", access profile {profile}" if profile else ""
    return f"{path['constellation']}{compat}, {path['relay']}{access}{jitter}, {ends}"


def _handover_text(path: Mapping[str, Any]) -> str:
    """Return the handover policy (if it is not the relay's) and the outages of a computed path."""
    if path["kind"] != "constellation":
        return ""
    outage = f"outage {path['outage']}"
    if "intermediate_outage" in path:
        outage += f", intermediate {path['intermediate_outage']}"
    return ", ".join(filter(None, (path.get("handover"), outage)))


def _of_link(study: Study, run: PlannedRun, link: Mapping[str, Any], key: str) -> str:
    """Return the rate or loss of a link; a default gives way to what the path has."""
    text, path = kind_text(link.get(key, "")), run.resolved["path"]
    origin = _measured(path)
    if not text or not origin or link is not run.resolved["link"]:
        return text
    given = key in study.base.get("link", {}) or any(
        override.split("=")[0].strip() in ("link", f"link.{key}") for override in run.sets
    )
    return text if given else f"of the {origin}, else {text}"


def _measured(path: Mapping[str, Any]) -> str:
    """Return the part of a path that may have rates and losses of its own; empty without one."""
    if path["kind"] == "trace":
        return "path file"
    has_profile = path["kind"] == "access" or path.get("relay") == "starlink" or "access" in path
    return "access profile" if has_profile else ""


def _qdisc_texts(qdiscs: Sequence[str | Mapping[str, Any]]) -> list[str]:
    """Return each queue discipline with those parameters in which runs with its kind differ.

    A name alone has the default parameters, and stays alone.
    """
    of_kinds: dict[str, list[Mapping[str, Any]]] = {}
    for qdisc in qdiscs:
        table = _default_qdisc(qdisc) if isinstance(qdisc, str) else qdisc
        of_kind = of_kinds.setdefault(table["kind"], [])
        if table not in of_kind:
            of_kind.append(table)
    differing = {
        kind: {
            key
            for key in set().union(*of_kind)
            if len({str(table.get(key)) for table in of_kind}) > 1
        }
        for kind, of_kind in of_kinds.items()
    }
    return [
        qdisc
        if isinstance(qdisc, str)
        else kind_text(
            {
                key if value is not False else f"no {key}": value is False or value
                for key, value in qdisc.items()
                if key == "kind" or key in differing[qdisc["kind"]]
            }
        )
        for qdisc in qdiscs
    ]


@cache
def _default_qdisc(name: str) -> Mapping[str, Any]:
    """Return the discipline that a name alone stands for, as a table."""
    from skyhop import _core

    entries = [entry for entry in _core.list_qdiscs() if entry.name == name]
    parameters = [pair for entry in entries for pair in entry.parameters]
    words = {"true": True, "false": False}
    return {"kind": name, **{key: words.get(text, text) for key, text in parameters}}


def _queue_of_path(
    runs: Sequence[PlannedRun], links: Sequence[Mapping[str, Any]], queues: Mapping[str, Queues]
) -> _Varied:
    sizes = [queues.get(run.run_id, {}).get("path", {}) for run in runs]
    texts = [
        "; ".join(queue_texts(size)) or f"queue {link['queue']}"
        for size, link in zip(sizes, links, strict=True)
    ]
    return _Varied(
        "queue",
        [text.removeprefix("queue ") for text in texts],
        lambda values: queue_range(sizes) or _range(values),
    )


def _further_link(name: str, runs: Sequence[PlannedRun], queues: Mapping[str, Queues]) -> _Varied:
    texts = []
    for run in runs:
        link = run.resolved.get("links", {}).get(name, {})
        sizes = queue_texts(queues.get(run.run_id, {}).get(name, {}))
        parts = [link.get("rate"), link and kind_text(link["qdisc"])]
        parts += sizes or ([f"queue {link['queue']}"] if link else [])
        parts += [f"{key} {kind_text(link[key])}" for key in ("loss", "rtt") if link.get(key)]
        texts.append(", ".join(map(str, filter(None, parts))))
    return _Varied(f"link {name}", texts, _listed)


def _alike(links: Iterable[_Varied]) -> Iterator[_Varied]:
    """Yield the links; those that are alike in every run as one, with the names of all."""
    by_texts: dict[tuple[str, ...], list[_Varied]] = {}
    for link in links:
        by_texts.setdefault(tuple(link.texts), []).append(link)
    for alike in by_texts.values():
        first, *others = alike
        more = "".join(f", {other.name.removeprefix('link ')}" for other in others)
        yield _Varied(first.name + more, first.texts, first.merge)


def _condition(study: Study, runs: Sequence[PlannedRun], varied: _Varied) -> list[Condition]:
    """Return a condition: one for all runs, else one per value of an axis, else its range."""
    if len(set(varied.texts)) == 1:
        return [Condition(varied.name, "all", varied.texts[0])]
    for axis in study.file.axis:
        by_level: dict[str, set[str]] = {}
        for run, text in zip(runs, varied.texts, strict=True):
            by_level.setdefault(str(run.labels[axis.name]), set()).add(text)
        levels_of: dict[str, list[str]] = {}
        for level, texts in by_level.items():
            levels_of.setdefault(min(texts), []).append(level)
        if len(levels_of) <= _LEVELS_SHOWN and all(len(texts) == 1 for texts in by_level.values()):
            return [
                Condition(varied.name, f"{axis.name} = {_few(levels)}", text or "none")
                for text, levels in levels_of.items()
            ]
    distinct = list(dict.fromkeys(text for text in varied.texts if text))
    others = "; none in the others" if "" in varied.texts else ""
    return [Condition(varied.name, "all", varied.merge(distinct) + others)]


def _few(values: Sequence[str]) -> str:
    more = len(values) - _VALUES_SHOWN
    separator = "; " if any("," in value for value in values) else ", "
    return separator.join(values[:_VALUES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _listed(texts: Sequence[str]) -> str:
    """Return the texts, separated by semicolons; of many, the first."""
    more = len(texts) - _VALUES_SHOWN
    return "; ".join(texts[:_VALUES_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _paths(texts: Sequence[str]) -> str:
    fixed = "fixed, RTT "
    if all(text.startswith(fixed) for text in texts):
        return fixed + _range([text.removeprefix(fixed) for text in texts])
    return _listed(texts)


def _range(texts: Sequence[str]) -> str:
    """Return quantities with units as a range: "10 Mbit/s to 1 Gbit/s"; other texts as a list."""
    sizes = [_size(text) for text in texts]
    known = [size for size in sizes if size is not None]
    is_short = len(texts) <= _VALUES_SHOWN
    if is_short or len(known) < len(texts) or len({dimension for dimension, _ in known}) > 1:
        return _listed(texts)
    ordered = sorted(zip(known, texts, strict=True))
    return f"{ordered[0][1]} to {ordered[-1][1]} ({len(texts)} values)"


def _size(text: str) -> tuple[str, float] | None:
    number = leading_number(text)
    _, _, unit = text.strip().partition(" ")
    dimension, factor = UNITS.get(unit, (unit, 1.0))
    return None if number is None else (dimension, number * factor)
