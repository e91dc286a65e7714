"""Sentences in plain English about runs, made from their numbers.

One run, or several compared runs, get three sentences: on the rates of flows, on delay
or quality, and on handovers, losses and missing runs. This module reads and draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from skyhop.analysis.flow_groups import by_duration, flow_groups, has_changing_rate, link_mbps
from skyhop.analysis.network_links import is_network, used_links
from skyhop.analysis.sentence_words import (
    count_or_no,
    counted,
    in_brackets,
    listed,
    ms_text,
    nominal_rate_text,
    plural,
    rate_text,
    score_text,
    seconds_text,
    share_text,
    span_text,
    us_text,
    was_or_were,
)
from skyhop.analysis.summary import rows_of, with_untold
from skyhop.data.run_headers import RunHeader

LISTED_AT_MOST = 4
"""Largest number of flows, or of compared groups, that a sentence names one by one."""

_ALIKE = 1.02
"""Largest ratio of the highest to the lowest value at which values count as equal."""

_CAUSES = {
    "queue": "at the queue",
    "loss": "at random on the link",
    "outage": "while the path was down",
    "dismantled": "in flight on a route that a handover took down",
    "device": "at a network device",
}
"""Words for the place where packets are lost, by the reason in summary.json."""

_TRANSACTIONS = {
    "page": ("page", "pages", "loaded"),
    "request-response": ("request", "requests", "answered"),
    "on-off": ("burst", "bursts", "delivered"),
    "constant-rate": ("message", "messages", "delivered"),
}
"""Singular, plural and participle of an application's transactions, by its kind."""

_Row: TypeAlias = Mapping[str, Any]
"""Values of one flow, from `summary.rows_of`."""


@dataclass(frozen=True)
class PathFacts:
    """Values of a run's path that are not in the run's summary."""

    outage_s: float | None = None
    """Total time in s during which the path was down."""
    rate_mbps: float | None = None
    """Mean rate of the path itself in Mbit/s; None if the path has no measured rate."""


@dataclass(frozen=True)
class Summary:
    """Sentences about runs of similar duration."""

    heading: str
    """Number of the runs, as text; empty if the summary is about all runs of the page."""
    sentences: tuple[str, ...]


def run_summaries(
    runs: Sequence[RunHeader], paths: Sequence[PathFacts | None] | None = None
) -> list[Summary]:
    """Return three sentences about one run, or for each set of runs of similar duration.

    Args:
        runs: headers of the runs, checked by `read_run_headers`.
        paths: values of the path of each run, where known.
    """
    known = [facts or PathFacts() for facts in paths or [None] * len(runs)]
    sets = by_duration(runs)
    summaries = []
    for indices in sets:
        together = [runs[index] for index in indices]
        facts = [known[index] for index in indices]
        heading = "" if len(sets) == 1 else counted(len(together), "run")
        alone = len(together) == 1
        found = _of_run(together[0], facts[0]) if alone else _of_runs(together, facts)
        summaries.append(Summary(heading, tuple(found)))
    return summaries


# One run


def _of_run(run: RunHeader, path: PathFacts) -> list[str]:
    rows = [with_untold(row) for row in rows_of(run) if row["flow"] is not None]
    tcp = [row for row in rows if row["cc"] is not None]
    plain = [row for row in tcp if row["app"] in (None, "bulk")]
    apps = [row for row in rows if row["app"] not in (None, "bulk")]
    duration = seconds_text(run.duration_s)
    if apps and not plain:
        first = f"In {duration}, {'; '.join(_applications(apps))}."
        second = _delays(tcp) if tcp else "No TCP flow ran next to it."
    elif not tcp:
        first, second = f"In {duration}, no TCP flow ran over the link.", _probes(run)
    else:
        first = f"In {duration}, {_goodputs(run, plain, path, has_applications=bool(apps))}."
        second = _delays(plain)
        if apps:
            second = f"{second[:-1]}; {'; '.join(_applications(apps))}."
    return [first, second, _events(run, path)]


def _goodputs(
    run: RunHeader, rows: Sequence[_Row], path: PathFacts, *, has_applications: bool
) -> str:
    """Describe the rate of each flow and its share of the link; many flows are summed up."""
    rates = [link_mbps(run, int(row["flow"]), path.rate_mbps) for row in rows]
    goodputs = [float(row["goodput_bps"]) / 1e6 for row in rows]
    of_link = _link_text(run, rates)
    if len(rows) == 1:
        share = f", {share_text(goodputs[0], rates[0])} of {of_link}" if rates[0] else ""
        name = f"the bulk flow ({rows[0]['cc']})" if has_applications else rows[0]["cc"]
        return f"{name} carried {rate_text(goodputs[0])}{share}{_while(run, rows[0])}"
    if len(rows) <= LISTED_AT_MOST:
        names = _names(rows)
        parts = [
            f"{name} got {rate_text(goodput)}{in_brackets(share_text(goodput, rate))}"
            f"{_while(run, row)}"
            for name, goodput, rate, row in zip(names, goodputs, rates, rows, strict=True)
        ]
        return f"of {of_link}, {listed(parts)}" if of_link else listed(parts)
    carried = sum(g * _active_s(row) for g, row in zip(goodputs, rows, strict=True))
    total = carried / run.duration_s if run.duration_s > 0 else 0.0
    share = share_text(total, rates[0]) if of_link else ""
    together = f"{len(rows):,} flows carried {rate_text(total)} together"
    together += f", {share} of {of_link}" if share else ""
    by_cc = _by(rows, lambda row: str(row["cc"]))
    if 1 < len(by_cc) <= LISTED_AT_MOST:
        means = [
            f"the {counted(len(own), 'flow')} of {cc} {rate_text(_mean(own, 'goodput_bps') / 1e6)}"
            for cc, own in by_cc.items()
        ]
        return f"{together}: {listed(means)} each on average"
    return f"{together}, each between {span_text(goodputs, rate_text, ' and ')}"


def _link_text(run: RunHeader, rates: Sequence[float | None]) -> str:
    """Describe the link's rate, if all flows share the link."""
    known = set(rates)
    rate = next(iter(known), None)
    if len(known) != 1 or not rate:
        return ""
    mean = "mean rate of " if has_changing_rate(run) else ""
    return f"the link's {mean}{nominal_rate_text(rate)}"


def _while(run: RunHeader, row: _Row) -> str:
    """Describe for how long a flow ran, if not for the whole run."""
    if row["completion_s"] is not None:
        return f", complete after {seconds_text(float(row['completion_s']))}"
    active_s = _active_s(row)
    return f" while it ran ({seconds_text(active_s)})" if active_s < 0.95 * run.duration_s else ""


def _active_s(row: _Row) -> float:
    return max(float(row["stop_s"]) - float(row["start_s"]), 0.0)


def _delays(rows: Sequence[_Row]) -> str:
    """Describe the flows' RTTs, compared with the path's RTTs without queueing."""
    known = [row for row in rows if row["srtt_mean_us"] is not None]
    if not known:
        return "No round trip was measured."
    bases = [float(row["base_rtt_mean_us"]) for row in known if row["base_rtt_mean_us"]]
    against = f", against {span_text(bases, us_text)} for the path alone" if bases else ""
    if len(known) == 1:
        p95 = known[0]["rtt_p95_us"]
        and_p95 = "" if p95 is None else f" and {us_text(p95)} at the 95th percentile"
        whose = "Its" if len(rows) == 1 else f"{_names(known)[0]}'s"
        return f"{whose} RTT was {us_text(known[0]['srtt_mean_us'])} on average{and_p95}{against}."
    means = [float(row["srtt_mean_us"]) for row in known]
    p95s = [float(row["rtt_p95_us"]) for row in known if row["rtt_p95_us"] is not None]
    if len(known) <= LISTED_AT_MOST:
        parts = [
            f"{us_text(mean)} ({name})" for mean, name in zip(means, _names(known), strict=True)
        ]
        and_p95 = f", and {span_text(p95s, us_text)} at the 95th percentile" if p95s else ""
        return f"RTTs were {listed(parts)} on average{and_p95}{against}."
    and_p95 = f" and up to {us_text(max(p95s))} at the 95th percentile" if p95s else ""
    return f"RTTs were {span_text(means, us_text)} on average{and_p95}{against}."


def _probes(run: RunHeader) -> str:
    """Describe the probes' RTTs and losses, for runs that have only probes."""
    probes = run.summary.get("probes") or []
    medians = [float(probe["rtt_p50_us"]) for probe in probes if probe.get("rtt_p50_us")]
    if not probes:
        return "Nothing was measured but the link."
    sent = sum(int(probe["sent"]) for probe in probes)
    lost = sum(int(probe["lost"]) for probe in probes)
    rtt = f" and their median RTT was {span_text(medians, us_text)}" if medians else ""
    return f"Of {counted(sent, 'probe')}, {count_or_no(lost)} {was_or_were(lost)} lost{rtt}."


def _applications(rows: Sequence[_Row]) -> list[str]:
    """Describe the results of the applications, in a clause per kind."""
    return [_application(kind, own) for kind, own in _by(rows, lambda r: str(r["app"])).items()]


def _application(kind: str, rows: Sequence[_Row]) -> str:
    if kind == "call":
        return _call(rows)
    if kind == "dash":
        return _film(rows)
    one, many, participle = _TRANSACTIONS.get(kind, ("transaction", "transactions", "completed"))
    done, failed = (sum(int(row[key] or 0) for row in rows) for key in ("completed", "failed"))
    text = f"{count_or_no(done)} {one if done == 1 else many} {was_or_were(done)} {participle}"
    medians, p95s = (_values(rows, f"latency_{q}_us") for q in ("p50", "p95"))
    if done and medians:
        text += f", half of them within {span_text(medians, us_text)}" if done > 1 else ""
        text += f" and 95 % within {span_text(p95s, us_text)}" if done > 1 and p95s else ""
        text += f" within {span_text(medians, us_text)}" if done == 1 else ""
    return text + (f"; {failed:,} failed" if failed else "")


def _call(rows: Sequence[_Row]) -> str:
    means, least = _values(rows, "mos_mean"), _values(rows, "mos_least")
    name = "the call" if len(rows) == 1 else f"{len(rows)} calls"
    if not means:
        return f"{name} had no score"
    text = f"{name} had a MOS of {span_text(means, score_text)} on average"
    text += f" and {score_text(min(least))} at worst (5 is best)" if least else " (5 is best)"
    delays = _values(rows, "latency_p50_us")
    text += f", {span_text(delays, us_text)} from mouth to ear" if delays else ""
    return text


def _film(rows: Sequence[_Row]) -> str:
    bitrates, startups = _values(rows, "mean_bitrate_bps"), _values(rows, "startup_ns")
    name = "the film" if len(rows) == 1 else f"{len(rows)} films"
    if not bitrates:
        return f"{name} never began to play"
    text = f"{name} played at {span_text([rate / 1e6 for rate in bitrates], rate_text)} on average"
    text += f", began after {span_text([t / 1e3 for t in startups], us_text)}" if startups else ""
    stalls, stalled_s = int(sum(_values(rows, "stalls"))), sum(_values(rows, "stall_ns")) / 1e9
    how_often = "once" if stalls == 1 else f"{stalls:,} times"
    text += (
        f" and stalled {how_often}, for {seconds_text(stalled_s)}"
        if stalls
        else " and never stalled"
    )
    qoe = _values(rows, "qoe")
    return text + (f" (QoE {span_text(qoe, score_text)})" if qoe else "")


def _events(run: RunHeader, path: PathFacts) -> str:
    """Describe the run's handovers, outages and losses."""
    handovers = _handovers(run)
    had = f"The path had {count_or_no(handovers)} {plural(handovers, 'handover')}"
    announced = _announced(run)
    had += f" ({announced})" if handovers and announced else ""
    if is_network(run):
        had = f"{counted(len(used_links([run])), 'direction')} of links carried packets"
        had += f"; handovers of routes were {announced}" if announced else ""
    if path.outage_s:
        had += f" and was down for {seconds_text(path.outage_s)} in all"
    lost = _lost(run)
    total = sum(lost.values())
    marks = int(run.summary["link"].get("marks") or 0)
    marked = f", and {counted(marks, 'packet')} {was_or_were(marks)} marked (ECN)" if marks else ""
    packets = f"{count_or_no(total)} {plural(total, 'packet')} {was_or_were(total)} lost"
    return f"{had}; {packets}{_causes(lost)}{marked}."


def _announced(run: RunHeader) -> str:
    """Describe how handovers were announced to the senders; empty if they were not."""
    signal = run.scenario.get("signal")
    source = signal.get("source", "none") if isinstance(signal, Mapping) else "none"
    if source == "none":
        return ""
    lead = signal.get("lead") if isinstance(signal, Mapping) else None
    return f"announced{f' {lead} ahead' if source == 'path' and lead else f' by {source}'}"


def _causes(lost: Mapping[str, int]) -> str:
    """Describe where packets were lost, the main cause first."""
    causes = sorted((item for item in lost.items() if item[1]), key=lambda item: -item[1])
    if not causes:
        return ""
    if len(causes) == 1:
        whole = ", all" if causes[0][1] > 1 else ","
        return f"{whole} {_CAUSES.get(causes[0][0], causes[0][0])}"
    return ": " + listed([f"{count:,} {_CAUSES.get(reason, reason)}" for reason, count in causes])


def _handovers(run: RunHeader) -> int:
    return int(sum(run.summary["handovers"].values()))


def _lost(run: RunHeader) -> dict[str, int]:
    """Return the packets lost by reason, on the path's link and all further links."""
    links = [run.summary["link"], *(run.summary.get("links") or {}).values()]
    lost: dict[str, int] = {}
    for link in links:
        for reason, count in (link.get("drops") or {}).items():
            lost[reason] = lost.get(reason, 0) + int(count)
    return lost


# Several runs


@dataclass(frozen=True)
class _Compared:
    """Means over the flows of one group of the compared runs."""

    name: str
    cc: str
    engines: tuple[str, ...]
    goodput_mbps: float
    rates_mbps: tuple[float | None, ...]
    """Mean rate in Mbit/s of each flow's link."""
    share: float | None
    """Mean share of the link's rate, from 0 to 1."""
    rtt_ms: float | None
    p95_ms: float | None
    base_ms: float | None
    app: str
    rows: tuple[_Row, ...]
    has_many_per_run: bool


def _of_runs(runs: Sequence[RunHeader], paths: Sequence[PathFacts]) -> list[str]:
    groups = _compared(runs, paths)
    plain = [group for group in groups if group.app in ("", "bulk")]
    apps = _compared_applications(runs, groups)
    durations = span_text([run.duration_s for run in runs], seconds_text)
    if not groups and not apps:
        first, second = f"In {durations}, no run had a TCP flow.", _probes_of(runs)
    else:
        shown = plain or groups
        first = f"In {durations}, {_compared_goodputs(runs, shown)}." if shown else ""
        second = _compared_delays(shown) if shown else ""
        if apps:
            clauses = "; ".join(apps)
            if plain:
                second = f"{second[:-1]}; {clauses}."
            else:
                first, second = f"In {durations}, {clauses}.", second or "No TCP flow ran."
    return [first, second, _compared_events(runs, groups)]


def _compared(runs: Sequence[RunHeader], paths: Sequence[PathFacts]) -> list[_Compared]:
    by_key = {
        (index, row["flow"]): row for index, run in enumerate(runs) for row in rows_of(run)
    }  # fmt: skip
    found = []
    for group in flow_groups(runs):
        rows = tuple(by_key[key] for key in group.flows)
        rates = [
            link_mbps(runs[index], flow, paths[index].rate_mbps) for index, flow in group.flows
        ]
        goodputs = [float(row["goodput_bps"]) / 1e6 for row in rows]
        shares = [g / rate for g, rate in zip(goodputs, rates, strict=True) if rate]
        found.append(
            _Compared(
                name=group.name,
                cc=group.cc,
                engines=tuple(
                    sorted({str(runs[index].summary["engine"]) for index, _ in group.flows})
                ),
                goodput_mbps=sum(goodputs) / len(goodputs),
                rates_mbps=tuple(rates),
                share=sum(shares) / len(shares) if len(shares) == len(rows) else None,
                rtt_ms=_mean_ms(rows, "srtt_mean_us"),
                p95_ms=_mean_ms(rows, "rtt_p95_us"),
                base_ms=_mean_ms(rows, "base_rtt_mean_us"),
                app=str(rows[0]["app"] or ""),
                rows=rows,
                has_many_per_run=len({index for index, _ in group.flows}) < len(group.flows),
            )
        )
    return found


def _compared_goodputs(runs: Sequence[RunHeader], groups: Sequence[_Compared]) -> str:
    """Describe which groups got the highest and lowest share or rate of their links."""
    each = " per flow" if any(group.has_many_per_run for group in groups) else ""
    all_rates = [rate for group in groups for rate in group.rates_mbps]
    of_link = "" if each else _link_text(runs[0], all_rates)
    ranked = sorted(groups, key=lambda group: -group.goodput_mbps)
    most, least = ranked[0], ranked[-1]

    def text(group: _Compared, *, first: bool) -> str:
        share = f"{100 * group.share:.0f} %" if group.share is not None and not each else ""
        if first and share and of_link:
            share += f" of {of_link}"
        elif share and not of_link:
            share += " of its link"
        return f"{rate_text(group.goodput_mbps)}{each if first else ''}{in_brackets(share)}"

    if len(ranked) == 1:
        values = [float(row["goodput_bps"]) / 1e6 for row in most.rows]
        span = span_text(values, rate_text)
        noun = "flow" if most.has_many_per_run else "run"
        over = f" on average over {counted(len(values), noun)}" if len(values) > 1 else ""
        spread = f", from {span}" if " to " in span else ""
        return f"{most.name} carried {text(most, first=True)}{over}{spread}"
    if len(ranked) <= LISTED_AT_MOST:
        parts = [
            f"{group.name} carried {text(group, first=True)}"
            if group is most
            else f"{group.name} {text(group, first=False)}"
            for group in ranked
        ]
        return listed(parts)
    if least.goodput_mbps > 0 and most.goodput_mbps / least.goodput_mbps <= _ALIKE:
        values = [group.goodput_mbps for group in ranked]
        of = f" of {of_link}" if of_link else ""
        span = span_text(values, rate_text)
        return f"all {len(ranked)} senders carried about the same{each}, {span}{of}"
    return (
        f"{most.name} carried most of {len(ranked)}, {text(most, first=True)}, "
        f"and {least.name} least, {text(least, first=False)}"
    )


def _compared_delays(groups: Sequence[_Compared]) -> str:
    """Describe which groups had the shortest and the longest RTTs."""
    known = [(group.rtt_ms, group) for group in groups if group.rtt_ms is not None]
    if not known:
        return "No round trip was measured."
    ranked = sorted(known, key=lambda item: item[0])
    bases = [group.base_ms for group in groups if group.base_ms]
    against = f"; the path alone takes {span_text(bases, ms_text)}" if bases else ""

    def text(rtt_ms: float, group: _Compared, *, first: bool) -> str:
        p95 = "" if group.p95_ms is None else f"95th percentile {ms_text(group.p95_ms)}"
        return f"{ms_text(rtt_ms)}{' on average' if first else ''}{in_brackets(p95)}"

    if len(ranked) == 1:
        return f"RTTs were {text(*ranked[0], first=True)}{against}."
    if len(ranked) == 2:  # noqa: PLR2004
        parts = [
            f"{text(*item, first=item is ranked[0])} for {item[1].name}" for item in ranked
        ]  # fmt: skip
        return f"RTTs were {listed(parts)}{against}."
    (low, shortest), (high, longest) = ranked[0], ranked[-1]
    if high / low <= _ALIKE:
        return f"RTTs were about the same, {span_text([low, high], ms_text)} on average{against}."
    return (
        f"RTTs were shortest for {shortest.name}, {text(low, shortest, first=True)}, "
        f"and longest for {longest.name}, {text(high, longest, first=False)}{against}."
    )


def _compared_applications(runs: Sequence[RunHeader], groups: Sequence[_Compared]) -> list[str]:
    """Describe the best and worst results of applications, in a clause per kind."""
    found: dict[str, dict[str, list[_Row]]] = {}
    for group in groups:
        if group.app not in ("", "bulk"):
            found.setdefault(group.app, {})[group.name] = list(group.rows)
    for run in runs:
        # Calls are not TCP flows and belong to no group: name them by their run.
        for row in rows_of(run):
            if row["cc"] is None and row["app"] is not None:
                found.setdefault(str(row["app"]), {}).setdefault(run.name, []).append(row)
    return [text for kind, named in found.items() for text in _best_and_worst(kind, named)]


def _best_and_worst(kind: str, named: Mapping[str, Sequence[_Row]]) -> Iterator[str]:
    key, best, worst, alike, write, order = _JUDGED.get(kind, _RANKED_BY_LATENCY)
    subject = "" if kind in _JUDGED else f"{_TRANSACTIONS.get(kind, ('', 'transactions', ''))[1]} "
    values = {name: _values(rows, key) for name, rows in named.items()}
    means = {name: sum(v) / len(v) for name, v in values.items() if v}
    if not means:
        return
    ranked = sorted(means.items(), key=lambda item: order * item[1])
    unit = " at the 95th percentile" if key == "latency_p95_us" else ""
    if len(ranked) == 1:
        yield from _applications(next(iter(named.values())))
        return
    (first, top), (last, bottom) = ranked[0], ranked[-1]
    low, high = sorted((top, bottom))
    if low == high or (low > 0 and high / low <= _ALIKE):
        yield f"{subject}{alike} ({span_text(list(means.values()), write)}{unit})"
        return
    found = f"{best} with {first} ({write(top)}{unit}) and {worst} with {last} ({write(bottom)})"
    yield f"{subject}{found}"


def _compared_events(runs: Sequence[RunHeader], groups: Sequence[_Compared]) -> str:
    handovers = [_handovers(run) for run in runs]
    numbers = span_text(handovers, lambda count: f"{count:,.0f}")
    each = f"Each run had {numbers} {plural(max(handovers), 'handover')}"
    had = each if any(handovers) else "No run had a handover"
    lost = {run.name: sum(_lost(run).values()) for run in runs}
    most, least = max(lost, key=lambda name: lost[name]), min(lost, key=lambda name: lost[name])
    if lost[most] == 0:
        losses = "no packet was lost"
    elif lost[most] == lost[least]:
        losses = f"each lost {counted(lost[most], 'packet')}"
    else:
        causes = _lost(next(run for run in runs if run.name == most))
        reason = max(causes, key=lambda name: causes[name])
        worst = f"({lost[most]:,}, mainly {_CAUSES.get(reason, reason)})"
        losses = (
            f"{least} lost fewer packets ({lost[least]:,}) than {most} {worst}"
            if len(lost) == 2  # noqa: PLR2004
            else f"{least} lost fewest packets ({lost[least]:,}) and {most} most {worst}"
        )
    return f"{had}; {losses}{_engines(groups)}."


def _engines(groups: Sequence[_Compared]) -> str:
    """Describe how much engines differ for the same sender, if several engines ran."""
    pairs = []
    for _, own in _by(groups, lambda group: group.cc).items():
        alike = [group for group in own if group.app in ("", "bulk")]
        if len({group.engines for group in alike}) == len(alike) > 1:
            pairs.append(alike)
    if not pairs:
        return ""
    goodput = max(_apart([g.goodput_mbps for g in own]) for own in pairs)
    rtts = [_apart([g.rtt_ms for g in own if g.rtt_ms]) for own in pairs]
    return (
        f"; between engines the same sender's goodput differs by at most {100 * goodput:.0f} % and "
        f"its mean RTT by at most {100 * max(rtts):.0f} %"
    )


def _apart(values: Sequence[float]) -> float:
    """Return the share by which the highest value exceeds the lowest."""
    return max(values) / min(values) - 1 if values and min(values) > 0 else 0.0


def _probes_of(runs: Sequence[RunHeader]) -> str:
    texts = [f"{run.name}: {_probes(run)[:-1]}" for run in runs[:LISTED_AT_MOST]]
    return "; ".join(texts) + "."


# Rows of flows


def _values(rows: Sequence[_Row], key: str) -> list[float]:
    return [float(row[key]) for row in rows if row.get(key) is not None]


def _mean(rows: Sequence[_Row], key: str) -> float:
    values = _values(rows, key)
    return sum(values) / len(values) if values else 0.0


def _mean_ms(rows: Sequence[_Row], key: str) -> float | None:
    values = _values(rows, key)
    return sum(values) / len(values) / 1e3 if values else None


def _names(rows: Sequence[_Row]) -> list[str]:
    """Return the senders' names, with flow ids where a sender has several flows."""
    ccs = [str(row["cc"]) for row in rows]
    return [
        f"{cc} #{row['flow']}" if ccs.count(cc) > 1 else cc
        for cc, row in zip(ccs, rows, strict=True)
    ]  # fmt: skip


def _by(items: Sequence[Any], key: Callable[[Any], str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


_JUDGED: Mapping[str, tuple[str, str, str, str, Callable[[float], str], int]] = {
    "call": (
        "mos_mean", "calls had the best MOS", "the worst", "calls had about the same MOS",
        score_text, -1,
    ),
    "dash": (
        "qoe", "films had the best QoE", "the worst", "films had about the same QoE",
        score_text, -1,
    ),
    "page": (
        "latency_p95_us", "pages loaded fastest", "slowest", "pages loaded about equally fast",
        us_text, 1,
    ),
}  # fmt: skip
"""Ranking of applications by kind: key, words for best, worst and no difference, formatter, and
1 if low is good."""

_RANKED_BY_LATENCY = (
    "latency_p95_us", "waited least", "longest", "waited about as long", us_text, 1,
)  # fmt: skip
