"""How fast paths and simulations are, and how punctual and lean live runs are, on this machine."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import skyhop
from skyhop.cli.terminal import print_comparison, print_error, print_rows
from skyhop.engines import live
from skyhop.errors import SkyhopError
from skyhop.runs import Run


def scenario(rate: str, rtt: str, duration_s: float) -> Mapping[str, Any]:
    """Return one CUBIC flow over a fixed path."""
    return {
        "path": {"kind": "fixed", "rtt": rtt},
        "link": {"rate": rate},
        "flow": [{"cc": "cubic"}],
        "run": {"duration": f"{duration_s} s"},
    }


class Memory:
    """Resident memory of this process's descendants while a run goes on, in bytes."""

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
        """Return the last quarter's mean over the second quarter's."""
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
    """Return what a run says about itself."""
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


# One orbit with LeoEM's own code, as its authors' scripts took on a 2-core machine.
LEOEM_S = {"isl": 50 * 60, "bent-pipe": 14 * 60}
ORBIT_S = 5731


def orbit_row(relay: str) -> dict[str, object]:
    """Return how long one orbit of one pair takes, 1,584 satellites and steps of 1 s."""
    started_s = time.monotonic()
    skyhop.path("San Diego", "New York", relay=relay, duration=f"{ORBIT_S} s")
    took_s = time.monotonic() - started_s
    return {
        "path": relay,
        "orbit_s": round(took_s, 2),
        "ms per step": round(1e3 * took_s / ORBIT_S, 3),
        "times faster than LeoEM": round(LEOEM_S[relay] / took_s),
    }


def simulation_row(name: str, flow: Mapping[str, Any]) -> dict[str, object]:
    """Return how many data packets per second the simulator does, paths and files included."""
    started_s = time.monotonic()
    run = skyhop.sim(
        {
            "path": {"kind": "fixed", "rtt": "50 ms"},
            "link": {"rate": "150 Mbit/s"},
            "flow": [flow],
            "run": {"duration": "600 s"},
        }
    )
    took_s = time.monotonic() - started_s
    packets = run.summary["data_packets"]
    return {
        "600 s at 150 Mbit/s": name,
        "M packets/s": round(packets / took_s / 1e6, 2),
        "times real time": round(600 / took_s),
    }


def main() -> int:
    """Run the benches and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of each live run")
    parser.add_argument("--rates", nargs="*", default=["150 Mbit/s", "1 Gbit/s", "10 Gbit/s"])
    arguments = parser.parse_args()
    # The first path also reads the list of cities.
    skyhop.path("San Diego", "New York", duration="1 s")
    orbits = [orbit_row(relay) for relay in LEOEM_S]
    print_rows(orbits, as_json=False, title="one pair, one orbit of 5,731 steps")
    simulations = [
        simulation_row("one CUBIC flow", {"cc": "cubic"}),
        simulation_row("one BBR flow", {"cc": "bbr"}),
        simulation_row("16 CUBIC flows", {"cc": "cubic", "count": 16}),
    ]
    print_rows(simulations, as_json=False, title="simulator, whole runs")
    rows = []
    try:
        with Memory() as memory:
            for rate in arguments.rates:
                rtt = "50 ms" if "Mbit" in rate else "20 ms"
                started_s = time.monotonic()
                before = len(memory.samples)
                run = live(scenario(rate, rtt, arguments.seconds))
                memory_of_run = Memory()
                memory_of_run.samples = memory.samples[before:]
                row = lateness_row(f"{rate}, {rtt}", run)
                row["memory last/first"] = f"{memory_of_run.growth():.2f}"
                row["wall_s"] = round(time.monotonic() - started_s, 1)
                rows.append(row)
    except SkyhopError as error:
        print_error(str(error))
        return 1
    print_comparison(rows, as_json=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
