"""Bytes of the testbed's own traffic on this machine: sockets, devices, control groups."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from needs import missing
from skyhop_testbed.executor.assignment import Assignment
from skyhop_testbed.executor.cgroup_traffic import (
    FILE,
    CountedGroup,
    GroupCounters,
    missing_for_groups,
)
from skyhop_testbed.executor.tcp_sockets import TcpSocket, TcpTable
from skyhop_testbed.executor.traffic import SocketCounters, Traffic, inodes_of
from skyhop_testbed.words import Side
from waiting import wait_for

ASSIGNMENT = Assignment("01TESTOFBOTHSIDES", "job", "bcn-1", Side.CLIENT, 0)
_US, _DISH, _FAR = (ip_address(each) for each in ("10.0.0.2", "192.168.100.1", "192.0.2.1"))


def tcp(cookie: int, rx: int, inode: int = 1, peer: object = _FAR) -> TcpSocket:
    return TcpSocket(cookie, inode, _US, peer, rx, 0, 0, 0)  # type: ignore[arg-type]


def test_a_socket_counts_until_the_kernel_has_destroyed_it() -> None:
    counted = SocketCounters(on_wire=True)
    counted.update([tcp(1, 10), tcp(2, 5, inode=9)], [], {1})
    assert counted.total == Traffic(10)
    # Its process has closed it, and more bytes come.
    counted.update([tcp(1, 30, inode=0), tcp(2, 50, inode=9)], [], set())
    assert counted.total == Traffic(30)
    # The announcement of its end may come after it has left the list.
    counted.update([], [], set())
    assert counted.total == Traffic(30)
    counted.update([], [tcp(1, 45, inode=0), tcp(3, 7)], set())
    assert counted.total == Traffic(45)
    assert not counted.has_open
    counted.update([], [tcp(1, 45, inode=0)], set())
    assert counted.total == Traffic(45)


def test_a_socket_without_an_announcement_counts_as_it_was_last_seen() -> None:
    counted = SocketCounters()
    counted.update([tcp(1, 10)], [], {1})
    for _ in range(10):
        counted.update([], [], set())
    assert (counted.total, counted.has_open) == (Traffic(10), False)


def test_the_terminal_counts_apart_and_this_machine_not_at_all() -> None:
    counted = SocketCounters(on_wire=True, apart={_DISH})
    local = [tcp(3, 1000, peer=_US), tcp(4, 1000, peer=ip_address("127.0.0.1"))]
    counted.update([tcp(1, 10), tcp(2, 61_000, peer=_DISH), *local], [], {1})
    assert (counted.total, counted.apart) == (Traffic(10), Traffic(61_000))
    counted.update(local, [tcp(2, 62_000, peer=_DISH)], {1})
    assert (counted.total, counted.apart) == (Traffic(10), Traffic(62_000))


@pytest.mark.integration
def test_the_last_bytes_of_a_closed_connection_are_counted() -> None:
    table, counted = TcpTable(), SocketCounters()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        counted.update(table.sockets(), table.destroyed(), {os.fstat(client.fileno()).st_ino})
        # All bytes are sent, and the connection closed, between two readings.
        client.sendall(b"x" * 100_000)
        client.close()
        with accepted:
            while accepted.recv(1 << 16):
                pass

    def all_counted() -> bool:
        counted.update(table.sockets(), table.destroyed(), inodes_of([os.getpid()]) & set())
        return counted.total.tx_bytes == 100_000

    wait_for(all_counted, 60)
    wait_for(lambda: all_counted() and not counted.has_open, 60)
    table.close()


_SENDS = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    for _ in range(100):
        udp.sendto(b"x" * 1000, ("127.0.0.1", 9))
"""


@pytest.mark.integration
def test_udp_of_a_control_group_is_counted(tmp_path: Path) -> None:
    lacks = missing_for_groups()
    if lacks:
        missing("root", f"control groups are counted by BPF programs: {lacks}")
    group = CountedGroup("01TESTOFCONTROLGROUPS")
    try:
        (tmp_path / FILE).write_text(str(group.map_id))
        others = GroupCounters(tmp_path)
        join = Path(group._group / "cgroup.procs")

        def enter() -> None:
            join.write_text(str(os.getpid()))

        subprocess.run([sys.executable, "-c", _SENDS], preexec_fn=enter, check=True)
        subprocess.run([sys.executable, "-c", _SENDS], check=True)
        # A packet has 8 bytes of UDP, 20 of IPv4 and 14 of Ethernet in front.
        assert group.read() == Traffic(0, 100 * 1042)
        assert others.read() == Traffic(), "loopback is not the link"
        others.close()
    finally:
        group.close()
    assert not join.parent.exists()
    assert GroupCounters(tmp_path / "none").read() is None


@pytest.mark.integration
def test_both_sides_of_a_run_on_one_machine_are_counted_apart() -> None:
    """Check two agents on one machine, as in the demo: one control group would count twice."""
    lacks = missing_for_groups()
    if lacks:
        missing("root", f"control groups are counted by BPF programs: {lacks}")
    keys = [replace(ASSIGNMENT, side=side).key for side in Side]
    groups = [CountedGroup(key) for key in keys]
    try:
        join = groups[0]._group / "cgroup.procs"

        def enter() -> None:
            join.write_text(str(os.getpid()))

        subprocess.run([sys.executable, "-c", _SENDS], preexec_fn=enter, check=True)
        assert [group.read() for group in groups] == [Traffic(0, 100 * 1042), Traffic()]
    finally:
        for group in groups:
            group.close()
