"""Comparison of every congestion control of cc/ in the simulator and in a guest's kernel.

The comparison uses one flow over 50 Mbit/s and RTTs of about 40 ms, with a queue of one BDP. The
simulator has the guest's timer ticks and the nearest TCP profile, so that only the TCP stack around
the same C code differs. Small timing differences decide which packets slow start loses, and so the
rest of a run; therefore means over several RTTs are compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import skyhop
from skyhop import _core
from skyhop.cli.terminal import print_note
from skyhop.data.progress import ignore_progress
from skyhop.engines import Observer
from skyhop.linux import Kernel, find, run

DURATION = "10 s"
RTTS_US = range(38_000, 42_001, 500)
GOODPUT, SRTT = 0.02, 0.03
"""Tolerances of goodput and mean srtt, as fractions of the guest's values."""
PROFILE = "linux-6.12"

HEAD = """\
| cc | goodput (Mbit/s) | | differ by | mean srtt (ms) | | differ by | retransmits | | within |
|---|---|---|---|---|---|---|---|---|---|
| | simulator | guest | | simulator | guest | | simulator | guest | |"""


@dataclass(frozen=True)
class Pair:
    """Congestion control in both engines: flows of summary.json, one per RTT."""

    name: str
    simulated: list[dict[str, Any]]
    in_guest: list[dict[str, Any]]

    def means(self, key: str) -> tuple[float, float]:
        """Return the mean of a value in the simulator and in the guest."""
        simulated, in_guest = (
            mean(flow[key] for flow in flows) for flows in (self.simulated, self.in_guest)
        )
        return simulated, in_guest

    def differ_by(self, key: str) -> float:
        """Return the relative difference of the simulator's mean from the guest's."""
        simulated, in_guest = self.means(key)
        return simulated / in_guest - 1

    @property
    def is_within(self) -> bool:
        """Return whether goodput and srtt are within their tolerances."""
        goodput, srtt = self.differ_by("goodput_bps"), self.differ_by("srtt_mean_us")
        return abs(goodput) <= GOODPUT and abs(srtt) <= SRTT

    def line(self) -> str:
        """Return the row of the table."""
        cells = [self.name]
        for key, scale in (("goodput_bps", 1e6), ("srtt_mean_us", 1e3)):
            cells += [f"{figure / scale:.2f}" for figure in self.means(key)]
            cells.append(f"{100 * self.differ_by(key):+.1f} %")
        cells += [f"{figure:.0f}" for figure in self.means("retransmits")]
        cells.append("yes" if self.is_within else "**no**")
        return "| " + " | ".join(cells) + " |"


def pair(name: str, kernel: Kernel, duration: str = DURATION) -> Pair:
    """Run a congestion control in both engines, with each RTT."""
    both = [_both(name, rtt_us, kernel, duration) for rtt_us in RTTS_US]
    print_note(f"{name}: done")
    return Pair(name, [simulated for simulated, _ in both], [in_guest for _, in_guest in both])


def _both(
    name: str, rtt_us: int, kernel: Kernel, duration: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the flow's summaries from the simulator and from the guest."""
    scenario = {
        "path": {"kind": "fixed", "rtt": f"{rtt_us} us"},
        "link": {"rate": "50 Mbit/s", "queue": "1 BDP"},
        "flow": [{"cc": f"skyhop:{name}"}],
        "run": {"duration": duration},
        "linux": {"link": "skyhop"},
    }
    quiet = Observer(run=ignore_progress)
    ours = skyhop.sim({**scenario, "tcp": {"profile": PROFILE, "hz": kernel.hz}}, observer=quiet)
    theirs = run(scenario, kernel=kernel.name, observer=quiet)
    return ours.summary["flows"][0], theirs.summary["flows"][0]


def pairs(names: Sequence[str], kernel: Kernel, duration: str, at_a_time: int) -> Iterator[Pair]:
    """Run all congestion controls, `at_a_time` in parallel.

    Guests do not affect each other's results.
    """
    with ThreadPoolExecutor(at_a_time) as executor:
        yield from executor.map(lambda name: pair(name, kernel, duration), names)


def table(kernel: Kernel) -> str:
    """Return the table of all congestion controls of cc/."""
    names = [name for name, _ in _core.own_cc()]
    return "\n".join([HEAD, *(one.line() for one in pairs(names, kernel, DURATION, 2))])


def main() -> int:
    """Print the table of the congestion controls that the arguments name."""
    names = [name for name, _ in _core.own_cc()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=names, help="congestion controls; default: all of cc/"
    )
    parser.add_argument("--kernel", help="default: the kernel built last")
    parser.add_argument(
        "--duration", default=DURATION, help=f'duration of each run (default "{DURATION}")'
    )
    parser.add_argument("--at-a-time", type=int, default=1, help="guests in parallel (default 1)")
    parser.add_argument("-o", "--output", type=Path, help="file for the results as JSON")
    given = parser.parse_args()
    kernel = find(given.kernel)
    found = list(pairs(given.names, kernel, given.duration, given.at_a_time))
    print("\n".join([HEAD, *(one.line() for one in found)]))
    if given.output:
        given.output.write_text(json.dumps([vars(one) for one in found], indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
