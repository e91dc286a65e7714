"""Every congestion control of cc/ in the simulator, and as a module of a guest's kernel.

One flow over 50 Mbit/s and round trips about 40 ms with a queue of one BDP. The simulator's hosts
are told the guest's ticks and the nearest profile: what differs is TCP around the same C. Which
packets slow start loses hangs on single packets, and with them what follows: therefore several
round trips, and their means.
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
GOODPUT = 0.02
SRTT = 0.03
"""What may be between the two."""
PROFILE = "linux-6.12"

HEAD = """\
| cc | goodput (Mbit/s) | | differ by | mean srtt (ms) | | differ by | retransmits | | within |
|---|---|---|---|---|---|---|---|---|---|
| | simulator | guest | | simulator | guest | | simulator | guest | |"""


@dataclass(frozen=True)
class Pair:
    """One congestion control in both engines: its flow of summary.json for each round trip."""

    name: str
    simulated: list[dict[str, Any]]
    in_guest: list[dict[str, Any]]

    def means(self, key: str) -> tuple[float, float]:
        """Return the mean of a figure in the simulator and in the guest."""
        simulated, in_guest = (
            mean(flow[key] for flow in flows) for flows in (self.simulated, self.in_guest)
        )
        return simulated, in_guest

    def differ_by(self, key: str) -> float:
        """Return by how much the simulator's mean is above the guest's, as a share of that."""
        simulated, in_guest = self.means(key)
        return simulated / in_guest - 1

    @property
    def is_within(self) -> bool:
        """Return whether both figures are."""
        goodput, srtt = self.differ_by("goodput_bps"), self.differ_by("srtt_mean_us")
        return abs(goodput) <= GOODPUT and abs(srtt) <= SRTT

    def line(self) -> str:
        """Return its line of the table."""
        cells = [self.name]
        for key, scale in (("goodput_bps", 1e6), ("srtt_mean_us", 1e3)):
            cells += [f"{figure / scale:.2f}" for figure in self.means(key)]
            cells.append(f"{100 * self.differ_by(key):+.1f} %")
        cells += [f"{figure:.0f}" for figure in self.means("retransmits")]
        cells.append("yes" if self.is_within else "**no**")
        return "| " + " | ".join(cells) + " |"


def pair(name: str, kernel: Kernel, duration: str = DURATION) -> Pair:
    """Run one in both engines, over each round trip."""
    both = [_both(name, rtt_us, kernel, duration) for rtt_us in RTTS_US]
    print_note(f"{name}: done")
    return Pair(name, [simulated for simulated, _ in both], [in_guest for _, in_guest in both])


def _both(
    name: str, rtt_us: int, kernel: Kernel, duration: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the flow in the simulator, and in the guest."""
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
    """Run all, some at a time: guests do not disturb each other."""
    with ThreadPoolExecutor(at_a_time) as executor:
        yield from executor.map(lambda name: pair(name, kernel, duration), names)


def table(kernel: Kernel) -> str:
    """Return the table of all of cc/."""
    names = [name for name, _ in _core.own_cc()]
    return "\n".join([HEAD, *(one.line() for one in pairs(names, kernel, DURATION, 2))])


def main() -> int:
    """Print the table."""
    names = [name for name, _ in _core.own_cc()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=names, help="all of cc/ where not given")
    parser.add_argument("--kernel", help="the one built last where not given")
    parser.add_argument("--duration", default=DURATION, help=f'of each run (default "{DURATION}")')
    parser.add_argument("--at-a-time", type=int, default=1, help="guests (default 1)")
    parser.add_argument("-o", "--output", type=Path, help="the figures, as JSON")
    given = parser.parse_args()
    kernel = find(given.kernel)
    found = list(pairs(given.names, kernel, given.duration, given.at_a_time))
    print("\n".join([HEAD, *(one.line() for one in found)]))
    if given.output:
        given.output.write_text(json.dumps([vars(one) for one in found], indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
