"""The background of a network without packets, against the same background as packets.

The foreground goes from Rio de Janeiro to Saint Petersburg over Kuiper's first shell, whose
satellites stand still: a CUBIC flow, or a probe. Lasers have 10 Mbit/s and queues of 100 packets.
Each run with a background of packets has a twin in which the background is a matrix of the mean
rates that these packets had on the uplinks of their sites.

Each setting runs with several seeds, which draw the times of the packets. Packets of a background
without TCP have different intervals in each flow, so that flows drift past each other, as those of
independent hosts do.

The command prints both tables.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

import skyhop
from skyhop.cli.terminal import print_note
from skyhop.data.arrays import FloatArray
from validation import pages
from validation.hypatia import cross_traffic

DURATION_S = 30
LOADS = (0.2, 0.5, 0.8, 0.95)
"""Loads of the busiest laser on the foreground's route, as shares of its rate."""

SEEDS = (1, 2, 3)

PAIR = cross_traffic.PAIR
"""Sites of the foreground."""

RATE_MBPS = 10
ON_ROUTE = 20
"""Number of flows of a background on the foreground's route."""

INTERVALS = (0.5, 1.5)
"""Least and largest interval of a flow's packets, as multiples of the mean."""

LARGEST_BYTES = 1472
WIRE_BYTES = LARGEST_BYTES + 28 + 14
"""Bytes on the wire of the largest datagram: with IP, UDP and Ethernet headers."""

MSS_BYTES = 1448
"""Payload of the largest TCP segment, with timestamps."""

Foreground: TypeAlias = Literal["flow", "probe"]

FLOWS: Mapping[Foreground, Mapping[str, object]] = {
    "flow": {"cc": "cubic"},
    "probe": {"kind": "probe", "interval": "20 ms"},
}
FLOW_HEAD = (
    "background", "load", "goodput Mbit/s", "fluid", "srtt ms", "fluid", "p95 ms", "fluid",
    "sent again", "fluid", "link crossings, times fewer",
)  # fmt: skip
PROBE_HEAD = (
    "background", "load", "wait ms", "fluid", "even fluid", "p95 ms", "fluid", "lost", "fluid",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """A background: its sites by name with position, its pairs, and whether it is over TCP."""

    name: str
    sites: Mapping[str, tuple[float, float]]
    pairs: Sequence[tuple[str, str]]
    over_tcp: bool = False


def main() -> None:
    """Run the comparison, and print the tables."""
    print(flow_table())
    print()
    print(probe_table())


def flow_table() -> str:
    """Return the table of the foreground's TCP flow."""
    return pages.table(FLOW_HEAD, list(flow_rows()))


def probe_table() -> str:
    """Return the table of the foreground's probe."""
    return pages.table(PROBE_HEAD, list(probe_rows()))


def flow_rows() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the foreground's TCP flow."""
    for case, load in settings():
        both = [
            [of_packets(case, load, "flow", seed) for seed in SEEDS],
            [as_fluid(case, load, "flow", seed, burst=1) for seed in SEEDS],
        ]
        flows = [[run.summary["flows"][0] for run in runs] for runs in both]
        hops = [sum(run.info["timing"]["packet_hops"] for run in runs) for runs in both]

        def values(key: str, unit: float = 1.0, flows: list[Any] = flows) -> list[FloatArray]:
            return [np.array([flow[key] / unit for flow in of_kind]) for of_kind in flows]

        yield (
            case.name,
            load_of_all(case, load),
            *compared(values("goodput_bps", 1e6), 2),
            *compared(values("srtt_mean_us", 1e3), 1),
            *compared(values("rtt_p95_us", 1e3), 1),
            *(f"{again.mean():.0f}" for again in values("retransmits")),
            f"{hops[0] / hops[1]:.1f}",
        )


def probe_rows() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the foreground's probe."""
    for case, load in settings():
        kinds = [
            [of_packets(case, load, "probe", seed) for seed in SEEDS],
            [as_fluid(case, load, "probe", seed, burst=1) for seed in SEEDS],
            [as_fluid(case, load, "probe", seed, burst=0) for seed in SEEDS],
        ]
        waits = [[waits_ms(run) for run in runs] for runs in kinds]
        means = [np.array([wait.mean() for wait in of_kind]) for of_kind in waits]
        late = [np.array([np.quantile(wait, 0.95) for wait in of_kind]) for of_kind in waits]
        lost = [sum(run.summary["probes"][0]["lost"] for run in runs) for runs in kinds]
        yield (
            case.name,
            load_of_all(case, load),
            *(with_spread(values, 2) for values in means),
            *(with_spread(values, 2) for values in late[:2]),
            *(str(count) for count in lost[:2]),
        )


def load_of_all(case: Case, load: float) -> str:
    """Return the cell of a setting's load: the mean of all seeds."""
    return f"{np.mean([load_of(of_packets(case, load, 'probe', seed)) for seed in SEEDS]):.0%}"


def settings() -> Iterator[tuple[Case, float]]:
    """Yield each background with each load."""
    return ((case, load) for case in cases() for load in LOADS)


def compared(values: Sequence[FloatArray], digits: int) -> tuple[str, str]:
    """Return the cells of a value with packets, and of the relative difference with a fluid."""
    packets, fluid = values
    return with_spread(packets, digits), pages.percent(fluid.mean() / packets.mean() - 1)


def with_spread(values: FloatArray, digits: int) -> str:
    """Return the mean of the runs with all seeds, and the standard deviation of a single run."""
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


@cache
def cases() -> Sequence[Case]:
    """Return the backgrounds: on the foreground's route, and across it."""
    sites, pairs = near_the_ends()
    cities, crossing = other_cities()
    return (
        Case("on the route, constant rate", sites, pairs),
        Case("on the route, TCP in bursts", sites, pairs, over_tcp=True),
        Case("crossing the route, constant rate", cities, crossing),
    )


def near_the_ends() -> tuple[Mapping[str, tuple[float, float]], Sequence[tuple[str, str]]]:
    """Return sites within 10 km of both ends of the foreground, and pairs of them."""
    places, sites = positions(), {}
    for letter, city in zip("ab", PAIR, strict=True):
        latitude, longitude = places[city]
        for number in range(ON_ROUTE):
            sites[f"{letter}{number}"] = (latitude + number * 0.004, longitude)
    return sites, [(f"a{number}", f"b{number}") for number in range(ON_ROUTE)]


def other_cities() -> tuple[Mapping[str, tuple[float, float]], Sequence[tuple[str, str]]]:
    """Return the cities of Hypatia's traffic matrix without the foreground, and its pairs."""
    rows = pl.read_csv(cross_traffic.PAIRING).rows()
    pairs = {tuple(sorted(row[:2])) for row in rows}
    pairs.discard(tuple(sorted(PAIR)))
    places = positions()
    return {name: places[name] for pair in sorted(pairs) for name in pair}, sorted(pairs)


@cache
def positions() -> Mapping[str, tuple[float, float]]:
    """Return latitude and longitude of Hypatia's cities in degrees."""
    rows = pl.read_csv(cross_traffic.CITIES).iter_rows(named=True)
    return {row["name"]: (row["latitude_deg"], row["longitude_deg"]) for row in rows}


@cache
def of_packets(case: Case, load: float, foreground: Foreground, seed: int) -> skyhop.Run:
    """Return a run whose background are packets."""
    print_note(f"validate: background, {case.name}, {load:.0%}, {foreground}, seed {seed}, packets")
    flows = background_flows(case, mbps_of_each(case) * load, seed)
    return skyhop.sim(scenario(case, foreground, flows=flows), seed=seed)


@cache
def as_fluid(case: Case, load: float, foreground: Foreground, seed: int, burst: int) -> skyhop.Run:
    """Return a run with the mean rates of the packets of the run with a probe as background."""
    rates = uplink_rates_bps(of_packets(case, load, "probe", seed))
    both = [pair for a, b in case.pairs for pair in ((a, b), (b, a))]
    rates_of_pairs = {pair: rates.get(pair[0], 0.0) for pair in both}
    return fluid_run(case, foreground, rates_of_pairs, seed, burst)


def fluid_run(
    case: Case,
    foreground: Foreground,
    rates_bps: Mapping[tuple[str, str], float],
    seed: int,
    burst: int,
) -> skyhop.Run:
    """Return a run with a background of these rates."""
    rows = [{"from": a, "to": b, "rate_bps": rate} for (a, b), rate in rates_bps.items()]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "rates.csv"
        pl.DataFrame(rows).write_csv(file)
        background = {"kind": "matrix", "file": str(file), "most": "99.9 %", "burst": burst}
        return skyhop.sim(scenario(case, foreground, background=background), seed=seed)


def scenario(
    case: Case,
    foreground: Foreground,
    *,
    flows: Sequence[Mapping[str, object]] = (),
    background: Mapping[str, object] | None = None,
) -> Mapping[str, Any]:
    """Return a scenario with a foreground."""
    places = positions()
    sites = {name: places[name] for name in PAIR} | dict(case.sites)
    user_link = {"rate": f"{10 * RATE_MBPS} Mbit/s", "queue": "100 packets"}
    network: dict[str, Any] = {
        "constellation": "kuiper-630-hypatia",
        "compat": "hypatia",
        "sites": [{"name": name, "lat": at[0], "lon": at[1]} for name, at in sites.items()],
        "interval": "never",
        "lasers": {"rate": f"{RATE_MBPS} Mbit/s", "queue": "100 packets"},
        "user_links": {"up": user_link, "down": user_link},
    }
    if background is not None:
        network["background"] = background
    own = {"between": list(PAIR), **FLOWS[foreground]}
    run = {"duration": f"{DURATION_S} s", "sample": "100 ms"}
    return {"network": network, "flow": [own, *flows], "run": run}


def background_flows(case: Case, mbps: float, seed: int) -> list[Mapping[str, object]]:
    """Return the flows of a background, each with this mean rate on the wire."""
    chance = random.Random(seed)
    flows: list[Mapping[str, object]] = []
    # The mean of 1 / interval, which is the mean rate, is above 1 / mean interval.
    least, largest = INTERVALS
    faster = math.log(largest / least) / (largest - least)
    for pair in case.pairs:
        if case.over_tcp:
            half = {"distribution": "exponential", "mean": "500 ms"}
            kbps = 2e3 * mbps * MSS_BYTES / WIRE_BYTES
            app = {"kind": "on-off", "on": half, "off": half, "rate": f"{kbps:.0f} kbit/s"}
            kind: Mapping[str, object] = {"cc": "cubic", "app": app}
        else:
            interval_us = 8 * WIRE_BYTES / mbps * faster * chance.uniform(least, largest)
            kind = {
                "kind": "probe",
                "size": f"{LARGEST_BYTES} B",
                "interval": f"{interval_us:.0f} us",
            }
        start = f"{chance.randrange(500_000)} us"
        flows.append({"between": [*pair], "start": start, **kind})
    return flows


@cache
def mbps_of_each(case: Case) -> float:
    """Return the rate of each pair that loads a laser of the foreground's route fully."""
    trial_bps = 1e4
    both = [pair for a, b in case.pairs for pair in ((a, b), (b, a))]
    trial = fluid_run(case, "probe", dict.fromkeys(both, trial_bps), seed=1, burst=0)
    return trial_bps / 1e6 / load_of(trial, "background_bytes")


def load_of(run: skyhop.Run, column: str = "delivered_bytes") -> float:
    """Return the highest mean load of the lasers on the foreground's route, 0 to 1."""
    names = {cross_traffic.laser(a, b) for a, b in pairwise(route())}
    sums = run.link.group_by("link", "direction").agg(pl.col(column).sum())
    loads = [8e-6 * size / DURATION_S for *name, size in sums.iter_rows() if tuple(name) in names]
    return max(loads, default=0.0) / RATE_MBPS


@cache
def route() -> Sequence[int]:
    """Return the satellites of the foreground's route."""
    places = [positions()[name] for name in PAIR]
    ends = [f"{latitude},{longitude}" for latitude, longitude in places]
    frames = skyhop.path(
        *ends,
        constellation="kuiper-630-hypatia",
        compat="hypatia",
        relay="isl",
        duration="1 s",
    ).frames
    return [node for node in frames["nodes"][0] if node >= 0]


def uplink_rates_bps(run: skyhop.Run) -> Mapping[str, float]:
    """Return the mean rate on the wire of each site's uplink."""
    sums = run.link.group_by("link").agg(pl.col("delivered_bytes").sum())
    uplinks = sums.filter(pl.col("link").str.ends_with(" - satellites"))
    return {
        link.removesuffix(" - satellites"): 8 * size / DURATION_S
        for link, size in uplinks.iter_rows()
    }


def waits_ms(run: skyhop.Run) -> FloatArray:
    """Return the round trips of the foreground's probe above the smallest possible, ms."""
    rtts = run.probes.filter(pl.col("probe") == 0)["rtt_ns"].drop_nulls().to_numpy() / 1e6
    return rtts - base_rtt_ms()


@cache
def base_rtt_ms() -> float:
    """Return the round trip of the foreground's probe without a background, ms."""
    run = skyhop.sim(scenario(Case("none", {}, ()), "probe"))
    return int(run.probes.select(pl.col("rtt_ns").min()).item() or 0) / 1e6


if __name__ == "__main__":
    main()
