"""Question of the demo, and its answer in sentences and a figure, from the demo's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.analysis.binning import binned
from skyhop.analysis.flow_groups import by_duration
from skyhop.analysis.flows import flow_styles
from skyhop.analysis.link_rate import burst_note, is_above_rate
from skyhop.analysis.run_page import Lead, PageFigure
from skyhop.analysis.sentence_words import (
    counted,
    listed,
    nominal_rate_text,
    rate_text,
    seconds_text,
    us_text,
)
from skyhop.analysis.tables import three_digits
from skyhop.analysis.timeline import (
    GREY,
    Line,
    Panel,
    Stroke,
    Timeline,
    event_strip,
    from_zero,
    highest_of,
)
from skyhop.data.arrays import FloatArray
from skyhop.data.quantities import mbps_or_none, seconds
from skyhop.data.records import PathRecord, RunRecord

QUESTION = "A handover makes the route much longer: which sender keeps its rate?"

AFTER_S = 10.0
"""Time after the change over which goodput is compared, in s."""
_BACK_SHARE, _BACK_OVER_S = 0.9, 2.0
"""A sender is back when its goodput over this time reaches this share of that before the change."""

_LATE_US = 2000.0
"""Greatest lateness (99th percentile) of a punctual live run; above it, live runs warn."""
_ALIKE = 0.1
"""Largest relative difference at which a live and a simulated run count as alike."""
_LONGER = 1.5
"""Least ratio of two round trips at which a handover makes a route much longer."""

_NAMES = {"bbr": "BBR", "cubic": "CUBIC", "reno": "Reno", "satcp": "SaTCP", "satpipe": "SatPipe"}
_ENGINES = {"live": "live on this machine's TCP", "linux": "on Linux in virtual time"}


@dataclass(frozen=True)
class Change:
    """Moment at which a path becomes longer."""

    at_s: float
    before_ms: float
    """RTT of the path before the change, without queueing, in ms."""
    after_ms: float
    hops_before: int
    hops_after: int


@dataclass(frozen=True)
class Outcome:
    """Goodput of one run's flow before and after the change."""

    run: RunRecord
    name: str
    engine: str
    lead_s: float | None
    """Time before the handover at which the sender was told of it, in s; None if it was not."""
    before_mbps: float
    after_mbps: float
    """Mean goodput in the `AFTER_S` seconds after the change."""
    back_s: float | None
    """Time from the change until the sender is back; None if it is not back in this run."""

    @property
    def late_us(self) -> float:
        """Delay that the machine added to 1 % of the packets or round trips, in us; 0 if none."""
        measured = (self.run.summary.get(key) or {} for key in ("lateness_us", "rtt_excess_us"))
        return max(float(of_key.get("p99") or 0.0) for of_key in measured)

    @property
    def is_punctual(self) -> bool:
        """Whether the machine carried the run's packets at their times."""
        return self.late_us <= _LATE_US


def lead(runs: Sequence[RunRecord]) -> Lead:
    """Return the question, the answer and the figure.

    Args:
        runs: runs of one flow over one path, of two durations; the shorter ones answer the
            question, and the longer ones show how often the change occurs.
    """
    of_durations = [[runs[index] for index in group] for group in by_duration(runs)]
    short, long = of_durations[0], of_durations[-1]
    change = change_of(path_of(short[0]))
    outcomes = [outcome(run, change) for run in short]
    simulated = [one for one in outcomes if one.engine == "sim"]
    shown = [one for one in outcomes if one.is_punctual]
    caption = [
        _how(change, short[0]),
        *(against_simulation(one, simulated) for one in outcomes if one not in simulated),
        *([over_time(long)] if long is not short else []),
        "end: one end of the path changes its satellite.",
    ]
    figure = PageFigure("lead", " ".join(caption), lambda: _picture(shown))
    return Lead(QUESTION, answer(change, simulated), figure)


def path_of(run: RunRecord) -> PathRecord:
    """Return the copy of the path that every run of the demo has."""
    assert run.path is not None, run.directory
    return run.path


def change_of(path: PathRecord) -> Change:
    """Return the greatest increase of the path's RTT."""
    rtt_ms = path.delay_ms + path.delay_back_ms
    at = int(np.nanargmax(np.diff(rtt_ms))) + 1
    return Change(
        at_s=float(path.t_s[at]),
        before_ms=float(rtt_ms[at - 1]),
        after_ms=float(rtt_ms[at]),
        hops_before=int(path.hops[at - 1]),
        hops_after=int(path.hops[at]),
    )


def outcome(run: RunRecord, change: Change) -> Outcome:
    """Return what the run's flow carried before and after the change."""
    (flow,) = run.flow_summaries()
    series = run.flows[int(flow["id"])]
    signal = run.scenario.get("signal") or {}
    is_told = signal.get("source", "none") != "none"

    def mean(begin_s: float, end_s: float) -> float:
        within = (series.t_s > begin_s) & (series.t_s <= end_s)
        return float(np.nanmean(series.goodput_mbps[within]))

    # The second half of the time before the change is without the start of the flow.
    before_mbps = mean(change.at_s / 2, change.at_s)
    starts_s = np.arange(0.0, run.duration_s - change.at_s - _BACK_OVER_S + 1e-9)
    back_s = (
        float(after_s)
        for after_s in starts_s
        if mean(change.at_s + after_s, change.at_s + after_s + _BACK_OVER_S)
        >= _BACK_SHARE * before_mbps
    )
    return Outcome(
        run=run,
        name=_NAMES.get(str(flow["cc"]), str(flow["cc"])),
        engine=str(run.summary["engine"]),
        lead_s=seconds(signal["lead"]) if is_told else None,
        before_mbps=before_mbps,
        after_mbps=mean(change.at_s, change.at_s + AFTER_S),
        back_s=next(back_s, None),
    )


def answer(change: Change, outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """Return two sentences: what each sender carried after the change, and when it was back."""
    ranked = sorted(outcomes, key=lambda one: one.after_mbps)
    untold = [one for one in ranked if one.lead_s is None]
    told = [one for one in ranked if one.lead_s is not None]
    rate_mbps = mbps_or_none(outcomes[0].run.scenario["link"]["rate"]) or 0.0
    first = (
        f"In the {seconds_text(AFTER_S)} after a handover takes the round trip from "
        f"{change.before_ms:.0f} to {change.after_ms:.0f} ms, {_carried(untold)} of "
        f"{nominal_rate_text(rate_mbps)}"
    )
    if told:
        leads = dict.fromkeys(seconds_text(one.lead_s) for one in told if one.lead_s is not None)
        first += f"; told {listed(list(leads))} ahead, {_carried(told)}"
    return f"{first}.", _recoveries(change, outcomes)


def _carried(outcomes: Sequence[Outcome]) -> str:
    texts = [f"{one.name} {three_digits(one.after_mbps)}" for one in outcomes]
    texts[0] = texts[0].replace(" ", " carries ", 1)
    return listed(texts)


def _recoveries(change: Change, outcomes: Sequence[Outcome]) -> str:
    back = sorted(
        ((one.back_s, one.name) for one in outcomes if one.back_s is not None),
        key=lambda item: item[0],
    )
    never = listed([one.name for one in outcomes if one.back_s is None])
    share = f"{100 * _BACK_SHARE:.0f} % of its rate"
    texts = [f"{name} after {seconds_text(back_s)}" for back_s, name in back]
    if texts:
        texts[0] = texts[0].replace(" ", f" is back at {share} ", 1)
    shown_s = outcomes[0].run.duration_s - change.at_s
    if never:
        texts.append(
            f"{never} {'not' if back else f'is back at {share}, not'} "
            f"within {seconds_text(shown_s)}"
        )
    return f"{listed(texts)}."


def against_simulation(other: Outcome, simulated: Sequence[Outcome]) -> str:
    """Return a sentence that compares a run of another engine with the simulated run."""
    of_sim = next(one for one in simulated if one.name == other.name)
    ratio = other.after_mbps / of_sim.after_mbps - 1
    values = f"{rate_text(other.after_mbps)}, simulated {rate_text(of_sim.after_mbps)}"
    text = f"{other.name} {_ENGINES[other.engine]} carries {values}"
    if not other.is_punctual:
        return (
            f"{text}; the machine was late by {us_text(other.late_us)} or more for 1 % of the "
            "packets, so the picture leaves this run out."
        )
    if abs(ratio) > _ALIKE:
        return f"{text}: probes and losses fall at other times in every run."
    return f"{text}."


def over_time(runs: Sequence[RunRecord]) -> str:
    """Return a sentence on the goodput over long runs, and how often their path became longer."""
    path = path_of(runs[0])
    rtt_ms = path.delay_ms + path.delay_back_ms
    changes = int((rtt_ms[1:] > _LONGER * rtt_ms[:-1]).sum())
    goodputs = sorted(
        (float(flow["goodput_bps"]) / 1e6, _NAMES.get(str(flow["cc"]), str(flow["cc"])))
        for run in runs
        for flow in run.flow_summaries()
    )
    (least_mbps, least), (most_mbps, most) = goodputs[0], goodputs[-1]
    return (
        f"Over {seconds_text(runs[0].duration_s)} with {counted(changes, 'such change')}, means "
        f"are {three_digits(least_mbps)} ({least}) to {rate_text(most_mbps)} ({most})."
    )


def _how(change: Change, run: RunRecord) -> str:
    path = path_of(run)
    return (
        f"Simulated from {path.endpoint('from')} to {path.endpoint('to')} over "
        f"{path.header['constellation']}, queue {run.scenario['link']['queue']}: "
        f"each end takes the satellite nearest to it, which makes the route {change.hops_after} "
        f"instead of {change.hops_before} hops long."
    )


def _picture(outcomes: Sequence[Outcome]) -> Timeline:
    """Return the figure: goodput of every sender, and the RTT of the path."""
    runs = [one.run for one in outcomes]
    path, end_s = path_of(runs[0]), max(run.duration_s for run in runs)
    styles = flow_styles(runs)
    lines: list[Line] = []
    highest = 0.0
    for index, one in enumerate(outcomes):
        ((flow, series),) = one.run.flows.items()
        t_s, mbps = binned(series.t_s, series.goodput_mbps, 0.5)
        stroke = styles[index, flow].stroke
        thick = Stroke(stroke.colour, 2.0, stroke.dash, stroke.alpha, stroke.marker)
        lines.append(Line(t_s, mbps, thick, _label(one)))
        highest = max(highest, highest_of(mbps))
    t_s, rtt_ms = path.curve(path.delay_ms + path.delay_back_ms)
    note = burst_note(is_above_rate(run, flow) for run in runs for flow in run.flows.values())
    return Timeline(
        about="run",
        title="",
        end_s=end_s,
        strip=event_strip(path.events.within(0.0, end_s), end_s),
        panels=[
            Panel("goodput", "Mbit/s", lines, from_zero(highest), height_in=2.8),
            _base_rtt(t_s, rtt_ms),
        ],
        note=f"goodput {note}" if note else "",
    )


def _label(one: Outcome) -> str:
    told = "" if one.lead_s is None else ", told"
    return f"{one.name}{told}{'' if one.engine == 'sim' else f', {one.engine}'}"


def _base_rtt(t_s: FloatArray, rtt_ms: FloatArray) -> Panel:
    line = Line(t_s, rtt_ms, Stroke(GREY, 1.6), "path alone")
    return Panel("RTT", "ms", [line], from_zero(highest_of(rtt_ms)), height_in=1.0)
