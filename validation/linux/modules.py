"""Comparison of every congestion control of cc/ in the simulator and in a guest's kernel.

The comparison uses one flow over 50 Mbit/s and RTTs of about 40 ms, with a queue of one BDP. The
simulator has the guest's timer ticks and the nearest TCP profile, so that only the TCP stack around
the same C code differs. Small timing differences decide which packets slow start loses, and so the
rest of a run; therefore means over several RTTs are compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

import skyhop
from skyhop import _core
from skyhop.cli.terminal import print_note
from skyhop.data.progress import ignore_progress
from skyhop.engines import Observer
from skyhop.linux import Kernel, find, run
from validation.pages import percent, row, yes_or_no

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
            cells.append(percent(self.differ_by(key)))
        cells += [f"{figure:.0f}" for figure in self.means("retransmits")]
        return row(*cells, yes_or_no(self.is_within))


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


def pairs(names: Sequence[str], kernel: Kernel, duration: str, at_a_time: int) -> list[Pair]:
    """Run congestion controls, `at_a_time` in parallel; guests do not affect each other."""
    with ThreadPoolExecutor(at_a_time) as executor:
        return list(executor.map(lambda name: pair(name, kernel, duration), names))


def table(found: Sequence[Pair]) -> str:
    """Return the table of congestion controls."""
    return "\n".join([HEAD, *(one.line() for one in found)])


def of_all(kernel: Kernel) -> str:
    """Return the table of all congestion controls of cc/."""
    return table(pairs([name for name, _ in _core.own_cc()], kernel, DURATION, 2))


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Congestion controls; default: all of cc/.")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Default: the kernel built last.")] = None,
    duration: Annotated[str, typer.Option(help="Duration of each run.")] = DURATION,
    at_a_time: Annotated[int, typer.Option(help="Guests in parallel.")] = 1,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Results as JSON.")] = None,
) -> None:
    """Print the table of the congestion controls that the arguments name."""
    wanted = names or [name for name, _ in _core.own_cc()]
    found = pairs(wanted, find(kernel), duration, at_a_time)
    print(table(found))
    if output:
        output.write_text(json.dumps([vars(one) for one in found], indent=1), "utf-8")
