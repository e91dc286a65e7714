"""Part of a page about a run over a network: map, and tables of links, nodes, cities, groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skyhop.analysis.network_links import is_network
from skyhop.analysis.network_loads import Loads, loads_of
from skyhop.analysis.network_map import NetworkMap, network_map
from skyhop.analysis.statistics import jain
from skyhop.analysis.tables import Column, Table, three_digits
from skyhop.data.networks import Network, network_of
from skyhop.data.records import RunRecord
from skyhop.errors import InputError

HOTTEST = 10
"""Number of links, and of nodes, in the tables of the hottest ones."""

_MOST_SHOWN = 25
"""Largest number of rows of a table that a page shows unfolded."""


@dataclass(frozen=True)
class NetworkTable:
    """Table of the part, with its texts."""

    heading: str
    caption: str
    table: Table

    @property
    def is_folded(self) -> bool:
        """Whether the page shows the table only when the reader opens it."""
        return len(self.table.rows) > _MOST_SHOWN


@dataclass(frozen=True)
class NetworkPart:
    """Part of a page about one run over a network."""

    run: str
    """Name of the run."""
    map_caption: str
    view: Callable[[], NetworkMap] | None
    """Function that computes the map; None if the network is not known."""
    missing: str
    """Reason why there is no map and no table of cities; empty if there are."""
    tables: Sequence[NetworkTable]


def network_part(run: RunRecord) -> NetworkPart | None:
    """Return the part about a run's network; None for a run over a path."""
    if not is_network(run):
        return None
    network, missing = _network_or_reason(run)
    loads = loads_of(run)
    tables = [_links_table(loads), _nodes_table(loads)]
    if network is not None:
        tables.append(_cities_table(run, network))
    tables.append(_groups_table(run))
    return NetworkPart(
        run=run.name,
        map_caption=(
            "Links coloured by utilisation: the bytes that they sent, divided by those that their "
            "rate allowed. A laser has the colour of its busier direction, a satellite that of its "
            "downlink, a site that of its own busiest link. Each link is shown where it was when "
            "it had carried half of its bytes."
        ),
        view=None if network is None else partial(network_map, run, network),
        missing=missing,
        tables=[table for table in tables if table.table.rows],
    )


def ends_of_flows(run: RunRecord) -> Mapping[int, tuple[str, str]]:
    """Return the sending and the receiving site of each flow by id; empty if not known."""
    if not is_network(run):
        return {}
    network, _ = _network_or_reason(run)
    return {} if network is None else network.ends


def _network_or_reason(run: RunRecord) -> tuple[Network | None, str]:
    try:
        return network_of(run.scenario), ""
    except InputError as error:
        return None, str(error)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _kilobytes(value: float) -> str:
    return three_digits(value / 1e3)


_LOAD_COLUMNS = (
    Column("used", "used", "%", _percent),
    Column("mbps", "carried", "Mbit/s", three_digits),
    Column("backlog", "queue mean", "kB", _kilobytes),
    Column("drops", "lost", "packets", _count),
    Column("marks", "marked", "packets", _count),
)


def _links_table(loads: Loads) -> NetworkTable:
    rows: list[dict[str, Any]] = [
        {"link": channel.text, "kind": channel.kind, **_values(loads, [row])}
        for row, channel in enumerate(loads.channels)
    ]
    rows.sort(key=lambda row: (-row["used"], -row["drops"], row["link"]))
    columns = [
        Column("link", "link", "", str, numeric=False),
        Column("kind", "kind", "", str, numeric=False),
        *_LOAD_COLUMNS,
    ]
    caption = (
        f"The most used of {len(rows):,} directions of links that carried something. Carried are "
        "packets that arrived, with Ethernet headers."
    )
    return NetworkTable("Hottest links", caption, _table(columns, rows[:HOTTEST]))


def _nodes_table(loads: Loads) -> NetworkTable:
    of_nodes: dict[str, list[int]] = {}
    for row, channel in enumerate(loads.channels):
        of_nodes.setdefault(channel.node, []).append(row)
    rows: list[dict[str, Any]] = []
    for node, places in of_nodes.items():
        busiest = max(places, key=lambda place: float(loads.utilisation[place, 0]))
        of_link = loads.channels[busiest].text.removeprefix(node).strip()
        rows.append({"node": node, "busiest": of_link, **_values(loads, places)})
    rows.sort(key=lambda row: (-row["used"], -row["mbps"], row["node"]))
    columns = [
        Column("node", "node", "", str, numeric=False),
        Column("busiest", "busiest link", "", str, numeric=False),
        *_LOAD_COLUMNS,
    ]
    caption = (
        "Satellites and sites by the utilisation of their busiest outgoing link; the other numbers "
        "are sums over all links on which the node sends."
    )
    return NetworkTable("Hottest satellites and sites", caption, _table(columns, rows[:HOTTEST]))


def _values(loads: Loads, places: Sequence[int]) -> dict[str, float]:
    """Return the highest utilisation, and sums of the other values, of some directions of links."""
    return {
        "used": float(loads.utilisation[places, 0].max()),
        "mbps": float(loads.carried_mbps[places, 0].sum()),
        "backlog": float(loads.backlog_bytes[places, 0].sum()),
        "drops": float(loads.drops[places, 0].sum()),
        "marks": float(loads.marks[places, 0].sum()),
    }


_ROLES = ("sends", "receives")


def _cities_table(run: RunRecord, network: Network) -> NetworkTable:
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {
        site.name: {role: [] for role in _ROLES} for site in network.sites
    }
    for flow in run.flow_summaries():
        for role, site in zip(_ROLES, network.ends.get(int(flow["id"]), ()), strict=False):
            found[site][role].append(flow)
    rows: list[dict[str, Any]] = [
        {"city": site, **{k: v for role in _ROLES for k, v in _of_flows(run, role, flows[role])}}
        for site, flows in found.items()
        if any(flows.values())
    ]
    rows.sort(key=lambda row: (-row["sends"] - row["receives"], row["city"]))
    columns = [Column("city", "site", "", str, numeric=False)]
    for role in _ROLES:
        columns += [
            Column(f"{role}_flows", "flows", "", _count),
            Column(role, "goodput", "Mbit/s", three_digits),
            Column(f"{role}_rtt", "RTT mean", "ms", three_digits),
            Column(f"{role}_base", "base RTT", "ms", three_digits),
        ]
    groups = [("", 1), ("as sender", 4), ("as receiver", 4)]
    caption = (
        "Goodput of all flows of a site over the run, and the means over its flows of the smoothed "
        "RTT and of the RTT without queueing."
    )
    return NetworkTable("Cities", caption, _table(columns, rows, groups))


def _of_flows(
    run: RunRecord, role: str, flows: Sequence[Mapping[str, Any]]
) -> Iterable[tuple[str, float | None]]:
    """Yield the values of the flows of a site in one role, by key."""
    yield f"{role}_flows", len(flows)
    yield role, float(sum(_in_run_mbps(run, flow) for flow in flows))
    for key, of_flow in (("rtt", "srtt_mean_us"), ("base", "base_rtt_mean_us")):
        known = [float(flow[of_flow]) for flow in flows if flow[of_flow] is not None]
        yield f"{role}_{key}", sum(known) / len(known) / 1e3 if known else None


def _in_run_mbps(run: RunRecord, flow: Mapping[str, Any]) -> float:
    """Return the goodput of a flow over the whole run in Mbit/s."""
    active_s = max(float(flow["stop_s"]) - float(flow["start_s"]), 0.0)
    return float(flow["goodput_bps"]) * active_s / max(run.duration_s, 1e-9) / 1e6


def _groups_table(run: RunRecord) -> NetworkTable:
    apps = {app["id"]: str(app.get("kind")) for app in run.summary.get("apps") or []}
    groups: dict[tuple[str, str], list[float]] = {}
    for flow in run.flow_summaries():
        group = str(flow["cc"]), apps.get(flow["id"], "bulk")
        groups.setdefault(group, []).append(float(flow["goodput_bps"]) / 1e6)
    rows = [
        {
            "cc": cc, "app": app, "flows": len(mbps), "jain": jain(np.array(mbps)),
            "mean": float(np.mean(mbps)), "least": min(mbps), "most": max(mbps),
        }
        for (cc, app), mbps in sorted(groups.items())
    ]  # fmt: skip
    columns = [
        Column("cc", "cc", "", str, numeric=False),
        Column("app", "application", "", str, numeric=False),
        Column("flows", "flows", "", _count),
        Column("jain", "Jain's index", "", lambda index: f"{index:.3f}"),
        Column("mean", "goodput mean", "Mbit/s", three_digits),
        Column("least", "least", "Mbit/s", three_digits),
        Column("most", "most", "Mbit/s", three_digits),
    ]
    caption = (
        "Jain's index of the goodputs of all flows with the same sender and application: 1 if all "
        "are equal, and 1/n if one of n flows has everything."
    )
    return NetworkTable("Fairness by group of flows", caption, _table(columns, rows))


def _table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    groups: Sequence[tuple[str, int]] | None = None,
) -> Table:
    shown = [[column.text(row) for column in columns] for row in rows]
    return Table(groups or [("", len(columns))], list(columns), shown)
