"""What a guest takes of this machine's processors for each second that it simulates."""

from __future__ import annotations

import resource

from bench_previous import previous

from skyhop import linux
from skyhop.cli.terminal import print_rows

WAYS = ("skyhop", "tc")
"""Of carrying packets: `linux.link`."""
SHORT_S, LONG_S = 5, 25
"""Their difference leaves out booting and starting."""


def _cpu_s(link: str, duration_s: int) -> float:
    """Return the CPU time of all processes of a guest: one CUBIC flow at 50 Mbit/s over 40 ms."""
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
    """Return what one way of carrying packets takes."""
    short_s, long_s = _cpu_s(link, SHORT_S), _cpu_s(link, LONG_S)
    return {
        "linux.link": link,
        f"cpu_s of {SHORT_S} s": round(short_s, 1),
        "cpu_s per further s": round((long_s - short_s) / (LONG_S - SHORT_S), 2),
        "before": previous("linux", link, "cpu_s_per_s"),
    }


def bench_linux() -> None:
    """Print it for both ways, where there is a kernel."""
    kernels = linux.built()
    if not kernels:
        print(f"Linux in virtual time: no kernel; skyhop linux kernel build {linux.USUAL}")
        return
    rows = [linux_row(link) for link in WAYS]
    print_rows(rows, as_json=False, title="a guest, one CUBIC flow at 50 Mbit/s over 40 ms")
