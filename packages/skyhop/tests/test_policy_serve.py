"""`skyhop policy serve`: a card decides for connections of this machine that choose its name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Skyhop, skyhop_command

import skyhop as sh
from needs import needs_namespaces, needs_program, unless_impossible
from onnx_file import forty_packets
from other_user import as_other_user
from skyhop import _core
from waiting import wait_for

OFFERED = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
NAME = f"forty.{os.getpid()}"
"""Name that is unique among concurrent test runs: the kernel has one list of names."""
SCENARIO = f"""\
[path]
kind = "fixed"
rtt = "50 ms"
[link]
rate = "20 Mbit/s"
queue = "125 kB"
[run]
duration = "10 s"
[[flow]]
cc = "{NAME}"
"""


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """Write the page's card, which moves the window to 40 packets, with its network."""
    return forty_packets(tmp_path)


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start skyhop; end it with the block, also after an exception."""
    command = [*skyhop_command(), *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(comes_true: Callable[[], bool], *waited_for: subprocess.Popen[str]) -> None:
    """Wait until a condition holds; fail if one of these processes ends."""

    def is_so() -> bool:
        if comes_true():
            return True
        for process in waited_for:
            if process.poll() is not None:
                said = process.communicate()[1]
                unless_impossible(
                    subprocess.CompletedProcess(process.args, process.returncode, "", said)
                )
                pytest.fail(said)
        return False

    wait_for(is_so, 60)


def is_offered() -> bool:
    return NAME in OFFERED.read_text("ascii").split()


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_connections_go_on_with_cubic_when_the_server_ends(
    card: Path, number: signal.Signals
) -> None:
    needs_namespaces()
    (card.parent / "scenario.toml").write_text(SCENARIO, "utf-8")
    out = card.with_name("run")
    with started("policy", "serve", card, "--name", NAME, "--json") as server:
        until(is_offered, server)
        (entry,) = (entry for entry in _core.list_cc() if entry.name == NAME)
        assert entry.place == "held by a program"
        with started("live", card.with_name("scenario.toml"), "-o", out) as live:
            # The run begins as soon as it has its directory.
            until(out.is_dir, server, live)
            time.sleep(4)
            server.send_signal(number)
            told, said = server.communicate(timeout=120)
            assert not is_offered()
            _, live_said = live.communicate(timeout=120)
            assert live.returncode == 0, live_said

    flows = sh.read_run(out).flows.to_pandas()
    # The card's window fills half of the link; CUBIC exceeds it.
    served = flows[(flows.t_ns < 7e9) & (flows.cwnd_packets == 40)]
    assert served.t_ns.max() - served.t_ns.min() > 1e9
    after = flows[flows.t_ns > 8e9]
    assert after.cwnd_packets.min() > 45
    assert after.goodput_bps.mean() > 1.1 * served.goodput_bps.mean()
    if number == signal.SIGKILL:
        assert server.returncode == -signal.SIGKILL
        assert told == ""
        return
    assert server.returncode == 0, said
    (row,) = json.loads(told)
    assert row["connections"] == 1
    assert row["decisions"] > 50
    assert 0 < row["latency_p50_us"] <= row["latency_p99_us"]
    assert (row["clamped"], row["not_a_number"]) == (0, 0)


OVER_A_ROUTE = """\
import socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
taken, _ = server.accept()
def drain():
    while taken.recv(1 << 16):
        pass
threading.Thread(target=drain, daemon=True).start()
name = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode()
window, end_s = 0, time.monotonic() + 60
while window != 40 and time.monotonic() < end_s:
    client.send(bytes(1 << 16))
    info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    window = int.from_bytes(info[80:84], "little")
print(name, window)
"""
"""Program that prints congestion control and window (tcpi_snd_cwnd) of a default connection.

It sends until the window is that of the card.
"""


@pytest.mark.integration
def test_a_route_sets_the_default_congestion_control(card: Path) -> None:
    needs_namespaces()
    route = (
        "ip link set lo up && ip route replace local 127.0.0.1 dev lo proto kernel scope host "
        f'src 127.0.0.1 table local congctl {NAME} && exec "$@"'
    )
    inside = [needs_program("unshare"), "--net", "sh", "-c", route, "sh"]
    needs_program("ip")
    with started("policy", "serve", card, "--name", NAME) as server:
        until(is_offered, server)
        told = subprocess.run(
            [*inside, sys.executable, "-c", OVER_A_ROUTE],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        assert told.stdout.split() == [NAME, "40"]


@pytest.mark.integration
def test_without_root_the_command_is_an_error_of_one_line(card: Path) -> None:
    card.parent.chmod(0o755)
    result = subprocess.run(
        [
            *as_other_user(card.parent),
            *skyhop_command(),
            "policy",
            "serve",
            str(card),
            "--name",
            NAME,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1
    assert "needs root" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cubic", "cubic: a congestion control of this name exists"),
        ("skyhop_satcp", "of this name exists"),
        ("forty packets", "is not a valid name for a congestion control"),
        ("a_name_of_16_let", "is not a valid name for a congestion control"),
    ],
)
def test_an_invalid_name_is_an_error_of_one_line(
    card: Path, skyhop: Skyhop, name: str, says: str
) -> None:
    result = skyhop("policy", "serve", card, "--name", name)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_card_without_a_network_is_an_error_of_one_line(
    card: Path, skyhop: Skyhop, tmp_path: Path
) -> None:
    (tmp_path / "decide.py").write_text("def decide(seen):\n    return 0.0\n", "utf-8")
    in_python = tmp_path / "python.toml"
    in_python.write_text(card.read_text("utf-8").replace("forty.onnx", "decide.py"), "utf-8")
    card.with_name("forty.onnx").unlink()
    for file, says in [(in_python, "decides in the simulator alone"), (card, "forty.onnx")]:
        result = skyhop("policy", "serve", file, "--name", NAME)
        assert result.returncode == 2
        assert says in result.stderr
        assert len(result.stderr.splitlines()) == 1
