"""Comparison of simulator, Linux in virtual time and live runs (scripts/linux_in_guests.py)."""

from __future__ import annotations

import platform
from concurrent.futures import Executor
from typing import Any

import linux_in_guests
import linux_reference
import linux_runs
import modules_in_guest
from skyhop.cli.terminal import print_note
from skyhop.linux import Kernel, built
from skyhop.linux.kernels import VERSION

REFERENCE_KERNEL = "6.12"
"""Kernel that the simulator's TCP profile follows, and with which the others are compared."""

NONE = "No kernel was built where this page was made."

Flow = dict[str, Any]


def kernels() -> list[Kernel]:
    """Return the kernels to compare: those whose name is a version, the oldest first."""
    named = [kernel for kernel in built() if VERSION.fullmatch(kernel.name)]
    return sorted(named, key=lambda kernel: [int(part) for part in kernel.name.split(".")])


def run_kernels() -> str:
    """Run the scenarios of tests/linux on every kernel; return the page's name for the reference.

    Later comparisons read the results of the reference kernel if it is built, otherwise
    tests/linux.
    """
    found = kernels()
    for kernel in found:
        print_note(f"validate: Linux {kernel.release} in virtual time")
        linux_in_guests.run_all(kernel)
    reference = next((kernel for kernel in found if kernel.name == REFERENCE_KERNEL), None)
    if reference is None:
        return f"Linux {REFERENCE_KERNEL} with 100 ticks per second, once (tests/linux),"
    linux_in_guests.disciplines(reference)
    linux_runs.use(linux_runs.GENERATED / REFERENCE_KERNEL)
    return f"Linux {reference.release} with {reference.hz} ticks per second (`skyhop linux`)"


def table(executor: Executor) -> str:
    """Return the table.

    A cell has goodput (Mbit/s), mean srtt (ms) and the number of retransmissions.
    """
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
    reference = next((kernel for kernel in found if kernel.name == REFERENCE_KERNEL), found[0])
    of_kernels = {
        kernel.name: linux_runs.summary(linux_runs.GENERATED / kernel.name) for kernel in found
    }
    live = linux_runs.summary(linux_in_guests.live())
    heads = ["scenario", "simulator", *(f"Linux {kernel.release}" for kernel in found)]
    heads += [f"live, Linux {platform.release()}", f"simulator against {reference.name}"]
    heads.append(f"the others against {reference.name}, at most")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, run in simulated.items():
        ours, theirs = run.result().flows[0], of_kernels[reference.name][name]["flows"][0]
        others = [of[name]["flows"][0] for of in (*of_kernels.values(), live)]
        apart = [differences(flow, theirs) for flow in others]
        cells = [name, *map(cell, (ours, *others)), percents(differences(ours, theirs))]
        if live[name]["is_late"]:
            cells[-2] += " (late)"
        cells.append(percents(tuple(max(part, key=abs) for part in zip(*apart, strict=True))))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def modules_table() -> str:
    """Return the table of skyhop's congestion controls as modules of the reference kernel."""
    reference = next((kernel for kernel in kernels() if kernel.name == REFERENCE_KERNEL), None)
    return modules_in_guest.table(reference) if reference else NONE


def cell(flow: Flow) -> str:
    """Return a flow's cell: goodput (Mbit/s), mean srtt (ms) and number of retransmissions."""
    goodput, srtt = flow["goodput_bps"] / 1e6, flow["srtt_mean_us"] / 1e3
    return f"{goodput:.2f}, {srtt:.1f}, {flow['retransmits']}"


def differences(ours: Flow, linux: Flow) -> tuple[float, ...]:
    """Return the differences of goodput and mean srtt, as fractions of Linux's values."""
    keys = ("goodput_bps", "srtt_mean_us")
    return tuple(linux_reference.relative(ours, linux, key) for key in keys)


def percents(parts: tuple[float, ...]) -> str:
    """Format relative differences for one cell."""
    return ", ".join(map(linux_reference.percent, parts))
