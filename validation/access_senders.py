"""Senders over modelled access links, compared with the same senders over the measured links.

The models are access profiles that were fitted to logs of the same places; LeoCC's, which does not
come with skyhop, is fitted here.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import skyhop
from skyhop.analysis.access_profile import fit_access
from skyhop.analysis.sentence_words import listed
from skyhop.data.arrays import FloatArray
from validation import measured_paths, pages
from validation.flows import Flow, first_flow
from validation.reference import required
from validation.which_sender.runs import difference

SENDERS = {"cubic": "CUBIC", "bbr": "BBR", "bbr3": "BBRv3", "copa": "Copa", "vivace": "Vivace"}
RUN_S = 100
LEOCC = "leocc"
"""Name of LeoCC's path file, and of the profile that is fitted to it."""
GOODPUT_TOLERANCE, INFLATION_TOLERANCE = 0.15, 0.2
HALF_HOUR = "this half hour is not like the hour to which the profile is fitted"
MINUTES = "losses gather in some minutes, which the windows of the log and the draws share unevenly"
REASONS = {
    "Victoria 3": "single runs differ by a third",
    "Lagos, down, first hour": MINUTES,
    "Lagos, down, last half hour": (
        f"{HALF_HOUR}: 0.28 % loss in place of 1.04 %, 111 in place of 86 Mbit/s"
    ),
    "Lagos, up, first hour": MINUTES,
    "Lagos, up, last half hour": (
        f"{HALF_HOUR}: 0.70 % loss in place of 1.31 %, 5.6 in place of 11.6 Mbit/s"
    ),
    "LeoCC": "rates and waits of the model have less memory than the log's, of 120 s",
}
"""Reason why rows of a link are out of tolerance."""


@dataclass(frozen=True)
class Link:
    """Access link of which both traces and a model exist.

    Attributes:
        name: name of the link in the table.
        files: names of its path files in measured/.
        offsets_s: times of each trace at which runs begin.
        profile: access profile of the model.
        keys: keys of `path` of the model.
        queue: size of the queue, about one BDP of the trace.
        rate: rate of the bottleneck; `None` for the link's own.
    """

    name: str
    files: Sequence[str]
    offsets_s: Sequence[int]
    profile: str
    queue: str
    keys: Mapping[str, str] = field(default_factory=lambda: {"dish": "to"})
    rate: str | None = None


FIRST_HOUR, LAST_HALF_HOUR = range(0, 3500, 300), range(3600, 5300, 150)
VICTORIA = Link(
    "Victoria 1 and 2", ["victoria-1", "victoria-2"], range(0, 700, 110), "victoria-2024",
    "350 kB", rate="100 Mbit/s",
)  # fmt: skip
DOWN = Link("Lagos, down, first hour", ["lagos"], FIRST_HOUR, "lagos", "2.1 MB")
UP = Link(
    "Lagos, up, first hour", ["lagos-up"], FIRST_HOUR, "lagos", "210 kB", keys={"dish": "from"}
)
LINKS = (
    VICTORIA,
    replace(VICTORIA, name="Victoria 3", files=["victoria-3"]),
    DOWN,
    replace(DOWN, name="Lagos, down, last half hour", offsets_s=LAST_HALF_HOUR),
    UP,
    replace(UP, name="Lagos, up, last half hour", offsets_s=LAST_HALF_HOUR),
    Link("LeoCC", [LEOCC], [0, 19], LEOCC, "130 kB"),
)


@dataclass(frozen=True)
class Samples:
    """Goodput in Mbit/s and delay inflation of a sender's runs over traces or over a model."""

    goodput_mbps: FloatArray
    inflation: FloatArray

    @staticmethod
    def of(flows: Sequence[Flow]) -> Samples:
        """Return the samples of runs whose first flows are given."""
        inflation = [flow["srtt_mean_us"] / flow["base_rtt_mean_us"] for flow in flows]
        return Samples(np.array([flow["goodput_bps"] / 1e6 for flow in flows]), np.array(inflation))


Found = Mapping[tuple[str, str], tuple[Samples, Samples]]
"""Samples over traces and over the model, by link and sender."""


def run_all(executor: Executor) -> Found:
    """Run every sender over every trace and model."""
    measured_paths.make()
    with tempfile.TemporaryDirectory() as place:
        leocc = Path(place) / f"{LEOCC}.toml"
        fit_leocc(leocc)
        scenarios = {
            (link.name, name): list(scenarios_of(link, cc, leocc))
            for link, (cc, name) in itertools.product(LINKS, SENDERS.items())
        }
        flat = [one for both in scenarios.values() for side in both for one in side]
        flows = iter(list(executor.map(first_flow, flat, chunksize=4)))
    found = {}
    for key, both in scenarios.items():
        traces, model = (Samples.of(list(itertools.islice(flows, len(side)))) for side in both)
        found[key] = traces, model
    return found


def fit_leocc(profile: Path) -> None:
    """Fit a profile to LeoCC's packet times and to its delays, round trips every 10 ms."""
    log = required("throughput/leocc_bw_example.txt.gz")
    frames = skyhop.read_path(measured_paths.PLACE / f"{LEOCC}.parquet").frames
    trips = zip(frames["t_ns"], frames["delay_ns"] + frames["delay_back_ns"], strict=True)
    rows = [f"{t_ns / 1e9:.3f},{rtt_ns / 1e6:.3f}" for t_ns, rtt_ns in trips]
    pings = profile.with_suffix(".csv")
    pings.write_text("\n".join(["time_s,rtt_ms", *rows]) + "\n", "utf-8")
    fit_access(pings, log, direction="down").write(profile)


def scenarios_of(link: Link, cc: str, leocc: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the scenarios of a sender over a link's traces, then those over its model."""
    of_link = {"queue": link.queue} | ({"rate": link.rate} if link.rate else {})
    whole: dict[str, Any] = {
        "link": of_link,
        "flow": [{"cc": cc}],
        "run": {"duration": f"{RUN_S} s"},
    }
    traces = [
        {"kind": "trace", "file": str(measured_paths.PLACE / f"{name}.parquet"), "offset": f"{s} s"}
        for name in link.files
        for s in link.offsets_s
    ]
    yield [{**whole, "path": path} for path in traces]
    profile = str(leocc) if link.profile == LEOCC else link.profile
    path = {"kind": "access", "profile": profile, **link.keys}
    draws = max(len(traces), 6)
    yield [
        {**whole, "path": path, "run": {"duration": f"{RUN_S} s", "seed": seed}}
        for seed in range(1, draws + 1)
    ]


def table(found: Found) -> str:
    """Return the table: a row per link and sender."""
    head = [
        "link", "sender", "runs: traces, model", "Mbit/s over traces", "model", "differ by",
        "delay inflation over traces", "model", "differ by", "within",
    ]  # fmt: skip
    return pages.table(head, [row(*key, *both) for key, both in found.items()])


def row(link: str, sender: str, traces: Samples, model: Samples) -> list[str]:
    """Return the cells of a link and sender."""
    goodput, inflation = apart(traces, model)
    is_out = {
        "goodput_mbps": abs(goodput) > GOODPUT_TOLERANCE,
        "inflation": abs(inflation) > INFLATION_TOLERANCE,
    }
    is_within = not any(is_out.values())
    reason = ""
    if not is_within:
        is_chance = all(is_alike(traces, model, name) for name, out in is_out.items() if out)
        reason = f"{', but within chance' if is_chance else ''}: {REASONS.get(link, 'open')}"
    return [
        link,
        sender,
        f"{len(traces.goodput_mbps)}, {len(model.goodput_mbps)}",
        spread(traces.goodput_mbps, 1),
        spread(model.goodput_mbps, 1),
        pages.percent(goodput),
        spread(traces.inflation, 2),
        spread(model.inflation, 2),
        pages.percent(inflation),
        f"{pages.yes_or_no(is_within)}{reason}",
    ]


def apart(traces: Samples, model: Samples) -> tuple[float, float]:
    """Return the relative differences of the model's mean goodput and mean delay inflation."""
    return (
        float(model.goodput_mbps.mean() / traces.goodput_mbps.mean() - 1),
        float(model.inflation.mean() / traces.inflation.mean() - 1),
    )


def is_alike(traces: Samples, model: Samples, name: str) -> bool:
    """Return whether the model's mean of a quantity differs from the traces' by chance alone."""
    return difference([getattr(model, name)], [getattr(traces, name)]).sign == 0


def spread(values: FloatArray, decimals: int) -> str:
    """Return a mean and the standard deviation of single runs."""
    return f"{values.mean():.{decimals}f} ± {values.std(ddof=1):.{decimals}f}"


def order(found: Found) -> str:
    """Return sentences on the pairs of senders whose order differs, per link and quantity."""
    quantities: dict[str, Callable[[Samples], FloatArray]] = {
        "goodput": lambda samples: samples.goodput_mbps,
        "delay inflation": lambda samples: samples.inflation,
    }
    turned = [
        f"{first} and {second} over {link.name} ({name})"
        for link in LINKS
        for name, values in quantities.items()
        for first, second in itertools.combinations(SENDERS.values(), 2)
        if is_turned(*(map(values, found[link.name, sender]) for sender in (first, second)))
    ]
    if not turned:
        return "No two senders have the opposite order over a model and its traces."
    return f"The order is the opposite for {listed(turned)}."


def is_turned(first: Iterable[FloatArray], second: Iterable[FloatArray]) -> bool:
    """Return whether two senders have opposite orders, beyond chance, over traces and model."""
    (traces, model) = (difference([a], [b]).sign for a, b in zip(first, second, strict=True))
    return traces * model < 0
