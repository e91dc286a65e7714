"""Comparison of the simulator with Linux where chance matters: random loss, and shared links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from skyhop.data.arrays import FloatArray
from validation.linux import recorded
from validation.linux.scenarios import (
    GOODPUT,
    LINUX_OWN,
    SHARE,
    SRTT_WITH_LOSS,
    Outcome,
    Row,
    Scenario,
    are_near,
    scenario,
    share,
    simulate_all,
    sum_of,
    verdict,
)
from validation.pages import percent, row

SEEDS = 40
"""Number of simulations per scenario with random loss, each with its own seed."""
SRTT_OF_QUEUES = 0.05
"""Tolerance of mean srtt for flows over queue disciplines, as a fraction of Linux's value."""
STARTS, STARTS_APART_MS = 10, 7
"""Number of different start times of the second flow, and the time between them in ms."""
CONVERGED_S = 40
MSS_BITS = 1448 * 8


@dataclass(frozen=True)
class Difference:
    """Difference between simulator and Linux, with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def text(self, unit: str) -> str:
        """Return the difference in per cent or percentage points, with its interval."""
        value, low, high = (100 * end for end in (self.value, self.low, self.high))
        return f"{value:+.1f} {unit} ({low:+.1f} to {high:+.1f})"

    def is_within(self, tolerance: float) -> bool:
        """Return whether the estimate is within the tolerance."""
        return abs(self.value) <= tolerance

    def may_be_within(self, tolerance: float) -> bool:
        """Return whether a part of the interval is within the tolerance."""
        return self.low <= tolerance and self.high >= -tolerance


def difference(
    ours: Sequence[float],
    linux: Sequence[float],
    along: tuple[FloatArray, FloatArray] | None = None,
) -> Difference:
    """Return the simulator's mean minus Linux's, adjusted for the covariate `along` if given.

    The method is an analysis of covariance: least squares with an offset for the simulator, and a
    common slope along the covariate. The interval is from Student's t distribution with a common
    variance; a single value of Linux is enough.
    """
    values = np.concatenate([ours, linux])
    columns = [np.ones_like(values), np.r_[np.ones(len(ours)), np.zeros(len(linux))]]
    if along is not None:
        columns.append(np.concatenate(along))
    design = np.stack(columns, axis=1)
    fitted, *_ = np.linalg.lstsq(design, values, rcond=None)
    residuals = values - design @ fitted
    degrees = len(values) - design.shape[1]
    variance = float(residuals @ residuals) / degrees
    error = float(np.sqrt(variance * np.linalg.inv(design.T @ design)[1, 1]))
    reach = float(stats.t.ppf(0.975, degrees)) * error
    offset = float(fitted[1])
    return Difference(offset, offset - reach, offset + reach)


def relative_difference(
    ours: Sequence[float],
    linux: Sequence[float],
    along: tuple[FloatArray, FloatArray] | None = None,
) -> Difference:
    """Return the difference of the logarithms, which approximates a fraction of Linux's value."""
    found = difference(np.log(ours).tolist(), np.log(linux).tolist(), along)
    return Difference(*(float(np.expm1(end)) for end in (found.value, found.low, found.high)))


def lossy(executor: Executor) -> list[Row]:
    """Simulate every scenario with random loss, once for each of `SEEDS` seeds."""
    texts, of_linux = {}, {}
    for name, linux in _draws().items():
        if name.startswith("loss-") and linux["draws"][0][0]["cc"] in LINUX_OWN:
            text = scenario(name, {**linux, "flows": linux["draws"][0]})
            texts[name] = [{**text, "run": {**text["run"], "seed": 1 + k}} for k in range(SEEDS)]
            of_linux[name] = [flows[0] for flows in linux["draws"]]
    runs = simulate_all(executor, texts)
    return [Row(name, flows, runs[name]) for name, flows in of_linux.items()]


def _draws() -> dict[str, Any]:
    """Return the scenarios with all their draws, including the run in the summary."""
    found = recorded.draws()
    for name, linux in recorded.summary().items():
        found.setdefault(name, {**linux, "draws": []})["draws"].append(linux["flows"])
    return found


def loss_table(rows: list[Row]) -> str:
    """Return the table rows on random loss."""
    return "\n".join(_loss_line(one) for one in rows)


def _loss_line(of: Row) -> str:
    ours, linux = [run.flows[0] for run in of.runs], of.linux
    losses = _losses(ours), _losses(linux)
    rates = _column(ours, "goodput_bps"), _column(linux, "goodput_bps")
    goodput = relative_difference(*rates, along=(np.log(losses[0]), np.log(losses[1])))
    srtt = relative_difference(_column(ours, "srtt_mean_us"), _column(linux, "srtt_mean_us"))
    again = [float(np.mean(_column(flows, "retransmits"))) for flows in (linux, ours)]
    is_near = are_near(again[1], again[0])
    said = verdict(
        of.name,
        within=is_near and goodput.is_within(GOODPUT) and srtt.is_within(SRTT_WITH_LOSS),
        may_be=is_near and goodput.may_be_within(GOODPUT) and srtt.may_be_within(SRTT_WITH_LOSS),
    )
    return row(
        of.name,
        f"{len(linux)}, {len(ours)}",
        *(f"{np.mean(rate) / 1e6:.2f}" for rate in reversed(rates)),
        *(f"{100 * np.mean(loss):.3f} %" for loss in reversed(losses)),
        goodput.text("%"),
        srtt.text("%"),
        *(f"{count:.0f}" for count in again),
        said,
    )


def _losses(flows: Sequence[dict[str, Any]]) -> FloatArray:
    """Return, for each flow, the fraction of sent segments that were retransmissions."""
    again = np.array(_column(flows, "retransmits"))
    bits = np.array([flow["goodput_bps"] * flow.get("seconds", 60) for flow in flows])
    lost: FloatArray = again / (bits / MSS_BITS + again)
    return lost


def _column(flows: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [float(flow[key]) for flow in flows]


def sharing(executor: Executor) -> dict[str, list[Outcome]]:
    """Simulate the pairs of flows that Linux ran, over FIFOs and other queue disciplines.

    Each pair runs with `STARTS` different starts of the second flow. Linux's recorded results for
    queue disciplines have one start only.
    """
    texts = {
        name: scenario(name, {**linux, "flows": linux["draws"][0]})
        for name, linux in recorded.draws().items()
        if name.startswith("fair-")
    }
    texts |= {
        name: scenario(name, linux)
        for name, linux in recorded.summary().items()
        if name.startswith("aqm-") and all(flow["cc"] in LINUX_OWN for flow in linux["flows"])
    }
    return simulate_all(executor, {name: starts(text) for name, text in texts.items()})


def starts(text: Scenario) -> Iterator[Scenario]:
    """Yield variants of a scenario, one for each start of its second flow."""
    first, second = text["flow"]
    start_ms = int(second["start"].removesuffix(" ms"))
    for k in range(STARTS):
        yield {
            **text,
            "flow": [first, {**second, "start": f"{start_ms + STARTS_APART_MS * k} ms"}],
        }


def share_table(runs: dict[str, list[Outcome]]) -> str:
    """Return the table rows on sharing: shares over whole runs, and from 40 s on."""
    lines = []
    for name, ours in runs.items():
        if not name.startswith("fair-"):
            continue
        draws = recorded.draws()[name]["draws"]
        whole = [share(run.flows) for run in ours], [share(flows) for flows in draws]
        lines.append(_share_line(name, "whole lives", *whole))
        late = [_late_share(*_rates(run)) for run in ours], [_late_share(*_linux_rates(name))]
        lines.append(_share_line(name, f"from {CONVERGED_S} s on", *late))
    return "\n".join(lines)


def _share_line(name: str, when: str, ours: list[float], linux: list[float]) -> str:
    gap = difference(ours, linux)
    is_one = len(linux) == 1
    return row(
        name,
        when,
        f"{len(linux)}, {len(ours)}",
        f"{100 * np.mean(linux):.1f} %",
        "-" if is_one else f"{100 * np.std(linux, ddof=1):.1f}",
        f"{100 * np.mean(ours):.1f} %",
        f"{100 * np.std(ours, ddof=1):.1f}",
        gap.text("points"),
        verdict(name, within=not is_one and gap.is_within(SHARE), may_be=_may_be(gap, linux)),
    )


def _may_be(gap: Difference, linux: Sequence[object]) -> bool:
    """Return whether two shares may be within the tolerance.

    From a single run of Linux one can only tell whether it could be one of the simulator's.
    """
    return gap.may_be_within(SHARE if len(linux) > 1 else 0.0)


def disciplines_table(runs: dict[str, list[Outcome]]) -> str:
    """Return the table rows on queue disciplines: means over all starts."""
    return "\n".join(
        _discipline_line(name, [run.flows for run in ours])
        for name, ours in runs.items()
        if name.startswith("aqm-")
    )


def _discipline_line(name: str, ours: list[list[dict[str, Any]]]) -> str:
    draws = recorded.disciplines()[name]
    linux = [draw["flows"] for draw in draws]
    is_marked = recorded.summary()[name].get("ecn", False)
    goodputs = [
        float(np.mean([sum_of(of, "goodput_bps") for of in runs])) for runs in (ours, linux)
    ]
    goodput = goodputs[0] / goodputs[1] - 1
    srtts = [
        [np.mean([of[k]["srtt_mean_us"] for of in runs]) for k in (0, 1)] for runs in (ours, linux)
    ]
    srtt = max((float(one / other - 1) for one, other in zip(*srtts, strict=True)), key=abs)
    key = "marks" if is_marked else "retransmits"
    answers = float(np.mean([sum_of(flows, key) for flows in ours]))
    of_each = [draw["ecn_marks"] if is_marked else sum_of(draw["flows"], key) for draw in draws]
    of_linux = float(np.mean(of_each))
    shares = difference([share(flows) for flows in ours], [share(flows) for flows in linux])
    rest = abs(goodput) <= GOODPUT and abs(srtt) <= SRTT_OF_QUEUES and are_near(answers, of_linux)
    return row(
        name,
        f"{len(linux)}, {len(ours)}",
        f"{goodputs[1] / 1e6:.2f}",
        percent(goodput),
        f"{100 * np.mean([share(flows) for flows in linux]):.1f} %",
        shares.text("points"),
        percent(srtt),
        key,
        f"{of_linux:.0f}",
        f"{answers:.0f}",
        verdict(
            name,
            within=rest and shares.is_within(SHARE),
            may_be=rest and _may_be(shares, linux),
        ),
    )


def _late_share(times_s: Sequence[FloatArray], rates: Sequence[FloatArray]) -> float:
    """Return the first flow's share of the data sent after `CONVERGED_S`."""
    sent = [
        float(np.sum(rate[t_s > CONVERGED_S])) for t_s, rate in zip(times_s, rates, strict=True)
    ]
    return sent[0] / sum(sent)


def _rates(run: Outcome) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return, for each flow, the sample times of a run, and cwnd / srtt at these times."""
    times = [np.array(t_s) for t_s, _ in run.curves]
    pairs = zip(run.curves, run.srtt_us, strict=True)
    return times, [np.array(cwnd) / np.maximum(srtt, 1) for (_, cwnd), srtt in pairs]


def _linux_rates(name: str) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return, for each flow, the sample times and cwnd / srtt of Linux's run with series."""
    flows = recorded.summary()[name]["flows"]
    series = [recorded.series(name, index) for index, _ in enumerate(flows)]
    starts_s = [flow["start_s"] for flow in flows]
    times = [np.array(one.t_s) + at for one, at in zip(series, starts_s, strict=True)]
    return times, [np.array(one.cwnd_packets) / np.array(one.srtt_us) for one in series]
