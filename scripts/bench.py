"""Benchmarks: speed of start, paths, simulations, studies, video, guests; lateness of live runs."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import skyhop
from bench_gym import bench_gym
from bench_linux import bench_linux
from bench_policy import bench_policies
from bench_previous import previous, source
from bench_sim import bench_sim
from bench_start import bench_start
from bench_study import bench_studies
from bench_video import bench_video
from skyhop.cli.terminal import print_error, print_rows
from skyhop.engines import live
from skyhop.errors import SkyhopError
from skyhop.runs import Run

LIVE_RATES = ("150 Mbit/s", "1 Gbit/s", "10 Gbit/s")
LIVE_S = 20


def scenario(rate: str, rtt: str, duration_s: float) -> Mapping[str, Any]:
    """Return a scenario of one CUBIC flow over a fixed path."""
    return {
        "path": {"kind": "fixed", "rtt": rtt},
        "link": {"rate": rate},
        "flow": [{"cc": "cubic"}],
        "run": {"duration": f"{duration_s} s"},
    }


class Memory:
    """Resident memory of this process's descendants, sampled during a run, in bytes."""

    def __init__(self) -> None:
        self.samples: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            self.samples.append(descendants_rss_bytes())

    def growth(self) -> float:
        """Return the mean memory in the last quarter divided by that in the second quarter."""
        quarter = max(len(self.samples) // 4, 1)
        early, late = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        return sum(late) / len(late) / (sum(early) / max(len(early), 1)) if early else 1.0


def descendants_rss_bytes() -> int:
    """Return the private resident memory of all descendants of this process."""
    children = Path("/proc/self/task").glob("*/children")
    waiting = [pid for file in children for pid in file.read_text("utf-8").split()]
    total = 0
    while waiting:
        process = Path("/proc") / waiting.pop()
        try:
            rollup = (process / "smaps_rollup").read_text("utf-8")
            for file in process.glob("task/*/children"):
                waiting += file.read_text("utf-8").split()
        except OSError:
            continue
        for line in rollup.splitlines():
            if line.startswith(("Private_Clean", "Private_Dirty")):
                total += int(line.split()[1]) * 1024
    return total


def lateness_row(name: str, run: Run) -> dict[str, object]:
    """Return a live run's row of the table: goodput, lateness and drops."""
    timing = run.info["timing"]
    summary = run.summary
    flow = summary["flows"][0]
    late = summary["lateness_us"]
    quiet = timing["quiet_lateness_us"] or {"p50": None, "p99": None}
    return {
        "run": name,
        "goodput_mbps": round(flow["goodput_bps"] / 1e6, 1),
        "all p50/p99 us": f"{late['p50']:.1f} / {late['p99']:.0f}",
        "steal-free s": f"{timing['quiet_seconds']} of {timing['seconds']}",
        "steal-free p50/p99 us": (
            "-" if quiet["p50"] is None else f"{quiet['p50']:.1f} / {quiet['p99']:.0f}"
        ),
        "rtt excess p99 us": round(summary["rtt_excess_us"]["p99"]),
        "device drops": summary["link"]["drops"]["device"],
    }


# LeoEM's own scripts take this time in s for one orbit, on a machine of 2 cores.
LEOEM_S = {"isl": 50 * 60, "bent-pipe": 14 * 60}
ORBIT_S = 5731


def orbit_row(relay: str) -> dict[str, object]:
    """Measure one orbit of one pair of sites, with 1,584 satellites and steps of 1 s."""
    # Use coordinates: reading the list of cities, once per process, takes longer than the path.
    san_diego, new_york = "32.72,-117.16", "40.71,-74.01"
    started_s = time.monotonic()
    skyhop.path(san_diego, new_york, relay=relay, duration=f"{ORBIT_S} s")
    took_s = time.monotonic() - started_s
    return {
        "path": relay,
        "orbit_s": round(took_s, 2),
        "before": previous("paths", relay, "orbit_s"),
        "ms per step": round(1e3 * took_s / ORBIT_S, 3),
        "times faster than LeoEM": round(LEOEM_S[relay] / took_s),
    }


# Hypatia's satgenpy takes this time in ms for a step of all pairs of 100 sites: Starlink-550, 2
# cores.
SATGENPY_STEP_MS = 17_800
PAIRS_STEPS = 60


def pairs_row() -> dict[str, object]:
    """Measure one step of all pairs of 100 sites, including writing the file."""
    sites = [f"{-36 + 18 * row},{-171 + 18 * column}" for row in range(5) for column in range(20)]
    with TemporaryDirectory() as directory:
        started_s = time.monotonic()
        skyhop.all_pairs(sites, Path(directory) / "pairs.parquet", duration=f"{PAIRS_STEPS} s")
        took_ms = 1e3 * (time.monotonic() - started_s)
    return {
        "all pairs": "100 sites, isl",
        "ms per step": round(took_ms / PAIRS_STEPS, 1),
        "before": previous("paths", "all pairs", "ms_per_step"),
        "times faster than satgenpy": round(SATGENPY_STEP_MS * PAIRS_STEPS / took_ms),
    }


def bench_paths() -> None:
    """Print the speed of paths."""
    # The first path also reads the list of cities, so it is not measured.
    skyhop.path("San Diego", "New York", duration="1 s")
    orbits = [orbit_row(relay) for relay in LEOEM_S]
    print_rows(orbits, as_json=False, title="one pair, one orbit of 5,731 steps")
    print_rows([pairs_row()], as_json=False, title="all pairs, steps of 1 s, 1,584 satellites")


def bench_live() -> None:
    """Print lateness and memory of live runs."""
    rows = []
    with Memory() as memory:
        for rate in LIVE_RATES:
            rtt = "50 ms" if "Mbit" in rate else "20 ms"
            started_s = time.monotonic()
            before = len(memory.samples)
            run = live(scenario(rate, rtt, LIVE_S))
            memory_of_run = Memory()
            memory_of_run.samples = memory.samples[before:]
            row = lateness_row(f"{rate}, {rtt}", run)
            row["memory last/first"] = f"{memory_of_run.growth():.2f}"
            row["wall_s"] = round(time.monotonic() - started_s, 1)
            rows.append(row)
    print_rows(rows, as_json=False)


PARTS: Mapping[str, Callable[[], None]] = {
    "start": bench_start,
    "paths": bench_paths,
    "sim": bench_sim,
    "studies": bench_studies,
    "video": bench_video,
    "linux": bench_linux,
    "policies": bench_policies,
    "gym": bench_gym,
    "live": bench_live,
}


def main() -> int:
    """Run the named benchmarks, or all, and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    print(source())
    try:
        for part in chosen:
            PARTS[part]()
    except SkyhopError as error:
        print_error(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
