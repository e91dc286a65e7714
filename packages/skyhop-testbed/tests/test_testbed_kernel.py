"""Kernel service of the testbed: changes apply to one run alone, and all of them are undone.

Tests of the service's decisions run in this process, with a fake kernel that records calls. The
others run in network namespaces of their own, apart from the host's. Congestion controls are loaded
into the real kernel, and are gone at the end.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Skyhop
from test_testbed_executor import assignment, start
from testbed_kernel import ALL, KernelHere, kernel_here

from damaged import Trial
from needs import kills, missing, needs_namespaces, needs_program, needs_root
from other_user import USER, as_other_user
from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed.executor.assignment import RESULT_FILE
from skyhop_testbed.executor.journal import is_alive, read_journal
from skyhop_testbed.fence import Fence
from skyhop_testbed.kernel import leoscope, queues, service
from skyhop_testbed.kernel.access import KernelAccess
from skyhop_testbed.kernel.client import KernelClient
from skyhop_testbed.kernel.network import Namespace
from skyhop_testbed.kernel.requests import FORMS, read_request
from skyhop_testbed.kernel.service import KernelService, bind_socket
from skyhop_testbed.kernel.uplinks import Kind, Uplink
from skyhop_testbed.words import Network
from waiting import wait_for

DEFAULT = "net.ipv4.tcp_congestion_control"
SERVE = "import typer; from skyhop_testbed.cli.testbed_kernel import kernel; typer.run(kernel)"


def live(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of the real service: one at a time, as the kernel has a single list."""
    marked: Callable[..., None] = pytest.mark.integration(pytest.mark.xdist_group("kernel")(test))
    return marked


def soak(case: object) -> Any:
    """Mark a case of a test for the soak tier."""
    return pytest.param(case, marks=pytest.mark.soak)


class Place:
    """Network namespace with the service in it, which can be started and killed at will."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "kernel.sock")
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        own = _namespace_of("self")
        wait_for(lambda: _namespace_of(str(self.holder.pid)) not in (own, 0))
        self.run("ip", "link", "set", "lo", "up")
        self.service: subprocess.Popen[str] | None = None
        self.others: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> str:
        """Run a program in the service's namespace; return its output."""
        return inside(self.holder.pid, *command)

    def serve(self, *options: str) -> None:
        """Start the service in the namespace, and wait for it."""
        command = [sys.executable, "-c", SERVE, "--socket", self.socket]
        self.service = subprocess.Popen(
            ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *command,
             "--state", str(self.directory / "state"), *options],
            stderr=(self.directory / "log").open("a"), text=True,
        )  # fmt: skip
        wait_for(lambda: self._answers() or self.service.poll() is not None)  # type: ignore[union-attr]

    def _answers(self) -> bool:
        """Return whether the service answers; the socket of a killed one may accept connections."""
        try:
            KernelClient(self.socket).request("counters", run="none", token="t" * 32)
        except InputError:
            return True
        except SkyhopError:
            return False
        return False

    def kill(self) -> None:
        """Kill the service with SIGKILL, and wait for its end."""
        assert self.service is not None
        self.service.kill()
        self.service.wait()

    def namespace(self) -> tuple[int, int]:
        """Make a run's namespace; return a process in it, and its descriptor."""
        process = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        self.others.append(process)
        own = _namespace_of("self")
        wait_for(lambda: _namespace_of(str(process.pid)) not in (own, 0))
        return process.pid, os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY)

    def attached(self, run: str = "r1", **more: Any) -> tuple[KernelClient, int]:
        """Open and attach a run; return its client and a process in its namespace."""
        token = secrets.token_hex(32)
        agent = KernelClient(self.socket)
        agent.open(run, token, more.pop("grants", ALL))
        agent.close()
        pid, descriptor = self.namespace()
        client = KernelClient(self.socket)
        client.attach(run, token, descriptor, **more)
        os.close(descriptor)
        return client, pid

    def left(self) -> list[str]:
        """Return the remains of runs: devices, modules, lines of the journal."""
        devices = self.run("ip", "-o", "link").splitlines()
        found = [line.split()[1] for line in devices if "shk" in line.split()[1]]
        found += private()
        journal = self.directory / "state" / "changes.jsonl"
        return found + (journal.read_text().splitlines() if journal.exists() else [])

    def close(self) -> None:
        """End all processes; start the service once more, so that it undoes all remains."""
        if self.service is not None:
            self.kill()
            self.serve()
            self.service.terminate()
            self.service.wait(timeout=60)
        for process in (*self.others, self.holder):
            process.kill()
            process.wait()


def _namespace_of(process: str) -> int:
    with suppress(OSError):
        return Path(f"/proc/{process}/ns/net").stat().st_ino
    return 0


def sysctl_file(name: str) -> str:
    """Return the file of a sysctl; a bare system has no program `sysctl`."""
    return f"/proc/sys/{name.replace('.', '/')}"


def inside(pid: int, *command: str) -> str:
    done = subprocess.run(
        ["nsenter", f"--net=/proc/{pid}/ns/net", *command],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout + done.stderr


def available() -> list[str]:
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def private() -> list[str]:
    """Return the congestion controls that are loaded for single runs."""
    return [name for name in available() if re.fullmatch(r"[a-z0-9_]{1,8}_r[0-9a-f]{5}", name)]


@contextmanager
def placed(directory: Path) -> Iterator[Place]:
    """Return a namespace for the service; check that nothing is left at the end."""
    needs_root()
    needs_namespaces()
    for program in ("ip", "tc", "nsenter", "unshare", "setpriv"):
        needs_program(program)
    if Uplink(Kind.NONE).unavailable_reason():
        missing("namespaces", "the kernel has no veth devices")
    made = Place(directory)
    try:
        yield made
    finally:
        made.close()
    # The kernel lists an unloaded congestion control for a moment longer.
    wait_for(lambda: made.left() == [], why=made.left)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with placed(tmp_path) as made:
        yield made


def load(client: KernelClient, name: str = "skyhop:bbr2", **parameters: Any) -> str:
    """Load a module of skyhop for a run, or skip the test if that is impossible here."""
    try:
        return str(client.request_for_run("cc.load", name=name, parameters=parameters)["name"])
    except InputError as error:
        for words, need in (("clang", "clang"), ("BPF", "kernel"), ("type information", "kernel")):
            if words in str(error):
                missing(need, str(error))
        raise


@pytest.mark.soak
@pytest.mark.alone
def test_a_runs_congestion_control_is_its_own(place: Place) -> None:
    """Check that a real connection of the run uses it; the host's and other runs' defaults stay."""
    host = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
    place.serve()
    client, pid = place.attached()
    other, other_pid = place.attached("r2")
    name = load(client, loss_thresh=0.08)
    assert name in available()
    with _connection(place.holder.pid, pid, "10.213.0.0") as said:
        assert said == name
    with _connection(place.holder.pid, other_pid, "10.213.0.2") as said:
        assert said == host.strip()
    assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == host
    assert place.run("cat", sysctl_file(DEFAULT)).strip() == host.strip()
    with pytest.raises(InputError, match="this kernel has"):
        other.request_for_run("cc.set", name=name)
    # A congestion control that the host does not allow as a default goes on the run's routes.
    for kernels in ("reno", "cubic"):
        if kernels in available():
            client.request_for_run("cc.set", name=kernels)
            with _connection(place.holder.pid, pid, "10.213.0.0") as said:
                assert said == kernels
    client.request_for_run("cc.set", name=name)
    with _connection(place.holder.pid, pid, "10.213.0.0") as said:
        assert said == name
    client.close()
    wait_for(lambda: name not in available())
    other.close()


class _connection:  # noqa: N801
    """Open a TCP connection between two namespaces; return the client's congestion control."""

    _CLIENT = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
        "print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b'\\0')[0]"
        ".decode()); s.sendall(b'x' * 100_000)"
    )
    _SERVER = (
        "import socket, sys; l = socket.create_server(('', int(sys.argv[1]))); "
        "print('up', flush=True); c, _ = l.accept()\nwhile c.recv(65536): pass"
    )

    def __init__(self, server: int, client: int, address: str) -> None:
        self._at, self._pid, self._address = server, client, address

    def __enter__(self) -> str:
        port = str(random.randrange(20_000, 30_000))
        net = f"--net=/proc/{self._at}/ns/net"
        self._server = subprocess.Popen(
            ["nsenter", net, sys.executable, "-c", self._SERVER, port], stdout=subprocess.PIPE
        )
        assert self._server.stdout is not None
        self._server.stdout.readline()
        said = inside(self._pid, sys.executable, "-c", self._CLIENT, self._address, port)
        return said.strip()

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.communicate()


@live
def test_queue_rate_and_sysctls_are_the_runs(place: Place) -> None:
    place.serve()
    client, pid = place.attached()
    offered = client.request_for_run("qdisc.list")["kinds"]
    assert "pfifo" in offered
    client.request_for_run("qdisc.set", kind="pfifo", parameters={"limit": 50})
    client.request_for_run("link.shape", rate_bps=8_000_000)
    shown = inside(pid, "tc", "qdisc", "show", "dev", "run0")
    assert "tbf 1: root" in shown
    assert "rate 8Mbit" in shown
    assert "pfifo 2: parent 1:1 limit 50p" in shown
    host = Path("/proc/sys/net/ipv4/tcp_rmem").read_text()
    client.request_for_run("sysctl.set", name="net.ipv4.tcp_rmem", value="4096 65536 1048576")
    assert inside(pid, "cat", sysctl_file("net.ipv4.tcp_rmem")).split() == [
        "4096",
        "65536",
        "1048576",
    ]
    assert Path("/proc/sys/net/ipv4/tcp_rmem").read_text() == host
    for kind in sorted(set(queues.KINDS) - set(offered))[:1]:
        with pytest.raises(InputError, match="this kernel has"):
            client.request_for_run("qdisc.set", kind=kind, parameters={})
        # The previous queueing discipline is still there.
        assert "tbf 1: root" in inside(pid, "tc", "qdisc", "show", "dev", "run0")
    before = client.counters()
    with _connection(place.holder.pid, pid, "10.213.0.0"):
        pass
    wait_for(lambda: client.counters()[1] > before[1] + 100_000)
    assert client.cut()
    assert "state DOWN" in inside(pid, "ip", "link", "show", "run0")
    client.close()
    wait_for(lambda: place.left() == [])
    assert "run0" not in inside(pid, "ip", "link")


@live
def test_the_hosts_namespace_and_other_things_are_no_runs(place: Place) -> None:
    place.serve()
    for number, path in enumerate((f"/proc/{place.holder.pid}/ns/net", "/proc/self/ns/mnt",
                                   "/etc/passwd")):  # fmt: skip
        token = secrets.token_hex(32)
        client = KernelClient(place.socket)
        client.open(f"r{number}", token, ALL)
        descriptor = os.open(path, os.O_RDONLY)
        with pytest.raises(InputError, match=r"no network namespace|the host's network"):
            client.attach(f"r{number}", token, descriptor)
        os.close(descriptor)
        client.close_run(f"r{number}", token)
        client.close()


@pytest.mark.soak
@pytest.mark.alone
def test_another_user_may_not_ask_over_the_socket(place: Place) -> None:
    place.serve("--allow-uid", "65533")
    ask = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "print(s.recv(1000).decode())"
    )
    place.directory.chmod(0o755)
    done = subprocess.run(
        [*as_other_user(place.directory), sys.executable, "-c", ask, place.socket],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert f"uid {USER} may not send requests" in done.stdout, done.stderr


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.parametrize("moment", ["attached", "loading", "loaded"])
def test_a_killed_service_undoes_everything_when_it_returns(place: Place, moment: str) -> None:
    for _ in range(max(1, kills() // 10)):
        place.serve()
        client, pid = place.attached()
        client.request_for_run("link.shape", rate_bps=8_000_000)
        if moment == "loaded":
            load(client)
        if moment == "loading":
            loader = subprocess.Popen([sys.executable, "-c", _LOAD, place.socket, client._token])
            time.sleep(random.uniform(0.5, 3.0))
        place.kill()
        assert place.left() != []
        with pytest.raises(RunError):
            client.counters()
        place.serve()
        assert place.left() == []
        assert "run0" not in inside(pid, "ip", "link")
        if moment == "loading":
            loader.wait(timeout=60)
            assert place.left() == [], "what was being loaded did not end with the service"
        client.close()
        place.kill()


_LOAD = """
import sys
from skyhop_testbed.kernel.client import KernelClient
try:
    KernelClient(sys.argv[1]).request("cc.load", run="r1", token=sys.argv[2], name="bbr2")
except Exception: pass
"""


@live
def test_leoscopes_lines_are_served_in_the_runs_namespace(place: Place) -> None:
    place.serve()
    client, pid = place.attached(leoscope=True)
    script = "exec 3<>/dev/tcp/127.0.0.1/9000; echo '{}' >&3; cat <&3"

    def say(line: str) -> str:
        return inside(pid, "bash", "-c", script.format(line)).strip()

    assert say("cca.check") == inside(pid, "cat", sysctl_file(DEFAULT)).strip()
    assert say("cca.change reno") == "reno"
    assert say("cca.check") == "reno"
    secret = place.directory / "target"
    secret.write_text("1")
    for line in (f"bbr2.param.set {secret} 5", "id", "cca.change $(id)", "cca.change ../x"):
        assert say(line).startswith("error: "), line
    assert secret.read_text() == "1"
    client.close()


def test_known_parameters_of_linuxs_bbr2_are_ours_in_our_units() -> None:
    where = "/sys/module/tcp_bbr2/parameters/"
    assert leoscope.parameter_of(f"{where}loss_thresh", "20") == ("loss_thresh", "0.078125")
    assert leoscope.parameter_of(f"{where}min_rtt_win_sec", "5") == ("min_rtt_window", "5000")
    for path in (f"{where}../../x", "/etc/passwd", f"{where}loss_thresh/", f"{where}nosuch"):
        with pytest.raises(InputError):
            leoscope.parameter_of(path, "1")
    with pytest.raises(InputError):
        leoscope.parameter_of(f"{where}loss_thresh", "1; id")


@live
def test_a_run_gets_its_kernel_and_gives_it_back(place: Place) -> None:
    """Run executor and service together; the program's own connection uses the module."""
    place.serve()
    token = secrets.token_hex(32)
    agent = KernelClient(place.socket)
    agent.open("01TEST", token, ALL)
    access = KernelAccess(place.socket, token, cc="skyhop:cubic", parameters={"beta": 0.8})
    directory = place.directory / "run"
    directory.mkdir()
    port = random.randrange(20_000, 30_000)
    net = f"--net=/proc/{place.holder.pid}/ns/net"
    server = subprocess.Popen(
        ["nsenter", net, sys.executable, "-c", _connection._SERVER, str(port)],
        stdout=subprocess.PIPE,
    )
    place.others.append(server)
    assert server.stdout is not None
    server.stdout.readline()
    script = (
        'echo "{cc} $(cat /proc/sys/net/ipv4/tcp_congestion_control)"; '
        f"bash -c 'exec 3<>/dev/tcp/10.213.0.0/{port} && head -c 50000 /dev/zero >&3'"
    )
    # The fence closes private addresses, here the host's end of the device.
    fence = Fence(["allow 10.213.0.0/20"])
    given = replace(assignment(script), network=Network.VETH, kernel=access, fence=fence)
    given.write(directory)
    executor = start(directory)
    executor.communicate(timeout=60)
    result = json.loads((directory / RESULT_FILE).read_text())
    if result["reason"] == "kernel" and "clang" in result["message"]:
        missing("clang", result["message"])
    assert result["state"] == "complete", json.dumps(result)
    said, default = (directory / "stdout").read_text().split()
    assert said == default
    assert said.startswith("cubic_r")
    assert 50_000 < result["traffic"]["tx_bytes"] < 70_000
    wait_for(lambda: place.left() == [])
    agent.close()


@live
def test_a_run_that_is_stopped_sends_nothing_from_then_on(place: Place) -> None:
    place.serve()
    token = secrets.token_hex(32)
    agent = KernelClient(place.socket)
    agent.open("01TEST", token, [])
    directory = place.directory / "run"
    directory.mkdir()
    told = "ip -br link show run0 > told; exit 0"
    script = f"trap '{told}' TERM; ip -br link show run0 > began; sleep 60 & wait"
    access = KernelAccess(place.socket, token)
    given = replace(assignment(script), network=Network.VETH, kernel=access)
    given.write(directory)
    executor = start(directory)
    work = directory / "work"
    wait_for(lambda: (work / "began").exists() and bool((work / "began").read_text()))
    executor.terminate()
    executor.communicate(timeout=60)
    assert (work / "began").read_text().split()[1] == "UP"
    assert (work / "told").read_text().split()[1] == "DOWN"
    assert json.loads((directory / RESULT_FILE).read_text())["state"] == "aborted"
    agent.close()


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.parametrize("who", ["executor", "service"])
def test_whoever_is_killed_the_run_ends_and_all_is_undone(place: Place, who: str) -> None:
    place.serve()
    token = secrets.token_hex(32)
    agent = KernelClient(place.socket)
    agent.open("01TEST", token, ALL)
    directory = place.directory / "run"
    directory.mkdir()
    access = KernelAccess(place.socket, token, qdisc="pfifo", qdisc_parameters={"limit": 10})
    given = replace(assignment("touch began; sleep 60"), network=Network.VETH, kernel=access)
    given.write(directory)
    executor = start(directory)
    wait_for((directory / "work" / "began").exists)
    if who == "executor":
        executor.kill()
        executor.communicate()
        wait_for(lambda: place.left() == [], 3.0)
    else:
        place.kill()
        executor.communicate(timeout=60)
        result = json.loads((directory / RESULT_FILE).read_text())
        assert (result["state"], result["reason"]) == ("failed", "kernel")
        place.serve()
    assert place.left() == []
    assert not is_alive(directory)
    assert read_journal(directory)
    agent.close()


@live
@pytest.mark.parametrize("kind", [Kind.NAT, *map(soak, (Kind.ROUTED, Kind.MACVLAN, Kind.IPVLAN))])
def test_a_run_reaches_what_lies_behind_the_uplink(place: Place, kind: Kind) -> None:
    """Set up a LAN behind the service's namespace, with another host, 192.0.2.2."""
    lan, descriptor = place.namespace()
    os.close(descriptor)
    place.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "lan0", "netns", str(lan))
    for command in ("address add 192.0.2.1/24 dev up0", "link set up0 up"):
        place.run("ip", *command.split())
    for command in ("address add 192.0.2.2/24 dev lan0", "link set lan0 up", "link set lo up"):
        inside(lan, "ip", *command.split())
    addresses = "10.213.0.0/28" if kind is Kind.NAT else "192.0.2.64/28"
    options = ["--uplink", kind.value, "--interface", "up0", "--addresses", addresses]
    if kind in (Kind.MACVLAN, Kind.IPVLAN):
        options += ["--gateway", "192.0.2.1"]
    place.serve(*options)
    assert place.service is not None
    if place.service.poll() is not None:
        lacking = (place.directory / "log").read_text()
        assert f"uplink {kind.value}: " in lacking
        place.service = None
        return
    client, pid = place.attached()
    with _connection(lan, pid, "192.0.2.2") as said:
        assert said in available(), said
    forwarding = "net.ipv4.conf.up0.forwarding"
    if kind in (Kind.NAT, Kind.ROUTED):
        assert place.run("cat", sysctl_file(forwarding)).strip() == "1"
    client.close()
    place.kill()
    place.serve()
    assert place.run("cat", sysctl_file(forwarding)).strip() == "0"
    assert "192.0.2" not in place.run("ip", "neighbour", "show", "proxy")
    if shutil.which("nft"):
        assert place.run("nft", "list", "tables").strip() == ""


# Decisions of the service, in this process.


@pytest.fixture
def served_here(tmp_path: Path) -> Iterator[tuple[KernelHere, KernelService]]:
    with kernel_here(tmp_path) as made:
        yield made


@pytest.fixture
def here(served_here: tuple[KernelHere, KernelService]) -> KernelHere:
    return served_here[0]


REFUSED = [
    ({"request": "exec", "command": "id"}, "unknown request"),
    ({"request": "cc.set", "name": "/bin/sh"}, "a congestion control's name"),
    ({"request": "cc.load", "name": "./evil.c"}, "a congestion control's name"),
    ({"request": "cc.load", "name": "nosuch"}, "skyhop has"),
    ({"request": "cc.load", "name": "bbr2", "parameters": {"--set": "x"}}, "names of param"),
    ({"request": "cc.load", "name": "bbr2", "parameters": {"beta": "--x"}}, "a number or a word"),
    ({"request": "cc.load", "name": "bbr2", "path": "/etc/passwd"}, "unknown field 'path'"),
    ({"request": "sysctl.set", "name": "kernel.core_pattern", "value": "1"}, "expected tcp_NAME"),
    ({"request": "sysctl.set", "name": "tcp_../../x", "value": "1"}, "expected tcp_NAME"),
    ({"request": "sysctl.set", "name": "tcp_fastopen", "value": "1"}, "not permitted"),
    ({"request": "sysctl.set", "name": "tcp_ecn", "value": "9"}, "expected 0 to 2"),
    ({"request": "sysctl.set", "name": "tcp_rmem", "value": "1 2"}, "3 ascending"),
    ({"request": "qdisc.set", "kind": "pfifo", "parameters": {"limit": 0}}, "limit: expected"),
    ({"request": "qdisc.set", "kind": "pfifo", "parameters": {"dev": "eth0"}}, "has no dev"),
    ({"request": "qdisc.set", "kind": "mirred"}, "unknown"),
    ({"request": "link.shape", "rate_bps": -1}, "a whole number"),
    ({"request": "link.shape", "rate_bps": True}, "a whole number"),
    ({"request": "run.attach"}, "namespace already"),
    ({"request": "run.open", "grants": ALL}, "open already"),
]


def test_what_is_not_in_the_list_is_refused_and_logged(here: KernelHere) -> None:
    client = here.attached()
    for asked, expected in REFUSED:
        values = dict(asked)
        with pytest.raises(InputError, match=expected):
            client.request_for_run(str(values.pop("request")), **values)
    client.close()
    refused = here.said("refused")
    assert len(refused) == len(REFUSED)
    assert "'exec': unknown request" in refused[0]


def test_a_token_opens_its_own_run_only(here: KernelHere) -> None:
    first = here.attached("r1", ["qdisc"])
    second = here.attached("r2")
    for run, token in (("r1", second._token), ("r2", first._token), ("r3", first._token)):
        with pytest.raises(InputError, match="unknown run, or wrong token"):
            second.request("link.shape", run=run, token=token, rate_bps=1_000_000)
    with pytest.raises(InputError, match="has no grant link"):
        first.request_for_run("link.shape", rate_bps=1_000_000)
    with pytest.raises(InputError, match="has no grant cc"):
        first.request_for_run("cc.set", name="reno")
    first.close()
    second.close()


def test_an_agent_that_forgot_a_token_opens_the_run_anew(here: KernelHere) -> None:
    """Open a run again if its agent was killed before the executor came, but not afterwards."""
    forgotten, token = secrets.token_hex(32), secrets.token_hex(32)
    agent, client = KernelClient(here.socket), KernelClient(here.socket)
    agent.open("r1", forgotten, ALL)
    agent.open("r1", token, ["qdisc"])
    with pytest.raises(InputError, match="unknown run, or wrong token"):
        here.attach(client, "r1", forgotten)
    here.attach(client, "r1", token)
    with pytest.raises(InputError, match="has no grant cc"):
        client.request_for_run("cc.set", name="reno")
    with pytest.raises(InputError, match="open already"):
        agent.open("r1", forgotten, ALL)
    agent.close()
    client.close()


def test_rude_clients_are_answered_or_left_and_others_served(here: KernelHere) -> None:
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(here.socket)
    deep, long = b"[" * 15_000 + b"\n", b"x" * 40_000
    for rude in (b"\0\n", b"[]\n", b"{\n", b'{"request": 3}\n', long, deep):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(here.socket)
            with suppress(BrokenPipeError):
                client.sendall(rude)
            answer = json.loads(client.makefile().readline())
            assert answer["ok"] is False
    clients = [here.attached(f"r{number}") for number in range(4)]
    assert len({client.request_for_run("cc.list")["default"] for client in clients}) == 1
    silent.close()
    for client in clients:
        client.close()


def test_other_users_may_not_ask(here: KernelHere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_uid", lambda _connection: 65534)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(here.socket)
        answer = json.loads(client.makefile().readline())
    assert answer == {"ok": False, "error": "uid 65534 may not send requests: see --allow-uid"}
    assert here.said("refused: uid 65534")


def test_a_run_has_its_queue_its_rate_and_its_sysctls_until_its_executor_goes(
    here: KernelHere,
) -> None:
    client = here.attached()
    (namespace,) = here.namespaces
    client.request_for_run("qdisc.set", kind="pfifo", parameters={"limit": 50})
    client.request_for_run("link.shape", rate_bps=8_000_000)
    client.request_for_run("sysctl.set", name="net.ipv4.tcp_rmem", value="4096 65536 1048576")
    client.request_for_run("cc.set", name="reno")
    assert here.programs[-2:] == [
        "tc qdisc add dev run0 root handle 1: tbf rate 8000000bit burst 65536 latency 50ms",
        "tc qdisc add dev run0 parent 1:1 handle 2: pfifo limit 50",
    ]
    assert namespace.sysctls["tcp_rmem"] == "4096 65536 1048576"
    assert namespace.sysctls["tcp_congestion_control"] == "reno"
    assert client.counters() == (1, 2)
    assert client.cut()
    assert namespace.called == ["ip link set run0 down"]
    assert here.undone == []
    client.close()
    here.await_line("closed: its executor ended")
    assert [change["kind"] for change in here.undone] == ["inside"] * 4 + ["device"]


def test_a_run_that_no_executor_comes_for_is_closed(
    served_here: tuple[KernelHere, KernelService],
) -> None:
    here, served = served_here
    token = secrets.token_hex(32)
    agent, client = KernelClient(here.socket), KernelClient(here.socket)
    agent.open("r1", token, ALL)
    attached = here.attached("r2")
    here.clock.sleep(120)
    served._close_forgotten()
    assert not here.said("closed")
    here.clock.sleep(1)
    served._close_forgotten()
    assert here.said("closed") == ["r1: closed: no executor came"]
    with pytest.raises(InputError, match="unknown run, or wrong token"):
        here.attach(client, "r1", token)
    assert attached.request_for_run("cc.list")["default"] == "cubic"
    for each in (agent, client, attached):
        each.close()


def test_two_services_of_one_state_cannot_be(here: KernelHere) -> None:
    begin_s = here.clock.monotonic_s()
    with pytest.raises(RunError, match="another kernel service uses this directory"):
        here.make()
    assert here.clock.monotonic_s() - begin_s == pytest.approx(5.0, abs=0.1)


def test_what_a_killed_service_left_is_undone_by_the_next(here: KernelHere) -> None:
    client = here.attached()
    client.request_for_run("link.shape", rate_bps=8_000_000)
    # Journal of a service that is killed now, with a partial line.
    (here.directory / "killed").mkdir()
    left = (here.directory / "state" / "changes.jsonl").read_bytes()
    (here.directory / "killed" / "changes.jsonl").write_bytes(left + b'{"number": 2, "ru')
    here.make("killed")
    assert [change["kind"] for change in here.undone] == ["inside", "device"]
    assert len(here.said("at the start: undone")) == 2
    assert (here.directory / "killed" / "changes.jsonl").read_bytes() == b""
    client.close()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/proc/self/ns/net", "a run may not change the host's network"),
        ("/proc/self/ns/mnt", "is no network namespace"),
        ("/etc/passwd", "is no network namespace"),
    ],
)
def test_other_things_than_runs_namespaces_are_refused(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Namespace(os.open(path, os.O_RDONLY))


def test_without_root_one_line_says_so(skyhop: Skyhop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    done = skyhop("testbed", "kernel")
    assert done.returncode == 1
    assert "needs root" in done.stderr
    assert done.stderr.count("\n") == 1


def test_only_a_socket_that_nobody_holds_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "kernel.sock"
    path.write_text("another user's file")
    with pytest.raises(InputError, match="exists and is no socket"):
        bind_socket(path)
    assert path.read_text() == "another user's file"
    path.unlink()
    # A socket of another type than the service's.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(str(path))
        with pytest.raises(InputError, match="another program listens there"):
            bind_socket(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.connect(str(path))
    # A killed service's socket is replaced; its mode admits all users from the beginning.
    with bind_socket(path):
        assert path.stat().st_mode & 0o777 == 0o666


def test_damaged_requests_are_refused() -> None:
    common = {"run": "r1", "token": "t" * 32}
    extra: dict[str, dict[str, Any]] = {
        "run.open": {"grants": ALL},
        "run.attach": {"leoscope": True},
        "cc.set": {"name": "skyhop:bbr2"},
        "cc.load": {"name": "bbr2", "parameters": {"loss_thresh": 0.08, "probe_rounds": 3}},
        "qdisc.set": {"kind": "fq_codel", "parameters": {"limit": 100, "target_ms": 5.0}},
        "sysctl.set": {"name": "tcp_rmem", "value": "4096 65536 1048576"},
        "link.shape": {"rate_bps": 8_000_000, "burst_bytes": 10_000, "latency_ms": 20},
    }
    samples = [
        json.dumps({"request": name, **common, **extra.get(name, {})}).encode() for name in FORMS
    ]

    def read(line: bytes) -> None:
        request = read_request(line)
        if request.name == "qdisc.set":
            words = queues.arguments(request.values["kind"], request.values.get("parameters", {}))
            assert all(not word.startswith("-") for word in words)

    Trial("kernel request", samples).run(read)


def test_every_request_needs_run_and_token() -> None:
    for name in FORMS:
        with pytest.raises(InputError, match="is missing"):
            read_request(json.dumps({"request": name}).encode())
