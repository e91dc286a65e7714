"""Endless downloads, each over its own TCP connection, that compete with a film."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress

PORT = 8081
CC = "cubic"
_BLOCK = bytes(1 << 18)


class _Sender(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        # The route's congestion control is the film's; a download sets its own.
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CC.encode())
        with suppress(ConnectionError):
            while True:
                self.request.sendall(_BLOCK)


class DownloadServer(socketserver.ThreadingTCPServer):
    """Server at PORT that sends to each client, with CUBIC, until the client disconnects."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("", PORT), _Sender)


class Downloads:
    """Context manager that keeps `count` downloads running while its block runs.

    Attributes:
        ended: set if a download ends before the block does.
    """

    def __init__(self, server: str, count: int) -> None:
        self._server, self._count = server, count
        self.ended = threading.Event()
        self._is_over = False
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Downloads:
        for _ in range(self._count):
            opened = socket.create_connection((self._server, PORT))
            self._sockets.append(opened)
            threading.Thread(target=self._drain, args=(opened,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for opened in self._sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _drain(self, opened: socket.socket) -> None:
        buffer = bytearray(len(_BLOCK))
        with suppress(OSError):
            while opened.recv_into(buffer):
                pass
        if not self._is_over:
            self.ended.set()
