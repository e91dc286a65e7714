"""Repeats the measurements of the scenarios in tests/linux, on any built kernel.

The scenarios run in guests (`skyhop linux`). The results go to a folder with the same files as
tests/linux, so that the same code can read them. Where a kernel cannot run a scenario, the recorded
results stay: third-party modules, and queues that the guest's own disciplines do not support.
`--live` measures single flows on this machine's kernel, in real time.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

import skyhop
from skyhop.cli.terminal import print_note
from skyhop.data.progress import ignore_progress
from skyhop.engines import Observer
from skyhop.errors import InputError
from skyhop.linux import Kernel, find
from skyhop.linux import run as in_guest
from validation.linux import recorded, short
from validation.linux.chance import starts
from validation.linux.scenarios import LINUX_OWN, Scenario, scenario
from validation.linux.short import Runner

AT_A_TIME = 2
FLOW = ("goodput_bps", "retransmits", "srtt_mean_us", "cwnd_mean_packets")
QUIET = Observer(run=ignore_progress)


def runner(kernel: Kernel) -> Runner:
    """Return a function that runs a scenario on a kernel."""

    def run(text: Scenario) -> skyhop.Run:
        # Queue disciplines are Linux's own, as skyhop's are compared with them.
        link = "auto" if text["link"]["qdisc"] == "fifo" else "tc"
        linux = {"kernel": kernel.name, "link": link}
        return in_guest({**text, "tcp": host_options(text), "linux": linux}, observer=QUIET)

    return run


def host_options(text: Scenario) -> dict[str, Any]:
    """Return the [tcp] table without keys that exist only in the simulator."""
    return {key: value for key, value in text["tcp"].items() if key not in ("profile", "hz")}


def run_all(kernel: Kernel) -> Path:
    """Run all scenarios that a kernel supports; return the folder with the results."""
    folder = recorded.GENERATED / kernel.name
    made_by = folder / "kernel"
    if made_by.exists() and made_by.read_text("utf-8") == kernel.digest:
        print_note(f"{folder}: exists; remove it to measure again")
        return folder
    (folder / recorded.DISCIPLINES).unlink(missing_ok=True)
    # The recorded series stay where this kernel cannot run a scenario.
    shutil.copytree(recorded.FOLDER / "series", folder / "series", dirs_exist_ok=True)
    run = runner(kernel)
    with ThreadPoolExecutor(AT_A_TIME) as executor:
        summary = recorded.summary()
        own = {name: linux for name, linux in summary.items() if _is_own(linux["flows"])}
        once = executor.map(lambda name: _run_once(name, own[name], run, folder), own)
        summary |= dict(zip(own, once, strict=True))
        draws = recorded.draws()
        for name, linux in draws.items():
            if _is_own(linux["draws"][0]):
                drawn = executor.map(lambda text: _flows(run(text)), _draws(name, linux))
                draws[name] = {**linux, "draws": list(drawn)}
                print_note(f"{name}: {len(draws[name]['draws'])} draws")
    durations = short.measured(run)
    for name, content in (("summary", summary), ("draws", draws), ("short", durations)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1), "utf-8")
    made_by.write_text(kernel.digest, "utf-8")
    return folder


def disciplines(kernel: Kernel) -> None:
    """Run pairs of flows over a kernel's queue disciplines, with all starts of the second flow."""
    file = recorded.GENERATED / kernel.name / recorded.DISCIPLINES
    if file.exists():
        return
    run = runner(kernel)
    found = {}
    with ThreadPoolExecutor(AT_A_TIME) as executor:
        for name, linux in recorded.summary().items():
            if "aqm" in linux and _is_own(linux["flows"]):
                drawn = executor.map(run, starts(scenario(name, linux)))
                found[name] = [
                    {"flows": _flows(one), "ecn_marks": one.summary["link"]["marks"]}
                    for one in drawn
                ]
                print_note(f"{name}: {len(found[name])} starts")
    file.write_text(json.dumps(found, indent=1), "utf-8")


def _is_own(flows: list[Mapping[str, Any]]) -> bool:
    return all(flow["cc"] in LINUX_OWN for flow in flows)


def _run_once(name: str, linux: Scenario, run: Runner, folder: Path) -> Scenario:
    """Run a scenario and write its series; if the guest rejects it, return the recorded result."""
    try:
        done = run(scenario(name, linux))
    except InputError as error:
        print_note(f"{name}: not measured, recorded results stay: {error}")
        return linux
    for index, flow in enumerate(done.summary["flows"]):
        _write_series(done, flow, folder / "series" / f"{name}.flow{index}.csv")
    marks = {"ecn_marks": done.summary["link"]["marks"]} if linux.get("ecn") else {}
    print_note(f"{name}: done")
    return {**linux, "flows": _flows(done), **marks}


def _flows(run: skyhop.Run) -> list[dict[str, Any]]:
    """Return the results of a run's flows, with the keys that tests/linux uses."""
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
    columns = ["cwnd_packets", "srtt_us", "retransmits"]
    samples = run.flows.filter(pl.col("flow") == flow["id"]).select(columns).to_dicts()
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sample for sample in samples if sample["srtt_us"] is not None)


def _draws(name: str, linux: Scenario) -> list[Scenario]:
    """Return variants of a random scenario: other starts of the second flow, or other seeds."""
    text = scenario(name, {**linux, "flows": linux["draws"][0]})
    if len(text["flow"]) > 1:
        return list(starts(text))
    seeds = range(2, 2 + len(linux["draws"]))
    return [{**text, "run": {**text["run"], "seed": seed}} for seed in seeds]


def main(
    kernel: Annotated[str | None, typer.Argument(help="Default: the kernel built last.")] = None,
) -> None:
    """Measure the scenarios on a kernel, and print the folder with the results."""
    print(run_all(find(kernel)))
