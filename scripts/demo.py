"""Demo: what senders do when a handover makes a route over Starlink much longer.

The runs are on the real TCP stack, in the simulator and, if a kernel is built (`skyhop linux kernel
build 6.12`), on Linux in virtual time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from demo_answer import QUESTION, lead
from skyhop import _core
from skyhop.analysis.run_page import Lead
from skyhop.cli.runs import print_runs, print_warnings
from skyhop.cli.tables import print_wrapped
from skyhop.cli.terminal import print_error
from skyhop.data.progress import progress_bar
from skyhop.data.reading import read_runs
from skyhop.engines import Observer, live
from skyhop.errors import SkyhopError
from skyhop.linux import DEFAULT_KERNEL, built
from skyhop.linux import run as linux
from skyhop.report import write_report
from skyhop.simulation import sim

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "examples" / "longer-route.toml"
DEMO = ROOT / "runs" / "demo"
BEGAN_S = float(os.environ.get("SKYHOP_BEGAN", time.time()))
"""Time at which `make demo` started, Unix time in s."""

SHORT = "30 s"
"""Duration of the runs that answer the question: a change of the path after 15 s, and 15 s more."""
LONG = "5 min"
"""Duration of the simulated runs that show how often the path changes in this way."""


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

IN_KERNEL = DemoRun("live", "satpipe", SHORT, "satpipe-live", ANNOUNCED)
"""Run with a congestion control of cc/ in this machine's kernel, if it can load it; needs root."""
IN_GUEST = (DemoRun("linux", "bbr", SHORT, "bbr-linux"),)
"""Run on Linux in virtual time, if a kernel is built."""


def _simulated(duration: str, suffix: str) -> tuple[DemoRun, ...]:
    untold = [DemoRun("sim", cc, duration, cc + suffix) for cc in ("bbr", "reno", "cubic")]
    told = [DemoRun("sim", cc, duration, cc + suffix, ANNOUNCED) for cc in ("satcp", "satpipe")]
    return (*untold, *told)


SIMULATED = (*_simulated(SHORT, ""), *_simulated(LONG, "-5-min"))

HOW = {"live": "live", "linux": "on Linux in virtual time", "sim": "simulated"}
RUN = {"live": live, "linux": linux, "sim": sim}


def runs() -> tuple[DemoRun, ...]:
    """Return the runs that are possible on this machine."""
    # Every kernel has CUBIC. Two cores carry the scenario's rate, 50 Mbit/s, punctually.
    in_kernel = {found.name for found in _core.list_cc() if found.place == "kernel"}
    cc = "bbr" if "bbr" in in_kernel else "cubic"
    live_runs, in_guest = [DemoRun("live", cc, SHORT, f"{cc}-live")], IN_GUEST
    try:
        _core.check_cc(IN_KERNEL.cc)
        live_runs.append(IN_KERNEL)
    except SkyhopError as error:
        step(f"without SatPipe in the kernel: {error}")
    if not built():
        build = f"skyhop linux kernel build {DEFAULT_KERNEL}"
        step(f"without Linux in virtual time: {build} builds a kernel")
        in_guest = ()
    return (*live_runs, *in_guest, *SIMULATED)


def main() -> int:
    """Run the demo; print its question, answer, warnings and tables, and the report's path."""
    print(f"\n{QUESTION}\n")
    planned_runs = runs()
    directories = [DEMO / run.name for run in planned_runs]
    try:
        for number, planned in enumerate(planned_runs, 1):
            execute(planned, f"run {number} of {len(planned_runs)}")
        step("drawing the report")
        begins = lead(read_runs(directories))
        report = write_report(directories, DEMO / "report.html", lead=begins)
    except SkyhopError as error:
        print_error(str(error))
        return 1
    print_result(begins, planned_runs)
    step(f"report: {report}")
    return 0


def print_result(begins: Lead, planned_runs: Sequence[DemoRun]) -> None:
    """Print the question, the answer, the warnings, and a table for each duration."""
    print(f"\n{begins.question}\n")
    print_wrapped(" ".join(begins.answer))
    print()
    print_wrapped(begins.figure.caption)
    print()
    print_warnings([DEMO / run.name for run in planned_runs])
    for duration in dict.fromkeys(run.duration for run in planned_runs):
        print(f"\n{duration} from Singapore to Mumbai")
        print_runs([DEMO / run.name for run in planned_runs if run.duration == duration])
    print()


def execute(planned: DemoRun, which: str) -> None:
    """Execute one run of the demo, after announcing it on the terminal."""
    how = f"{HOW[planned.engine]} for {planned.duration}"
    step(f"{which}: {planned.cc} from Singapore to Mumbai, {how}")
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
