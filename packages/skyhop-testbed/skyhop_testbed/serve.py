"""The orchestrator's server: three HTTPS ports, and periodic housekeeping.

It is one process with one event loop. On the agents' port, clients authenticate with a certificate
of the testbed's authority; on the users' port, with a token; the third port has the web pages. All
three use TLS with the same server certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass

from skyhop.cli.stopping import stop_on_signals
from skyhop.errors import SkyhopError
from skyhop_testbed.addresses import is_loopback, listening_address
from skyhop_testbed.orchestrator.authority import TRUSTED
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.https import HttpsServer, bound
from skyhop_testbed.orchestrator.service import Service
from skyhop_testbed.orchestrator.waiting import Wait, wait_in_loop

_LOG = logging.getLogger(__name__)
_TICK_S = 15.0
_TIDY_EVERY = 240


@dataclass(frozen=True)
class Addresses:
    """Addresses to listen on, each HOST:PORT; with port 0 the kernel chooses a free port."""

    users: str = "127.0.0.1:7400"
    agents: str = "127.0.0.1:7401"
    web: str = "127.0.0.1:7480"

    def __post_init__(self) -> None:
        """Check the form of the addresses, before the state directory is created.

        Raises:
            InputError: a value is not HOST:PORT.
        """
        for name, value in asdict(self).items():
            listening_address(f"--{name}", value)


@dataclass(frozen=True)
class BoundPorts:
    """Port numbers to which the server is bound."""

    users: int
    agents: int
    web: int


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
    from skyhop_testbed.web.app import make_app

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_on_signals(lambda: loop.call_soon_threadsafe(stopping.set))
    listeners = [bound(each) for each in (addresses.users, addresses.agents, addresses.web)]
    service, keys = Service(orchestrator, wait_in_loop), orchestrator.directory / "keys"
    pair = keys / "server.key", keys / "server.pem"
    servers = [
        HttpsServer(service.app(of_nodes=False), *pair),
        HttpsServer(service.app(of_nodes=True), *pair, clients=keys / TRUSTED),
        HttpsServer(make_app(orchestrator), *pair),
    ]
    for server, listener in zip(servers, listeners, strict=True):
        server.start(listener)
    ticking = asyncio.create_task(_tick(orchestrator, stopping, wait_in_loop))
    ports = BoundPorts(*(int(each.getsockname()[1]) for each in listeners))
    if ready is not None:
        ready(ports)
    _LOG.info("serves users at %s, agents at %s", ports.users, ports.agents)
    await stopping.wait()
    service.close()
    ticking.cancel()
    await asyncio.gather(*(server.stop() for server in servers))
    with contextlib.suppress(asyncio.CancelledError):
        await ticking


async def _tick(orchestrator: Orchestrator, stopping: asyncio.Event, wait: Wait) -> None:
    """Do the periodic housekeeping until the service stops."""
    from skyhop.telemetry.tidying import tidy_in_subprocess

    count = 0
    while not stopping.is_set():
        try:
            await asyncio.to_thread(orchestrator.tick)
            # Compaction of a day's telemetry needs much memory, which a subprocess returns when it
            # ends.
            if count % _TIDY_EVERY == 0:
                await asyncio.to_thread(tidy_in_subprocess, orchestrator.directory / "telemetry")
        except SkyhopError as error:
            _LOG.error("%s", error)
        except Exception:
            # One failure does not end the service: the next round may succeed.
            _LOG.exception("a round of housekeeping failed")
        count += 1
        await wait(stopping, _TICK_S)


def local_only_note(addresses: Addresses, names: list[str]) -> str | None:
    """Return a note if others know the testbed by a name, but only this machine reaches it."""
    closed = [f"--{name}" for name, each in asdict(addresses).items() if is_loopback(each)]
    known = [name for name in names if not is_loopback(f"{name}:0")]
    if not closed or not known:
        return None
    return (
        f"only this machine reaches the addresses of {', '.join(closed)}: for {known[0]} give "
        f"others, such as {closed[0]} 0.0.0.0:{vars(addresses)[closed[0][2:]].rpartition(':')[2]}"
    )


def names_of(addresses: Addresses, extra: list[str]) -> list[str]:
    """Return the names and addresses for the server's certificate, sorted."""
    hosts = {each.rpartition(":")[0] for each in (addresses.users, addresses.agents, addresses.web)}
    own = {host.strip("[]") for host in hosts} - {"0.0.0.0", "::", ""}
    return sorted({*extra, *own, socket.gethostname(), "localhost", "127.0.0.1"})
