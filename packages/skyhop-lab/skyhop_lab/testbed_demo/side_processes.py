"""Two helper processes of the testbench: a TCP relay, and a packet watcher."""

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

from skyhop_lab.testbed_demo import plan
from skyhop_lab.testbed_demo.network import inside

_PIECE = 1 << 16
_ETH_P_ALL = 0x0003
_ETHERNET_BYTES = 14
_TCP, _UDP = 6, 17
_REPORT_NS = 200_000_000
PACKET_TIMES = struct.Struct("=qqqq")
"""Report of the packet watcher: times of the owner's first and last packet, then of the run's first
and last packet, in ns since 1970; 0 for none.
"""


def fork_process(work: Callable[[], object]) -> int:
    """Fork a process that calls a function and exits; return its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            restore_signals()
            work()
        finally:
            os._exit(1)
    return pid


def restore_signals() -> None:
    """Restore the default action of the signals that children inherit as ignored from the guard."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)


def relay(port: int, networks: Sequence[int]) -> None:
    """Relay TCP connections from the loopbacks of other namespaces to this namespace's loopback.

    Both sides use the same port. Agents so reach the orchestrator without the emulated links.
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
    """Watch a host's interface; write the times of the owner's and the run's packets to `pipe`."""

    def listen() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        raw.bind((plan.LAN, _ETH_P_ALL))
        return raw

    raw = inside(network, listen)
    raw.setblocking(False)
    times_ns, reported_at_ns = [0, 0, 0, 0], 0
    reported = list(times_ns)
    while True:
        ready = select.select([raw], [], [], _REPORT_NS / 1e9)[0]
        now_ns = time.time_ns()
        if ready:
            with suppress(BlockingIOError):
                _note(raw.recv(64), now_ns, times_ns)
        if times_ns != reported and now_ns - reported_at_ns >= _REPORT_NS:
            os.write(pipe, PACKET_TIMES.pack(*times_ns))
            reported, reported_at_ns = list(times_ns), now_ns


def _note(frame: bytes, now_ns: int, times_ns: list[int]) -> None:
    """Record an IPv4 packet's time; its ports tell whether it is the owner's or a run's."""
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
    times_ns[first] = times_ns[first] or now_ns
    times_ns[first + 1] = now_ns
