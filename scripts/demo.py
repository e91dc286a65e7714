"""The main job: San Diego to New York over Starlink, on the real TCP stack and in virtual time.

Where a kernel is built for it (`skyhop linux kernel build 6.12`), on Linux in virtual time, too.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from skyhop import _core
from skyhop.cli.runs import print_runs
from skyhop.cli.terminal import print_error, print_note
from skyhop.data.progress import progress_bar
from skyhop.engines import Observer, live, sim
from skyhop.errors import SkyhopError
from skyhop.linux import USUAL, built
from skyhop.linux import run as linux
from skyhop.report import write_report

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "examples" / "san-diego-new-york.toml"
DEMO = ROOT / "runs" / "demo"

ORBIT = "5731 s"
"""One revolution of the constellation's satellites."""


@dataclass(frozen=True)
class DemoRun:
    """A run of the demo: the same scenario, another congestion control, engine or duration."""

    engine: Literal["live", "linux", "sim"]
    cc: str
    duration: str
    name: str
    sets: tuple[str, ...] = ()
    """What else it changes in the scenario."""


ANNOUNCED = ("signal.source=path", "signal.lead=0.5 s")
"""Handovers are announced half a second before they happen."""

RUNS = (
    DemoRun("live", "cubic", "60 s", "live-cubic"),
    DemoRun("live", "bbr", "60 s", "live-bbr"),
    DemoRun("sim", "cubic", "60 s", "sim-cubic"),
    DemoRun("sim", "bbr", "60 s", "sim-bbr"),
    DemoRun("sim", "reno", ORBIT, "orbit-reno"),
    DemoRun("sim", "cubic", ORBIT, "orbit-cubic"),
    DemoRun("sim", "bbr", ORBIT, "orbit-bbr"),
    # With the errors of SaTCP's Figure 4 and the hold that the paper derives for 0.5 s of them.
    DemoRun(
        "sim",
        "satcp",
        ORBIT,
        "orbit-satcp",
        (*ANNOUNCED, "signal.error=report-timing", "flow.0.satcp.hold=1.3 s"),
    ),
    DemoRun("sim", "satpipe", ORBIT, "orbit-satpipe", ANNOUNCED),
)


IN_KERNEL = (
    DemoRun("live", "satcp", "60 s", "live-satcp", ANNOUNCED),
    DemoRun("live", "satpipe", "60 s", "live-satpipe", ANNOUNCED),
)
"""Congestion controls that no kernel has, in this machine's: for root, where it takes them."""

IN_GUEST = (
    DemoRun("linux", "cubic", "60 s", "linux-cubic"),
    DemoRun("linux", "bbr", "60 s", "linux-bbr"),
)
"""On a kernel in virtual time, where one is built."""

HOW = {"live": "live", "linux": "on Linux in virtual time", "sim": "simulated"}
RUN = {"live": live, "linux": linux, "sim": sim}


def runs() -> tuple[DemoRun, ...]:
    """Return the runs that this machine allows."""
    in_kernel, in_guest = IN_KERNEL, IN_GUEST
    try:
        for planned in IN_KERNEL:
            _core.check_cc(planned.cc)
    except SkyhopError as error:
        print_note(f"demo: without SaTCP and SatPipe in the kernel: {error}")
        in_kernel = ()
    if not built():
        build = f"skyhop linux kernel build {USUAL}"
        print_note(f"demo: without Linux in virtual time: {build} builds a kernel for it")
        in_guest = ()
    return (*RUNS[:2], *in_kernel, *in_guest, *RUNS[2:])


def main() -> int:
    """Run the demo and print its table and the report's path."""
    planned_runs = runs()
    directories = [DEMO / run.name for run in planned_runs]
    try:
        for planned, directory in zip(planned_runs, directories, strict=True):
            execute(planned, directory)
        report = write_report(directories, DEMO / "report.html")
    except SkyhopError as error:
        print_error(str(error))
        return 1
    for duration in dict.fromkeys(run.duration for run in planned_runs):
        alike = [DEMO / run.name for run in planned_runs if run.duration == duration]
        print(f"{duration} from San Diego to New York")
        print_runs(alike)
    print(f"report: {report}")
    return 0


def execute(planned: DemoRun, directory: Path) -> None:
    """Run one of the runs, and say so."""
    how = f"{HOW[planned.engine]} for {planned.duration}"
    print_note(f"demo: {planned.cc} from San Diego to New York, {how}")
    sets = [f"flow.0.cc={planned.cc}", f"run.duration={planned.duration}", *planned.sets]
    with progress_bar("computing the path") as path, progress_bar(f"running {planned.cc}") as run:
        engine = RUN[planned.engine]
        engine(SCENARIO, directory, sets=sets, force=True, observer=Observer(path, run))


if __name__ == "__main__":
    sys.exit(main())
