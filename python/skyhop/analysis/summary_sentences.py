"""Sentences in plain English about runs and studies, made from their numbers.

One run, several compared runs and a study each get three sentences: on the rates of flows, on delay
or quality, and on handovers, losses and missing runs. This module reads and draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from skyhop.analysis.flow_groups import by_duration, flow_groups, has_changing_rate, link_mbps
from skyhop.analysis.summary import rows_of
from skyhop.analysis.tables import three_digits
from skyhop.data.run_headers import RunHeader

LISTED_AT_MOST = 4
"""Largest number of flows, or of compared groups, that a sentence names one by one."""

_ALIKE = 1.02
"""Largest ratio of the highest to the lowest value at which values count as equal."""

_LONG_MS, _LONG_S, _MINUTE_S = 2000, 600, 60
"""Least time (ms) written in seconds; least time (s) written in minutes; a minute in s."""

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
    rows = [row for row in rows_of(run) if row["flow"] is not None]
    tcp = [row for row in rows if row["cc"] is not None]
    plain = [row for row in tcp if row["app"] in (None, "bulk")]
    apps = [row for row in rows if row["app"] not in (None, "bulk")]
    duration = _seconds(run.duration_s)
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
        share = f", {_share(goodputs[0], rates[0])} of {of_link}" if rates[0] else ""
        name = f"the bulk flow ({rows[0]['cc']})" if has_applications else rows[0]["cc"]
        return f"{name} carried {_rate(goodputs[0])}{share}{_while(run, rows[0])}"
    if len(rows) <= LISTED_AT_MOST:
        names = _names(rows)
        parts = [
            f"{name} got {_rate(goodput)}{_in_brackets(_share(goodput, rate))}{_while(run, row)}"
            for name, goodput, rate, row in zip(names, goodputs, rates, rows, strict=True)
        ]
        return f"of {of_link}, {listed(parts)}" if of_link else listed(parts)
    carried = sum(g * _active_s(row) for g, row in zip(goodputs, rows, strict=True))
    total = carried / run.duration_s if run.duration_s > 0 else 0.0
    share = _share(total, rates[0]) if of_link else ""
    together = f"{len(rows):,} flows carried {_rate(total)} together"
    together += f", {share} of {of_link}" if share else ""
    by_cc = _by(rows, lambda row: str(row["cc"]))
    if 1 < len(by_cc) <= LISTED_AT_MOST:
        means = [
            f"the {counted(len(own), 'flow')} of {cc} {_rate(_mean(own, 'goodput_bps') / 1e6)}"
            for cc, own in by_cc.items()
        ]
        return f"{together}: {listed(means)} each on average"
    return f"{together}, each between {_span(goodputs, _rate, ' and ')}"


def _link_text(run: RunHeader, rates: Sequence[float | None]) -> str:
    """Describe the link's rate, if all flows share the link."""
    known = set(rates)
    rate = next(iter(known), None)
    if len(known) != 1 or not rate:
        return ""
    mean = "mean rate of " if has_changing_rate(run) else ""
    return f"the link's {mean}{_nominal_rate(rate)}"


def _while(run: RunHeader, row: _Row) -> str:
    """Describe for how long a flow ran, if not for the whole run."""
    if row["completion_s"] is not None:
        return f", complete after {_seconds(float(row['completion_s']))}"
    active_s = _active_s(row)
    return f" while it ran ({_seconds(active_s)})" if active_s < 0.95 * run.duration_s else ""


def _active_s(row: _Row) -> float:
    return max(float(row["stop_s"]) - float(row["start_s"]), 0.0)


def _delays(rows: Sequence[_Row]) -> str:
    """Describe the flows' RTTs, compared with the path's RTTs without queueing."""
    known = [row for row in rows if row["srtt_mean_us"] is not None]
    if not known:
        return "No round trip was measured."
    bases = [float(row["base_rtt_mean_us"]) for row in known if row["base_rtt_mean_us"]]
    against = f", against {_span(bases, _us)} for the path alone" if bases else ""
    if len(known) == 1:
        p95 = known[0]["rtt_p95_us"]
        and_p95 = "" if p95 is None else f" and {_us(p95)} at the 95th percentile"
        whose = "Its" if len(rows) == 1 else f"{_names(known)[0]}'s"
        return f"{whose} RTT was {_us(known[0]['srtt_mean_us'])} on average{and_p95}{against}."
    means = [float(row["srtt_mean_us"]) for row in known]
    p95s = [float(row["rtt_p95_us"]) for row in known if row["rtt_p95_us"] is not None]
    if len(known) <= LISTED_AT_MOST:
        parts = [f"{_us(mean)} ({name})" for mean, name in zip(means, _names(known), strict=True)]
        and_p95 = f", and {_span(p95s, _us)} at the 95th percentile" if p95s else ""
        return f"RTTs were {listed(parts)} on average{and_p95}{against}."
    and_p95 = f" and up to {_us(max(p95s))} at the 95th percentile" if p95s else ""
    return f"RTTs were {_span(means, _us)} on average{and_p95}{against}."


def _probes(run: RunHeader) -> str:
    """Describe the probes' RTTs and losses, for runs that have only probes."""
    probes = run.summary.get("probes") or []
    medians = [float(probe["rtt_p50_us"]) for probe in probes if probe.get("rtt_p50_us")]
    if not probes:
        return "Nothing was measured but the link."
    sent = sum(int(probe["sent"]) for probe in probes)
    lost = sum(int(probe["lost"]) for probe in probes)
    rtt = f" and their median RTT was {_span(medians, _us)}" if medians else ""
    return f"Of {counted(sent, 'probe')}, {_none_or(lost)} {_was(lost)} lost{rtt}."


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
    text = f"{_none_or(done)} {one if done == 1 else many} {_was(done)} {participle}"
    medians, p95s = (_values(rows, f"latency_{q}_us") for q in ("p50", "p95"))
    if done and medians:
        text += f", half of them within {_span(medians, _us)}" if done > 1 else ""
        text += f" and 95 % within {_span(p95s, _us)}" if done > 1 and p95s else ""
        text += f" within {_span(medians, _us)}" if done == 1 else ""
    return text + (f"; {failed:,} failed" if failed else "")


def _call(rows: Sequence[_Row]) -> str:
    means, least = _values(rows, "mos_mean"), _values(rows, "mos_least")
    name = "the call" if len(rows) == 1 else f"{len(rows)} calls"
    if not means:
        return f"{name} had no score"
    text = f"{name} had a MOS of {_span(means, _score)} on average"
    text += f" and {_score(min(least))} at worst (5 is best)" if least else " (5 is best)"
    delays = _values(rows, "latency_p50_us")
    text += f", {_span(delays, _us)} from mouth to ear" if delays else ""
    return text


def _film(rows: Sequence[_Row]) -> str:
    bitrates, startups = _values(rows, "mean_bitrate_bps"), _values(rows, "startup_ns")
    name = "the film" if len(rows) == 1 else f"{len(rows)} films"
    if not bitrates:
        return f"{name} never began to play"
    text = f"{name} played at {_span([rate / 1e6 for rate in bitrates], _rate)} on average"
    text += f", began after {_span([t / 1e3 for t in startups], _us)}" if startups else ""
    stalls, stalled_s = int(sum(_values(rows, "stalls"))), sum(_values(rows, "stall_ns")) / 1e9
    how_often = "once" if stalls == 1 else f"{stalls:,} times"
    text += (
        f" and stalled {how_often}, for {_seconds(stalled_s)}" if stalls else " and never stalled"
    )
    qoe = _values(rows, "qoe")
    return text + (f" (QoE {_span(qoe, _score)})" if qoe else "")


def _events(run: RunHeader, path: PathFacts) -> str:
    """Describe the run's handovers, outages and losses."""
    handovers = _handovers(run)
    had = f"The path had {_none_or(handovers)} {_plural(handovers, 'handover')}"
    had += _announced(run) if handovers else ""
    if path.outage_s:
        had += f" and was down for {_seconds(path.outage_s)} in all"
    lost = _lost(run)
    total = sum(lost.values())
    marks = int(run.summary["link"].get("marks") or 0)
    marked = f", and {counted(marks, 'packet')} {_was(marks)} marked (ECN)" if marks else ""
    packets = f"{_none_or(total)} {_plural(total, 'packet')} {_was(total)} lost"
    return f"{had}; {packets}{_causes(lost)}{marked}."


def _announced(run: RunHeader) -> str:
    """Describe how handovers were announced to the senders; empty if they were not."""
    signal = run.scenario.get("signal")
    source = signal.get("source", "none") if isinstance(signal, Mapping) else "none"
    if source == "none":
        return ""
    lead = signal.get("lead") if isinstance(signal, Mapping) else None
    return f" (announced{f' {lead} ahead' if source == 'path' and lead else f' by {source}'})"


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
    durations = _span([run.duration_s for run in runs], _seconds)
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
        return f"{_rate(group.goodput_mbps)}{each if first else ''}{_in_brackets(share)}"

    if len(ranked) == 1:
        values = [float(row["goodput_bps"]) / 1e6 for row in most.rows]
        span = _span(values, _rate)
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
        return f"all {len(ranked)} senders carried about the same{each}, {_span(values, _rate)}{of}"
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
    against = f"; the path alone takes {_span(bases, _ms)}" if bases else ""

    def text(rtt_ms: float, group: _Compared, *, first: bool) -> str:
        p95 = "" if group.p95_ms is None else f"95th percentile {_ms(group.p95_ms)}"
        return f"{_ms(rtt_ms)}{' on average' if first else ''}{_in_brackets(p95)}"

    if len(ranked) == 1:
        return f"RTTs were {text(*ranked[0], first=True)}{against}."
    if len(ranked) == 2:  # noqa: PLR2004
        parts = [
            f"{text(*item, first=item is ranked[0])} for {item[1].name}" for item in ranked
        ]  # fmt: skip
        return f"RTTs were {listed(parts)}{against}."
    (low, shortest), (high, longest) = ranked[0], ranked[-1]
    if high / low <= _ALIKE:
        return f"RTTs were about the same, {_span([low, high], _ms)} on average{against}."
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
    key, best, worst, write, order = _JUDGED.get(kind, _RANKED_BY_LATENCY)
    subject = best
    if kind not in _JUDGED:
        subject = f"{_TRANSACTIONS.get(kind, ('', 'transactions', ''))[1]} {best}"
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
    yield f"{subject} with {first} ({write(top)}{unit}) and {worst} with {last} ({write(bottom)})"


def _compared_events(runs: Sequence[RunHeader], groups: Sequence[_Compared]) -> str:
    handovers = [_handovers(run) for run in runs]
    numbers = _span(handovers, lambda count: f"{count:,.0f}")
    each = f"Each run had {numbers} {_plural(max(handovers), 'handover')}"
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
        losses = (
            f"{least} lost fewest packets ({lost[least]:,}) and {most} most ({lost[most]:,}, "
            f"mainly {_CAUSES.get(reason, reason)})"
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


# A study


@dataclass(frozen=True)
class RankedValues:
    """Levels of an axis at which a metric is highest and lowest."""

    metric: str
    """The metric's title, such as "goodput"."""
    unit: str
    axis: str
    count: int
    """Number of levels compared."""
    averaged: tuple[str, ...]
    """Names of the other axes, over whose values the metric is averaged."""
    highest: str
    highest_value: float
    lowest: str
    lowest_value: float
    interval: tuple[float, float] | None
    """95 % confidence interval of the difference; None if repeats are missing."""


@dataclass(frozen=True)
class StudyOutcome:
    """Numbers of a study from which its three sentences are written."""

    ranked: RankedValues | None
    holding: int
    failing: int
    undecided: int
    """Number of claims with the verdict "cannot be told"."""
    within_chance: int
    """Number of verdicts that other seeds could change."""
    finished: int
    planned: int
    failed: int
    warnings: int


def study_sentences(study: StudyOutcome) -> list[str]:
    """Return three sentences about a study: best and worst level, claims, and missing runs."""
    return [_best(study.ranked), _claims(study), _missing(study)]


def _best(ranked: RankedValues | None) -> str:
    if ranked is None:
        return "No finished run has numbers that can be compared."
    over = (
        f", averaged over {listed([_words(name) for name in ranked.averaged])}"
        if ranked.averaged
        else ""
    )
    unit = f" {ranked.unit}" if ranked.unit else ""

    def write(value: float) -> str:
        return f"{three_digits(value)}{unit}"

    difference = ranked.highest_value - ranked.lowest_value
    if ranked.count == 1:
        value = write(ranked.highest_value)
        return f"The {ranked.metric} of {_words(ranked.axis)} {ranked.highest} is {value}{over}."
    if ranked.interval is None:
        spread = "without an interval, for want of repeats"
    else:
        low, high = ranked.interval
        chance = ", which is within chance" if low <= 0 <= high else ""
        chosen = ", not corrected for the choice of these two" if ranked.count > 2 else ""  # noqa: PLR2004
        spread = f"95 % interval {three_digits(low)} to {three_digits(high)}{chance}{chosen}"
    return (
        f"Of {ranked.count} values of {_words(ranked.axis)}, {ranked.highest} has the highest "
        f"{ranked.metric} ({write(ranked.highest_value)}) and {ranked.lowest} the lowest "
        f"({write(ranked.lowest_value)}){over}: a difference of {write(difference)} ({spread})."
    )


def _claims(study: StudyOutcome) -> str:
    total = study.holding + study.failing + study.undecided
    if not total:
        return "The study makes no claims."
    holds = "holds" if study.holding == 1 else "hold"
    parts = [f"{study.holding:,} of {counted(total, 'claim')} {holds}"]
    if study.failing:
        parts.append(f"{study.failing:,} {'does' if study.failing == 1 else 'do'} not hold")
    if study.undecided:
        parts.append(f"{study.undecided:,} cannot be told")
    chance = study.within_chance
    verdicts = "verdict is" if chance == 1 else "verdicts are"
    return listed(parts) + (f"; {chance:,} {verdicts} within chance" if chance else "") + "."


def _missing(study: StudyOutcome) -> str:
    absent = max(study.planned - study.finished - study.failed, 0)
    if study.finished == study.planned:
        text = (
            f"All {study.planned:,} runs finished" if study.planned > 1 else "The only run finished"
        )
    else:
        text = f"{study.finished:,} of {counted(study.planned, 'run')} finished"
        if study.failed:
            text += f", {study.failed:,} failed"
        if absent:
            text += f" and {absent:,} {'is' if absent == 1 else 'are'} missing"
    are = "is" if study.warnings == 1 else "are"
    warned = f"; {counted(study.warnings, 'warning')} {are} listed below"
    unwarned = ", and none has a warning" if study.finished else ""
    return text + (warned if study.warnings else unwarned) + "."


# Words and numbers


def listed(words: Sequence[str]) -> str:
    """Return words separated by commas, with "and" before the last word."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, singular for 1: "1 run", "2,000 runs"."""
    return f"{count:,} {_plural(count, noun)}"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _none_or(count: int) -> str:
    return f"{count:,}" if count else "no"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _share(value: float, whole: float | None) -> str:
    """Return a share in percent as text; empty if the whole is not known."""
    if not whole:
        return ""
    percent = 100 * value / whole
    return f"{percent:.0f} %" if percent >= 1 or percent == 0 else f"{percent:.1f} %"


def _rate(mbps: float) -> str:
    if 0 < mbps < 1:
        return f"{three_digits(1000 * mbps)} kbit/s"
    return f"{three_digits(mbps)} Mbit/s"


def _nominal_rate(mbps: float) -> str:
    """Return a rate of the scenario as text, without trailing zeros."""
    return f"{mbps:g} Mbit/s" if 1 <= mbps < 1000 else _rate(mbps)  # noqa: PLR2004


def _us(microseconds: float) -> str:
    return _ms(float(microseconds) / 1e3)


def _ms(milliseconds: float) -> str:
    return (
        f"{three_digits(milliseconds)} ms"
        if milliseconds < _LONG_MS
        else _seconds(milliseconds / 1e3)
    )


def _seconds(seconds: float) -> str:
    if 0 < seconds < 1:
        return f"{three_digits(1e3 * seconds)} ms"
    if seconds >= _LONG_S or (seconds >= 2 * _MINUTE_S and seconds % _MINUTE_S == 0):
        minutes = seconds / _MINUTE_S
        return f"{minutes:,.0f} min" if minutes.is_integer() else f"{three_digits(minutes)} min"
    return f"{seconds:,.0f} s" if float(seconds).is_integer() else f"{three_digits(seconds)} s"


def _score(value: float) -> str:
    return f"{value:.2f}"


def _span(values: Sequence[float], write: Callable[[float], str], to: str = " to ") -> str:
    """Return the lowest and the highest value as text, or only one if their texts are equal.

    If both have the same unit, the unit appears once.
    """
    low, high = write(min(values)), write(max(values))
    if low == high:
        return high
    number, _, unit = low.partition(" ")
    return f"{number if unit and high.endswith(f' {unit}') else low}{to}{high}"


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


_JUDGED: Mapping[str, tuple[str, str, str, Callable[[float], str], int]] = {
    "call": ("mos_mean", "calls had the best MOS", "the worst", _score, -1),
    "dash": ("qoe", "films had the best QoE", "the worst", _score, -1),
    "page": ("latency_p95_us", "pages loaded fastest", "slowest", _us, 1),
}
"""Ranking of applications by kind: key, words for best and worst, formatter, 1 if low is good."""

_RANKED_BY_LATENCY = (
    "latency_p95_us", "waited least", "longest", _us, 1,
)  # fmt: skip
