"""Rows of summary.json, one per flow, and the columns that format its values for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skyhop._core import HANDOVER_KINDS, LOSS_REASONS
from skyhop.analysis.network_links import is_network, used_links
from skyhop.analysis.tables import Column, Table, three_digits
from skyhop.data.run_headers import FLOW_SUMMARY_KEYS, RunHeader, read_run_headers

LATENCY_QUANTILES = ("p50", "p95", "p99")
"""Quantiles of the latencies of a flow's application."""

CALL_KEYS = (
    "mos_mean", "mos_least", "mos_forward", "mos_back", "jitter_mean_us",
    "audio_late", "audio_lost", "video_late", "video_lost",
)  # fmt: skip
"""Keys of a call in summary.json, in addition to those of all applications."""

FILM_KEYS = ("mean_bitrate_bps", "stall_ns", "stalls", "switches", "startup_ns", "qoe")
"""Keys of a film in summary.json, in addition to those of all applications."""


NO_CHANCE = (
    "all seeds give the same result, because nothing in the run is drawn at random: for intervals "
    "that mean something, give flows a start_spread, or vary path.offset"
)
"""Warning about repeats whose intervals have no length."""


def summary_rows(run_dirs: Sequence[Path | str]) -> list[dict[str, Any]]:
    """Return one row per TCP flow of each run: `summary_row_values`, run name, and warnings.

    A run without TCP flows has one row with the values of its link. Every row has the same keys;
    unknown values are None.

    Raises:
        InputError: one of `run_dirs` is not a run directory.

    """
    return [row for run in read_run_headers(run_dirs) for row in rows_of(run)]


def rows_of(run: RunHeader) -> Iterator[dict[str, Any]]:
    """Yield `summary_row_values` of a run, with the run's name as `run`, and with `warnings`."""
    warnings = list(run.summary.get("warnings") or [])
    for row in summary_row_values(run.summary):
        yield {"run": run.name, **row, "wall_s": run.summary["wall_s"], "warnings": warnings}


def summary_row_values(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one row per TCP flow and call of a summary.json; without any, one whose flow is None.

    The keys are those of summary.json, with its units (`goodput_bps`, `srtt_mean_us`, …). Keys of
    the flow's application (`app`, its kind, `completed`, `failed`, `latency_p50_us`, …) are None
    for a flow without an application. Values of the whole run are repeated in each row: `engine`,
    `seed`, `utilisation`, `drops_queue`, …, `link_marks`, `handovers_end`, …, `lateness_p50_us`, …,
    `rtt_excess_p99_us`, and of the first probe `probe_rtt_p50_us`, …, `probe_loss`. `COLUMNS` has
    the titles and units of the keys that tables of flows show.
    """
    of_run = _of_run(summary)
    apps = {app["id"]: app for app in summary.get("apps") or []}
    tcp = {flow["id"]: flow for flow in summary["flows"]}
    # A call is not a TCP flow: it has only the values of calls.
    calls = {id_: dict.fromkeys(FLOW_SUMMARY_KEYS) | {"id": id_} for id_ in apps if id_ not in tcp}
    flows = [flow for _, flow in sorted({**tcp, **calls}.items())]
    for flow in flows or [dict.fromkeys(FLOW_SUMMARY_KEYS)]:
        sent = flow["sent_packets"]
        yield {
            "engine": summary["engine"],
            "seed": summary["seed"],
            "flow": flow["id"],
            # Runs of versions without ECN marks lack the key.
            "marks": 0 if flow["id"] in tcp else None,
            "connection": None,
            **{key: value for key, value in flow.items() if key not in ("id", "sender_unseen")},
            "retransmit_ratio": flow["retransmits"] / sent if sent else None,
            # The sender of such a connection is on another machine: its values are not known.
            **(dict.fromkeys(_OF_SENDER) if flow.get("sender_unseen") else {}),
            **_of_app(apps.get(flow["id"], {})),
            **of_run,
        }


UNTOLD = "told of nothing"
"""Mark of a congestion control that uses announcements of handovers, in a run without any."""
_UNTOLD_WARNING = ": gets no handover announcements: "
"""Part of the engines' warning about such congestion controls, after their names."""


def untold_senders(summary: Mapping[str, Any]) -> set[str]:
    """Return the congestion controls of a summary.json that lack announcements they would use."""
    warnings = (text.partition(_UNTOLD_WARNING) for text in summary.get("warnings") or [])
    return {name for names, found, _ in warnings if found for name in names.split(" and ")}


def with_untold(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `rows_of` for readers: with the mark `UNTOLD` at its congestion control."""
    is_untold = row["cc"] in untold_senders(row)
    return {**row, "cc": f"{row['cc']} ({UNTOLD})"} if is_untold else dict(row)


def bulk_flows(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the TCP flows of a summary.json that send as fast as TCP allows.

    Flows of applications use only the rate they need, and the connections of one program do not
    compete with each other.
    """
    kinds = {app["id"]: app.get("kind") for app in summary.get("apps") or []}
    return [
        flow
        for flow in summary["flows"]
        if not flow.get("connection") and kinds.get(flow["id"], "bulk") == "bulk"
    ]


_OF_SENDER = ("cwnd_mean_packets", "retransmits", "sent_packets")


def _of_app(app: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "app": app.get("kind"),
        "completed": app.get("completed"),
        "failed": app.get("failed"),
        **{f"latency_{q}_us": app.get(f"latency_{q}_us") for q in LATENCY_QUANTILES},
        **{key: app.get(key) for key in (*CALL_KEYS, *FILM_KEYS)},
    }


def _of_run(summary: Mapping[str, Any]) -> dict[str, Any]:
    link, handovers = summary["link"], summary["handovers"]
    lateness, excess = summary.get("lateness_us") or {}, summary.get("rtt_excess_us") or {}
    return {
        "virtual_s": summary["virtual_s"],
        **_of_link(link),
        **{f"handovers_{kind}": handovers[kind] for kind in HANDOVER_KINDS},
        **{f"lateness_{q}_us": lateness.get(q) for q in ("p50", "p99", "max")},
        "rtt_excess_p99_us": excess.get("p99"),
        **_of_probe((summary.get("probes") or [{}])[0]),
    }


def _of_probe(probe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RTTs and the loss of a run's first probe; None without a probe."""
    sent = probe.get("sent")
    return {
        **{f"probe_rtt_{q}_us": probe.get(f"rtt_{q}_us") for q in ("p50", "p95", "p99")},
        "probe_loss": probe["lost"] / sent if sent else None,
    }


def rows_of_more_links(run: RunHeader) -> Iterator[dict[str, Any]]:
    """Yield one row per link of a run's `[links]`, with those keys of `rows_of` for links.

    Of a network, which has thousands of links, the most used ones have rows.
    """
    links = run.summary.get("links", {})
    if is_network(run):
        names = dict.fromkeys(link.name for link in used_links([run]))
        links = {name: links[name] for name in list(names)[:_MOST_LINKS]}
    for name, link in links.items():
        yield {"run": f"{run.name}: {name}", **_of_link(link)}


_MOST_LINKS = 10


def _of_link(link: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "utilisation": link["utilisation"],
        "utilisation_back": link.get("utilisation_back"),
        "backlog_mean_bytes": link["backlog_mean_bytes"],
        **{f"drops_{reason}": link["drops"].get(reason, 0) for reason in LOSS_REASONS},
        "link_marks": link.get("marks", 0),
    }


def queue_text(queue: object) -> str:
    """Return what a queue's size in the scenario became, as text; empty in older runs.

    Examples: "1 BDP = 827 kB, 546 packets (150 Mbit/s x 44.1 ms)", "100 packets = 151 kB". Of a
    rate that varies, the text has the mean: "(mean 83.2 Mbit/s x 44.1 ms)".
    """
    if not isinstance(queue, Mapping) or not {"given", "bytes", "packets"} <= queue.keys():
        return ""
    if not queue["given"]:
        # A network has no queue of a path.
        return ""
    given, rate, rtt = str(queue["given"]), queue.get("rate_bps"), queue.get("base_rtt_us")
    size = _bytes_text(queue["bytes"])
    packets = f"{queue['packets']:,} packet{'' if queue['packets'] == 1 else 's'}"
    if rate is None:
        return f"{given} = {size if given.endswith('packets') else packets}"
    times = "" if rtt is None else f" x {three_digits(rtt * 1e-3)} ms"
    of_rate = f"mean {_rate_text(rate, 3)}" if queue.get("rate_varies") else _rate_text(rate)
    return f"{given} = {size}, {packets} ({of_rate}{times})"


def queue_texts(link: Mapping[str, Any]) -> list[str]:
    """Return the sizes of a link's queues as text: one if both directions have the same."""
    forward, back = queue_text(link.get("queue")), queue_text(link.get("queue_back"))
    if not forward:
        return []
    return [f"queue {forward}"] if forward == back else [f"queue {forward}", f"queue back {back}"]


def queue_range(links: Sequence[Mapping[str, Any]]) -> str:
    """Return the range of the simulated sizes of links' queues; empty if one is not known.

    Example: "1 BDP = 413 kB to 1.65 MB, 273 to 1,092 packets".
    """
    queues = [link.get("queue") or {} for link in links]
    if not queues or not all(map(queue_text, queues)):
        return ""
    given = ", ".join(dict.fromkeys(str(queue["given"]) for queue in queues))
    size, packets = ([queue[key] for queue in queues] for key in ("bytes", "packets"))
    bytes_range = f"{_bytes_text(min(size))} to {_bytes_text(max(size))}"
    return f"{given} = {bytes_range}, {min(packets):,} to {max(packets):,} packets"


def kind_text(value: str | Mapping[str, Any]) -> str:
    """Return a queue discipline or a loss as text: a word, or its kind with the parameters."""
    if isinstance(value, str):
        return value
    given = {key: of for key, of in value.items() if key != "kind"}
    parameters = [f"{key} {of}" for key, of in given.items() if not isinstance(of, bool)]
    parameters += [key for key, of in given.items() if of is True]
    return f"{value['kind']} ({', '.join(parameters)})" if parameters else str(value["kind"])


def _bytes_text(size: float) -> str:
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
    unit = next((unit for unit, factor in units.items() if size >= factor), "B")
    return f"{three_digits(size / units.get(unit, 1))} {unit}"


def _rate_text(bps: float, digits: int = 6) -> str:
    units = {"Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3}
    unit = next((unit for unit, factor in units.items() if bps >= factor), "bit/s")
    return f"{bps / units.get(unit, 1):.{digits}g} {unit}"


def _scaled(factor: float) -> Callable[[float], str]:
    return lambda value: three_digits(value * factor)


def _one_decimal(factor: float) -> Callable[[float], str]:
    return lambda value: f"{value * factor:,.1f}"


def count(value: float) -> str:
    """Return a whole number as text, with separated thousands."""
    return f"{value:,}"


def _opinion(value: float) -> str:
    return f"{value:.2f}"


def _share(value: float) -> str:
    return f"{100 * value:.2f}"


_MBPS, _MS, _KB, _PERCENT = _scaled(1e-6), _one_decimal(1e-3), _scaled(1e-3), _one_decimal(100)

COLUMNS: tuple[Column, ...] = (
    Column("run", "run", "", str, numeric=False),
    Column("engine", "engine", "", str, numeric=False),
    Column("seed", "seed", "", str),
    Column("flow", "flow", "", str),
    Column("cc", "cc", "", str, numeric=False),
    Column("connection", "connection", "", str, numeric=False),
    Column("goodput_bps", "goodput", "Mbit/s", _MBPS),
    Column("utilisation", "link used", "%", _PERCENT),
    Column("utilisation_back", "link used back", "%", _PERCENT),
    Column("srtt_mean_us", "srtt mean", "ms", _MS),
    Column("rtt_p95_us", "RTT p95", "ms", _MS),
    Column("base_rtt_mean_us", "base RTT mean", "ms", _MS),
    Column("cwnd_mean_packets", "cwnd mean", "packets", three_digits),
    Column("retransmits", "retransmits", "packets", count),
    Column("marks", "marked", "packets", count),
    Column("sent_packets", "sent", "packets", count),
    Column("completion_s", "completion", "s", three_digits),
    Column("app", "application", "", str, numeric=False),
    Column("completed", "completed", "", count),
    Column("failed", "failed", "", count),
    *(Column(f"latency_{q}_us", q, "", _MS) for q in LATENCY_QUANTILES),
    Column("mos_mean", "MOS mean", "", _opinion),
    Column("mos_least", "MOS least", "", _opinion),
    Column("mos_forward", "MOS forward", "", _opinion),
    Column("mos_back", "MOS back", "", _opinion),
    Column("jitter_mean_us", "jitter mean", "ms", _MS),
    Column("audio_late", "audio late", "%", _share),
    Column("audio_lost", "audio lost", "%", _share),
    Column("video_late", "video late", "%", _share),
    Column("video_lost", "video lost", "%", _share),
    Column("mean_bitrate_bps", "bitrate mean", "Mbit/s", _MBPS),
    Column("stall_ns", "stalled", "s", _one_decimal(1e-9)),
    Column("stalls", "stalls", "", count),
    Column("switches", "switches", "", count),
    Column("startup_ns", "start-up", "s", _one_decimal(1e-9)),
    Column("qoe", "QoE", "", _opinion),
    Column("backlog_mean_bytes", "queue mean", "kB", _KB),
    *(Column(f"drops_{reason}", reason, "", count) for reason in LOSS_REASONS),
    Column("link_marks", "marked", "packets", count),
    *(Column(f"handovers_{kind}", kind, "", count) for kind in HANDOVER_KINDS),
    Column("lateness_p50_us", "p50", "", three_digits),
    Column("lateness_p99_us", "p99", "", three_digits),
    Column("lateness_max_us", "max", "", three_digits),
    Column("rtt_excess_p99_us", "p99", "", three_digits),
)
"""Columns of all tables of runs, in order. Drops, handovers, latency and lateness have common
headings (`GROUPS`); a table without these headings has to add their text to the titles."""

GROUPS: Mapping[str, str] = {
    "drops_": "drops (packets)",
    "handovers_": "handovers",
    "latency_": "latency (ms)",
    "lateness_": "lateness (µs)",
    "rtt_excess_": "RTT excess (µs)",
}
"""Common heading of columns, by the prefix of their keys."""


def column(key: str) -> Column:
    """Return the column with this key."""
    return next(column for column in COLUMNS if column.key == key)


def summary_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows as a table; columns in which no row has a value are left out."""
    shown = [c for c in columns if any(row.get(c.key) is not None for row in rows)]
    groups: list[tuple[str, int]] = []
    for shown_column in shown:
        name = _group(shown_column)
        if groups and groups[-1][0] == name:
            groups[-1] = (name, groups[-1][1] + 1)
        else:
            groups.append((name, 1))
    return Table(groups, shown, [[c.text(row) for c in shown] for row in rows])


def _group(of: Column) -> str:
    return next((name for start, name in GROUPS.items() if of.key.startswith(start)), "")
