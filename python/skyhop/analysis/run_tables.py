"""What a terminal shows of runs: a table of flows, and what belongs to their links."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyhop._core import HANDOVER_KINDS, LOSS_REASONS
from skyhop.analysis.summary import COLUMNS, GROUPS, count, rows_of
from skyhop.analysis.tables import MISSING, Column, Table, three_digits
from skyhop.data.heads import RunHead

_IMPORTANCE = (
    "run", "cc", "connection", "flow", "engine", "goodput_bps", "srtt_mean_us", "retransmits",
    "completion_s", "app", "completed", "mean_bitrate_bps", "stall_ns", "qoe",
    "latency_p50_us", "latency_p95_us", "latency_p99_us", "failed",
    "mos_mean", "mos_least", "audio_late", "audio_lost", "jitter_mean_us",
    "video_late", "video_lost", "switches", "stalls", "startup_ns",
    "rtt_p95_us", "marks", "base_rtt_mean_us", "sent_packets", "cwnd_mean_packets",
)  # fmt: skip
"""Of a flow's columns, most important first: what does not fit is left out from the end."""

CONNECTIONS_AT_MOST = 8
"""So many flows of a program have a row each; a browser opens dozens."""

_SEED = re.compile(r"seed-\d+")
_LEVEL = 0.95


@dataclass(frozen=True)
class RunTables:
    """Tables of runs, written for a reader."""

    flows: Table
    importance: Sequence[int]
    """Places of the columns of `flows`, most important first."""
    links: Sequence[str]
    """A line per run about what belongs to its link, or to all its flows."""


@dataclass(frozen=True)
class _Repeats:
    """Runs that differ in their seeds alone, or one run."""

    name: str
    runs: Sequence[RunHead]


def run_tables(runs: Sequence[RunHead], *, each: bool = False) -> RunTables:
    """Return the tables of runs; those that differ in their seeds (`seed-1`, …) together.

    Args:
        runs: as `read_heads` gives them.
        each: keep repeats apart.
    """
    groups = [_Repeats(run.name, [run]) for run in runs] if each else list(_repeats(runs))
    rows = [row for group in groups for row in _flow_rows(group) if row["flow"] is not None]
    columns = [_flow_column(column) for column in COLUMNS if _is_shown(column.key, rows)]
    places = {column.key: place for place, column in enumerate(columns)}
    return RunTables(
        flows=Table([], columns, [[_text(column, row) for column in columns] for row in rows]),
        importance=[places[key] for key in _IMPORTANCE if key in places],
        links=[line for group in groups for line in _link_lines(group, alone=len(groups) == 1)],
    )


def _repeats(runs: Sequence[RunHead]) -> Iterator[_Repeats]:
    """Yield runs in their order, those with seeds of one directory as one."""
    groups: dict[object, list[RunHead]] = {}
    for run in runs:
        is_seed = _SEED.fullmatch(run.directory.resolve().name) is not None
        groups.setdefault(run.directory.resolve().parent if is_seed else run.name, []).append(run)
    for alike in groups.values():
        if len(alike) == 1:
            yield _Repeats(alike[0].name, alike)
        else:
            yield _Repeats(f"{alike[0].directory.resolve().parent.name} (x{len(alike)})", alike)


def _flow_rows(group: _Repeats) -> Iterator[dict[str, Any]]:
    """Yield a row per flow; of repeats each figure is a list."""
    found = [_largest(list(rows_of(run))) for run in group.runs]
    for alike in zip(*found, strict=False):
        if len(alike) == 1:
            yield {**alike[0], "run": group.name}
        else:
            row = {key: [one[key] for one in alike] for key in alike[0]}
            yield {**row, "run": group.name, **{key: row[key][0] for key in _LABELS}}


def _largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the flows of a program that carried most, in their order; others' are all shown."""
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


def _flow_column(column: Column) -> Column:
    """Return it with what a heading above it would say."""
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
    """Write the mean and half of its 95 % interval (Student's t)."""
    if not values:
        return MISSING
    # The mean of whole numbers need not be one.
    write = three_digits if column.write is count else column.write
    if len(values) == 1:
        return write(values[0])
    # A single run need not take the tenth of a second that this does.
    import numpy as np
    from scipy.special import stdtrit

    known, degrees = np.array(values, float), len(values) - 1
    reach = float(stdtrit(degrees, (1 + _LEVEL) / 2)) * float(known.std(ddof=1)) / len(known) ** 0.5
    return f"{write(float(known.mean()))} ± {write(reach)}"


def _link_lines(group: _Repeats, *, alone: bool) -> Iterator[str]:
    """Yield one line about the path's link of a run, the runs' mean of repeats."""
    summaries = [next(rows_of(run)) for run in group.runs]

    def mean(key: str) -> float | None:
        values = [row[key] for row in summaries if row.get(key) is not None]
        return math.fsum(values) / len(values) if values else None

    parts = []
    used = mean("utilisation")
    if used is not None:
        back = mean("utilisation_back")
        and_back = "" if back is None else f" ({100 * back:,.1f} % back)"
        parts.append(f"{100 * used:,.1f} % of the link used{and_back}")
    lost = {reason: mean(f"drops_{reason}") or 0 for reason in LOSS_REASONS}
    if sum(lost.values()):
        reasons = [f"{reason} {_number(count)}" for reason, count in lost.items() if count]
        parts.append(f"{_number(sum(lost.values()))} packets lost ({', '.join(reasons)})")
    else:
        parts.append("nothing lost")
    handovers = sum(mean(f"handovers_{kind}") or 0 for kind in HANDOVER_KINDS)
    if handovers:
        parts.append(f"{_number(handovers)} handovers")
    parts += list(_datagrams(group.runs))
    smaller = [_smaller(run) for run in group.runs]
    if any(smaller):
        parts.append(f"{_number(sum(smaller) / len(smaller))} smaller flows in --json and --csv")
    index = _jain(group.runs)
    if index is not None:
        parts.append(f"Jain's index {index:.3f}")
    late = mean("lateness_p99_us")
    if late is not None:
        parts.append(f"packets late by {three_digits(late)} µs (p99)")
    yield ("" if alone else f"{group.name}: ") + ", ".join(parts)


def _datagrams(runs: Sequence[RunHead]) -> Iterator[str]:
    """Yield what became of a program's UDP datagrams in each direction, where there were any."""
    for way, name in (("forward", "from -> to"), ("back", "to -> from")):
        counts = [run.manifest.get("packets", {}).get(way, {}) for run in runs]
        sent = sum(count.get("udp_sent", 0) for count in counts)
        if sent:
            arrived = sum(count.get("udp_delivered", 0) for count in counts)
            yield f"{arrived:,} of {sent:,} UDP datagrams arrived {name}"


def _smaller(run: RunHead) -> int:
    """Return how many flows of a program have no row."""
    flows = [flow for flow in run.flow_summaries() if flow.get("connection")]
    return max(0, len(flows) - CONNECTIONS_AT_MOST)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else three_digits(value)


def _jain(runs: Sequence[RunHead]) -> float | None:
    """Return the index of the flows' goodputs where there are several: the runs' mean."""
    # A program's connections are not rivals: one steers, another carries.
    ours = [[flow for flow in run.flow_summaries() if not flow.get("connection")] for run in runs]
    shares = [[flow["goodput_bps"] for flow in flows] for flows in ours]
    shares = [goodputs for goodputs in shares if len(goodputs) > 1]
    if not shares:
        return None
    # numpy takes a tenth of a second, which a run of one flow need not.
    import numpy as np

    from skyhop.analysis.statistics import jain, mean

    found = [jain(np.array(goodputs, float)) for goodputs in shares]
    return mean(np.array([index for index in found if index is not None], float))
