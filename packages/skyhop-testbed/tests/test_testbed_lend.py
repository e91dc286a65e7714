"""Reach of a job on a lent node, and who reaches it, in a home of network namespaces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from lent_home import DISH, IN_LAN, METADATA, ORCHESTRATOR, PORT, PUBLIC, PUBLIC_6, WAN, Home

from needs import needs_namespaces, needs_program, needs_root
from skyhop_testbed.executor.assignment import STOP_FILE
from waiting import wait_for

pytestmark = pytest.mark.integration

_TRY = """
import json, socket, struct, sys, time
targets = %r
def tcp(host, port, device=None):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as stream:
        stream.settimeout(4 if device is None else 1.5)
        if device:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
        try:
            stream.connect((host, port))
            return stream.recv(5) == b"hello"
        except OSError:
            return False
def udp(host, port, **options):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as own:
        try:
            if "source" in options:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                device = socket.inet_aton(options["source"])
                own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, device)
                own.bind((options["source"], 0))
            own.sendto(b"x" * options.get("size", 8), (host, port))
        except OSError:
            pass
found = {"tcp": {}, "bound": {}}
for host, port in targets:
    found["tcp"][host + " " + str(port)] = tcp(host, port)
    found["bound"][host + " " + str(port)] = tcp(host, port, b"tap0")
    udp(host, port)
source = "10.0.2.100"
for host, port in (("239.255.255.250", 1900), ("255.255.255.255", 8080), ("224.0.0.251", 8080)):
    udp(host, port, source=source)
for _ in range(100):
    udp("198.51.100.7", 8080, size=1000)
    # A burst would overflow buffers of the network, which may lose datagrams.
    time.sleep(0.003)
print(json.dumps(found))
"""
NEAR = [
    DISH, IN_LAN, METADATA, "192.168.1.10", WAN, "127.0.0.1", "10.0.2.2", ORCHESTRATOR, "0.0.0.0",
    "::ffff:192.168.1.5", "::ffff:192.168.100.1", "fd12::5", "fd12::10", "2001:db8:1::5",
    "2001:db8:1::10", "2001:db8:2::2", "::1", "fd00::2", "64:ff9b::c0a8:105",
]  # fmt: skip
"""Addresses that no run reaches by default: the terminal, the LAN, the host, the orchestrator."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    needs_root()
    needs_namespaces()
    needs_program("slirp4netns", "slirp4netns")
    made = Home(tmp_path_factory.mktemp("home"))
    try:
        made.begin()
        yield made
    finally:
        made.end()


def _reached(found: dict[str, Any]) -> set[str]:
    """Return the targets that the program reached by TCP, bound to its device or not."""
    return {each for way in ("tcp", "bound") for each, worked in found[way].items() if worked}


def test_a_run_reaches_the_public_internet_alone(home: Home) -> None:
    before = {name: home.calls(name) for name in ("lan", "host")}
    targets = [(host, PORT) for host in (PUBLIC, PUBLIC_6, "::ffff:198.51.100.7", *NEAR)]
    found = home.run("closed", _TRY % targets, home.fence())
    assert _reached(found) == {f"{PUBLIC} 8080", f"{PUBLIC_6} 8080", f"::ffff:{PUBLIC} 8080"}
    # Nothing arrived, neither by TCP nor as datagram or multicast.
    assert {name: home.calls(name) for name in before} == before
    assert not [call for call in home.calls("internet") if call.startswith("multicast")]
    arrived = sum(call.startswith("udp") for call in home.calls("internet"))
    assert arrived == 100 + 3, "the orchestrator's address got none"
    traffic: Any = found["traffic"]
    assert traffic["tx_bytes"] > 100 * 1042, "datagrams count, with their headers"


def test_an_owner_opens_by_name(home: Home) -> None:
    targets = [(host, PORT) for host in (PUBLIC, DISH, IN_LAN, METADATA, "192.168.1.10", "fd12::5")]
    for number, (reach, opened) in enumerate(
        (
            (["dish"], {DISH}),
            (["lan"], {IN_LAN, "fd12::5"}),
            (["host"], {"192.168.1.10"}),
            ([f"{IN_LAN}:8080"], {IN_LAN}),
            ([f"{IN_LAN}:80", "[fd12::5]:8080"], {"fd12::5"}),
            ([METADATA, "192.168.100.0/24"], {METADATA, DISH}),
        )
    ):
        found = home.run(f"open-{number}", _TRY % targets, home.fence(*reach))
        # A program that binds to its device finds no neighbour at addresses that need a gateway.
        ways: Any = found["tcp"]
        reached = {each.partition(" ")[0] for each, worked in ways.items() if worked}
        assert reached == {PUBLIC, *opened}, reach


def test_a_server_beside_the_orchestrator_is_reached_at_its_port(home: Home) -> None:
    targets = [(ORCHESTRATOR, PORT), (ORCHESTRATOR, 7401)]
    found = home.run("server", _TRY % targets, home.fence(server=(ORCHESTRATOR, PORT)))
    assert _reached(found) == {f"{ORCHESTRATOR} 8080"}


_LISTEN = """
import socket, time
with socket.create_server(("0.0.0.0", 6000)) as listener:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("0.0.0.0", 6000))
    open("listens", "w").close()
    while True:
        stream, _ = listener.accept()
        stream.sendall(b"hello")
        stream.close()
"""


def _answers(home: Home, name: str, address: str) -> bool:
    """Return whether the host's port 6000 answers a caller in a namespace."""
    call = f"import socket; print(socket.create_connection(({address!r}, 6000), 5).recv(5))"
    command = [*home.inside(name), sys.executable, "-c", call]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "hello" in done.stdout


@pytest.mark.parametrize(("listen", "is_open"), [((), False), (("6000-6010",), True)])
def test_others_reach_a_run_at_the_ports_that_the_owner_names(
    home: Home, listen: tuple[str, ...], is_open: bool
) -> None:
    fence = home.fence(listen=listen)
    directory, executor = home.start(f"listens-{is_open}", _LISTEN, fence)
    wait_for((directory / "work" / "listens").exists)
    callers = (("internet", WAN), ("lan", "192.168.1.10"))
    if is_open:
        wait_for(lambda: _answers(home, *callers[0]))
    assert [_answers(home, *caller) for caller in callers] == [is_open, is_open]
    (directory / STOP_FILE).write_text('{"reason": "owner"}')
    executor.terminate()
    executor.wait(60)
    assert not _answers(home, *callers[0])
