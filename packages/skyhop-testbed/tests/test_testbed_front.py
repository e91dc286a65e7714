"""The page's process and floods of connections: agents and users are answered meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import skyhop_command
from testbed_harness import Served, event, served

from skyhop_testbed import api
from skyhop_testbed.client import Testbed
from skyhop_testbed.wire import Lines
from waiting import wait_for

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a testbed in processes of its own."""
    with served(tmp_path_factory.mktemp("front") / "state") as made:
        with made.testbed() as admin:
            admin.put_config({"requests_per_minute": 100_000, "refused_per_minute": 100_000})
        yield made


def children_of(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def page_process(of: Served) -> int:
    """Return the process id of the pages, once there is one."""
    found: list[int] = []

    def look() -> bool:
        for pid in children_of(of.process.pid):
            with contextlib.suppress(OSError):
                if b"skyhop_testbed.web.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return bool(found)

    wait_for(look, why="there is no process of the pages")
    return found[0]


def trusted(of: Served) -> ssl.SSLContext:
    """Return the TLS settings of a browser that trusts the testbed's authority."""
    return ssl.create_default_context(cadata=of.authority_pem.decode())


@contextlib.contextmanager
def browser(of: Served) -> Iterator[httpx.Client]:
    """Give a client of the pages with an administrator's session."""
    token = re.search(r'"token": "([^"]+)"', (of.directory / "admin.json").read_text())
    assert token
    with httpx.Client(base_url=f"https://{of.web}", verify=trusted(of), timeout=60) as client:
        form = client.get("/login").text
        sent = {"csrf": csrf(form), "token": token[1]}
        assert client.post("/login", data=sent).status_code == 303
        yield client


def csrf(html: str) -> str:
    """Return the CSRF token of a page's forms."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', html)
    assert found, html[:500]
    return found[1]


class Followed:
    """Orders that a node receives, in a thread of its own."""

    def __init__(self, lines: Lines[api.Order]) -> None:
        self.bodies: list[bytes] = []
        self.has_ended = False
        self._lines = lines
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(Exception):
            for order in self._lines:
                self.bodies.append(order.body)
        self.has_ended = True


def test_a_change_on_the_page_reaches_the_agent_at_once(testbed: Served) -> None:
    agent = testbed.agent("paged")
    followed = Followed(agent.stream(api.FOLLOW, api.Follow()))
    wait_for(lambda: len(followed.bodies) == 1)
    with browser(testbed) as client:
        page = client.get("/nodes/paged").text
        answer = client.post("/nodes/paged/scavenger", data={"csrf": csrf(page), "mode": "on"})
        assert answer.status_code == 303, answer.text
        wait_for(lambda: len(followed.bodies) == 2)
        assert b'"scavenger_mode":"on"' in followed.bodies[1] or b'"on"' in followed.bodies[1]
        # A refusal has its status and message, as within one process.
        wrong = client.post("/nodes/nowhere/scavenger", data={"csrf": csrf(page), "mode": "on"})
        assert wrong.status_code == 404
        assert "there is no node nowhere" in wrong.text
        answer = client.post("/admin/nodes/paged/invite", data={"csrf": csrf(page)})
        assert answer.status_code == 200, answer.text
    with testbed.testbed() as admin:
        lines = [(line.who, line.what, line.target) for line in admin.audit(limit=20)]
    for line in (("Login", "page"), ("SetScavenger", "paged"), ("Invite", "paged")):
        assert ("user:admin", *line) in lines


def test_the_page_is_started_again_and_agents_notice_nothing(testbed: Served) -> None:
    agent = testbed.agent("unaware")
    followed = Followed(agent.stream(api.FOLLOW, api.Follow()))
    wait_for(lambda: len(followed.bodies) == 1)
    before = page_process(testbed)
    with browser(testbed) as client:
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: page_process(testbed) != before)
        # The session is in the database, and the port is still open.
        wait_for(lambda: _status(client, "/nodes") == 200)
    assert agent.call(api.REPORT, api.Batch(events=[event(1, 1, "scavenger", "{}")]), 60.0) == 1
    with testbed.testbed() as admin:
        admin.set_scavenger("unaware", "off")
    wait_for(lambda: len(followed.bodies) == 2)
    assert not followed.has_ended
    log = (testbed.directory.parent / "serve.log").read_text()
    assert "the process of the pages ended: status=-9" in log


def _status(client: httpx.Client, path: str) -> int:
    try:
        return client.get(path).status_code
    except httpx.HTTPError:
        return 0


def test_the_page_writes_nothing_itself_and_has_limits(testbed: Served) -> None:
    # The process limits itself before it answers.
    with browser(testbed) as client:
        assert _status(client, "/nodes") == 200
    limits = Path(f"/proc/{page_process(testbed)}/limits").read_text()
    assert re.search(r"Max address space +3221225472 ", limits)
    # The orchestrator raises its soft limit as far as it may.
    own = Path(f"/proc/{testbed.process.pid}/limits").read_text()
    found = re.search(r"Max open files +(\d+) +(\d+|unlimited)", own)
    assert found
    hard = 65_536 if found[2] == "unlimited" else min(65_536, int(found[2]))
    assert int(found[1]) >= hard
    # The state directory's private keys but the server's are not opened by the page.
    opened = {
        os.path.realpath(each) for each in Path(f"/proc/{page_process(testbed)}/fd").iterdir()
    }
    assert not [each for each in opened if each.endswith(".key")]


def _flood(address: str, context: ssl.SSLContext, count: int) -> Iterator[socket.socket]:
    """Open connections: a third says nothing, a third is idle after TLS, a third begins a head."""
    host, _, port = address.rpartition(":")
    for number in range(count):
        opened = socket.create_connection((host, int(port)), timeout=60)
        try:
            if number % 3:
                opened = context.wrap_socket(opened, server_hostname=host)
            if number % 3 == 2:
                opened.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: ")
        except OSError:
            # The server may end it for a newer one.
            opened.close()
            continue
        yield opened


def _check_flooded(testbed: Served, name: str, count: int) -> None:
    agent = testbed.agent(name)
    followed = Followed(agent.stream(api.FOLLOW, api.Follow()))
    wait_for(lambda: len(followed.bodies) == 1)
    with contextlib.ExitStack() as stack:
        for address in (testbed.web, testbed.users):
            for opened in _flood(address, trusted(testbed), count):
                stack.callback(opened.close)
        # Agents, old and new, are answered, and so are users and pages.
        told = api.Batch(events=[event(1, 1, "scavenger", '{"active": true}')])
        assert agent.call(api.REPORT, told, 60.0) == 1
        with testbed.testbed() as admin:
            admin.set_scavenger(name, "off")
        wait_for(lambda: len(followed.bodies) == 2)
        assert testbed.agent(f"{name}-late").call(api.REPORT, api.Batch(), 60.0) == 0
        with browser(testbed) as client:
            assert client.get("/nodes").status_code == 200
        for pid in (testbed.process.pid, page_process(testbed)):
            assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 300
    assert not followed.has_ended


def test_agents_are_answered_while_idle_connections_flood_the_other_ports(
    testbed: Served,
) -> None:
    _check_flooded(testbed, "flooded", 150)


@pytest.mark.soak
def test_eleven_hundred_idle_connections_per_port_end_nothing(testbed: Served) -> None:
    _check_flooded(testbed, "drowned", 1100)


def test_the_page_may_be_off(tmp_path: Path) -> None:
    listen = ["--users=127.0.0.1:0", "--agents=127.0.0.1:0", "--web="]
    command = [*skyhop_command(), "testbed", "serve", "--state", str(tmp_path / "state"), *listen]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        said = (line, (tmp_path / "log").read_text())
        assert re.search(r"serving users at (\S+), agents at (\S+)$", line), said
        assert children_of(process.pid) == []
        with Testbed.of_file(tmp_path / "state" / "admin.json") as admin:
            assert "web" not in admin.config().addresses
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
