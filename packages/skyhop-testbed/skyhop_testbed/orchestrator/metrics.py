"""Metrics of the orchestrator in the OpenMetrics text format, on a port of their own.

A scrape reads the database, which delays no agent, and needs a token.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from skyhop.errors import RunError
from skyhop.version import __version__
from skyhop_testbed.keys import read_private, valid_until, write_private
from skyhop_testbed.orchestrator import accounts, nodes
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import ITSELF, RequestContext
from skyhop_testbed.store.tables import alert, artefact, credential, delivery, run, task
from skyhop_testbed.words import State

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

TOKEN_FILE = "metrics.token"
_PREFIX = "skyhop_testbed"
_BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


@dataclass(frozen=True)
class PortNumbers:
    """Numbers of connections of one port, read at each scrape."""

    open: int
    accepted: int
    ended: Mapping[str, int]
    """Number of connections that the server refused or ended, by cause."""


Ports = Callable[[], Mapping[str, PortNumbers]]
"""Function that returns the numbers of connections by port."""


def _gauge(name: str, about: str, value: float | None = None, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", about, value, labels or None)


class Metrics(Collector):
    """Metrics of one orchestrator; each collection reads its database.

    Args:
        orchestrator: the orchestrator.
        ports: returns the numbers of connections.
        page_starts: returns the number of processes of the pages that were started.
    """

    def __init__(
        self, orchestrator: Orchestrator, ports: Ports, page_starts: Callable[[], int]
    ) -> None:
        self._orchestrator, self._ports, self._page_starts = orchestrator, ports, page_starts
        self.registry = CollectorRegistry()
        self.registry.register(self)
        about = "Duration of write transactions, with the wait for the lock"
        written = Histogram(
            f"{_PREFIX}_write_seconds", about, buckets=_BUCKETS_S, registry=self.registry
        )
        orchestrator.observe_write = written.observe

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registration does not read the database."""
        return []

    def collect(self) -> list[Metric]:
        """Return the metrics of this moment."""
        with self._orchestrator.reading(ITSELF) as ctx:
            found = [*_of_nodes(ctx), *_of_runs(ctx), *_of_alerts(ctx)]
        return [*found, *self._of_process(), *self._of_connections()]

    def text(self) -> bytes:
        """Return the metrics in the OpenMetrics text format."""
        text: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return text

    def _of_process(self) -> Iterator[Metric]:
        of = self._orchestrator
        yield InfoMetricFamily(_PREFIX, "Version of the orchestrator", {"version": __version__})
        files = [of.directory / f"testbed.sqlite{end}" for end in ("", "-wal")]
        size = sum(each.stat().st_size for each in files if each.exists())
        yield _gauge("database_bytes", "Size of the database with its journal", size)
        free = shutil.disk_usage(of.directory).free
        yield _gauge("disk_free_bytes", "Free disk space of the state directory", free)
        ends = _gauge(
            "certificate_expiry_timestamp_seconds", "End of a certificate", None, "certificate"
        )
        for name, pem in (
            ("server", of.authority.server_certificate_pem),
            ("authority", of.authority.certificate_pem),
        ):
            ends.add_metric([name], valid_until(pem)[1].timestamp())
        yield ends
        about = "Processes of the web pages that were started"
        yield CounterMetricFamily(f"{_PREFIX}_page_process_starts", about, self._page_starts())

    def _of_connections(self) -> Iterator[Metric]:
        opened = _gauge("connections", "Open connections", None, "port")
        about = "Connections accepted since the start"
        accepted = CounterMetricFamily(f"{_PREFIX}_connections_accepted", about, labels=["port"])
        about = "Connections that the server refused or ended, by cause"
        ended = CounterMetricFamily(f"{_PREFIX}_connections_ended", about, labels=["port", "cause"])
        for port, numbers in self._ports().items():
            opened.add_metric([port], numbers.open)
            accepted.add_metric([port], numbers.accepted)
            for cause, count in numbers.ended.items():
                ended.add_metric([port, cause], count)
        yield from (opened, accepted, ended)


def _of_nodes(ctx: RequestContext) -> Iterator[Metric]:
    listed = nodes.listing(ctx)
    counts = _gauge("nodes", "Nodes by state", None, "state")
    online = sum(each.online for each in listed)
    yielding = sum(each.online and each.scavenger_active for each in listed)
    for state, count in (
        ("online", online - yielding), ("yielding", yielding), ("offline", len(listed) - online),
    ):  # fmt: skip
        counts.add_metric([state], count)
    age = _gauge("node_last_seen_age_seconds", "Time since a node's last report", None, "node")
    fields = {
        "disk_free_bytes": _gauge("node_disk_free_bytes", "Free disk space", None, "node"),
        "clock_offset_ms": _gauge("node_clock_offset_seconds", "Offset of the clock", None, "node"),
        "load": _gauge("node_load", "Load of the last minute", None, "node"),
    }
    for each in listed:
        if each.last_seen_ns is not None:
            age.add_metric([each.name], max(0, ctx.now_ns - each.last_seen_ns) / 1e9)
        for key, family in fields.items():
            value = each.health.get(key)
            if isinstance(value, int | float):
                family.add_metric([each.name], value / 1e3 if key == "clock_offset_ms" else value)
    ends = _gauge(
        "node_certificate_expiry_timestamp_seconds", "End of a node's certificate", None, "node"
    )
    last = sa.func.max(credential.c.expires_ns).label("expires_ns")
    query = sa.select(credential.c.node, last).where(credential.c.kind == accounts.CERTIFICATE)
    for row in ctx.all(query.group_by(credential.c.node)):
        ends.add_metric([row["node"]], (row["expires_ns"] or 0) / 1e9)
    yield from (counts, age, *fields.values(), ends)


def _of_runs(ctx: RequestContext) -> Iterator[Metric]:
    found = {
        row["state"]: row["n"]
        for row in ctx.all(sa.select(run.c.state, sa.func.count().label("n")).group_by(run.c.state))
    }
    counts = _gauge("runs", "Runs by state, of those that are kept", None, "state")
    for state in State:
        counts.add_metric([state.value], found.get(state.value, 0))
    opened = sa.select(sa.func.count()).select_from(task).where(task.c.state == "open")
    size = ctx.connection.scalar(sa.select(sa.func.sum(artefact.c.size)))
    yield counts
    yield _gauge("open_tasks", "Requests to server nodes", ctx.connection.scalar(opened) or 0)
    yield _gauge("uploaded_bytes", "Size of the runs' files that are kept", float(size or 0))


def _of_alerts(ctx: RequestContext) -> Iterator[Metric]:
    firing = _gauge("alerts", "Alerts that are not over, by kind", None, "kind")
    query = sa.select(alert.c.kind, sa.func.count().label("n")).where(alert.c.cleared_ns.is_(None))
    for row in ctx.all(query.group_by(alert.c.kind)):
        firing.add_metric([row["kind"]], row["n"])
    waiting = ctx.connection.scalar(sa.select(sa.func.count()).select_from(delivery)) or 0
    yield firing
    yield _gauge("waiting_messages", "Messages that webhooks have not taken yet", waiting)


def read_token(directory: Path) -> str:
    """Return the token of scrapes, from a file in the state directory, which is made if missing.

    Raises:
        RunError: the file cannot be read or written.
    """
    path = directory / TOKEN_FILE
    try:
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode())
        return read_private(path).decode().strip()
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def make_app(metrics: Metrics, token: str) -> Starlette:
    """Return the application that serves `/metrics` to callers with the token."""

    async def show(http: Request) -> Response:
        given = http.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return PlainTextResponse(
                f"give the token of {TOKEN_FILE}: Authorization: Bearer TOKEN\n", 401
            )
        text = await asyncio.to_thread(metrics.text)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/metrics", show, methods=["GET"])])
