"""Compares skyhop with Linux, other tools and papers; writes docs/results/validation.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.terminal import print_note
from skyhop.errors import InputError
from skyhop.figures import save
from validation import (
    access_senders,
    background,
    films_in_browsers,
    leoem,
    link_breaks,
    pages,
    pings,
    this_kernel,
)
from validation.bench import calls, kernel, networks, sim
from validation.linux import chance, engines, scenarios, short, traces
from validation.ns3 import packets
from validation.ns3.cases import QUICK

PAGE = pages.RESULTS / "validation.md"
TEMPLATE = Path(__file__).with_name("templates") / "validation.md.jinja"
HEADING = re.compile(r"^(?=#+ )", re.MULTILINE)
"""Start of a section; a subsection is a section of its own."""


def main(
    sections: Annotated[
        list[str] | None,
        typer.Argument(help="Starts of headings of sections to update; others stay; default: all."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs at the same time.")] = 2,
) -> None:
    """Run the comparisons, and write the page."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
        write(values(executor), sections or ())


def write(values: Mapping[str, object], wanted: Sequence[str]) -> None:
    """Update the wanted sections, or all, and write the page after each."""
    written = sections_of(PAGE.read_text("utf-8") if PAGE.exists() else "")
    sections = sections_of(TEMPLATE.read_text("utf-8"))
    for name in wanted:
        if not any(heading.startswith(name) for heading in sections):
            raise InputError(f"{name}: no section; there are {', '.join(sections)}")
    for heading, text in sections.items():
        if wanted and not any(heading.startswith(name) for name in wanted):
            continue
        print_note(f"validate: {heading}")
        try:
            written[heading] = pages.templates().from_string(text).render(values)
        except pages.MissingError as missing:
            print_note(f"validate: {heading} stays as it is: {missing}")
        page = "".join(written[name] for name in sections if name in written)
        PAGE.write_text(page, "utf-8")


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page or of its template, by their headings."""
    texts = [text for text in HEADING.split(page) if text]
    return {text.split("\n", 1)[0].lstrip("# "): text for text in texts}


def values(executor: Executor) -> dict[str, object]:
    """Return the template's values: constants, and a function for each table.

    `executor` runs the simulations. A section calls only the functions that it needs.
    """
    run_kernels = cache(engines.run_kernels)

    def on_linux(table: Callable[[], str]) -> Callable[[], str]:
        """Let the built kernels run their scenarios before a comparison."""

        def made() -> str:
            run_kernels()
            return table()

        return made

    rows = cache(lambda: scenarios.rows(executor))
    shared = cache(lambda: chance.sharing(executor))

    over_access = cache(lambda: access_senders.run_all(executor))

    def not_modelled() -> str:
        save(scenarios.draw(rows()), PAGE.with_name("validation-cwnd.png"))
        return scenarios.not_modelled()

    def orbit() -> str:
        pairs = this_kernel.orbit_pairs()
        save(this_kernel.draw(pairs), PAGE.with_name("validation-kernel.png"))
        return this_kernel.orbit_table(pairs)

    return {
        "more": scenarios.RETRANSMITS_MORE,
        "share": round(100 * scenarios.SHARE),
        "starts": chance.STARTS,
        "apart": chance.STARTS_APART_MS,
        "converged": chance.CONVERGED_S,
        "orbit_tolerance": f"{100 * this_kernel.ORBIT_TOLERANCE:.0f}",
        "leoem": leoem.log_rows,
        "linux_was": run_kernels,
        "linux": on_linux(lambda: scenarios.table(rows())),
        "engines": on_linux(lambda: engines.table(executor)),
        "modules": engines.modules_table,
        "losses": on_linux(lambda: chance.loss_table(chance.lossy(executor))),
        "shares": on_linux(lambda: chance.share_table(shared())),
        "disciplines": on_linux(lambda: chance.disciplines_table(shared())),
        "short": on_linux(lambda: short.table(executor)),
        "traces": traces.table,
        "readings": on_linux(lambda: scenarios.reading_table(rows())),
        "not_modelled": on_linux(not_modelled),
        "broken_links": link_breaks.table,
        "ns3_packets": packets.table,
        "ns3_quick": QUICK,
        "ns3_repeats": packets.REPEATS,
        "ns3_speed": packets.speed_table,
        "background_s": background.DURATION_S,
        "background_flows": background.flow_table,
        "background_probes": background.probe_table,
        "pings_head": pings.HEAD,
        "pings": lambda: pings.table(executor),
        "access_goodput": round(100 * access_senders.GOODPUT_TOLERANCE),
        "access_inflation": round(100 * access_senders.INFLATION_TOLERANCE),
        "access_senders": lambda: access_senders.table(over_access()),
        "access_order": lambda: access_senders.order(over_access()),
        "fixed": lambda: this_kernel.fixed_table(executor),
        "stalls": lambda: this_kernel.stalls_table(executor),
        "orbit": orbit,
        "costs": kernel.costs,
        "orbits": lambda: pages.table_of([calls.orbit_row(relay) for relay in calls.LEOEM_S]),
        "pairs": lambda: pages.table_of([calls.pairs_row()]),
        "simulations": lambda: pages.table_of([sim.simulation_row(o) for o in sim.SIMULATIONS]),
        "networks": lambda: pages.table_of(list(networks.rows())),
        "network_rounds": networks.ROUNDS,
        "live": this_kernel.punctuality_rows,
        "films": films_in_browsers.table,
    }
