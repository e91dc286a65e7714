"""Route through namespaces with known delays of hops: `python hops.py COUNT ADDRESS=MS...`.

The program starts as root in a network namespace of its own, and prints COUNT traces of the real
traceroute. Two hops are connected by a pair of TUN devices, between which a process forwards each
packet after a fixed delay. Everything disappears with the process.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path

from skyhop_lab.testbed_demo.network import inside, make_namespace
from skyhop_testbed import linux

HOST = "192.168.1.20"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000
_PR_SET_TIMERSLACK = 29
_EARLY_S = 0.0003
"""Time before a packet is due at which the relay wakes up, to wait actively for the rest."""
_MTU = 2000
_SETTINGS = ("ip_forward=1", "icmp_ratelimit=0", "conf/all/rp_filter=0")


def _device(namespace: int, name: str) -> int:
    """Create a TUN device in a namespace; return its descriptor."""

    def make() -> int:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(
            device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
        )
        return device

    return inside(namespace, make)


def _set_up(namespace: int, lines: list[str]) -> None:
    def call() -> None:
        for setting in _SETTINGS:
            name, _, value = setting.partition("=")
            Path("/proc/sys/net/ipv4", name).write_text(value)
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)

    inside(namespace, call)


def lay_out(route: Sequence[str]) -> tuple[int, list[tuple[int, int]]]:
    """Create the route; return the host's namespace, and the two devices of each hop."""
    addresses = [HOST, *route]
    namespaces = [make_namespace() for _ in addresses]
    links = [(_device(near, "out"), _device(far, "back")) for near, far in pairwise(namespaces)]
    for place, (namespace, address) in enumerate(zip(namespaces, addresses, strict=True)):
        lines = ["link set lo up"]
        if place > 0:
            lines += [f"addr add {address}/32 dev back", "link set back up"]
            lines += [f"route add {HOST}/32 dev back src {address}"]
        if place == 0:
            lines += [f"addr add {address}/32 dev out"]
        if place < len(route):
            lines += ["link set out up", "route add default dev out"]
        _set_up(namespace, lines)
    return namespaces[0], links


def relay(links: list[tuple[int, int]], delays_s: list[float]) -> None:
    """Forward packets, each after the delay of its hop."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ways = {}
    for (near, far), delay_s in zip(links, delays_s, strict=True):
        ways[near], ways[far] = (far, delay_s), (near, delay_s)
    waiting: list[tuple[float, int, int, bytes]] = []
    number = count()
    while True:
        left_s = waiting[0][0] - time.monotonic() - _EARLY_S if waiting else 1.0
        for device in select.select([*ways], [], [], max(0.0, left_s))[0]:
            target, delay_s = ways[device]
            came = time.monotonic()
            packet = os.read(device, _MTU)
            heapq.heappush(waiting, (came + delay_s, next(number), target, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(waiting)
            os.write(target, packet)


def main(traces: int, hops: dict[str, float]) -> None:
    """Print traces along hops with one-way delays in ms."""
    route, tracer = list(hops), os.getpid()
    host, links = lay_out(route)
    passing = os.fork()
    if passing == 0:
        linux.die_with_parent(tracer)
        relay(links, [delay_ms / 1e3 for delay_ms in hops.values()])
    # One probe at a time, so that none queues behind another.
    command = ["traceroute", "-n", "-q", "1", "-N", "1", "-w", "1", route[-1]]
    for _ in range(traces):
        inside(host, lambda: subprocess.run(command, check=True))


if __name__ == "__main__":
    main(int(sys.argv[1]), {n: float(d) for n, d in (word.split("=") for word in sys.argv[2:])})
