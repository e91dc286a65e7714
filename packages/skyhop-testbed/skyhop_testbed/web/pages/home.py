"""Overview page: active, planned and ended runs, and the state of the nodes."""

from __future__ import annotations

from starlette.responses import Response

from skyhop_testbed.orchestrator import alerts, nodes, runs
from skyhop_testbed.web import queries
from skyhop_testbed.web.map import REGIONS, node_map
from skyhop_testbed.web.page_request import PageRequest
from skyhop_testbed.words import ACTIVE, ENDED, State

_LATEST, _ALERTS = 8, 20
_HOUR_NS = 3600 * 10**9


def show(request: PageRequest) -> Response:
    """Show active runs, the next and the last ones, and the map of the nodes."""
    with request.reading() as ctx:
        listed = nodes.listing(ctx)
        busy = queries.busy_nodes(ctx)
        going = runs.listing(ctx, states=[s.value for s in (*ACTIVE, State.ARMED)], limit=200)
        planned = runs.listing(
            ctx,
            states=[State.PLANNED.value],
            from_ns=ctx.now_ns,
            to_ns=ctx.now_ns + 24 * _HOUR_NS,
            limit=10_000,
        )
        firing = alerts.listing(ctx, limit=_ALERTS)
        ended = runs.listing(ctx, states=[s.value for s in ENDED], to_ns=ctx.now_ns, limit=_LATEST)
    return request.render(
        "home.html",
        title="Overview",
        shortage=request.orchestrator.shortage() or "",
        nodes=listed,
        busy=busy,
        map=node_map(listed, request.query("region")),
        regions=REGIONS,
        going=[run for run in going if run.state != State.ARMED],
        armed=[run for run in going if run.state == State.ARMED],
        planned=planned[::-1][:_LATEST],
        planned_count=len(planned),
        ended=ended,
        alerts=firing,
    )
