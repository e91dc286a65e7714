"""The orchestrator's server: three HTTPS ports, and periodic housekeeping.

On the agents' port, clients authenticate with a certificate of the testbed's authority; on the
users' port, with a token. Both are in this process, with one event loop. The third port has the web
pages, in a process of their own, so that nothing that pages do delays an agent. All three use TLS
with the same server certificate, and have separate limits on connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.applications import Starlette

from skyhop.cli.stopping import stop_on_signals
from skyhop.errors import SkyhopError
from skyhop_testbed.addresses import is_loopback, listening_address
from skyhop_testbed.orchestrator.authority import TRUSTED
from skyhop_testbed.orchestrator.connections import (
    Budget,
    Limits,
    agents_limits,
    raise_descriptor_limit,
    users_limits,
)
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.https import HttpsServer, bound
from skyhop_testbed.orchestrator.page_port import PagePort
from skyhop_testbed.orchestrator.service import Service
from skyhop_testbed.orchestrator.waiting import Wait, wait_in_loop
from skyhop_testbed.orchestrator.watch import Watch
from skyhop_testbed.orchestrator.webhooks import Sender, post
from skyhop_testbed.web.supervision import PageProcess, starter

_LOG = logging.getLogger(__name__)
_TICK_S = 15.0
_SOON_S = 0.1
_TIDY_EVERY = 240
_OF_PAGES = Limits(most=64, most_of_peer=64, most_handshakes=64, new_per_s=1000.0)
"""Limits of the Unix socket of the process of the web pages."""
_OF_METRICS = Limits(most=16, most_of_peer=8, most_handshakes=8, new_per_s=10.0)


@dataclass(frozen=True)
class Addresses:
    """Addresses to listen on, each HOST:PORT; with port 0 the kernel chooses a free port."""

    users: str = "127.0.0.1:7400"
    agents: str = "127.0.0.1:7401"
    web: str = "127.0.0.1:7480"
    """Address of the web pages; "" for none."""
    metrics: str = ""
    """Address of the metrics; "" for none."""

    def __post_init__(self) -> None:
        """Check the form of the addresses, before the state directory is created.

        Raises:
            InputError: a value is not HOST:PORT.
        """
        for name, value in self.given().items():
            listening_address(f"--{name}", value)

    def given(self) -> dict[str, str]:
        """Return the addresses by the names of their options, without those that are ""."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class BoundPorts:
    """Port numbers to which the server is bound."""

    users: int
    agents: int
    web: int
    """Port of the web pages; 0 if they are off."""
    metrics: int = 0
    """Port of the metrics; 0 if they are off."""


def serve(
    orchestrator: Orchestrator,
    addresses: Addresses,
    *,
    ready: Callable[[BoundPorts], None] | None = None,
) -> None:
    """Serve until Ctrl-C, SIGTERM or SIGHUP.

    Args:
        orchestrator: the orchestrator, closed at the end.
        addresses: addresses to listen on.
        ready: called with the `BoundPorts` once the ports are open.

    Raises:
        RunError: an address cannot be bound.
    """
    try:
        asyncio.run(_serve(orchestrator, addresses, ready))
    finally:
        orchestrator.close()


async def _serve(
    orchestrator: Orchestrator,
    addresses: Addresses,
    ready: Callable[[BoundPorts], None] | None,
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_on_signals(lambda: loop.call_soon_threadsafe(stopping.set))
    descriptors = raise_descriptor_limit()
    listeners = {name: bound(each) for name, each in addresses.given().items()}
    service, keys = Service(orchestrator, wait_in_loop), orchestrator.directory / "keys"
    pair = keys / "server.key", keys / "server.pem"
    users = HttpsServer(service.app(of_nodes=False), *pair, limits=users_limits(descriptors))
    agents = HttpsServer(
        service.app(of_nodes=True),
        *pair,
        clients=keys / TRUSTED,
        limits=agents_limits(descriptors),
    )
    users.start(listeners["users"])
    agents.start(listeners["agents"])
    budgets = {"users": users.budget, "agents": agents.budget}
    sender = Sender(orchestrator, post)
    async with contextlib.AsyncExitStack() as stack:
        pages = None
        if "web" in listeners:
            made = _pages(orchestrator, listeners["web"], stopping)
            pages = await stack.enter_async_context(made)
        if "metrics" in listeners:
            app = _metrics_app(orchestrator, budgets, pages)
            server = HttpsServer(app, *pair, limits=_OF_METRICS)
            server.start(listeners["metrics"])
            stack.push_async_callback(server.stop)
        watch = Watch(orchestrator, sender, lambda: pages.failures if pages else 0)
        tasks = [
            asyncio.create_task(_tick(orchestrator, stopping, wait_in_loop, watch)),
            asyncio.create_task(sender.run(stopping, wait_in_loop)),
            asyncio.create_task(_move(orchestrator, stopping, wait_in_loop)),
        ]
        ports = {name: int(each.getsockname()[1]) for name, each in listeners.items()}
        if ready is not None:
            ready(BoundPorts(**{"web": 0, **ports}))
        _LOG.info("serves users at %s, agents at %s", ports["users"], ports["agents"])
        await stopping.wait()
        service.close()
        for each in tasks:
            each.cancel()
        await asyncio.gather(users.stop(), agents.stop())
        await asyncio.gather(*tasks, return_exceptions=True)


def _metrics_app(
    orchestrator: Orchestrator, budgets: dict[str, Budget], pages: PageProcess | None
) -> Starlette:
    from skyhop_testbed.orchestrator import metrics

    def ports() -> dict[str, metrics.PortNumbers]:
        found = {
            name: metrics.PortNumbers(
                each.open, each.accepted, {str(cause): count for cause, count in each.ended.items()}
            )
            for name, each in budgets.items()
        }
        told = pages.report if pages else None
        if told is not None:
            found["web"] = metrics.PortNumbers(told.open, told.accepted, told.ended)
        return found

    made = metrics.Metrics(orchestrator, ports, lambda: pages.starts if pages else 0)
    return metrics.make_app(made, metrics.read_token(orchestrator.directory))


@contextlib.asynccontextmanager
async def _pages(
    orchestrator: Orchestrator, listener: socket.socket, stopping: asyncio.Event
) -> AsyncIterator[PageProcess]:
    """Run the process of the web pages, and the Unix socket over which it asks for changes."""
    port = PagePort(orchestrator)
    server = HttpsServer(port.app(), limits=_OF_PAGES)
    # The path of a Unix socket has at most 107 bytes, that of the state directory may have more.
    with tempfile.TemporaryDirectory(prefix="skyhop-pages-") as place:
        orders = Path(place) / "orchestrator.sock"
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(orders))
        unix.listen(_OF_PAGES.most)
        server.start(unix)
        start = starter(orchestrator.directory, listener, orders)
        process = PageProcess(start, port, orchestrator.clock, wait_in_loop)
        supervising = asyncio.create_task(process.supervise(stopping))
        try:
            yield process
        finally:
            stopping.set()
            await supervising
            listener.close()
            await server.stop()


async def _tick(
    orchestrator: Orchestrator, stopping: asyncio.Event, wait: Wait, watch: Watch
) -> None:
    """Do the periodic housekeeping until the service stops."""
    from skyhop.telemetry.tidying import tidy_in_subprocess

    count = 0
    while not stopping.is_set():
        has_failed = True
        try:
            await asyncio.to_thread(orchestrator.tick)
            # Compaction of a day's telemetry needs much memory, which a subprocess returns when it
            # ends.
            if count % _TIDY_EVERY == 0:
                await asyncio.to_thread(tidy_in_subprocess, orchestrator.directory / "telemetry")
            has_failed = False
        except SkyhopError as error:
            _LOG.error("%s", error)
        except Exception:
            # One failure does not end the service: the next round may succeed.
            _LOG.exception("a round of housekeeping failed")
        try:
            await watch.look(has_failed=has_failed)
        except Exception:
            _LOG.exception("the look for alerts failed")
        count += 1
        await wait(stopping, _TICK_S)


async def _move(orchestrator: Orchestrator, stopping: asyncio.Event, wait: Wait) -> None:
    """Move files of runs to the bucket, if there is one, until the service stops."""
    from skyhop_testbed.orchestrator.bucket_mover import BucketMover

    if orchestrator.bucket is None:
        return
    mover = BucketMover(orchestrator, orchestrator.bucket)
    while not stopping.is_set():
        moved = 0
        try:
            moved = await asyncio.to_thread(mover.do_round, stopping.is_set)
        except SkyhopError as error:
            _LOG.error("%s", error)
        except Exception:
            _LOG.exception("a round of moving files to the bucket failed")
        await wait(stopping, _SOON_S if moved else _TICK_S)


def local_only_note(addresses: Addresses, names: list[str]) -> str | None:
    """Return a note if others know the testbed by a name, but only this machine reaches it."""
    opened = {name: each for name, each in addresses.given().items() if name != "metrics"}
    closed = [f"--{name}" for name, each in opened.items() if is_loopback(each)]
    known = [name for name in names if not is_loopback(f"{name}:0")]
    if not closed or not known:
        return None
    return (
        f"only this machine reaches the addresses of {', '.join(closed)}: for {known[0]} give "
        f"others, such as {closed[0]} 0.0.0.0:{vars(addresses)[closed[0][2:]].rpartition(':')[2]}"
    )


def names_of(addresses: Addresses, extra: list[str]) -> list[str]:
    """Return the names and addresses for the server's certificate, sorted."""
    hosts = {each.rpartition(":")[0] for each in addresses.given().values()}
    own = {host.strip("[]") for host in hosts} - {"0.0.0.0", "::", ""}
    return sorted({*extra, *own, socket.gethostname(), "localhost", "127.0.0.1"})
