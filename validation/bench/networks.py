"""Benchmark of networks: crossings of links per second and memory, each in its own process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skyhop.cli.terminal import print_rows
from validation.bench.measure import previous
from validation.bench.sim import SIMULATIONS, SimulationResult, run_in_process

PAGE_FLOWS = 10_000
ROUNDS = 3
"""Number of runs on each number of processors; the fastest one counts."""

ONE_LINK = SIMULATIONS[0]
"""Flow over one link, next to which the networks are measured: machines differ by far more."""


@dataclass(frozen=True)
class Case:
    """Network to simulate.

    Attributes:
        simulated_s: simulated duration in s.
        on_one: whether the run on one processor is measured too.
    """

    name: str
    scenario: Mapping[str, Any]
    simulated_s: int
    on_one: bool = True


def bench_networks() -> None:
    """Print speed and memory of runs over whole constellations."""
    print("networks: packets of many flows over a constellation, whole runs in a process each")
    print_rows(list(rows()), as_json=False)


def rows() -> Iterator[dict[str, object]]:
    """Yield the row of each network on one processor and on two."""
    processors = sorted(os.sched_getaffinity(0))[:2]
    for case in cases():
        one_link = []
        counts = range(1 if case.on_one else len(processors), len(processors) + 1)
        runs: dict[int, list[SimulationResult]] = {count: [] for count in counts}
        # Alternate, so that slow periods of the machine affect all of them equally.
        for count in [*counts] * (ROUNDS if case.on_one else 1):
            runs[count].append(run_in_process(case.scenario, processors[:count]))
            one_link.append(run_in_process(ONE_LINK.scenario, processors[:1]))
        of_link = max(run.data_packets / run.engine_s for run in one_link)
        best = {count: min(of, key=lambda run: run.engine_s) for count, of in runs.items()}
        for count, run in best.items():
            of_one = best[1].engine_s / run.engine_s if count > 1 and case.on_one else None
            yield row(case, count, run, (of_one, run.packet_hops / run.engine_s / of_link))


def row(
    case: Case, processors: int, run: SimulationResult, ratios: tuple[float | None, float]
) -> dict[str, object]:
    """Return the row of a run; speeds leave out planning and writing, the whole run does not.

    `ratios` are the speeds over that on one processor, and over the data packets per second of a
    flow over one link on one processor.
    """
    of_one, of_link = ratios
    key = f"{case.name}, {processors} processors"
    return {
        "network": case.name,
        "processors": processors,
        "M crossings": round(run.packet_hops / 1e6, 1),
        "M crossings/s": round(run.packet_hops / run.engine_s / 1e6, 2),
        "before": previous("networks", key, "m_crossings_per_s"),
        "of one": None if of_one is None else round(of_one, 2),
        "of one link": round(of_link, 2),
        "times real time": round(case.simulated_s / run.engine_s, 1),
        "whole run s": round(run.took_s, 1),
        "peak memory MB": round(run.peak_bytes / 1e6),
    }


def cases() -> tuple[Case, ...]:
    """Return the networks: Hypatia's links of 10 Mbit/s, faster links, and pages."""
    return (
        Case("100 cities, 10 Mbit/s, NewReno", cities("10 Mbit/s", 20), 20),
        Case("100 cities, 100 Mbit/s, NewReno", cities("100 Mbit/s", 4), 4),
        Case(f"{PAGE_FLOWS:,} flows of pages", pages(60), 60, on_one=False),
    )


def cities(rate: str, simulated_s: int) -> Mapping[str, Any]:
    """Return a scenario of the 100 largest cities over Kuiper's first shell, as Hypatia has it."""
    link = {"rate": rate, "queue": "100 packets"}
    return {
        "network": {
            "constellation": "kuiper-630-hypatia",
            "compat": "hypatia",
            "sites": "top-100",
            "interval": "100 ms",
            "lasers": link,
            "user_links": {"up": link, "down": link},
            "traffic": {"kind": "permutation", "cc": "reno"},
        },
        "run": {"duration": f"{simulated_s} s"},
    }


def pages(simulated_s: int) -> Mapping[str, Any]:
    """Return a scenario of flows between 200 cities, each of which loads a page."""
    return {
        "network": {
            "constellation": "starlink-shell1",
            "sites": "top-200",
            "interval": "1 s",
            "traffic": {
                "kind": "gravity",
                "flows": PAGE_FLOWS,
                "cc": "cubic",
                "start_spread": "50 s",
                "app": {"kind": "page", "pages": 1},
            },
        },
        "run": {"duration": f"{simulated_s} s"},
    }
