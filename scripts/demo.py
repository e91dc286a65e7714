"""The main job: San Diego to New York over Starlink, on the real TCP stack and in virtual time.

Where a kernel is built for it (`skyhop linux kernel build 6.12`), on Linux in virtual time, too.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from skyhop import _core
from skyhop.cli.runs import print_runs
from skyhop.cli.terminal import print_error
from skyhop.data.progress import progress_bar
from skyhop.engines import Observer, live, sim
from skyhop.errors import SkyhopError
from skyhop.linux import USUAL, built
from skyhop.linux import run as linux
from skyhop.report import write_report
from skyhop.runs import Run

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "examples" / "san-diego-new-york.toml"
DEMO = ROOT / "runs" / "demo"
BEGAN_S = float(os.environ.get("SKYHOP_BEGAN", time.time()))
"""When `make demo` began, s since 1970."""

SHORT = "15 s"
"""Of runs in real time, and of the simulated ones that are compared with them."""
LONG = "5 min"
"""Of simulated runs: some dozens of handovers."""


@dataclass(frozen=True)
class DemoRun:
    """A run of the demo: the same scenario with another congestion control, engine or duration."""

    engine: Literal["live", "linux", "sim"]
    cc: str
    duration: str
    name: str
    sets: tuple[str, ...] = ()
    """Further overrides of the scenario, each "KEY=VALUE"."""


ANNOUNCED = ("signal.source=path", "signal.lead=0.5 s")
"""Handovers are announced half a second before they happen."""

LIVE = (
    DemoRun("live", "cubic", SHORT, "live-cubic"),
    DemoRun("live", "bbr", SHORT, "live-bbr"),
)
IN_KERNEL = (
    DemoRun("live", "satcp", SHORT, "live-satcp", ANNOUNCED),
    DemoRun("live", "satpipe", SHORT, "live-satpipe", ANNOUNCED),
)
"""Congestion controls of cc/ in this machine's kernel: for root, where it takes them."""
IN_GUEST = (
    DemoRun("linux", "cubic", SHORT, "linux-cubic"),
    DemoRun("linux", "bbr", SHORT, "linux-bbr"),
)
"""On a kernel in virtual time, where one is built."""
SIMULATED = (
    DemoRun("sim", "cubic", SHORT, "sim-cubic"),
    DemoRun("sim", "bbr", SHORT, "sim-bbr"),
    DemoRun("sim", "reno", LONG, "long-reno"),
    DemoRun("sim", "cubic", LONG, "long-cubic"),
    DemoRun("sim", "bbr", LONG, "long-bbr"),
    # With the errors of SaTCP's Figure 4 and the hold that the paper derives for 0.5 s of them.
    DemoRun(
        "sim",
        "satcp",
        LONG,
        "long-satcp",
        (*ANNOUNCED, "signal.error=report-timing", "flow.0.satcp.hold=1.3 s"),
    ),
    DemoRun("sim", "satpipe", LONG, "long-satpipe", ANNOUNCED),
)

HOW = {"live": "live", "linux": "on Linux in virtual time", "sim": "simulated"}
RUN = {"live": live, "linux": linux, "sim": sim}


def runs() -> tuple[DemoRun, ...]:
    """Return the runs that this machine allows."""
    in_kernel, in_guest = IN_KERNEL, IN_GUEST
    try:
        for planned in IN_KERNEL:
            _core.check_cc(planned.cc)
    except SkyhopError as error:
        step(f"without SaTCP and SatPipe in the kernel: {error}")
        in_kernel = ()
    if not built():
        step(f"without Linux in virtual time: skyhop linux kernel build {USUAL} builds a kernel")
        in_guest = ()
    return (*LIVE, *in_kernel, *in_guest, *SIMULATED)


def main() -> int:
    """Run the demo and print its tables, what they show, and the report's path."""
    planned_runs = runs()
    directories = [DEMO / run.name for run in planned_runs]
    try:
        for number, planned in enumerate(planned_runs, 1):
            execute(planned, f"run {number} of {len(planned_runs)}")
        step("drawing the report")
        report = write_report(directories, DEMO / "report.html")
    except SkyhopError as error:
        print_error(str(error))
        return 1
    for duration in dict.fromkeys(run.duration for run in planned_runs):
        alike = [DEMO / run.name for run in planned_runs if run.duration == duration]
        print(f"\n{duration} from San Diego to New York")
        print_runs(alike)
    print("\n" + " ".join(sentences({run.name: Run(DEMO / run.name) for run in planned_runs})))
    step(f"report: {report}")
    return 0


def execute(planned: DemoRun, which: str) -> None:
    """Run one of the runs, and say so."""
    how = f"{HOW[planned.engine]} for {planned.duration}"
    step(f"{which}: {planned.cc} from San Diego to New York, {how}")
    sets = [f"flow.0.cc={planned.cc}", f"run.duration={planned.duration}", *planned.sets]
    with progress_bar("computing the path") as path, progress_bar(f"running {planned.cc}") as run:
        engine, directory = RUN[planned.engine], DEMO / planned.name
        engine(SCENARIO, directory, sets=sets, force=True, observer=Observer(path, run))


def step(text: str) -> None:
    """Print a line with the time since `make` began, as the set-up does."""
    passed_s = int(time.time() - BEGAN_S)
    print(f"[{passed_s // 60:2d}:{passed_s % 60:02d}] {text}", flush=True)


def sentences(done: dict[str, Run]) -> list[str]:
    """Return three sentences about the runs, by their names in `DemoRun`."""
    return [in_real_time(done), simulated(done), over_handovers(done)]


def in_real_time(done: dict[str, Run]) -> str:
    """Return what the kernel's TCP carries in real time."""
    names = ["live-cubic", "live-bbr", *(name for name in done if name in KERNEL_NAMES)]
    carried = listed([f"{mbit_of(done[name]):.0f} ({cc_of(done[name])})" for name in names])
    return f"In {SHORT} the kernel's TCP carries {carried} of the link's 150 Mbit/s."


def simulated(done: dict[str, Run]) -> str:
    """Return how near the simulator is to the kernel."""
    pairs = [(done[f"sim-{cc}"], done[f"live-{cc}"]) for cc in ("cubic", "bbr")]
    off = max(abs(mbit_of(sim) / mbit_of(live) - 1) for sim, live in pairs)
    carried = listed([f"{mbit_of(sim):.0f} ({cc_of(sim)})" for sim, _ in pairs])
    return f"The simulator finds {carried} for the same time: at most {100 * off:.1f} % off."


def over_handovers(done: dict[str, Run]) -> str:
    """Return which of the simulated senders gets most out of many handovers."""
    long = [run for name, run in done.items() if name.startswith("long-")]
    best, worst = max(long, key=mbit_of), min(long, key=mbit_of)
    handovers = sum(best.summary["handovers"].values())
    return (
        f"Over {LONG} and {handovers} handovers, {cc_of(best)} carries most "
        f"({mbit_of(best):.0f} Mbit/s) and {cc_of(worst)} least ({mbit_of(worst):.0f})."
    )


KERNEL_NAMES = {run.name for run in IN_KERNEL}


def mbit_of(run: Run) -> float:
    """Return the goodput of a run's flow in Mbit/s."""
    return float(run.summary["flows"][0]["goodput_bps"]) / 1e6


def cc_of(run: Run) -> str:
    """Return the name of a run's congestion control."""
    return str(run.summary["flows"][0]["cc"])


def listed(words: list[str]) -> str:
    """Return words with commas, and "and" before the last."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


if __name__ == "__main__":
    sys.exit(main())
