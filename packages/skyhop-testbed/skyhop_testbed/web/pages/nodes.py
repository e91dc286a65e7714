"""Pages of nodes: list, single node with live telemetry and policy, and history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from starlette.responses import JSONResponse, Response

from skyhop.data.toml import read_toml
from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import Sample
from skyhop_testbed import api
from skyhop_testbed.orchestrator import access, nodes, runs
from skyhop_testbed.orchestrator.access import owns_node
from skyhop_testbed.orchestrator.request_context import NotFoundError
from skyhop_testbed.privacy import without_owners_traffic
from skyhop_testbed.web import queries, recent
from skyhop_testbed.web.map import REGIONS, node_map
from skyhop_testbed.web.page_request import PageRequest
from skyhop_testbed.web.pages.pictures import picture
from skyhop_testbed.web.plots import Chart, Line, in_unit
from skyhop_testbed.web.toml import to_toml
from skyhop_testbed.words import ACTIVE, ScavengerMode

_S_NS = 10**9
_MINUTE_NS = 60 * _S_NS
_FIGURES = ("orientation", "spikes")
HOURS = (1, 6, 24, 168)
_RATES = {
    "What the terminal carries": {"down": "downlink_throughput_bps", "up": "uplink_throughput_bps"},
    "The owner's own traffic": {"received": "user_rx_bps", "sent": "user_tx_bps"},
}
"""Charts of throughput: the field of each line, by title and label."""


def listing(request: PageRequest) -> Response:
    """Show the list and the map of nodes."""
    with request.reading() as ctx:
        listed = nodes.listing(ctx, active=request.query("active") == "1")
        busy = queries.busy_nodes(ctx)
    return request.render(
        "nodes.html",
        title="Nodes",
        nodes=listed,
        busy=busy,
        map=node_map(listed, request.query("region")),
        regions=REGIONS,
        active=request.query("active") == "1",
    )


def show(request: PageRequest) -> Response:
    """Show a node, with its latest telemetry and runs."""
    return _node(request, 200)


def _node(request: PageRequest, status: int, *, policy: str = "", problem: str = "") -> Response:
    name = request.path_param("node")
    with request.reading() as ctx:
        node = nodes.document(ctx, name)
        owns = owns_node(ctx, name)
        busy = queries.busy_nodes(ctx).get(name, 0)
        going = runs.listing(ctx, node=name, states=[s.value for s in ACTIVE], limit=50)
        latest = runs.listing(ctx, node=name, to_ns=ctx.now_ns, limit=10)
        now_ns = ctx.now_ns
        sees_traffic = access.sees_traffic(ctx, name)
    samples = request.state.recent.samples(name, now_ns)
    if not sees_traffic:
        samples = [without_owners_traffic(sample) for sample in samples]
    columns = _columns(samples, sees_traffic=sees_traffic)
    end_s = now_ns / _S_NS
    return request.render(
        "node.html",
        status,
        title=name,
        node=node,
        owns=owns,
        busy=busy,
        going=going,
        latest=latest,
        policy=policy or (to_toml(node.policy or {}) if owns else ""),
        problem=problem,
        modes=[mode.value for mode in ScavengerMode],
        newest=samples[-1] if samples else {},
        sees_traffic=sees_traffic,
        charts=charts(columns, (end_s - recent.SPAN_S, end_s)),
        span_s=recent.SPAN_S,
    )


def live(request: PageRequest) -> Response:
    """Return the telemetry of the last minutes as JSON columns, for the live charts."""
    with request.reading() as ctx:
        name = request.path_param("node")
        nodes.get(ctx, name)
        now_ns = ctx.now_ns
        sees_traffic = access.sees_traffic(ctx, name)
    samples = request.state.recent.samples(name, now_ns)
    columns = _columns(samples, sees_traffic=sees_traffic)
    return JSONResponse({"now_s": now_ns / _S_NS, **columns})


def _columns(samples: list[Sample], *, sees_traffic: bool) -> recent.Columns:
    """Return the columns of the live charts that the caller may read."""
    columns = recent.columns(samples)
    return columns if sees_traffic else without_owners_traffic(columns)


def history(request: PageRequest) -> Response:
    """Show a node's telemetry of the last hours."""
    name = request.path_param("node")
    hours = request.query_number("hours", 24, 1, HOURS[-1])
    with request.reading() as ctx:
        nodes.get(ctx, name)
        now_ns = ctx.now_ns
    begin_ns, end_ns = window(now_ns, hours)
    problem, found = "", None
    try:
        found = series(request, name, begin_ns, end_ns)
    except (InputError, RunError) as error:
        problem = str(error)
    # A young node's telemetry fills the axis.
    first_s = found["time_s"][0] if found and found["time_s"] else None
    limits = (max(begin_ns / _S_NS, first_s or 0.0), end_ns / _S_NS)
    seen = request.orchestrator.telemetry.map_file(name)
    return request.render(
        "history.html",
        title=f"{name}: telemetry",
        node=name,
        hours=hours,
        choices=HOURS,
        problem=problem,
        found=found,
        charts=charts(found, limits) if found else [],
        cdf=distribution(found["cdf"]) if found else None,
        figures=_FIGURES if found else (),
        has_map=seen is not None,
    )


def figure(request: PageRequest) -> Response:
    """Return a figure of a node's telemetry, or of its obstruction map (`sky`)."""
    name, kind = request.path_param("node"), request.path_param("kind")
    if kind == "sky":
        return _sky(request, name)
    if kind not in _FIGURES:
        raise InputError("there is no such figure")
    with request.reading() as ctx:
        nodes.get(ctx, name)
        now_ns = ctx.now_ns
    begin_ns, end_ns = window(now_ns, request.query_number("hours", 24, 1, HOURS[-1]))
    return picture(request, kind, node=name, from_ns=begin_ns, to_ns=end_ns)


def _sky(request: PageRequest, name: str) -> Response:
    """Return the figure of a node's newest obstruction map."""
    with request.reading() as ctx:
        nodes.get(ctx, name)
    file = request.orchestrator.telemetry.map_file(name)
    if file is None:
        raise NotFoundError(f"{name}: no obstruction map has been reported yet")
    return picture(request, "sky", file=str(file), changed_ns=file.stat().st_mtime_ns)


def set_scavenger(request: PageRequest) -> Response:
    """Set the scavenger mode of a node: whether its runs yield to the host's own traffic."""
    name = request.path_param("node")
    mode = request.form_field("mode")
    request.change(api.SET_SCAVENGER, api.SetScavenger(node=name, mode=mode))
    return request.redirect(f"/nodes/{name}", "scavenger")


def set_policy(request: PageRequest) -> Response:
    """Set the policy of a node; show the form again with the error if it is invalid."""
    name, text = request.path_param("node"), request.form_field("policy").replace("\r\n", "\n")
    try:
        try:
            policy = read_toml(text, "policy")
            json.dumps(policy)
        except (RecursionError, TypeError) as error:
            raise InputError(f"policy: {error}") from None
        request.change(api.SET_POLICY, api.SetPolicy(node=name, policy=policy))
    except InputError as error:
        if type(error) is not InputError:
            raise
        return _node(request, 400, policy=text, problem=str(error))
    return request.redirect(f"/nodes/{name}", "policy")


def window(now_ns: int, hours: int) -> tuple[int, int]:
    """Return the time range of the last `hours`, up to the end of the current minute, in ns.

    Ranges end at whole minutes, so that drawings can be cached for a minute.
    """
    end_ns = -(-now_ns // _MINUTE_NS) * _MINUTE_NS
    return end_ns - hours * 60 * _MINUTE_NS, end_ns


def series(request: PageRequest, node: str, begin_ns: int, end_ns: int) -> recent.Columns:
    """Return a node's telemetry as columns of means, and quantiles of its latency.

    The owner's traffic is left out if the caller may not read it.

    Raises:
        InputError: there is no telemetry in the time range.
        RunError: reading it failed or took too long.
    """
    made: Path = request.state.drawings.get("series", node=node, from_ns=begin_ns, to_ns=end_ns)
    found: recent.Columns = json.loads(made.read_bytes())
    with request.reading() as ctx:
        sees_traffic = access.sees_traffic(ctx, node)
    return found if sees_traffic else without_owners_traffic(found)


def charts(columns: recent.Columns, limits: tuple[float, float]) -> list[Chart]:
    """Return the charts of telemetry over time: latency, loss, and throughput where it is known.

    Columns that the caller may not read are missing.
    """
    times = [time_s or 0.0 for time_s in columns["time_s"]]
    latency = [Line("latency", columns["pop_ping_latency_ms"])]
    if "low" in columns:
        latency.insert(0, Line("5 to 95 %", columns["high"], columns["low"]))
    drops = [None if v is None else 100 * v for v in columns["pop_ping_drop_rate"]]
    found = [
        Chart("Latency to the point of presence", "ms", times, latency, limits),
        Chart("Lost probes", "%", times, [Line("lost", drops)], limits, min_upper_limit=5.0),
    ]
    for title, lines in _RATES.items():
        if all(name in columns for name in lines.values()):
            drawn = in_unit([Line(label, columns[name]) for label, name in lines.items()])
            found.append(Chart(title, drawn[0], times, drawn[1], limits))
    return found


def distribution(cdf: Sequence[float | None]) -> Chart | None:
    """Return a chart of the latency's CDF, up to its 99.5th percentile; None without data."""
    quantiles = [value for value in cdf if value is not None]
    if not quantiles:
        return None
    steps = len(quantiles) - 1
    shown = quantiles[: steps - steps // 200 + 1]
    shares = [100 * place / steps for place in range(len(shown))]
    least, most = shown[0], max(shown[-1], shown[0] + 1)
    line = Line("share of seconds", shares)
    return Chart(
        "Distribution of the latency",
        "% of seconds",
        shown,
        [line],
        (least, most),
        (0.0, 100.0),
        is_time=False,
        x_unit="ms",
    )
