"""Two small processes of the stage's: who passes connections on, and who looks at packets."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from skyhop.testbed.demo import plan
from skyhop.testbed.demo.network import inside

_PIECE = 1 << 16
_ETH_P_ALL = 0x0003
_ETHERNET_BYTES = 14
_TCP, _UDP = 6, 17
_REPORT_NS = 200_000_000
SEEN = struct.Struct("=qqqq")
"""First and last packet of the owner's, first and last of the run's, in ns since 1970; 0: none."""


def fork_beside(work: Callable[[], object]) -> int:
    """Do something in a process of its own, which ends with it; return the process."""
    pid = os.fork()
    if pid == 0:
        try:
            forget_signals()
            work()
        finally:
            os._exit(1)
    return pid


def forget_signals() -> None:
    """Take back what the guard ignores: this process may be told to end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)


def relay(port: int, networks: Sequence[int]) -> None:
    """Pass on what connects to a port of other namespaces' own loopbacks to the same port here.

    That is how agents reach the orchestrator, as over a cable of its own: nothing of it crosses the
    emulated links.
    """

    def listen() -> socket.socket:
        return socket.create_server(("127.0.0.1", port))

    asyncio.run(_relay(port, [inside(network, listen) for network in networks]))


async def _relay(port: int, listeners: Sequence[socket.socket]) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))

    servers = [await asyncio.start_server(accept, sock=listener) for listener in listeners]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


def watch_packets(network: int, pipe: int) -> None:
    """Look at each packet of a host's interface, and say when the owner's and the run's came."""

    def listen() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        raw.bind((plan.LAN, _ETH_P_ALL))
        return raw

    raw = inside(network, listen)
    raw.setblocking(False)
    seen, said_ns = [0, 0, 0, 0], 0
    said = list(seen)
    while True:
        ready = select.select([raw], [], [], _REPORT_NS / 1e9)[0]
        now_ns = time.time_ns()
        if ready:
            with suppress(BlockingIOError):
                _note(raw.recv(64), now_ns, seen)
        if seen != said and now_ns - said_ns >= _REPORT_NS:
            os.write(pipe, SEEN.pack(*seen))
            said, said_ns = list(seen), now_ns


def _note(frame: bytes, now_ns: int, seen: list[int]) -> None:
    """Note a packet by its ports: bytes 12 and 13 of Ethernet's header say what it is."""
    if len(frame) < _ETHERNET_BYTES + 24 or frame[12:14] != b"\x08\x00":
        return
    header_bytes = 4 * (frame[_ETHERNET_BYTES] & 15)
    if frame[_ETHERNET_BYTES + 9] not in (_TCP, _UDP):
        return
    ports = struct.unpack_from("!HH", frame, _ETHERNET_BYTES + header_bytes)
    if plan.OWNERS_PORT in ports:
        first = 0
    elif any(plan.FIRST_PORT <= port <= plan.LAST_PORT for port in ports):
        first = 2
    else:
        return
    seen[first] = seen[first] or now_ns
    seen[first + 1] = now_ns
