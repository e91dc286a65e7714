"""`skyhop testbed trigger`: test triggers on telemetry, and show their evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from skyhop.cli.options import Json, group
from skyhop_testbed.cli.testbed_shared import As, instant_ns, now_ns, opened, print_found, when

trigger_app = group("Test triggers on telemetry, and show their past evaluations.")


@trigger_app.command("test")
def trigger_test(
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", help="Condition over telemetry.")
    ],
    history: Annotated[
        Path | None, typer.Option("--history", metavar="DIR|FILE", help="Local telemetry.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Node of the telemetry.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Start of the telemetry.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="INSTANT", help="End; default: now.")
    ] = None,
    hold: Annotated[
        str,
        typer.Option(
            "--for", metavar="TIME", help="Time for which the condition must hold before it fires."
        ),
    ] = "0 s",
    cooldown: Annotated[
        str, typer.Option(metavar="TIME", help="Least time between firings.")
    ] = "0 s",
    firings: Annotated[bool, typer.Option("--firings", help="Print only the firings.")] = False,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Show when a trigger would have fired on stored telemetry, and why it did not at other times.

    The telemetry is local (a telemetry directory or a run's telemetry.parquet), or is that of a
    node of the testbed (by default for the last hour).

    Example: skyhop testbed trigger test "pop_ping_latency_ms > 100" --node bcn-1
    """
    from skyhop.cli.tables import cells_of, print_table
    from skyhop.data.quantities import seconds
    from skyhop.errors import InputError
    from skyhop_testbed.triggers.evaluate import Trigger
    from skyhop_testbed.triggers.replay import firings_table, replay

    try:
        trigger = Trigger(expression, hold_s=seconds(hold), cooldown_s=seconds(cooldown))
    except ValueError as error:
        raise InputError(str(error)) from None
    to_ns = instant_ns(end, now_ns())
    if history is not None:
        from skyhop.telemetry.store import open_telemetry

        of_node = [node] if node else None
        frame = open_telemetry(history).read(of_node, None, instant_ns(begin, 0), to_ns)
        if frame["node"].n_unique() > 1:
            raise InputError(f"{history}: has several nodes; choose one with --node")
    elif node is None:
        raise InputError("give --history DIR or FILE, or --node NAME of a testbed")
    else:
        with opened(credential) as testbed:
            frame = testbed.telemetry(node, instant_ns(begin, to_ns - 3600 * 10**9), to_ns)
    evaluations = replay(trigger, frame).evaluations
    if as_json:
        chosen = [each for each in evaluations if each.fired] if firings else evaluations
        print(json.dumps([each.as_json() for each in chosen], indent=2))
        return
    print_table(cells_of(firings_table(evaluations, only_firings=firings)))


@trigger_app.command("log")
def trigger_log(
    credential: As = None,
    job: Annotated[str, typer.Option(help="Only evaluations for this job.")] = "",
    node: Annotated[str, typer.Option(help="Only evaluations on this node.")] = "",
    limit: Annotated[
        int, typer.Option(help="Largest number of evaluations to show, latest first.")
    ] = 50,
    as_json: Json = False,
) -> None:
    """Show evaluations of triggers, and why they did or did not fire."""
    with opened(credential) as testbed:
        found = testbed.trigger_log(job=job, node=node, limit=limit)
    rows = found if as_json else [_log_row(each) for each in found]
    print_found(rows, as_json, "no evaluations")


def _log_row(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "time_(UTC)": when(each["at_ns"]),
        "job": each["job_name"],
        "node": each["node"],
        "fired": "yes" if each["fired"] else "no",
        "why": each.get("why"),
        "run": each["run"],
    }
