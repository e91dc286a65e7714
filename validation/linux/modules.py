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
from typing import Annotated

import typer

from skyhop import _core
from skyhop.cli.terminal import print_note
from skyhop.data.progress import ignore_progress
from skyhop.engines import Observer
from skyhop.linux import Kernel, find, run
from validation.fixed import over_fixed_path
from validation.flows import Flow, apart, cells_of, first_flow, mean_of
from validation.pages import row, yes_or_no

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
    simulated: list[Flow]
    in_guest: list[Flow]

    def line(self) -> str:
        """Return the row of the table."""
        both = self.simulated, self.in_guest
        tolerances = {"goodput_bps": GOODPUT, "srtt_mean_us": SRTT}
        is_within = all(abs(apart(*both, key)) <= most for key, most in tolerances.items())
        cells = [*cells_of("goodput_bps", 1e6, 2, *both), *cells_of("srtt_mean_us", 1e3, 2, *both)]
        cells += [f"{mean_of(flows, 'retransmits'):.0f}" for flows in both]
        return row(self.name, *cells, yes_or_no(is_within))


def pair(name: str, kernel: Kernel, duration: str = DURATION) -> Pair:
    """Run a congestion control in both engines, with each RTT."""
    both = Pair(name, [], [])
    for rtt_us in RTTS_US:
        flow = {"cc": f"skyhop:{name}"}
        scenario = over_fixed_path("50 Mbit/s", f"{rtt_us} us", duration, flow, queue="1 BDP")
        scenario["linux"] = {"link": "skyhop"}
        hosts = {"profile": PROFILE, "hz": kernel.hz}
        both.simulated.append(first_flow(scenario | {"tcp": hosts}))
        in_guest = run(scenario, kernel=kernel.name, observer=Observer(run=ignore_progress))
        both.in_guest.append(in_guest.summary["flows"][0])
    print_note(f"{name}: done")
    return both


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
