"""Benchmark of networks: crossings of links per second and memory, each in its own process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from skyhop.cli.terminal import print_rows
from validation.bench.measure import previous
from validation.bench.sim import SimulationResult, run_in_process

CITIES_S, PAGES_S = 20, 60
"""Simulated durations in s."""

PAGE_FLOWS = 10_000


def bench_networks() -> None:
    """Print speed and memory of runs over whole constellations."""
    print("networks: packets of many flows over a constellation, whole runs in a process each")
    processors = sorted(os.sched_getaffinity(0))
    one = run_in_process(cities(), processors[:1])
    rows = [row("100 cities, 10 Mbit/s, NewReno", 1, CITIES_S, one)]
    if len(processors) > 1:
        both = run_in_process(cities(), processors[:2])
        rows.append(row("100 cities, 10 Mbit/s, NewReno", 2, CITIES_S, both))
        rows[-1]["of one"] = round(one.engine_s / both.engine_s, 2)
    pages_run = run_in_process(pages(), processors[:2])
    count = len(processors[:2])
    rows.append(row(f"{PAGE_FLOWS:,} flows of pages", count, PAGES_S, pages_run))
    print_rows(rows, as_json=False)


def row(name: str, processors: int, simulated_s: float, run: SimulationResult) -> dict[str, object]:
    """Return the row of a run; its speed leaves out planning and writing, its times do not."""
    key = f"{name}, {processors} processors"
    return {
        "network": name,
        "processors": processors,
        "M crossings": round(run.packet_hops / 1e6, 1),
        "M crossings/s": round(run.packet_hops / run.engine_s / 1e6, 2),
        "before": previous("networks", key, "m_crossings_per_s"),
        "of one": "",
        "took s": round(run.took_s, 1),
        "times real time": round(simulated_s / run.took_s, 2),
        "peak memory MB": round(run.peak_bytes / 1e6),
    }


def cities() -> Mapping[str, Any]:
    """Return a scenario of the 100 largest cities over Kuiper's first shell, as Hypatia has it."""
    link = {"rate": "10 Mbit/s", "queue": "100 packets"}
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
        "run": {"duration": f"{CITIES_S} s"},
    }


def pages() -> Mapping[str, Any]:
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
        "run": {"duration": f"{PAGES_S} s"},
    }
