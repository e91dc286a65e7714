"""Text output about runs: a table of flows, and a line about each link."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyhop._core import HANDOVER_KINDS, LOSS_REASONS
from skyhop.analysis.flow_groups import flow_groups, routes
from skyhop.analysis.network_links import is_network, losses, used_links
from skyhop.analysis.sentence_words import plural
from skyhop.analysis.summary import (
    COLUMNS,
    GROUPS,
    bulk_flows,
    count,
    queue_texts,
    rows_of,
    with_untold,
)
from skyhop.analysis.tables import MISSING, Column, Table, three_digits
from skyhop.data.run_headers import RunHeader

_IMPORTANCE = (
    "run", "cc", "connection", "flow", "engine", "goodput_bps", "srtt_mean_us", "rtt_p95_us",
    "mos_mean", "mos_least", "app", "completed", "latency_p50_us", "latency_p95_us", "qoe",
    "stall_ns", "mean_bitrate_bps", "base_rtt_mean_us", "retransmits", "completion_s", "failed",
    "sent_packets", "cwnd_mean_packets", "marks",
    "latency_p99_us", "audio_late", "audio_lost", "jitter_mean_us",
    "video_late", "video_lost", "switches", "stalls", "startup_ns",
)  # fmt: skip
"""Keys of a flow's columns, most important first; those that do not fit go to a further table."""

_KEYS = ("run", "cc", "connection", "flow", "engine")
"""Keys of the columns that identify a flow; each table repeats these columns."""

CONNECTIONS_AT_MOST = 8
"""Largest number of a program's connections with a row of their own; browsers open dozens."""

_SEED = re.compile(r"seed-\d+")
_LEVEL = 0.95


@dataclass(frozen=True)
class RunTables:
    """Table of flows and lines about links, as text."""

    flows: Table
    importance: Sequence[int]
    """Indices of the columns of `flows`, most important first."""
    keys: Sequence[int]
    """Indices of the columns of `flows` that identify a row."""
    senders: Table
    """Sums over the flows of each sender; without rows unless a run has many flows."""
    links: Sequence[str]
    """Lines about the links: for each run, its link and the sum of its flows."""


@dataclass(frozen=True)
class _Repeats:
    """Runs that differ only in their seeds, or a single run."""

    name: str
    runs: Sequence[RunHeader]


def run_tables(runs: Sequence[RunHeader], *, each: bool = False) -> RunTables:
    """Return the tables of runs; repeats (runs that differ only in their seeds) are combined.

    Args:
        runs: headers of the runs, from `read_run_headers`.
        each: whether every repeat has rows of its own.
    """
    groups = [_Repeats(run.name, [run]) for run in runs] if each else list(_repeats(runs))
    rows = [row for group in groups for row in _flow_rows(group) if row["flow"] is not None]
    columns = [_flow_column(column) for column in COLUMNS if _is_shown(column.key, rows)]
    places = {column.key: place for place, column in enumerate(columns)}
    return RunTables(
        flows=Table([], columns, [[_text(column, row) for column in columns] for row in rows]),
        importance=[places[key] for key in _IMPORTANCE if key in places],
        keys=[places[key] for key in _KEYS if key in places],
        senders=senders_table([group.runs for group in groups], [group.name for group in groups]),
        links=[line for group in groups for line in _link_lines(group, alone=len(groups) == 1)],
    )


def _repeats(runs: Sequence[RunHeader]) -> Iterator[_Repeats]:
    """Yield the runs in order; runs in directories `seed-N` of one parent are together."""
    groups: dict[object, list[RunHeader]] = {}
    for run in runs:
        is_seed = _SEED.fullmatch(run.directory.resolve().name) is not None
        groups.setdefault(run.directory.resolve().parent if is_seed else run.name, []).append(run)
    for alike in groups.values():
        if len(alike) == 1:
            yield _Repeats(alike[0].name, alike)
        else:
            yield _Repeats(f"{alike[0].directory.resolve().parent.name} (x{len(alike)})", alike)


def _flow_rows(group: _Repeats) -> Iterator[dict[str, Any]]:
    """Yield a row per flow; in a row of several repeats, each value is a list."""
    found = [_largest([with_untold(row) for row in rows_of(run)]) for run in group.runs]
    for alike in zip(*found, strict=False):
        if len(alike) == 1:
            yield {**alike[0], "run": group.name}
        else:
            row = {key: [one[key] for one in alike] for key in alike[0]}
            yield {**row, "run": group.name, **{key: row[key][0] for key in _LABELS}}


def _largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a program's connections with the most payload, in order; of other runs, all flows."""
    if not rows[0]["connection"] or len(rows) <= CONNECTIONS_AT_MOST:
        return rows
    kept = sorted(rows, key=_carried, reverse=True)[:CONNECTIONS_AT_MOST]
    return [row for row in rows if row in kept]


def _carried(flow: Mapping[str, Any]) -> float:
    """Return the payload of a flow in bits."""
    return float(flow["goodput_bps"]) * (float(flow["stop_s"]) - float(flow["start_s"]))


_LABELS = ("flow", "cc", "connection", "app", "engine")


def _is_shown(key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    if key not in _IMPORTANCE:
        return False
    if key == "flow":
        if any(row["connection"] for row in rows):
            return False
        pairs = Counter((row["run"], row["cc"]) for row in rows)
        return any(count > 1 for count in pairs.values())
    if key == "engine":
        return len({row["engine"] for row in rows}) > 1
    known = [value for row in rows for value in _values(row[key])]
    return any(known) if key in ("marks", "failed") else bool(known)


def _values(value: Any) -> list[Any]:
    return [one for one in (value if isinstance(value, list) else [value]) if one is not None]


MANY_FLOWS = 4
"""Least number of TCP flows of one run for which its table has sums per sender."""

_SENDER_COLUMNS = (
    Column("run", "run", "", str, numeric=False),
    Column("sender", "sender", "", str, numeric=False),
    Column("flows", "flows", "", count),
    Column("goodput", "goodput of all", "Mbit/s", three_digits),
    Column("share", "share", "%", three_digits),
    Column("mean", "goodput per flow", "Mbit/s", three_digits),
)


def senders_table(groups: Sequence[Sequence[RunHeader]], names: Sequence[str]) -> Table:
    """Return the goodput of all flows of each sender, and its share of all goodput on their route.

    Args:
        groups: runs; those of one element differ only in their seeds, and are averaged.
        names: name of each element of `groups`.

    Returns:
        Rows for runs with at least `MANY_FLOWS` flows, several of them of one sender.
    """
    rows: list[dict[str, Any]] = []
    for name, runs in zip(names, groups, strict=True):
        found = [_sums(run) for run in runs if len(run.summary["flows"]) >= MANY_FLOWS]
        for sender in found[0] if found else ():
            alike = [sums[sender] for sums in found if sender in sums]
            values = {key: [sums[key] for sums in alike] for key in alike[0]}
            flows = int(alike[0]["flows"])
            rows.append({"run": name, "sender": sender, **values, "flows": flows})
    cells = [
        [
            _with_interval(column, row[column.key])
            if isinstance(row[column.key], list)
            else column.text(row)
            for column in _SENDER_COLUMNS
        ]
        for row in rows
    ]
    return Table([("", len(_SENDER_COLUMNS))], _SENDER_COLUMNS, cells)


def _sums(run: RunHeader) -> dict[str, dict[str, float]]:
    """Return the number and goodput (Mbit/s) of each sender's flows; empty if it has only one.

    The goodput of all is over the run, as flows may begin later: with the sum of their own rates,
    a link could seem to carry more than its rate.
    """
    of_flow, groups = routes(run), flow_groups([run])
    if len(groups) == len(of_flow) or any(flow.get("connection") for flow in run.flow_summaries()):
        return {}
    mbps, in_run = dict[int, float](), dict[int, float]()
    for flow in run.flow_summaries():
        number, active_s = int(flow["id"]), float(flow["stop_s"]) - float(flow["start_s"])
        mbps[number] = float(flow["goodput_bps"]) / 1e6
        in_run[number] = mbps[number] * max(active_s, 0.0) / run.duration_s
    on_route = {
        route: math.fsum(in_run[flow] for flow, other in of_flow.items() if other == route)
        for route in of_flow.values()
    }
    found = {}
    for group in groups:
        flows = [flow for _, flow in group.flows]
        goodput, whole = math.fsum(in_run[flow] for flow in flows), on_route[of_flow[flows[0]]]
        found[group.name] = {
            "flows": len(flows),
            "goodput": goodput,
            "share": 100 * goodput / whole if whole else 0.0,
            "mean": math.fsum(mbps[flow] for flow in flows) / len(flows),
        }
    return found


def _flow_column(column: Column) -> Column:
    """Return a column whose title includes the heading of its group."""
    for start, group in GROUPS.items():
        if column.key.startswith(start):
            name, _, unit = group.partition(" (")
            title = f"{name} {column.title}"
            return Column(column.key, title, unit.rstrip(")"), column.write, column.numeric)
    return column


def _text(column: Column, row: Mapping[str, Any]) -> str:
    value = row[column.key]
    if not isinstance(value, list):
        return column.text(row)
    return _with_interval(column, _values(value))


def _with_interval(column: Column, values: Sequence[float]) -> str:
    """Return the mean and half the length of its 95 % interval (Student's t), as text."""
    if not values:
        return MISSING
    # The mean of whole numbers may be fractional.
    write = three_digits if column.write is count else column.write
    if len(values) == 1:
        return write(values[0])
    # Imported here because it takes 0.1 s, and a single run does not need it.
    import numpy as np

    from skyhop.analysis import student

    known, degrees = np.array(values, float), len(values) - 1
    error = float(known.std(ddof=1)) / len(known) ** 0.5
    reach = student.quantile((1 + _LEVEL) / 2, degrees) * error
    return f"{write(float(known.mean()))} ± {write(reach)}"


def _link_lines(group: _Repeats, *, alone: bool) -> Iterator[str]:
    """Yield one line about the path's link: of a run, or means over repeats."""
    summaries = [next(rows_of(run)) for run in group.runs]

    def mean(key: str) -> float | None:
        values = [row[key] for row in summaries if row.get(key) is not None]
        return math.fsum(values) / len(values) if values else None

    networks = [run for run in group.runs if is_network(run)]
    parts = [*_hottest(networks)]
    used = None if networks else mean("utilisation")
    if used is not None:
        back = mean("utilisation_back")
        and_back = "" if back is None else f" ({100 * back:,.1f} % back)"
        parts.append(f"{100 * used:,.1f} % of the link used{and_back}")
    of_link = {reason: mean(f"drops_{reason}") or 0 for reason in LOSS_REASONS}
    lost = losses(networks) if networks else of_link
    if sum(lost.values()):
        reasons = [f"{reason} {_number(count)}" for reason, count in lost.items() if count]
        total = sum(lost.values())
        parts.append(f"{_number(total)} {plural(total, 'packet')} lost ({', '.join(reasons)})")
    else:
        parts.append("nothing lost")
    handovers = sum(mean(f"handovers_{kind}") or 0 for kind in HANDOVER_KINDS)
    if handovers:
        parts.append(f"{_number(handovers)} {plural(handovers, 'handover')}")
    queues = [queue_texts(run.summary["link"]) for run in group.runs if not networks]
    parts += queues[0] if queues and all(texts == queues[0] for texts in queues) else []
    parts += [*_probes(group.runs), *_datagrams(group.runs)]
    smaller = [_smaller(run) for run in group.runs]
    if any(smaller):
        parts.append(f"{_number(sum(smaller) / len(smaller))} smaller flows in --json and --csv")
    parts += _jain(group.runs)
    late = mean("lateness_p99_us")
    if late is not None:
        parts.append(f"packets late by {three_digits(late)} µs (p99)")
    yield ("" if alone else f"{group.name}: ") + ", ".join(parts)


_HOTTEST = 3
"""Number of a network's links that the line about its links names."""


def _hottest(networks: Sequence[RunHeader]) -> Iterator[str]:
    """Yield the number of links that runs over a network used, and the most used ones."""
    used = used_links(networks) if networks else []
    if used:
        links = len({link.name for link in used})
        hottest = "; ".join(
            f"{link.name} {100 * link.utilisation:.0f} %" for link in used[:_HOTTEST]
        )
        yield f"{links:,} {plural(links, 'link')} used, most of all {hottest}"


def _datagrams(runs: Sequence[RunHeader]) -> Iterator[str]:
    """Yield a line on how many UDP datagrams of a program arrived per direction, if it sent any."""
    for way, name in (("forward", "from -> to"), ("back", "to -> from")):
        counts = [run.manifest.get("packets", {}).get(way, {}) for run in runs]
        sent = sum(count.get("udp_sent", 0) for count in counts)
        if sent:
            arrived = sum(count.get("udp_delivered", 0) for count in counts)
            yield f"{arrived:,} of {sent:,} UDP datagrams arrived {name}"


def _probes(runs: Sequence[RunHeader]) -> Iterator[str]:
    """Yield a line with the RTT and loss of each probe, means over the runs."""
    by_run = [run.summary.get("probes") or [] for run in runs]
    for probes in zip(*by_run, strict=False):
        name = "probe" if len(by_run[0]) == 1 else f"probe #{probes[0]['id']}"
        known = [[p[f"rtt_{q}_us"] for p in probes if p.get(f"rtt_{q}_us")] for q in ("p50", "p95")]
        p50, p95 = (math.fsum(us) / len(us) / 1e3 if us else None for us in known)
        rtt = f" RTT {three_digits(p50)} ms (p95 {three_digits(p95)} ms)" if p50 and p95 else ""
        sent, lost = (sum(int(p[key]) for p in probes) for key in ("sent", "lost"))
        yield f"{name}{rtt}, {lost:,} of {sent:,} lost"


def _smaller(run: RunHeader) -> int:
    """Return the number of a program's connections that have no row."""
    flows = [flow for flow in run.flow_summaries() if flow.get("connection")]
    return max(0, len(flows) - CONNECTIONS_AT_MOST)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else three_digits(value)


def _jain(runs: Sequence[RunHeader]) -> Iterator[str]:
    """Yield Jain's index of the goodputs of the bulk flows on each route, as mean over runs."""
    found: dict[str, list[list[float]]] = {}
    for run in runs:
        on_route: dict[str, list[float]] = {}
        of_flow = routes(run)
        for flow in bulk_flows(run.summary):
            on_route.setdefault(of_flow[int(flow["id"])], []).append(float(flow["goodput_bps"]))
        for route, goodputs in on_route.items():
            if len(goodputs) > 1:
                found.setdefault(route, []).append(goodputs)
    if not found:
        return
    # Imported here because it takes 0.1 s, and a run of one flow does not need it.
    import numpy as np

    from skyhop.analysis.statistics import jain, mean

    for route, shares in found.items():
        indices = [jain(np.array(goodputs, float)) for goodputs in shares]
        index = mean(np.array([index for index in indices if index is not None], float))
        where = f" of the bulk flows {route}" if len(found) > 1 else ""
        if index is not None:
            yield f"Jain's index{where} {index:.3f}"
