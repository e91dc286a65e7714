"""Socket of one run, on which its program reads lines and sends none.

A client that reads slowly delays neither the agent nor other clients: its lines wait in a buffer of
bounded length, the oldest make room for new ones, and the client is told how many it has lost.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from skyhop_testbed.signals import SOCKET

MOST_CLIENTS = 8
"""Upper limit on the connections of one run; further ones are closed at once."""
MOST_WAITING = 120
"""Upper limit on the lines that wait for one client, in addition to the kernel's buffer."""
_MOST_ACCEPTED = 32
"""Upper limit on the connections that one call of `serve` accepts."""
_SEND_BUFFER_BYTES = 32_768


class SignalSocket:
    """Unix socket in a directory of its own, which never blocks.

    Args:
        directory: directory that the run's program sees, read-only.
        greeting: returns the first lines for a new client.
        lost_line: returns the line that tells a client how many lines it has lost.

    Raises:
        OSError: the directory or the socket cannot be made.
    """

    def __init__(
        self,
        directory: Path,
        greeting: Callable[[], Sequence[bytes]],
        lost_line: Callable[[int], bytes],
    ) -> None:
        self._directory, self._greeting, self._lost_line = directory, greeting, lost_line
        self._clients: list[_Client] = []
        directory.mkdir(mode=0o755, exist_ok=True)
        # The path of a descriptor is short: that of the directory may be too long for a socket.
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=place)
            self._listener.bind(f"/proc/self/fd/{place}/{SOCKET}")
            # The program may have a user id of its own; other users of the machine cannot enter the
            # run's directory.
            os.chmod(SOCKET, 0o666, dir_fd=place)
            self._listener.listen(MOST_CLIENTS)
            self._listener.setblocking(False)
        except BaseException:
            self._listener.close()
            raise
        finally:
            os.close(place)

    @property
    def lost(self) -> int:
        """Number of lines that the present clients have lost."""
        return sum(client.lost_in_all for client in self._clients)

    def serve(self, lines: Sequence[bytes] = ()) -> None:
        """Accept waiting clients, add lines for all clients, and send what they take."""
        self._accept()
        for client in [*self._clients]:
            client.add(lines)
            self._send(client)

    def close(self) -> None:
        """Disconnect all clients, and remove the socket."""
        for client in self._clients:
            client.connection.close()
        self._listener.close()
        with suppress(OSError):
            (self._directory / SOCKET).unlink()

    def _accept(self) -> None:
        for _ in range(_MOST_ACCEPTED):
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            if len(self._clients) >= MOST_CLIENTS:
                # Clients that have closed their end make room.
                for client in [*self._clients]:
                    self._send(client)
            if len(self._clients) >= MOST_CLIENTS:
                connection.close()
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            # What a client sends fails at its end, and takes no memory here.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
            client = _Client(connection, self._lost_line)
            client.add(self._greeting())
            self._clients.append(client)

    def _send(self, client: _Client) -> None:
        if not client.send():
            client.connection.close()
            self._clients.remove(client)


class _Client:
    """Connected client, and the lines that it has not taken yet."""

    def __init__(self, connection: socket.socket, lost_line: Callable[[int], bytes]) -> None:
        self.connection, self._lost_line = connection, lost_line
        self._waiting: deque[bytes] = deque()
        self._begun = b""
        """Rest of a line whose beginning is sent."""
        self._lost = 0
        """Number of lost lines of which the client has not been told."""
        self.lost_in_all = 0

    def add(self, lines: Sequence[bytes]) -> None:
        """Add lines; the oldest waiting ones make room for them."""
        self._waiting.extend(lines)
        too_many = max(0, len(self._waiting) - MOST_WAITING)
        for _ in range(too_many):
            self._waiting.popleft()
        self._lost += too_many
        self.lost_in_all += too_many

    def send(self) -> bool:
        """Send as much as the client takes now; return whether it is still connected."""
        while self._begun or self._take_next():
            try:
                sent = self.connection.send(self._begun, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return True
            except OSError:
                return False
            self._begun = self._begun[sent:]
        return True

    def _take_next(self) -> bool:
        if self._lost:
            self._begun, self._lost = self._lost_line(self._lost), 0
        elif self._waiting:
            self._begun = self._waiting.popleft()
        return bool(self._begun)
