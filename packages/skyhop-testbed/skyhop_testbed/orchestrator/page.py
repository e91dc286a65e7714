"""HTTPS server of the web page in the orchestrator's event loop: uvicorn without signal handlers.

The orchestrator handles SIGTERM and SIGINT itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PageServer:
    """Uvicorn server of an ASGI application over TLS."""

    def __init__(self, app: Any, key: Path, certificate: Path) -> None:
        self._server = _Server(
            uvicorn.Config(
                app,
                ssl_keyfile=str(key),
                ssl_certfile=str(certificate),
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                server_header=False,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    def start(self, listener: socket.socket) -> None:
        """Start serving on a bound socket."""
        self._serving = asyncio.create_task(self._server.serve([listener]))

    async def stop(self) -> None:
        """Stop the server; requests in progress have one second to finish."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
