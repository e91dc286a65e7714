"""Demo of the main use: San Diego to New York over Starlink.

The runs are on the real TCP stack, in virtual time and, if a kernel is built (`skyhop linux kernel
build 6.12`), on Linux in virtual time.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from skyhop import _core
from skyhop.cli.runs import print_runs, print_summaries
from skyhop.cli.terminal import print_error
from skyhop.data.progress import progress_bar
from skyhop.engines import Observer, live
from skyhop.errors import SkyhopError
from skyhop.linux import DEFAULT_KERNEL, built
from skyhop.linux import run as linux
from skyhop.report import write_report
from skyhop.simulation import sim

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "examples" / "san-diego-new-york.toml"
DEMO = ROOT / "runs" / "demo"
BEGAN_S = float(os.environ.get("SKYHOP_BEGAN", time.time()))
"""Time at which `make demo` started, Unix time in s."""

SHORT = "15 s"
"""Duration of the runs in real time, and of the simulated runs that are compared with them."""
LONG = "5 min"
"""Duration of the other simulated runs, in which there are some dozens of handovers."""


@dataclass(frozen=True)
class DemoRun:
    """Run of the demo: the demo's scenario with another congestion control, engine or duration."""

    engine: Literal["live", "linux", "sim"]
    cc: str
    duration: str
    name: str
    sets: tuple[str, ...] = ()
    """Further overrides of the scenario, each "KEY=VALUE"."""


ANNOUNCED = ("signal.source=path", "signal.lead=0.5 s")
"""Overrides with which handovers are announced half a second before they happen."""

LIVE = (
    DemoRun("live", "cubic", SHORT, "live-cubic"),
    DemoRun("live", "bbr", SHORT, "live-bbr"),
)
IN_KERNEL = (
    DemoRun("live", "satcp", SHORT, "live-satcp", ANNOUNCED),
    DemoRun("live", "satpipe", SHORT, "live-satpipe", ANNOUNCED),
)
"""Runs with congestion controls of cc/ in this machine's kernel, if it can load them; needs root.
"""
IN_GUEST = (
    DemoRun("linux", "cubic", SHORT, "linux-cubic"),
    DemoRun("linux", "bbr", SHORT, "linux-bbr"),
)
"""Runs on Linux in virtual time, if a kernel is built."""
SIMULATED = (
    DemoRun("sim", "cubic", SHORT, "sim-cubic"),
    DemoRun("sim", "bbr", SHORT, "sim-bbr"),
    DemoRun("sim", "reno", LONG, "long-reno"),
    DemoRun("sim", "cubic", LONG, "long-cubic"),
    DemoRun("sim", "bbr", LONG, "long-bbr"),
    # Announcements have the errors of SaTCP's Figure 4; the hold is what the paper derives for a
    # lead of 0.5 s and these errors.
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
    """Return the runs that are possible on this machine."""
    in_kernel, in_guest = IN_KERNEL, IN_GUEST
    try:
        for planned in IN_KERNEL:
            _core.check_cc(planned.cc)
    except SkyhopError as error:
        step(f"without SaTCP and SatPipe in the kernel: {error}")
        in_kernel = ()
    if not built():
        build = f"skyhop linux kernel build {DEFAULT_KERNEL}"
        step(f"without Linux in virtual time: {build} builds a kernel")
        in_guest = ()
    return (*LIVE, *in_kernel, *in_guest, *SIMULATED)


def main() -> int:
    """Run the demo; print its tables, their interpretation, and the path of the report."""
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
    print()
    print_summaries(directories)
    step(f"report: {report}")
    return 0


def execute(planned: DemoRun, which: str) -> None:
    """Execute one run of the demo, after announcing it on the terminal."""
    how = f"{HOW[planned.engine]} for {planned.duration}"
    step(f"{which}: {planned.cc} from San Diego to New York, {how}")
    sets = [f"flow.0.cc={planned.cc}", f"run.duration={planned.duration}", *planned.sets]
    with progress_bar("computing the path") as path, progress_bar(f"running {planned.cc}") as run:
        engine, directory = RUN[planned.engine], DEMO / planned.name
        engine(SCENARIO, directory, sets=sets, force=True, observer=Observer(path, run))


def step(text: str) -> None:
    """Print a line with the time since `make` started, in the format of the set-up."""
    passed_s = int(time.time() - BEGAN_S)
    print(f"[{passed_s // 60:2d}:{passed_s % 60:02d}] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
