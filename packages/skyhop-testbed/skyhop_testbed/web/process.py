"""Process of the web pages: serves them on an inherited socket, and reports its connections.

    python -m skyhop_testbed.web.process STATE LISTENER SOCKET PARENT

It reads the database of the state directory; changes go through the orchestrator's Unix socket. It
has limits of its own on memory and open files, and ends with the orchestrator.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

from skyhop import logs
from skyhop.errors import SkyhopError
from skyhop_testbed.clock import SYSTEM_CLOCK
from skyhop_testbed.linux import die_with_parent
from skyhop_testbed.orchestrator.connections import raise_descriptor_limit, users_limits
from skyhop_testbed.orchestrator.core import View, open_bucket
from skyhop_testbed.orchestrator.https import HttpsServer
from skyhop_testbed.orchestrator.page_port import REPORT, Report
from skyhop_testbed.store.database import open_to_read
from skyhop_testbed.web.app import make_app
from skyhop_testbed.web.changes import RemoteChanges

REPORT_EVERY_S = 5.0
_MEMORY_BYTES = 3 << 30
"""Address space; the process itself needs 400 MB of it, most of them the stacks of threads."""
_DESCRIPTORS = 2048
_MOST_CONNECTIONS = 512
"""Upper limit on connections, which the limit on memory bears: each takes less than a megabyte."""

_LOG = logging.getLogger("skyhop_testbed.web.process")


def main() -> int:
    """Serve the pages until SIGTERM, or until the orchestrator has ended."""
    state, listener, orders, parent = sys.argv[1:]
    die_with_parent(int(parent))
    # The orchestrator, which gets these signals as well, ends this process.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logs.configure(otherwise=logs.SERVICE)
    _limit_memory()
    descriptors = raise_descriptor_limit(_DESCRIPTORS)
    asyncio.run(_serve(Path(state), socket.socket(fileno=int(listener)), orders, descriptors))
    return 0


def _limit_memory() -> None:
    """Limit the address space of this process; a drawing's process sets its own limit."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


async def _serve(state: Path, listener: socket.socket, orders: str, descriptors: int) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    view = View(state, open_to_read(state / "testbed.sqlite"), SYSTEM_CLOCK, open_bucket(state))
    changes = RemoteChanges(Path(orders))
    keys = state / "keys"
    limits = users_limits(descriptors)
    most = min(limits.most, _MOST_CONNECTIONS)
    server = HttpsServer(
        make_app(view, changes),
        keys / "server.key",
        keys / "server.pem",
        limits=replace(limits, most=most, most_of_peer=min(limits.most_of_peer, most)),
    )
    server.start(listener)
    _LOG.info("serves the pages")
    reporting = asyncio.create_task(_report(server, changes))
    await stopping.wait()
    reporting.cancel()
    await server.stop()
    view.database.close()


async def _report(server: HttpsServer, changes: RemoteChanges) -> None:
    """Report the numbers of connections, which also shows that this process works."""
    budget = server.budget
    while True:
        ended = {cause.value: count for cause, count in budget.ended.items()}
        made = Report(open=budget.open, accepted=budget.accepted, ended=ended)
        with contextlib.suppress(SkyhopError):
            await asyncio.to_thread(changes.perform, REPORT, "", made)
        await asyncio.sleep(REPORT_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
