"""Nodes: all of them, one of them, what its terminal says now and said before, what it allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from skyhop.data.toml import read_toml
from skyhop.errors import InputError, RunError
from skyhop.testbed.orchestrator import nodes, runs
from skyhop.testbed.orchestrator.access import owns_node
from skyhop.testbed.orchestrator.desk import NotFoundError
from skyhop.testbed.web import queries, recent
from skyhop.testbed.web.ask import Ask
from skyhop.testbed.web.map import REGIONS, node_map
from skyhop.testbed.web.pages.pictures import picture
from skyhop.testbed.web.plots import Chart, Line, in_unit
from skyhop.testbed.web.toml import written
from skyhop.testbed.words import ACTIVE, ScavengerMode

_S_NS = 10**9
_MINUTE_NS = 60 * _S_NS
_FIGURES = ("orientation", "spikes")
HOURS = (1, 6, 24, 168)


def listing(ask: Ask) -> Response:
    """Show all nodes."""
    with ask.reading() as desk:
        listed = nodes.listing(desk, active=ask.query("active") == "1")
        busy = queries.busy_nodes(desk)
    return ask.page(
        "nodes.html",
        title="Nodes",
        nodes=listed,
        busy=busy,
        map=node_map(listed, ask.query("region")),
        regions=REGIONS,
        active=ask.query("active") == "1",
    )


def show(ask: Ask) -> Response:
    """Show a node."""
    return _node(ask, 200)


def _node(ask: Ask, status: int, *, policy: str = "", said: str = "") -> Response:
    name = ask.path("node")
    with ask.reading() as desk:
        node = nodes.document(desk, name)
        owns = owns_node(desk, name)
        busy = queries.busy_nodes(desk).get(name, 0)
        going = runs.listing(desk, node=name, states=[s.value for s in ACTIVE], limit=50)
        latest = runs.listing(desk, node=name, to_ns=desk.now_ns, limit=10)
        now_ns = desk.now_ns
    samples = ask.rooms.recent.samples(name, now_ns)
    columns = recent.columns(samples)
    end_s = now_ns / _S_NS
    return ask.page(
        "node.html",
        status,
        title=name,
        node=node,
        owns=owns,
        busy=busy,
        going=going,
        latest=latest,
        policy=policy or (written(node["policy"]) if owns else ""),
        said=said,
        modes=[mode.value for mode in ScavengerMode],
        newest=samples[-1] if samples else {},
        charts=charts(columns, (end_s - recent.SPAN_S, end_s)),
        span_s=recent.SPAN_S,
    )


def live(ask: Ask) -> Response:
    """Return the last minutes as columns, for charts that move."""
    with ask.reading() as desk:
        nodes.get(desk, ask.path("node"))
        now_ns = desk.now_ns
    samples = ask.rooms.recent.samples(ask.path("node"), now_ns)
    return JSONResponse({"now_s": now_ns / _S_NS, **recent.columns(samples)})


def history(ask: Ask) -> Response:
    """Show what a terminal said in the last hours."""
    name = ask.path("node")
    hours = ask.number("hours", 24, 1, HOURS[-1])
    with ask.reading() as desk:
        nodes.get(desk, name)
        now_ns = desk.now_ns
    begin_ns, end_ns = window(now_ns, hours)
    said, found = "", None
    try:
        found = series(ask, name, begin_ns, end_ns)
    except (InputError, RunError) as error:
        said = str(error)
    limits = (begin_ns / _S_NS, end_ns / _S_NS)
    seen = ask.office.telemetry.map_file(name)
    return ask.page(
        "history.html",
        title=f"{name}: telemetry",
        node=name,
        hours=hours,
        choices=HOURS,
        said=said,
        found=found,
        charts=charts(found, limits) if found else [],
        cdf=distribution(found["cdf"]) if found else None,
        figures=_FIGURES if found else (),
        has_map=seen is not None,
    )


def figure(ask: Ask) -> Response:
    """Return a figure of a node's telemetry."""
    name, kind = ask.path("node"), ask.path("kind")
    if kind == "sky":
        return _sky(ask, name)
    if kind not in _FIGURES:
        raise InputError("there is no such figure")
    with ask.reading() as desk:
        nodes.get(desk, name)
        now_ns = desk.now_ns
    begin_ns, end_ns = window(now_ns, ask.number("hours", 24, 1, HOURS[-1]))
    return picture(ask, kind, node=name, from_ns=begin_ns, to_ns=end_ns)


def _sky(ask: Ask, name: str) -> Response:
    """Return the figure of a node's newest obstruction map."""
    with ask.reading() as desk:
        nodes.get(desk, name)
    file = ask.office.telemetry.map_file(name)
    if file is None:
        raise NotFoundError(f"{name}: has told of no obstruction map yet")
    return picture(ask, "sky", file=str(file), changed_ns=file.stat().st_mtime_ns)


def set_scavenger(ask: Ask) -> Response:
    """Set whether a node's runs make room for its host."""
    name = ask.path("node")
    mode = ask.field("mode")
    ask.act("SetScavenger", name, lambda desk: nodes.set_scavenger(desk, name, mode))
    return ask.go(f"/nodes/{name}", "scavenger")


def set_policy(ask: Ask) -> Response:
    """Set what a node's owner allows; what is wrong is said beside what was written."""
    name, text = ask.path("node"), ask.field("policy").replace("\r\n", "\n")
    try:
        try:
            policy = read_toml(text, "policy")
            json.dumps(policy)
        except (RecursionError, TypeError) as error:
            raise InputError(f"policy: {error}") from None
        ask.act("SetPolicy", name, lambda desk: nodes.set_policy(desk, name, policy))
    except InputError as error:
        if type(error) is not InputError:
            raise
        return _node(ask, 400, policy=text, said=str(error))
    return ask.go(f"/nodes/{name}", "policy")


def window(now_ns: int, hours: int) -> tuple[int, int]:
    """Return the last so many hours up to the last whole minute, so that what is drawn is kept."""
    step_ns = _MINUTE_NS if hours <= 6 else 10 * _MINUTE_NS  # noqa: PLR2004
    end_ns = now_ns // step_ns * step_ns
    return end_ns - hours * 60 * _MINUTE_NS, end_ns


def series(ask: Ask, node: str, begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Return a node's telemetry as columns of means, and quantiles of its latency.

    Raises:
        InputError: there is none in this time.
        RunError: it cannot be read now.
    """
    made: Path = ask.rooms.drawings.made("series", node=node, from_ns=begin_ns, to_ns=end_ns)
    found: dict[str, Any] = json.loads(made.read_bytes())
    return found


def charts(columns: dict[str, Any], limits: tuple[float, float]) -> list[Chart]:
    """Return the charts of telemetry over time."""
    times = columns["time_s"]
    latency = [Line("latency", columns["pop_ping_latency_ms"])]
    if "low" in columns:
        latency.insert(0, Line("5 to 95 %", columns["high"], columns["low"]))
    drops = [None if v is None else 100 * v for v in columns["pop_ping_drop_rate"]]
    terminal = in_unit(
        [
            Line("down", columns["downlink_throughput_bps"]),
            Line("up", columns["uplink_throughput_bps"]),
        ]
    )
    own = in_unit([Line("received", columns["user_rx_bps"]), Line("sent", columns["user_tx_bps"])])
    return [
        Chart("Latency to the point of presence", "ms", times, latency, limits),
        Chart("Lost probes", "%", times, [Line("lost", drops)], limits, least_most=5.0),
        Chart("What the terminal carries", terminal[0], times, terminal[1], limits),
        Chart("The owner's own traffic", own[0], times, own[1], limits),
    ]


def distribution(quantiles: list[float]) -> Chart | None:
    """Return the distribution of the latency, up to its 99.5th percentile."""
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
