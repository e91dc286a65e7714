"""Simulated fleet of nodes on one orchestrator: traffic, syncs, bytes written, sizes, memory.

Users' jobs, owners' traffic and outages are simulated for some days, on a clock of discrete events.
This command writes docs/results/fleet.md. A month of 200 agents takes some 80 minutes of CPU time.

    python -m validation fleet --agents 200 --retention 2 --minutes 20 --month-of 20

    python -m validation fleet --agents 5 --days 1 --out /dev/stdout
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.terminal import print_note
from skyhop.data.files import write_file
from skyhop.errors import InputError
from skyhop_testbed import api
from validation import pages
from validation.fleet.simulation import Costs, Fleet, Outcome, Size, World

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
_MONTH_DAYS = 30.0
_SETTLED_DAYS = 3.0
"""Time after which all jobs are submitted and planned, and housekeeping has done its rounds."""
_DEFAULT_DAYS = api.Settings().run_retention_s / 86_400
_MONTH_KINDS = ("six hours",) * 4 + ("trigger", "trigger", "server", "client", "client", "idle")
"""First kinds of the nodes of the simulation of a month; the others have a run per hour."""
_TABLES = ("run", "event", "task", "job", "trigger_log", "preemption", "audit")
_MB, _KB = 1e6, 1e3


def main(
    *,
    agents: Annotated[int, typer.Option(help="Number of nodes.")] = 200,
    days: Annotated[float, typer.Option(help="Simulated days.")] = _MONTH_DAYS,
    seed: Annotated[int, typer.Option(help="Seed of outages, owners and users.")] = 1,
    retention: Annotated[
        float,
        typer.Option(help="Days for which the orchestrator keeps runs and logs; 0: its default."),
    ] = 10.0,
    minutes: Annotated[
        float,
        typer.Option(help="Time after which the simulated day is the last."),
    ] = 600.0,
    month_of: Annotated[
        int, typer.Option(help="Nodes of a second simulation, of 30 days; 0 for none.")
    ] = 0,
    place: Annotated[
        Path | None, typer.Option("--place", help="Directory for the files; on tmpfs it is faster.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page.")] = PAGE,
) -> None:
    """Simulate a fleet, and write the page."""
    if agents < 1 or days <= 0:
        raise InputError("agents and days: expected numbers above 0")
    outcome = _simulated(World(agents, days, seed, (), retention), place, 60.0 * minutes)
    month = None
    if month_of:
        month = _simulated(World(month_of, _MONTH_DAYS, seed, _MONTH_KINDS, 10.0), place)
    text = page(outcome, month)
    if out.is_char_device() or out.is_fifo():
        out.write_text(text)
    else:
        write_file(out, text.encode())
        print_note(f"{out} written")


def _simulated(world: World, place: Path | None, most_s: float = math.inf) -> Outcome:
    with tempfile.TemporaryDirectory(dir=place) as directory:
        return Fleet(Path(directory), world, print_note).run(most_s)


def page(outcome: Outcome, month: Outcome | None = None) -> str:
    """Return the page of a simulation, and of one of a month."""
    world, last = outcome.world, outcome.sizes[-1]
    ended = {state: count for state, count in sorted(outcome.runs.items()) if state != "planned"}
    text = pages.render(
        "fleet",
        agents=world.agents,
        days=f"{world.days:g}",
        seed=world.seed,
        retention=f"{world.retention_days:g}" if world.retention_days else "",
        rows="\n".join(_row(each) for each in sorted(outcome.kinds, key=_place)),
        runs=_table("state", ended),
        lost=outcome.runs.get("lost", 0),
        once=f"{outcome.ends.get(1, 0):,}",
        not_once=f"{sum(outcome.ends.values()) - outcome.ends.get(1, 0):,}",
        outages=f"{outcome.outages:,}",
        work="\n".join(_work_row(what, outcome) for what in sorted(outcome.work) if what),
        busy_share=f"{100 * _busy_s(outcome) / (world.days * 86_400):.2f}",
        orchestrator_mb=f"{_bytes_written(outcome) / _MB / world.days:,.0f}",
        sizes="\n".join(_size_row(each) for each in _some(outcome.sizes)),
        month=None if month is None else _month(month),
        file_mb=f"{last.file_bytes / _MB:,.0f}",
        memory_mb=f"{outcome.memory_bytes / _MB:,.0f}",
        minutes=f"{outcome.wall_s / 60:.0f}",
        cpu_minutes=f"{outcome.cpu_s / 60:.0f}",
        is_month=world.days >= _MONTH_DAYS,
        month_minutes=f"{outcome.cpu_s / world.days * _MONTH_DAYS / 60:.0f}",
        events=f"{outcome.events:,}",
    )
    return pages.paragraphs(text)


def _month(outcome: Outcome) -> dict[str, str]:
    """Return the values of the page's part about a month."""
    kinds = sorted(outcome.kinds, key=_place)
    ended, kept_days = sum(outcome.ends.values()), outcome.world.retention_days
    growing = [each for each in outcome.sizes if _SETTLED_DAYS <= each.day <= kept_days]
    bounded = [each for each in outcome.sizes if each.day > kept_days + _SETTLED_DAYS]
    grown_bytes = growing[-1].file_bytes - growing[0].file_bytes
    per_node_day = grown_bytes / (growing[-1].day - growing[0].day) / outcome.world.agents
    return {
        "grown_kb": f"{per_node_day / _KB:.0f}",
        "default_mb": f"{per_node_day * _DEFAULT_DAYS / _MB:.0f}",
        "bounded_day": f"{bounded[0].day:g}",
        "more_events": f"{100 * (bounded[-1].rows['event'] / bounded[0].rows['event'] - 1):+.1f}",
        "more_bytes": f"{100 * (bounded[-1].file_bytes / bounded[0].file_bytes - 1):+.1f}",
        "agents": f"{outcome.world.agents}",
        "days": f"{outcome.world.days:g}",
        "retention": f"{outcome.world.retention_days:g}",
        "kinds": ", ".join(f"{each.count} with {_KINDS[each.kind]}" for each in kinds),
        "sizes": "\n".join(_size_row(each) for each in _some(outcome.sizes)),
        "once": f"{outcome.ends.get(1, 0):,}",
        "not_once": f"{ended - outcome.ends.get(1, 0):,}",
        "minutes": f"{outcome.wall_s / 60:.0f}",
    }


def _table(head: str, counts: dict[str, int]) -> str:
    rule = pages.row(*["---"] * (len(counts) + 1))
    return "\n".join(
        (pages.row(head, *counts), rule, pages.row("runs", *(f"{n:,}" for n in counts.values())))
    )


def _total(what: str, outcome: Outcome) -> int:
    return outcome.work[what].count + outcome.counted.get(what, 0)


def _busy_s(outcome: Outcome) -> float:
    """Return the CPU time of all write transactions; counted ones cost what simulated ones do."""
    found = outcome.work.items()
    return sum(each.cpu_s / each.count * _total(what, outcome) for what, each in found)


def _bytes_written(outcome: Outcome) -> float:
    found = outcome.work.items()
    return sum(each.bytes_written / each.count * _total(what, outcome) for what, each in found)


def _work_row(what: str, outcome: Outcome) -> str:
    each = outcome.work[what]
    return pages.row(
        what,
        f"{_total(what, outcome) / outcome.world.days:,.0f}",
        f"{100 * each.count / _total(what, outcome):.3g}",
        f"{1e3 * each.cpu_s / each.count:.2f}",
        f"{1e3 * each.longest_cpu_s:,.0f}",
        f"{1e3 * each.longest_s:,.0f}",
        f"{each.bytes_written / _KB / each.count:.1f}",
    )


def _some(sizes: list[Size]) -> list[Size]:
    """Return at most ten of the days, evenly spaced, and the last."""
    step = -(-len(sizes) // 10)
    return [each for place, each in enumerate(sizes, 1) if place % step == 0 or each is sizes[-1]]


def _size_row(size: Size) -> str:
    rows = (f"{size.rows[table]:,}" for table in _TABLES)
    return pages.row(f"{size.day:g}", f"{size.file_bytes / _MB:,.1f}", *rows)


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
