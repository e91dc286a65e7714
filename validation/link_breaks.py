"""Duration of a link's break in LeoEM's emulator: Mininet's `configLinkStatus`, down and up.

The emulator breaks a link in the middle of the path by `ifconfig INTERFACE down` at either end, one
after the other, and the same with `up`, each in the shell of its node. This module does the same
with pairs of virtual interfaces in a network namespace of its own, which `unshare` makes, with the
emulator's rate limit; its netem, switches and controller are left out.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise

from validation import ROOT
from validation.pages import row

BREAKS = 100
"""Number of breaks that each row is measured from."""
PAUSE_S = 0.1
"""Time between two breaks."""
EVERY_S = 0.000_5
"""Time between two frames of the stream over the first link."""
ROWS = {"one link": 1, "two links at once": 2, "four links at once": 4}
"""Number of links that break at once, by the label of the row."""
KIND = 0x88B5
"""EtherType of the frames: one for local experiments (IEEE 802)."""
FRAME = b"\xff" * 6 + b"\x02\0\0\0\0\1" + KIND.to_bytes(2, "big") + bytes(86)
END = b"\x7f"
"""Byte with which a node's shell says that a command has ended, as in Mininet."""


class Shell:
    """Shell of a node, which runs one command after the other."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["bash", "--norc"], stdin=pipe, stdout=pipe)

    def run(self, command: str) -> None:
        """Run a command, and wait until it ends."""
        to, answer = self.process.stdin, self.process.stdout
        assert to is not None
        assert answer is not None
        to.write(command.encode() + b"; printf '\\177'\n")
        to.flush()
        while answer.read(1) != END:
            pass

    def close(self) -> None:
        """End the shell, and wait for its process."""
        self.process.communicate()


@dataclass(frozen=True)
class Link:
    """Two virtual interfaces that are joined, and the shells of their nodes."""

    interfaces: tuple[str, str]
    shells: tuple[Shell, Shell]

    def set(self, status: str) -> None:
        """Take the interfaces down or up, one after the other."""
        for interface, shell in zip(self.interfaces, self.shells, strict=True):
            shell.run(f"ifconfig {interface} {status}")

    def break_once(self) -> float:
        """Take the link down and up; return the time in ms in which it could not carry packets."""
        begin_s = time.monotonic()
        self.set("down")
        self.set("up")
        return 1e3 * (time.monotonic() - begin_s)


def made(number: int, stack: ExitStack) -> Link:
    """Make a link with the emulator's rate limit at both interfaces."""
    ends = (f"s{number}-eth2", f"s{number + 1}-eth1")
    ip("link", "add", "name", ends[0], "type", "veth", "peer", "name", ends[1])
    shells = (Shell(), Shell())
    for end, shell in zip(ends, shells, strict=True):
        stack.callback(shell.close)
        ip("link", "set", end, "up")
        tc("add", "dev", end, "root", "handle", "5:0", "htb", "default", "1")
        rate = ("htb", "rate", "150Mbit", "burst", "15k")
        tc("add", "dev", end, "parent", "5:0", "classid", "5:1", *rate, what="class")
    return Link(ends, shells)


def ip(*words: str) -> None:
    """Run the program ip, which must succeed."""
    subprocess.run(["ip", *words], check=True)


def tc(*words: str, what: str = "qdisc") -> None:
    """Run tc for a queue discipline or a class."""
    subprocess.run(["tc", what, *words], check=True)


def send(to: socket.socket, over: threading.Event) -> None:
    """Send small frames until `over`; those of a link that is down are lost."""
    while not over.wait(EVERY_S):
        with suppress(OSError):
            to.send(FRAME)


def receive(at: socket.socket, over: threading.Event, arrivals: list[float]) -> None:
    """Append the times at which frames arrive, until `over`."""
    while not over.is_set():
        with suppress(OSError):
            at.recv(2048)
            arrivals.append(time.monotonic())


@contextmanager
def frames_over(link: Link) -> Iterator[list[float]]:
    """Send small frames over a link; yield the times of their arrivals, which grow meanwhile."""
    arrivals: list[float] = []
    over = threading.Event()
    sockets = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2)]
    for one, interface in zip(sockets, link.interfaces, strict=True):
        one.bind((interface, KIND))
        one.settimeout(0.05)
    threads = [
        threading.Thread(target=send, args=(sockets[0], over)),
        threading.Thread(target=receive, args=(sockets[1], over, arrivals)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield arrivals
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for one in sockets:
            one.close()


def measured(links: int, breaks: int) -> tuple[list[float], list[float]]:
    """Break links at once; return the times of the breaks and the gaps between arrivals, in ms."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(links))
        made_links = [made(3 * number, stack) for number in range(links)]
        arrivals = stack.enter_context(frames_over(made_links[0]))
        time.sleep(PAUSE_S)
        took_ms: list[float] = []
        gaps_ms: list[float] = []
        for _ in range(breaks):
            before = len(arrivals) - 1
            took_ms += pool.map(Link.break_once, made_links)
            time.sleep(PAUSE_S)
            times = arrivals[max(before, 0) :]
            gaps_ms.append(1e3 * max(b - a for a, b in pairwise(times)))
    return took_ms, gaps_ms


def in_namespace(links: int, breaks: int, *, first: bool) -> tuple[list[float], list[float]]:
    """Call `measured` in a process with a network namespace of its own.

    `first` gives it real-time priority, so that it does not wait for the machine's other processes.
    """
    before = ["chrt", "--fifo", "1"] if first else []
    options = ["--net"] if os.geteuid() == 0 else ["--map-root-user", "--net"]
    module = [sys.executable, "-m", "validation.link_breaks", str(links), str(breaks)]
    command = [*before, "unshare", *options, *module]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    took_ms, gaps_ms = json.loads(ran.stdout)
    return took_ms, gaps_ms


def table() -> str:
    """Return the rows of the page: durations of breaks and gaps between packets, in ms."""
    return "\n".join(
        row(label, *cells(took_ms), *cells(gaps_ms))
        for label, links in ROWS.items()
        for took_ms, gaps_ms in [in_namespace(links, BREAKS, first=True)]
    )


def cells(times_ms: Sequence[float]) -> tuple[str, str]:
    """Return the cells of times: the median, and the 10th and 90th percentiles."""
    tenths = statistics.quantiles(times_ms, n=10)
    return f"{statistics.median(times_ms):.1f}", f"{tenths[0]:.1f} to {tenths[-1]:.1f}"


if __name__ == "__main__":
    print(json.dumps(measured(*map(int, sys.argv[1:]))))
