"""View model of a page about runs: sentences, facts, warnings, cards, tables, and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from skyhop._core import HANDOVER_KINDS, LOSS_REASONS
from skyhop.analysis.comparison import Comparison, compare
from skyhop.analysis.flow_groups import FlowKey, by_duration
from skyhop.analysis.flows import FlowStyle, flow_styles
from skyhop.analysis.network_links import is_network, link_texts, network_text
from skyhop.analysis.network_map import NetworkMap
from skyhop.analysis.network_page import NetworkPart, ends_of_flows, network_part
from skyhop.analysis.path_timeline import path_timeline
from skyhop.analysis.run_tables import senders_table
from skyhop.analysis.run_timeline import run_timeline
from skyhop.analysis.styles import GLYPHS
from skyhop.analysis.summary import (
    CALL_KEYS,
    FILM_KEYS,
    LATENCY_QUANTILES,
    column,
    kind_text,
    queue_text,
    rows_of,
    rows_of_more_links,
    summary_table,
    with_untold,
)
from skyhop.analysis.summary_sentences import PathFacts, Summary, run_summaries
from skyhop.analysis.tables import MISSING, Column, Table, three_digits
from skyhop.analysis.terminal_page import TerminalPart, telemetry_of_run, terminal_part
from skyhop.analysis.timeline import Timeline
from skyhop.data.records import PathRecord, RunRecord
from skyhop.data.toml import toml_text

if TYPE_CHECKING:
    from skyhop.analysis.terminal_page import TerminalView

_FLOW_KEYS = (
    "run", "engine", "seed", "cc", "connection", "goodput_bps", "srtt_mean_us", "rtt_p95_us",
    "base_rtt_mean_us", "cwnd_mean_packets", "retransmits", "marks", "sent_packets", "completion_s",
)  # fmt: skip
_APP_KEYS = (
    "run", "flow", "cc", "app", "completed", "failed",
    *(f"latency_{q}_us" for q in LATENCY_QUANTILES),
    *CALL_KEYS, *FILM_KEYS,
)  # fmt: skip
_RUN_KEYS = (
    "run", "utilisation", "utilisation_back", "backlog_mean_bytes",
    *(f"drops_{reason}" for reason in LOSS_REASONS),
    "link_marks", "handovers_end", "handovers_intermediate", "handovers_reroute",
    "lateness_p50_us", "lateness_p99_us", "lateness_max_us", "rtt_excess_p99_us",
)  # fmt: skip

_CARDS_AT_MOST = 8
_ARROW = "\N{RIGHTWARDS ARROW}"

SITES = "sites"
"""Key of the sites of a flow over a network, as text."""

NETWORK = "network"
"""Beginning of the names of the maps of networks."""

_HANDOVERS = {
    "end": "one end of the path changes its satellite",
    "intermediate": "a link in the middle of the path changes, and the packets on it are lost",
    "reroute": "the route between the satellites changes, and no packet is lost",
}
"""Meaning of each kind of handover."""


@dataclass(frozen=True)
class Card:
    """Main results of one flow."""

    colour: str
    glyph: str
    """Unicode symbol of the flow's marker in figures."""
    name: str
    goodput: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class RunSection:
    """Section of the page about one run."""

    name: str
    anchor: str
    flows: str
    made_by: Sequence[tuple[str, str]]
    command: str
    scenario: str
    """Resolved scenario of the run, as TOML."""
    printed: Sequence[tuple[str, str]]
    """Command lines of the program and of its server, each with its output."""
    terminal: TerminalPart | None = None
    """Part about the run's terminal, for runs with telemetry of a testbed."""


@dataclass(frozen=True)
class PageFigure:
    """Figure of the page, before it is drawn."""

    name: str
    """Name of the figure's files, without the suffix."""
    caption: str
    view: Callable[[], Timeline | Comparison | NetworkMap | TerminalView]
    """Function that computes the view model; it is called late because it takes time."""
    run: int | None = None
    """Index of the run that the figure shows; None for all runs."""
    heading: str = ""
    """Heading of a figure about a run's terminal; empty for other figures."""


@dataclass(frozen=True)
class Lead:
    """Beginning of a page that answers a question: the question is the page's heading."""

    question: str
    answer: Sequence[str]
    """Sentences that answer the question."""
    figure: PageFigure
    """Figure that shows the answer."""


@dataclass(frozen=True)
class RunsPage:
    """View model of the page about one or several runs."""

    title: str
    summaries: Sequence[Summary]
    """Three sentences for each set of runs of similar duration."""
    facts: Sequence[tuple[str, str]]
    """Conditions of the runs: name, and the distinct values in the runs."""
    terms: str
    """Sentence on the kinds of handovers that the runs have; empty without handovers."""
    warnings: Sequence[tuple[str, str]]
    """Names of the runs that have a warning (empty: all of several runs), and its text."""
    cards: Sequence[Card]
    flow_table: Table
    sender_table: Table
    """Sums over the flows of each sender; without rows unless a run has many flows."""
    app_table: Table
    run_table: Table
    probe_table: Sequence[Sequence[str]]
    networks: Sequence[NetworkPart]
    """Parts about the networks of those runs that are over a network."""
    figures: Sequence[PageFigure]
    runs: Sequence[RunSection]


def runs_page(runs: Sequence[RunRecord], title: str | None = None) -> RunsPage:
    """Return the page about runs; its default title names the ends of the paths."""
    rows = [_rows(run) for run in runs]
    flow_rows = [row for of_run in rows for row in of_run if row["flow"] is not None]
    # A call is not a TCP flow: its results are in the table of applications.
    tcp_rows = [row for row in flow_rows if row["cc"] is not None]
    run_rows = [of_run[0] for of_run in rows]
    link_rows = [
        row
        for run, of_run in zip(runs, run_rows, strict=True)
        for row in (*(() if is_network(run) else (of_run,)), *rows_of_more_links(run))
    ]
    terminals = [_terminal(run) for run in runs]
    networks = [part for part in map(network_part, runs) if part is not None]
    return RunsPage(
        title=title or _heading(runs),
        summaries=run_summaries(runs, [path_facts(run) for run in runs]),
        facts=_facts(runs),
        terms=_terms(runs),
        warnings=_warnings(run_rows),
        cards=_cards(runs, rows),
        flow_table=summary_table(_flow_columns(tcp_rows), [with_untold(row) for row in tcp_rows]),
        sender_table=senders_table([[run] for run in runs], [run.name for run in runs]),
        app_table=summary_table(
            [column(key) for key in _APP_KEYS], [row for row in flow_rows if row["app"] is not None]
        ),
        run_table=summary_table(_run_columns(link_rows), link_rows),
        probe_table=list(_probe_rows(runs)),
        networks=networks,
        figures=[*_maps(networks), *_figures(runs), *_of_terminals(runs, terminals)],
        runs=[
            replace(_section(run, index), terminal=terminals[index])
            for index, run in enumerate(runs)
        ],
    )


def _rows(run: RunRecord) -> list[dict[str, Any]]:
    """Return the rows of a run's flows; in a network, each with the sites of the flow."""
    ends = ends_of_flows(run)
    texts = {flow: f" {_ARROW} ".join(sites) for flow, sites in ends.items()}
    return [{**row, SITES: texts.get(row["flow"])} for row in rows_of(run)]


def path_facts(run: RunRecord) -> PathFacts:
    """Return the time (s) during which a run's path was down, and the path's mean rate (Mbit/s)."""
    spans = run.events.down_spans(run.duration_s)
    rate_mbps = None
    if run.path is not None:
        rates = run.path.rate_mbps[run.path.t_s <= run.duration_s]
        known = rates[np.isfinite(rates)]
        rate_mbps = float(known.mean()) if len(known) else None
    return PathFacts(outage_s=sum(end - begin for begin, end in spans), rate_mbps=rate_mbps)


def _figures(runs: Sequence[RunRecord]) -> list[PageFigure]:
    styles = flow_styles(runs)
    return [*_comparisons(runs, styles), *_paths(runs), *_runs(runs, styles)]


def _terminal(run: RunRecord) -> TerminalPart | None:
    place = telemetry_of_run(run.directory)
    return None if place is None else terminal_part(place)


def _of_terminals(
    runs: Sequence[RunRecord], terminals: Sequence[TerminalPart | None]
) -> Iterator[PageFigure]:
    for index, (run, part) in enumerate(zip(runs, terminals, strict=True)):
        for figure in part.figures if part is not None else ():
            name = f"{_file_name(run, index)}-{figure.name}"
            view = partial(_same, figure.view)
            yield PageFigure(name, figure.caption, view, run=index, heading=figure.heading)


def _same(view: TerminalView) -> TerminalView:
    return view


def _maps(networks: Sequence[NetworkPart]) -> Iterator[PageFigure]:
    """Yield the map of each run over a network."""
    for index, part in enumerate(networks):
        if part.view is not None:
            caption = part.map_caption if len(networks) == 1 else f"{part.run}: {part.map_caption}"
            yield PageFigure(f"{NETWORK}-{index + 1}", caption, part.view)


def _comparisons(
    runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle]
) -> Iterator[PageFigure]:
    """Yield a figure for each group of runs that share a time axis and have flows to compare."""
    caption = (
        "Goodput of every flow over time, its mean, and the distribution of the samples (CDF): "
        "which share of them stayed at or below a value."
    )
    groups = by_duration(runs)
    for index, group in enumerate(groups):
        of_group = {
            (group.index(run), flow): style for (run, flow), style in styles.items() if run in group
        }
        if len(of_group) > 1:
            name = "comparison" if len(groups) == 1 else f"comparison-{index + 1}"
            view = partial(compare, [runs[run] for run in group], of_group)
            yield PageFigure(name, caption, view)


def _paths(runs: Sequence[RunRecord]) -> Iterator[PageFigure]:
    paths = _distinct_paths(runs)
    for index, (path, until_s) in enumerate(paths):
        if _is_constant(path):
            continue
        name = "path" if len(paths) == 1 else f"path-{index + 1}"
        caption = f"{_path_name(path)}: one-way delay without queueing, hops, and handovers."
        if path.duration_s > until_s:
            caption += f" The path file goes on until {path.duration_s:,.0f} s."
        yield PageFigure(name, caption, partial(path_timeline, path, until_s))


def _is_constant(path: PathRecord) -> bool:
    """Return whether a fixed path never changes, so that a figure of it shows nothing."""
    series = (path.delay_ms, path.delay_back_ms, path.rate_mbps)
    is_constant = all(len(np.unique(values)) <= 1 for values in series)
    return path.header.get("source") == "fixed" and is_constant and not path.events.kinds


def _runs(runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle]) -> Iterator[PageFigure]:
    for index, run in enumerate(runs):
        own = {flow: style for (of, flow), style in styles.items() if of == index}
        name = _file_name(run, index)
        yield PageFigure(name, _run_caption(run), partial(run_timeline, run, own), run=index)


def _file_name(run: RunRecord, index: int) -> str:
    return f"run-{index + 1}-{re.sub(r'[^A-Za-z0-9._-]+', '-', run.name)}"


def _distinct_paths(runs: Sequence[RunRecord]) -> list[tuple[PathRecord, float]]:
    """Return each distinct path, with the duration (s) of the longest run over it."""
    found: dict[bytes, tuple[PathRecord, float]] = {}
    for run in runs:
        if run.path is not None:
            path = run.path
            key = b"".join(a.tobytes() for a in (path.t_s, path.delay_ms, path.events.t_s))
            _, until_s = found.get(key, (path, 0.0))
            found[key] = (path, max(until_s, run.duration_s))
    return list(found.values())


def _path_name(path: PathRecord) -> str:
    if path.header.get("source") == "fixed":
        return "Fixed path"
    return f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"


def _run_caption(run: RunRecord) -> str:
    strip = "The strip on top shows each event of the path; grey bands are times when it was down."
    parts = [] if is_network(run) else [strip]
    if run.flows:
        parts.append(
            "Goodput is what the application could read: what arrives after a lost packet waits "
            "for it, and is read at once when it has come, so that a sample after a hole may lie "
            "above the link's rate. It counts data without headers, and the link's rate counts "
            "whole Ethernet frames: of the 1,514 bytes of a full one, 1,448 are data, so that "
            "a full link has a goodput of 95.6 % of its rate. "
            "Retransmits and drops are counted per bar."
        )
    if run.apps:
        parts.append(
            "Latencies are shown at the time when a request, burst, message, page or object was "
            "due; failures are marked above them. That of a call is the time from the mouth to the "
            "ear."
        )
    return " ".join(parts)


def _heading(runs: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(_ends(run) for run in runs)
    return "; ".join(names)


def _ends(run: RunRecord) -> str:
    if is_network(run):
        return network_text(_part(run.scenario, "network"))
    if run.path is not None and run.path.header.get("constellation"):
        return _path_name(run.path)
    path = _part(run.scenario, "path")
    if path.get("kind") == "fixed":
        return f"A fixed path, RTT {path.get('rtt', 'not known')}"
    if path.get("from") and path.get("to"):
        return f"{path['from']} \N{RIGHTWARDS ARROW} {path['to']}"
    return _path_name(run.path) if run.path is not None else run.name


def _facts(runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Return the conditions of the runs as (name, distinct values)."""
    names = {
        "constellation": "constellation", "relay": "relay", "access": "access profile",
        "dish": "terminal at", "handover": "handover", "outage": "outage", "start": "start",
    }  # fmt: skip
    facts = [(title, [_path_fact(run, name) for run in runs]) for name, title in names.items()]
    facts += [
        ("link", [_link_fact(run, _part(run.scenario, "link")) for run in runs]),
        (
            "link back",
            [_link_fact(run, _part(_part(run.scenario, "link"), "back")) for run in runs],
        ),
        *_facts_of_networks(runs),
        ("queue", [queue_text(run.summary["link"].get("queue")) for run in runs]),
        ("queue back", [queue_text(run.summary["link"].get("queue_back")) for run in runs]),
        *_queue_facts_of_links(runs),
        ("duration", [f"{three_digits(run.duration_s)} s" for run in runs]),
        ("engine", [str(run.summary["engine"]) for run in runs]),
        ("handovers", [_handover_fact(run) for run in runs]),
    ]
    joined = [(name, " / ".join(dict.fromkeys(v for v in values if v))) for name, values in facts]
    return [(name, text) for name, text in joined if text]


def _facts_of_networks(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return the rates and queues of the links of the runs that are over networks, by kind."""
    networks = [_part(run.scenario, "network") for run in runs if is_network(run)]
    links = [link_texts(network) for network in networks]
    return [(kind, [texts[kind] for texts in links]) for kind in (links[0] if links else ())]


def _queue_facts_of_links(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return the queue sizes of the links in `[links]` and of further hops."""
    links = [run.summary.get("links") or {} for run in runs if not is_network(run)]
    names = dict.fromkeys(name for of_run in links for name in of_run)
    return [
        (f"queue of {name}", [" and back ".join(_sizes(of_run.get(name, {}))) for of_run in links])
        for name in names
    ]


def _sizes(link: Mapping[str, Any]) -> list[str]:
    texts = [queue_text(link.get(key)) for key in ("queue", "queue_back")]
    return [text for text in dict.fromkeys(texts) if text]


def _path_fact(run: RunRecord, name: str) -> str:
    header = run.path.header if run.path is not None else {}
    if is_network(run):
        value = _part(run.scenario, "network").get(name)
        return value if isinstance(value, str) else ""
    if name == "start" and header.get("source") == "fixed":
        return ""
    given = _part(run.scenario, "path").get(name)
    return str(header.get(name) or (given if isinstance(given, str) else ""))


def _link_fact(run: RunRecord, link: Mapping[str, Any]) -> str:
    """Return the rate, queue discipline and random loss of one direction of the link, as text.

    The loss of a path file is not among them. Runs of versions that did not resolve the queue's
    size show it as the scenario gives it.
    """
    parts = [str(link["rate"])] if link.get("rate") else []
    if link.get("qdisc"):
        parts.append(kind_text(link["qdisc"]))
    if link.get("queue") and not run.summary["link"].get("queue"):
        parts.append(f"queue {link['queue']}")
    if link.get("loss") not in (None, "0 %"):
        parts.append(f"loss {kind_text(link['loss'])}")
    return ", ".join(parts)


def _handover_fact(run: RunRecord) -> str:
    """Return the number of handovers, in total and by kind, as text; empty in a network."""
    if is_network(run):
        return ""
    counts = {kind: count for kind, count in run.summary["handovers"].items() if count}
    kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in HANDOVER_KINDS if kind in counts)
    return f"{sum(counts.values()):,} ({kinds})" if counts else "none"


def _terms(runs: Sequence[RunRecord]) -> str:
    """Return what the kinds of handovers mean, of those kinds that the runs have."""
    shown = [
        kind for kind in HANDOVER_KINDS if any(run.summary["handovers"].get(kind) for run in runs)
    ]
    return "; ".join(f"{kind}: {_HANDOVERS[kind]}" for kind in shown)


def _part(scenario: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = scenario.get(name)
    return part if isinstance(part, Mapping) else {}


def _warnings(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return each warning once, after the names of the runs that have it unless all have it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for text in row["warnings"]:
            found.setdefault(text, []).append(row["run"])
    return [
        ("" if len(names) == len(rows) else ", ".join(names), text) for text, names in found.items()
    ]


def _cards(runs: Sequence[RunRecord], rows: Sequence[Sequence[dict[str, Any]]]) -> list[Card]:
    """Return a card for each TCP flow; no cards if there are more than `_CARDS_AT_MOST` flows."""
    styles = flow_styles(runs)
    cards = []
    for index, of_run in enumerate(rows):
        for row in of_run:
            if row["flow"] is None:
                continue
            if row["cc"] is None:
                continue
            style = styles[index, int(row["flow"])]
            srtt = column("srtt_mean_us").text(row)
            base = column("base_rtt_mean_us").text(row)
            ratio = row["retransmit_ratio"]
            lines = [
                f"srtt {srtt} ms over a base RTT of {base} ms",
                f"{column('retransmits').text(row)} of {column('sent_packets').text(row)} packets "
                f"sent again{'' if ratio is None else f' ({three_digits(100 * ratio)} %)'}",
            ]
            if row["app"] is not None:
                lines.append(_app_line(row))
            if row["completion_s"] is not None:
                lines.append(f"complete after {column('completion_s').text(row)} s")
            goodput = column("goodput_bps").text(row)
            cards.append(
                Card(style.colour, GLYPHS[style.marker], style.label, goodput, tuple(lines))
            )
    return cards if len(cards) <= _CARDS_AT_MOST else []


def _app_line(row: Mapping[str, Any]) -> str:
    if row["mean_bitrate_bps"] is not None:
        bitrate, stalls, stalled, qoe = (
            column(key).text(row) for key in ("mean_bitrate_bps", "stalls", "stall_ns", "qoe")
        )
        return f"{row['app']}: {bitrate} Mbit/s, {stalls} stalls ({stalled} s), QoE {qoe}"
    p50, p99 = (column(f"latency_{q}_us").text(row) for q in ("p50", "p99"))
    completed, failed = (column(key).text(row) for key in ("completed", "failed"))
    return f"{row['app']}: {completed} completed, {failed} failed, p50 {p50} ms, p99 {p99} ms"


def _run_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns of the table of links; they include ECN marks if there are any."""
    marked = any(row["link_marks"] for row in rows)
    return [column(key) for key in _RUN_KEYS if marked or key != "link_marks"]


def _flow_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns of the table of flows; completion, marks and ids only if needed."""
    keys = list(_FLOW_KEYS)
    sites = Column(SITES, "sites", "", str, numeric=False)
    if all(row["completion_s"] is None for row in rows):
        keys.remove("completion_s")
    if not any(row["marks"] for row in rows):
        keys.remove("marks")
    if len({row["run"] for row in rows}) < len(rows):
        keys.insert(keys.index("cc"), "flow")
    columns = [column(key) for key in keys]
    # Without any value, the table leaves the column out.
    columns.insert(keys.index("cc"), sites)
    return columns


def _probe_rows(runs: Sequence[RunRecord]) -> Iterator[list[str]]:
    for run in runs:
        for probe in run.summary.get("probes") or []:
            quantiles = [probe.get(f"rtt_{q}_us") for q in ("p50", "p95", "p99")]
            counts = [f"{probe['sent']:,}", f"{probe['lost']:,}"]
            texts = [MISSING if q is None else f"{q / 1e3:,.1f}" for q in quantiles]
            yield [run.name, str(probe["id"]), *counts, *texts]


def _section(run: RunRecord, index: int) -> RunSection:
    ccs = list(dict.fromkeys(str(flow["cc"]) for flow in run.flow_summaries()))
    engine = str(run.summary["engine"])
    return RunSection(
        name=run.name,
        anchor=f"run-{index + 1}",
        flows=", ".join(ccs) if ccs else "no TCP flow",
        made_by=_made_by(run),
        command=_command(run, engine),
        scenario=toml_text(run.scenario),
        printed=list(_printed(run)),
    )


def _printed(run: RunRecord) -> Iterator[tuple[str, str]]:
    program, printed = run.manifest.get("program"), run.manifest.get("printed")
    if program and printed:
        yield shlex.join(program["client"]), printed["client"]
        if program.get("server"):
            yield program["server"], printed["server"]


def _command(run: RunRecord, engine: str) -> str:
    """Return the command that repeats the run from its scenario.toml, which contains the seed."""
    words = ["skyhop", engine, "scenario.toml", "-o", run.directory.resolve().name]
    program = run.manifest.get("program")
    if program:
        if program.get("server"):
            words += ["--server-cmd", program["server"]]
        if run.manifest.get("default_cc"):
            words += ["--cc", run.manifest["default_cc"]]
        if run.manifest.get("internet"):
            words.append("--internet")
        words += ["--", *program["client"]]
    return shlex.join(words)


def _made_by(run: RunRecord) -> list[tuple[str, str]]:
    """Return the entries of run.json except the scenario, as (name, text)."""
    facts = [("engine", str(run.summary["engine"])), ("seed", str(run.summary["seed"]))]
    facts.append(("run time", f"{three_digits(float(run.summary['wall_s']))} s"))
    shown = {"schema", "scenario", "engine", "seed", "wall_s", "printed"}
    for key, value in run.manifest.items():
        if key not in shown and value is not None and value is not False:
            facts += _flattened(key, value)
    return facts


def _flattened(key: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [fact for inner, v in value.items() for fact in _flattened(f"{key}.{inner}", v)]
    if isinstance(value, float):
        return [(key, three_digits(value))]
    return [(key, MISSING if value is None else str(value))]
