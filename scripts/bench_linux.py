"""Benchmark of guests: CPU time of this machine per second of virtual time."""

from __future__ import annotations

import resource

from bench_previous import previous
from skyhop import linux
from skyhop.cli.terminal import print_rows

LINKS = ("skyhop", "tc")
"""Values of `linux.link`: how a guest carries packets."""
SHORT_S, LONG_S = 5, 25
"""Durations of two runs in s; their difference excludes boot and start."""


def _cpu_s(link: str, duration_s: int) -> float:
    """Return the CPU time in s of a guest's processes: one CUBIC flow, 50 Mbit/s, 40 ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    linux.run(
        {
            "path": {"kind": "fixed", "rtt": "40 ms"},
            "link": {"rate": "50 Mbit/s", "queue": "1 BDP"},
            "flow": [{"cc": "cubic"}],
            "run": {"duration": f"{duration_s} s"},
            "linux": {"link": link},
        }
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def linux_row(link: str) -> dict[str, object]:
    """Measure one value of `linux.link`."""
    short_s, long_s = _cpu_s(link, SHORT_S), _cpu_s(link, LONG_S)
    return {
        "linux.link": link,
        f"cpu_s of {SHORT_S} s": round(short_s, 1),
        "cpu_s per further s": round((long_s - short_s) / (LONG_S - SHORT_S), 2),
        "before": previous("linux", link, "cpu_s_per_s"),
    }


def bench_linux() -> None:
    """Print the rows for both values of `linux.link`, if a kernel is built."""
    kernels = linux.built()
    if not kernels:
        print(f"Linux in virtual time: no kernel; skyhop linux kernel build {linux.DEFAULT_KERNEL}")
        return
    rows = [linux_row(link) for link in LINKS]
    print_rows(rows, as_json=False, title="a guest, one CUBIC flow at 50 Mbit/s over 40 ms")
