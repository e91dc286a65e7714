"""`skyhop testbed trigger`: what triggers would do, and why they did what they did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from skyhop.cli.options import Json, group
from skyhop.cli.testbed_shared import As, instant_ns, now_ns, opened, print_found, when

trigger_app = group("What triggers would do, and why they did what they did.")


@trigger_app.command("test")
def trigger_test(
    expression: Annotated[str, typer.Argument(metavar="EXPRESSION")],
    history: Annotated[
        Path | None, typer.Option("--history", metavar="DIR|FILE", help="Telemetry here.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Whose telemetry.")] = None,
    begin: Annotated[str | None, typer.Option("--from", metavar="INSTANT")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="INSTANT")] = None,
    hold: Annotated[str, typer.Option("--for", metavar="TIME")] = "0 s",
    cooldown: Annotated[str, typer.Option(metavar="TIME")] = "0 s",
    firings: Annotated[bool, typer.Option("--firings", help="Leave out the reasons.")] = False,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Say when a trigger would have fired over kept telemetry, and why not in between.

    Over telemetry here (a directory of it, or a run's telemetry.parquet), or over what the testbed
    keeps of a node (the last hour where not said).

    Example: skyhop testbed trigger test "pop_ping_latency_ms > 100" --node bcn-1
    """
    from skyhop.cli.tables import cells_of, print_table
    from skyhop.data.quantities import seconds
    from skyhop.errors import InputError
    from skyhop.testbed.triggers.evaluate import Trigger
    from skyhop.testbed.triggers.replay import firings_table, replay

    try:
        trigger = Trigger(expression, hold_s=seconds(hold), cooldown_s=seconds(cooldown))
    except ValueError as error:
        raise InputError(str(error)) from None
    to_ns = instant_ns(end, now_ns())
    if history is not None:
        from skyhop.telemetry.store import telemetry_in

        of_node = [node] if node else None
        frame = telemetry_in(history).read(of_node, None, instant_ns(begin, 0), to_ns)
        if frame["node"].n_unique() > 1:
            raise InputError(f"{history}: holds several nodes; choose one with --node")
    elif node is None:
        raise InputError("expected --history DIR or FILE, or --node NAME of a testbed")
    else:
        with opened(credential) as testbed:
            frame = testbed.telemetry(node, instant_ns(begin, to_ns - 3600 * 10**9), to_ns)
    looks = replay(trigger, frame).evaluations
    if as_json:
        chosen = [look for look in looks if look.fired] if firings else looks
        print(json.dumps([look.as_json() for look in chosen], indent=2))
        return
    print_table(cells_of(firings_table(looks, only_firings=firings)))


@trigger_app.command("log")
def trigger_log(
    credential: As = None,
    job: Annotated[str, typer.Option(help="Only this job's.")] = "",
    node: Annotated[str, typer.Option(help="Only on this node.")] = "",
    limit: Annotated[int, typer.Option(help="At most so many, the latest.")] = 50,
    as_json: Json = False,
) -> None:
    """Show why triggers did or did not fire."""
    with opened(credential) as testbed:
        found = testbed.trigger_log(job=job, node=node, limit=limit)
    rows = found if as_json else [_log_row(each) for each in found]
    print_found(rows, as_json, "nothing is logged")


def _log_row(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "time_(UTC)": when(each["at_ns"]),
        "job": each["job_name"],
        "node": each["node"],
        "fired": "yes" if each["fired"] else "no",
        "why": each.get("why"),
        "run": each["run"],
    }
