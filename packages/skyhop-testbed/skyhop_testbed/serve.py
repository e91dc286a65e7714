"""The orchestrator's server: two gRPC ports, one HTTPS port, and periodic housekeeping.

It is one process with one event loop. On the agents' port, clients authenticate with a certificate
of the testbed's authority; on the users' port, with a token. All three ports use TLS with the same
server certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from dataclasses import asdict, dataclass
from typing import Any

import grpc
import grpc.aio

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.rpc import OPTIONS, Service
from skyhop_testbed.orchestrator.waiting import Wait, wait_in_loop

_LOG = logging.getLogger(__name__)
USERS, NODES = ("Enrolment", "Testbed", "Administration"), ("Agent",)
"""Services on the users' port (authenticated by token) and on the agents' port (by certificate)."""
_GRACE_S = 1.0
_TICK_S = 15.0
_TIDY_EVERY = 240
_LARGEST_PORT = 65_535


@dataclass(frozen=True)
class Addresses:
    """Addresses to listen on, each HOST:PORT; with port 0 the kernel chooses a free port."""

    users: str = "0.0.0.0:7400"
    agents: str = "0.0.0.0:7401"
    web: str = "0.0.0.0:7480"

    def __post_init__(self) -> None:
        """Check the form of the addresses, before the state directory is created.

        Raises:
            InputError: a value is not HOST:PORT.
        """
        for name, value in asdict(self).items():
            host, _, port = value.rpartition(":")
            if not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
                raise InputError(
                    f'--{name} "{value}": expected HOST:PORT, such as "0.0.0.0:7400", '
                    "with port 0 for any free port"
                )


@dataclass(frozen=True)
class BoundPorts:
    """Port numbers to which the server is bound."""

    users: int
    agents: int
    web: int


def serve(orchestrator: Orchestrator, addresses: Addresses, *, ready: Any = None) -> None:
    """Serve until SIGTERM or Ctrl-C.

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


async def _serve(orchestrator: Orchestrator, addresses: Addresses, ready: Any) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    service = Service(orchestrator, wait_in_loop)
    servers = [
        _server(orchestrator, addresses.users, service, USERS),
        _server(orchestrator, addresses.agents, service, NODES, nodes_only=True),
    ]
    for server, _ in servers:
        await server.start()
    page, web_port = await _page(orchestrator, addresses.web)
    ticking = asyncio.create_task(_tick(orchestrator, stopping, wait_in_loop))
    if ready is not None:
        ready(BoundPorts(servers[0][1], servers[1][1], web_port))
    _LOG.info("serves users at %s, agents at %s", servers[0][1], servers[1][1])
    await stopping.wait()
    _LOG.info("is told to end")
    service.close()
    ticking.cancel()
    for server, _ in servers:
        await server.stop(_GRACE_S)
    with contextlib.suppress(asyncio.CancelledError):
        await ticking
    await page.stop()


def _server(
    orchestrator: Orchestrator,
    address: str,
    service: Service,
    offered: tuple[str, ...],
    *,
    nodes_only: bool = False,
) -> tuple[grpc.aio.Server, int]:
    authority = orchestrator.authority
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers(tuple(service.handlers(name) for name in offered))
    credentials = grpc.ssl_server_credentials(
        [(authority.server_key_pem, authority.server_certificate_pem)],
        root_certificates=authority.certificate_pem if nodes_only else None,
        require_client_auth=nodes_only,
    )
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if not port:
        raise RunError(
            f"{address}: cannot listen there: port in use, or not an address of this machine"
        )
    return server, port


async def _page(orchestrator: Orchestrator, address: str) -> tuple[Any, int]:
    """Start the web server; return the server and its port."""
    from skyhop_testbed.orchestrator.page import PageServer
    from skyhop_testbed.web.app import make_app

    listener = _bound(address)
    keys = orchestrator.directory / "keys"
    server = PageServer(make_app(orchestrator), keys / "server.key", keys / "server.pem")
    server.start(listener)
    return server, int(listener.getsockname()[1])


def _bound(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or "not an address"
        raise RunError(f"{address}: cannot listen there: {why}") from None
    return listener


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


def names_of(addresses: Addresses, extra: list[str]) -> list[str]:
    """Return the names and addresses for the server's certificate, sorted."""
    hosts = {each.rpartition(":")[0] for each in (addresses.users, addresses.agents, addresses.web)}
    own = {host.strip("[]") for host in hosts} - {"0.0.0.0", "::", ""}
    return sorted({*extra, *own, socket.gethostname(), "localhost", "127.0.0.1"})
