"""Comparison of the simulator with Linux in virtual time (see `linux guests`)."""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

from skyhop.cli.terminal import print_note
from skyhop.linux import Kernel, built
from skyhop.linux.kernels import VERSION
from validation import pages
from validation.flows import Flow
from validation.linux import guests, modules, recorded
from validation.linux.scenarios import is_certain, relative, scenario, simulate_all

REFERENCE_KERNEL = "6.12"
"""Kernel that the simulator's TCP profile follows, and with which the others are compared."""

NONE = "No kernel was built where this page was made."


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
        guests.run_all(kernel)
    reference = next((kernel for kernel in found if kernel.name == REFERENCE_KERNEL), None)
    if reference is None:
        return f"Linux {REFERENCE_KERNEL} with 100 ticks per second, once (tests/linux),"
    guests.disciplines(reference)
    recorded.use(recorded.GENERATED / REFERENCE_KERNEL)
    return f"Linux {reference.release} with {reference.hz} ticks per second (`skyhop linux`)"


def table(executor: Executor) -> str:
    """Return the table.

    A cell has goodput (Mbit/s), mean srtt (ms) and the number of retransmissions.
    """
    found = kernels()
    if not found:
        return NONE
    texts = {
        name: [scenario(name, linux)]
        for name, linux in recorded.summary().items()
        if is_certain(name, linux["flows"])
    }
    simulated = simulate_all(executor, texts)
    reference = next((kernel for kernel in found if kernel.name == REFERENCE_KERNEL), found[0])
    of_kernels = {
        kernel.name: recorded.summary(recorded.GENERATED / kernel.name) for kernel in found
    }
    head = ["scenario", "simulator", *(f"Linux {kernel.release}" for kernel in found)]
    head.append(f"simulator against {reference.name}")
    rows = []
    for name, (run,) in simulated.items():
        ours, theirs = run.flows[0], of_kernels[reference.name][name]["flows"][0]
        others = [of[name]["flows"][0] for of in of_kernels.values()]
        rows.append([name, *map(cell, (ours, *others)), percents(differences(ours, theirs))])
    return pages.table(head, rows)


def modules_table() -> str:
    """Return the table of skyhop's congestion controls as modules of the reference kernel."""
    reference = next((kernel for kernel in kernels() if kernel.name == REFERENCE_KERNEL), None)
    return modules.of_all(reference) if reference else NONE


def cell(flow: Flow) -> str:
    """Return a flow's cell: goodput (Mbit/s), mean srtt (ms) and number of retransmissions."""
    goodput, srtt = flow["goodput_bps"] / 1e6, flow["srtt_mean_us"] / 1e3
    return f"{goodput:.2f}, {srtt:.1f}, {flow['retransmits']}"


def differences(ours: Flow, linux: Flow) -> tuple[float, ...]:
    """Return the differences of goodput and mean srtt, as fractions of Linux's values."""
    keys = ("goodput_bps", "srtt_mean_us")
    return tuple(relative(ours, linux, key) for key in keys)


def percents(parts: tuple[float, ...]) -> str:
    """Format relative differences for one cell."""
    return ", ".join(map(pages.percent, parts))


def main() -> None:
    """Run the scenarios on every built kernel, and print the table."""
    run_kernels()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        print(table(executor))
