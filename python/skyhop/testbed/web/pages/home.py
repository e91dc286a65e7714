"""The first page: what goes on."""

from __future__ import annotations

from starlette.responses import Response

from skyhop.testbed.orchestrator import nodes, runs
from skyhop.testbed.web import queries
from skyhop.testbed.web.ask import Ask
from skyhop.testbed.web.map import REGIONS, node_map
from skyhop.testbed.words import ACTIVE, ENDED, State

_LATEST = 8
_HOUR_NS = 3600 * 10**9


def show(ask: Ask) -> Response:
    """Show what runs, what comes next, what has ended, and how the nodes are."""
    with ask.reading() as desk:
        listed = nodes.listing(desk)
        busy = queries.busy_nodes(desk)
        going = runs.listing(desk, states=[s.value for s in (*ACTIVE, State.ARMED)], limit=200)
        planned = runs.listing(
            desk,
            states=[State.PLANNED.value],
            from_ns=desk.now_ns,
            to_ns=desk.now_ns + 24 * _HOUR_NS,
            limit=10_000,
        )
        ended = runs.listing(
            desk, states=[s.value for s in ENDED], to_ns=desk.now_ns, limit=_LATEST
        )
    return ask.page(
        "home.html",
        title="What goes on",
        nodes=listed,
        busy=busy,
        map=node_map(listed, ask.query("region")),
        regions=REGIONS,
        going=[run for run in going if run["state"] != State.ARMED],
        armed=[run for run in going if run["state"] == State.ARMED],
        planned=planned[::-1][:_LATEST],
        planned_count=len(planned),
        ended=ended,
    )
