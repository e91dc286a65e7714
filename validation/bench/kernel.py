"""CPU time of guests, lateness of live runs, and costs of skyhop's own code in the kernel."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from skyhop import linux
from skyhop.cli.terminal import print_rows
from skyhop.data.runs import Run
from skyhop.engines import live
from validation.bench.measure import cost, previous
from validation.fixed import over_fixed_path

CUBIC = {"cc": "cubic"}

# --- guests ---

LINKS = ("skyhop", "tc")
"""Values of `linux.link`: how a guest carries packets."""
SHORT_S, LONG_S = 5, 25
"""Durations of two runs in s; their difference excludes boot and start."""


def bench_linux() -> None:
    """Print the CPU time per second of virtual time, if a kernel is built."""
    if not linux.built():
        print(f"Linux in virtual time: no kernel; skyhop linux kernel build {linux.DEFAULT_KERNEL}")
        return
    rows = [linux_row(link) for link in LINKS]
    print_rows(rows, as_json=False, title="a guest, one CUBIC flow at 50 Mbit/s over 40 ms")


def linux_row(link: str) -> dict[str, object]:
    """Measure one value of `linux.link`."""
    took = []
    for duration_s in (SHORT_S, LONG_S):
        with cost() as one:
            linux.run(
                over_fixed_path("50 Mbit/s", "40 ms", f"{duration_s} s", CUBIC, queue="1 BDP")
                | {"linux": {"link": link}}
            )
        took.append(one.children_s)
    return {
        "linux.link": link,
        f"cpu_s of {SHORT_S} s": round(took[0], 1),
        "cpu_s per further s": round((took[1] - took[0]) / (LONG_S - SHORT_S), 2),
        "before": previous("linux", link, "cpu_s_per_s"),
    }


# --- live runs ---

LIVE = {"150 Mbit/s": "50 ms", "1 Gbit/s": "20 ms", "10 Gbit/s": "20 ms"}
"""RTT of the live run at each rate."""
LIVE_S = 20


def bench_live() -> None:
    """Print lateness and memory of live runs."""
    rows = []
    for rate, rtt in LIVE.items():
        with descendants_memory() as samples, cost() as took:
            run = live(over_fixed_path(rate, rtt, f"{LIVE_S} s", CUBIC))
        row = lateness_row(f"{rate}, {rtt}", run)
        row["memory last/first"] = f"{growth(samples):.2f}"
        rows.append(row | {"wall_s": round(took.wall_s, 1)})
    print_rows(rows, as_json=False)


def lateness_row(name: str, run: Run) -> dict[str, object]:
    """Return a live run's row of the table: goodput, lateness and drops."""
    timing, summary = run.info["timing"], run.summary
    quiet = timing["quiet_lateness_us"]
    return {
        "run": name,
        "goodput_mbps": round(summary["flows"][0]["goodput_bps"] / 1e6, 1),
        "all p50/p99 us": _lateness(summary["lateness_us"]),
        "steal-free s": f"{timing['quiet_seconds']} of {timing['seconds']}",
        "steal-free p50/p99 us": _lateness(quiet) if quiet else "-",
        "rtt excess p99 us": round(summary["rtt_excess_us"]["p99"]),
        "device drops": summary["link"]["drops"]["device"],
    }


def _lateness(of: Mapping[str, float]) -> str:
    return f"{of['p50']:.1f} / {of['p99']:.0f}"


@contextmanager
def descendants_memory() -> Iterator[list[int]]:
    """Sample the memory of this process's descendants each second, in bytes."""
    samples: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):
            samples.append(descendants_rss_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def growth(samples: list[int]) -> float:
    """Return the mean memory in the last quarter divided by that in the second quarter."""
    quarter = max(len(samples) // 4, 1)
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    return sum(late) / len(late) / (sum(early) / len(early)) if early else 1.0


def descendants_rss_bytes() -> int:
    """Return the private resident memory of all descendants of this process."""
    waiting, total = [Path("/proc/self")], 0
    while waiting:
        process = waiting.pop()
        try:
            children = [file.read_text("utf-8").split() for file in process.glob("task/*/children")]
            rollup = (process / "smaps_rollup").read_text("utf-8").splitlines()
        except OSError:  # The process has ended.
            continue
        waiting += [Path("/proc") / pid for of_thread in children for pid in of_thread]
        if process.name != "self":
            private = ("Private_Clean", "Private_Dirty")
            total += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith(private))
    return total


# --- skyhop's code in the kernel ---

COSTS = (("skyhop-kernel", "cpu_per_gb"), ("skyhop-signald", "signal_latency"))
POLICY = ("skyhop-policyd", "policy_cost")
UNMOVED = """[tcp]
governs = "base"
interval = "10 ms"
"""
"""Part of a policy card that leaves the window to CUBIC: only the cost of decisions differs then.
"""


def main() -> None:
    """Print the costs as a Markdown list."""
    print(costs())


def costs() -> str:
    """Return CPU time per GB, latency of announcements, and cost of decisions, as Markdown."""
    from validation.bench.calls import write_card

    lines = [line for one in COSTS for line in _bench(*one)]
    with TemporaryDirectory() as directory:
        # The network is as large as Astraea's actor.
        card = write_card(Path(directory), tcp=UNMOVED, moves="factor", step=1e-9)
        lines += _bench(*POLICY, str(card))
    return "\n".join(f"- {line}" for line in lines if line)


def _bench(package: str, bench: str, *arguments: str) -> list[str]:
    """Run a benchmark of a Rust crate; return the lines that it prints."""
    command = [os.environ.get("CARGO", "cargo"), "bench", "--locked", "-p", package]
    command += ["--bench", bench, "--", *arguments]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
