"""Simulator, Linux in virtual time and live runs side by side: what scripts/linux_anew.py made."""

from __future__ import annotations

import platform
from concurrent.futures import Executor
from typing import Any

import linux_anew
import linux_reference
import linux_runs
import modules_in_guest

from skyhop.cli.terminal import print_note
from skyhop.linux import Kernel, built
from skyhop.linux.kernels import VERSION

USUAL = "6.12"
"""The kernel that the simulator's profile is after, and the others are compared with."""

NONE = "No kernel was built where this page was made."

Flow = dict[str, Any]


def kernels() -> list[Kernel]:
    """Return those that are compared: one of each name that is a version, the oldest first."""
    named = [kernel for kernel in built() if VERSION.fullmatch(kernel.name)]
    return sorted(named, key=lambda kernel: [int(part) for part in kernel.name.split(".")])


def anew() -> str:
    """Have every kernel run what tests/linux has; return how the page calls what it compares with.

    All that follows reads what the usual kernel did, if it is one of them.
    """
    found = kernels()
    for kernel in found:
        print_note(f"validate: Linux {kernel.release} in virtual time")
        linux_anew.anew(kernel)
    usual = next((kernel for kernel in found if kernel.name == USUAL), None)
    if usual is None:
        return f"Linux {USUAL} with 100 ticks per second, once (tests/linux),"
    linux_anew.disciplines(usual)
    linux_runs.use(linux_runs.ANEW / USUAL)
    return f"Linux {usual.release} with {usual.hz} ticks per second (`skyhop linux`)"


def table(executor: Executor) -> str:
    """Return the table, each cell goodput in Mbit/s, mean srtt in ms and retransmits."""
    found = kernels()
    if not found:
        return NONE
    texts = {
        name: linux_reference.scenario(name, linux)
        for name, linux in linux_runs.summary().items()
        if linux_reference.is_certain(name, linux["flows"])
    }
    simulated = {
        name: executor.submit(linux_reference.simulate, text) for name, text in texts.items()
    }
    usual = next((kernel for kernel in found if kernel.name == USUAL), found[0])
    of_kernels = {
        kernel.name: linux_runs.summary(linux_runs.ANEW / kernel.name) for kernel in found
    }
    live = linux_runs.summary(linux_anew.live())
    heads = ["scenario", "simulator", *(f"Linux {kernel.release}" for kernel in found)]
    heads += [f"live, Linux {platform.release()}", f"simulator against {usual.name}"]
    heads.append(f"the others against {usual.name}, at most")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, run in simulated.items():
        ours, theirs = run.result().flows[0], of_kernels[usual.name][name]["flows"][0]
        others = [of[name]["flows"][0] for of in (*of_kernels.values(), live)]
        apart = [differences(flow, theirs) for flow in others]
        cells = [name, *map(cell, (ours, *others)), percents(differences(ours, theirs))]
        if live[name]["is_late"]:
            cells[-2] += " (late)"
        cells.append(percents(tuple(max(part, key=abs) for part in zip(*apart, strict=True))))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def modules_table() -> str:
    """Return the table of our congestion controls as modules of the usual kernel."""
    usual = next((kernel for kernel in kernels() if kernel.name == USUAL), None)
    return modules_in_guest.table(usual) if usual else NONE


def cell(flow: Flow) -> str:
    """Return what a flow came to."""
    goodput, srtt = flow["goodput_bps"] / 1e6, flow["srtt_mean_us"] / 1e3
    return f"{goodput:.2f}, {srtt:.1f}, {flow['retransmits']}"


def differences(ours: Flow, linux: Flow) -> tuple[float, ...]:
    """Return by what part goodput and srtt are larger."""
    keys = ("goodput_bps", "srtt_mean_us")
    return tuple(linux_reference.relative(ours, linux, key) for key in keys)


def percents(parts: tuple[float, ...]) -> str:
    """Return them in one cell."""
    return ", ".join(map(linux_reference.percent, parts))
