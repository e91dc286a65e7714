"""Simulated fleet of nodes on one orchestrator: traffic, syncs, bytes written, sizes, memory.

Users' jobs, owners' traffic and outages are simulated for some days, on a clock of discrete events.
This command writes docs/results/fleet.md. A month of 200 agents takes about half an hour of one
core.

    python -m validation fleet --agents 200 --days 30

    python -m validation fleet --agents 5 --days 1 --out /dev/stdout
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.terminal import print_note
from skyhop.data.files import write_file
from skyhop.errors import InputError
from validation import pages
from validation.fleet.simulation import Costs, Fleet, Outcome, World

PAGE = pages.RESULTS / "fleet.md"
_KINDS = {
    "idle": "no job",
    "hour": "a run per hour",
    "six hours": "a run per six hours",
    "minute": "a run per minute",
    "trigger": "runs that a trigger starts",
    "client": "a run with a server per four hours",
    "server": "server of other nodes' runs",
    "telemetry": "a run per hour, and telemetry each second",
}
"""Names of the kinds of nodes on the page, in its order."""
_MB, _KB = 1e6, 1e3


def main(
    agents: Annotated[int, typer.Option(help="Number of nodes.")] = 200,
    days: Annotated[float, typer.Option(help="Simulated days.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Seed of outages, owners and users.")] = 1,
    place: Annotated[
        Path | None, typer.Option("--place", help="Directory for the files; on tmpfs it is faster.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page.")] = PAGE,
) -> None:
    """Simulate a fleet, and write the page."""
    if agents < 1 or days <= 0:
        raise InputError("agents and days: expected numbers above 0")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        outcome = Fleet(Path(directory), World(agents, days, seed), print_note).run()
    text = page(outcome)
    if out.is_char_device() or out.is_fifo():
        out.write_text(text)
    else:
        write_file(out, text.encode())
        print_note(f"{out} written")


def page(outcome: Outcome) -> str:
    """Return the page of a simulation."""
    made, world = outcome.orchestrator, outcome.world
    node_days = world.agents * world.days
    ended = {state: count for state, count in sorted(outcome.runs.items()) if state != "planned"}
    return pages.render(
        "fleet",
        agents=world.agents,
        days=f"{world.days:g}",
        seed=world.seed,
        rows="\n".join(_row(each) for each in sorted(outcome.kinds, key=_place)),
        runs=pages.row("state", *ended) + "\n" + pages.row(*["---"] * (len(ended) + 1)) + "\n"
        + pages.row("runs", *(f"{count:,}" for count in ended.values())),
        outages=f"{outcome.outages:,}",
        longest_ms=f"{1e3 * made['longest_s']:.0f}",
        longest_at=outcome.longest_at,
        mean_ms=f"{1e3 * made['busy_s'] / max(1, made['transactions']):.1f}",
        transactions=f"{made['transactions']:,.0f}",
        busy_share=f"{100 * made['busy_s'] / (world.days * 86_400):.2f}",
        orchestrator_mb=f"{made['bytes_written'] / _MB / world.days:,.0f}",
        file_mb=f"{made['file_bytes'] / _MB:,.0f}",
        file_kb_per_node_day=f"{made['file_bytes'] / _KB / node_days:,.1f}",
        memory_mb=f"{outcome.memory_bytes / _MB:,.0f}",
        minutes=f"{outcome.wall_s / 60:.0f}",
        events=f"{outcome.events:,}",
    )  # fmt: skip


def _place(costs: Costs) -> int:
    return [*_KINDS].index(costs.kind)


def _row(costs: Costs) -> str:
    per_day = costs.per_day
    return pages.row(
        _KINDS[costs.kind],
        costs.count,
        f"{per_day['runs']:,.0f}",
        f"{per_day['preemptions']:.1f}",
        f"{per_day['up_bytes'] / _MB:.2f}",
        f"{per_day['down_bytes'] / _MB:.2f}",
        f"{per_day['requests']:,.0f}",
        f"{per_day['syncs']:,.0f}",
        f"{per_day['bytes_written'] / _MB:.2f}",
        f"{per_day['file_bytes'] / _KB:,.0f}",
    )
