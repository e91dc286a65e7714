"""What tests/linux has of Linux, made anew by any kernel that is built.

The same scenarios go through guests (`skyhop linux`), and the figures lie in a folder as those of
tests/linux do: what reads these reads them. What was recorded stays where a kernel does not have
it: other people's modules, and queues that the guest's own disciplines cannot be. `--live` asks
this machine's kernel for single flows, in real time.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import linux_runs
import linux_short
import simulator_and_kernel
from linux_chance import starts
from linux_reference import LINUX_OWN, Scenario, is_certain, scenario
from linux_short import Runner

import skyhop
from skyhop.cli.terminal import print_error, print_note
from skyhop.data.progress import ignore_progress
from skyhop.engines import Observer
from skyhop.errors import InputError, SkyhopError
from skyhop.linux import Kernel, find
from skyhop.linux import run as in_guest

AT_A_TIME = 2
LIVE = "live"
"""The folder of what this machine's kernel did."""
FLOW = ("goodput_bps", "retransmits", "srtt_mean_us", "cwnd_mean_packets")
QUIET = Observer(run=ignore_progress)


def runner(kernel: Kernel) -> Runner:
    """Return what runs a scenario on a kernel."""

    def run(text: Scenario) -> skyhop.Run:
        # Queues are to be Linux's, not ours that are to be compared with them.
        link = "auto" if text["link"]["qdisc"] == "fifo" else "tc"
        linux = {"kernel": kernel.name, "link": link}
        return in_guest({**text, "tcp": of_hosts(text), "linux": linux}, observer=QUIET)

    return run


def of_hosts(text: Scenario) -> dict[str, Any]:
    """Return what hosts are told that are Linux: not what makes the simulator's like it."""
    return {key: value for key, value in text["tcp"].items() if key not in ("profile", "hz")}


def anew(kernel: Kernel) -> Path:
    """Have a kernel run all that it can; return the folder with files as tests/linux has them."""
    folder = linux_runs.ANEW / kernel.name
    made_by = folder / "kernel"
    if made_by.exists() and made_by.read_text("utf-8") == kernel.digest:
        print_note(f"{folder}: is there; remove it to have it made again")
        return folder
    (folder / linux_runs.DISCIPLINES).unlink(missing_ok=True)
    # What it cannot have stays as it was recorded.
    shutil.copytree(linux_runs.FOLDER / "series", folder / "series", dirs_exist_ok=True)
    run = runner(kernel)
    with ThreadPoolExecutor(AT_A_TIME) as executor:
        summary = linux_runs.summary()
        own = {name: linux for name, linux in summary.items() if _is_own(linux["flows"])}
        once = executor.map(lambda name: _once(name, own[name], run, folder), own)
        summary |= dict(zip(own, once, strict=True))
        draws = linux_runs.draws()
        for name, linux in draws.items():
            if _is_own(linux["draws"][0]):
                drawn = executor.map(lambda text: _flows(run(text)), _chances(name, linux))
                draws[name] = {**linux, "draws": list(drawn)}
                print_note(f"{name}: {len(draws[name]['draws'])} draws")
    short = linux_short.made_by(run)
    for name, content in (("summary", summary), ("draws", draws), ("short", short)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1), "utf-8")
    made_by.write_text(kernel.digest, "utf-8")
    return folder


def disciplines(kernel: Kernel) -> None:
    """Have a kernel run flows below its disciplines, with all starts of the second one."""
    file = linux_runs.ANEW / kernel.name / linux_runs.DISCIPLINES
    if file.exists():
        return
    run = runner(kernel)
    found = {}
    with ThreadPoolExecutor(AT_A_TIME) as executor:
        for name, linux in linux_runs.summary().items():
            if "aqm" in linux and _is_own(linux["flows"]):
                drawn = executor.map(run, starts(scenario(name, linux)))
                found[name] = [
                    {"flows": _flows(one), "ecn_marks": one.summary["link"]["marks"]}
                    for one in drawn
                ]
                print_note(f"{name}: {len(found[name])} starts")
    file.write_text(json.dumps(found, indent=1), "utf-8")


def live() -> Path:
    """Have this machine's kernel run single flows; return the folder of the summary."""
    folder = linux_runs.ANEW / LIVE
    folder.mkdir(parents=True, exist_ok=True)
    summary = {}
    for name, linux in linux_runs.summary().items():
        if is_certain(name, linux["flows"]):
            text = scenario(name, linux)
            run, is_late = simulator_and_kernel.live({**text, "tcp": of_hosts(text)})
            summary[name] = {**linux, "flows": _flows(run), "is_late": is_late}
            print_note(f"{name}: done")
    (folder / "summary.json").write_text(json.dumps(summary, indent=1), "utf-8")
    return folder


def _is_own(flows: list[Mapping[str, Any]]) -> bool:
    return all(flow["cc"] in LINUX_OWN for flow in flows)


def _once(name: str, linux: Scenario, run: Runner, folder: Path) -> Scenario:
    """Run a scenario and keep its series; where a guest cannot have it, keep what was recorded."""
    try:
        done = run(scenario(name, linux))
    except InputError as error:
        print_note(f"{name}: as recorded: {error}")
        return linux
    for index, flow in enumerate(done.summary["flows"]):
        _write_series(done, flow, folder / "series" / f"{name}.flow{index}.csv")
    marks = {"ecn_marks": done.summary["link"]["marks"]} if linux.get("ecn") else {}
    print_note(f"{name}: done")
    return {**linux, "flows": _flows(done), **marks}


def _flows(run: skyhop.Run) -> list[dict[str, Any]]:
    """Return what a run's flows came to."""
    return [
        {
            "cc": flow["cc"],
            "start_s": flow["start_s"],
            "seconds": round(flow["stop_s"] - flow["start_s"], 3),
            **{key: flow[key] for key in FLOW},
        }
        for flow in run.summary["flows"]
    ]


def _write_series(run: skyhop.Run, flow: Mapping[str, Any], file: Path) -> None:
    table = run.flows.to_pydict()
    of_flow = [index for index, number in enumerate(table["flow"]) if number == flow["id"]]
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        columns = ("cwnd_packets", "srtt_us", "retransmits")
        writer.writerow(columns)
        for index in of_flow:
            if table["srtt_us"][index] is not None:
                writer.writerow([table[column][index] for column in columns])


def _chances(name: str, linux: Scenario) -> list[Scenario]:
    """Return a scenario as often as Linux was asked: with other losses, or other starts."""
    text = scenario(name, {**linux, "flows": linux["draws"][0]})
    if len(text["flow"]) > 1:
        return list(starts(text))
    seeds = range(2, 2 + len(linux["draws"]))
    return [{**text, "run": {**text["run"], "seed": seed}} for seed in seeds]


def main() -> int:
    """Make them anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", nargs="?", help="the one built last where not given")
    parser.add_argument("--live", action="store_true", help="this machine's kernel, in real time")
    given = parser.parse_args()
    try:
        folder = live() if given.live else anew(find(given.kernel))
    except SkyhopError as error:
        print_error(str(error))
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
