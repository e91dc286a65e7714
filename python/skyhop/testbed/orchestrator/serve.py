"""Serving: two ports for the protocol, one for the page, and what time brings.

One process and one loop. The agents' port wants a certificate of the testbed's authority, the
users' a token; all three are TLS with the same server certificate.
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
from skyhop.testbed.orchestrator.office import Office
from skyhop.testbed.orchestrator.rpc import OPTIONS, Service
from skyhop.testbed.orchestrator.waiting import Wait, wait_in_loop

_log = logging.getLogger("skyhop.testbed")
USERS, NODES = ("Enrolment", "Testbed", "Administration"), ("Agent",)
"""The services that are offered to users, who bring a token, and to nodes."""
_GRACE_S = 1.0
_TICK_S = 15.0
_TIDY_EVERY = 240
_LARGEST_PORT = 65_535


@dataclass(frozen=True)
class Addresses:
    """Where it listens: HOST:PORT each, port 0 for one that is free."""

    users: str = "0.0.0.0:7400"
    agents: str = "0.0.0.0:7401"
    web: str = "0.0.0.0:7480"

    def __post_init__(self) -> None:
        """Refuse what is no address, before anything is made.

        Raises:
            InputError: one is none.
        """
        for name, value in asdict(self).items():
            host, _, port = value.rpartition(":")
            if not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
                raise InputError(
                    f'--{name} "{value}": expected HOST:PORT, such as "0.0.0.0:7400", '
                    "with port 0 for one that is free"
                )


@dataclass(frozen=True)
class Listening:
    """Where it came to listen."""

    users: int
    agents: int
    web: int


def serve(office: Office, addresses: Addresses, *, ready: Any = None) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        office: what is served; it is closed at the end.
        addresses: where.
        ready: called with the ports once they are open.

    Raises:
        RunError: an address cannot be had.
    """
    try:
        asyncio.run(_serve(office, addresses, ready))
    finally:
        office.close()


async def _serve(office: Office, addresses: Addresses, ready: Any) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    service = Service(office, wait_in_loop)
    servers = [
        _server(office, addresses.users, service, USERS),
        _server(office, addresses.agents, service, NODES, nodes_only=True),
    ]
    for server, _ in servers:
        await server.start()
    page, web_port = await _page(office, addresses.web)
    ticking = asyncio.create_task(_tick(office, stopping, wait_in_loop))
    if ready is not None:
        ready(Listening(servers[0][1], servers[1][1], web_port))
    await stopping.wait()
    service.close()
    ticking.cancel()
    for server, _ in servers:
        await server.stop(_GRACE_S)
    with contextlib.suppress(asyncio.CancelledError):
        await ticking
    await page.stop()


def _server(
    office: Office,
    address: str,
    service: Service,
    offered: tuple[str, ...],
    *,
    nodes_only: bool = False,
) -> tuple[grpc.aio.Server, int]:
    authority = office.authority
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
        raise RunError(f"{address}: cannot be listened on: it is taken, or not this machine's")
    return server, port


async def _page(office: Office, address: str) -> tuple[Any, int]:
    """Serve the page; return its server and port."""
    from skyhop.testbed.orchestrator.page import PageServer
    from skyhop.testbed.web import make_app

    listener = _bound(address)
    keys = office.directory / "keys"
    server = PageServer(make_app(office), keys / "server.key", keys / "server.pem")
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
        why = getattr(error, "strerror", None) or "no address"
        raise RunError(f"{address}: cannot be listened on: {why}") from None
    return listener


async def _tick(office: Office, stopping: asyncio.Event, wait: Wait) -> None:
    """Do what time brings, every so often, until the service stops."""
    from skyhop.telemetry.tidying import tidy_apart

    count = 0
    while not stopping.is_set():
        try:
            await asyncio.to_thread(office.tick)
            # A day's telemetry is folded into its file by another process, which takes its memory
            # with it.
            if count % _TIDY_EVERY == 0:
                await asyncio.to_thread(tidy_apart, office.directory / "telemetry")
        except SkyhopError as error:
            _log.error("%s", error)
        except Exception:
            # The next round may go well: a service does not end for one.
            _log.exception("a round of housekeeping failed")
        count += 1
        await wait(stopping, _TICK_S)


def names_of(addresses: Addresses, extra: list[str]) -> list[str]:
    """Return the names that the server's certificate is for."""
    hosts = {each.rpartition(":")[0] for each in (addresses.users, addresses.agents, addresses.web)}
    own = {host.strip("[]") for host in hosts} - {"0.0.0.0", "::", ""}
    return sorted({*extra, *own, socket.gethostname(), "localhost", "127.0.0.1"})
