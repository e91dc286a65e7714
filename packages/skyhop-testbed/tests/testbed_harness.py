"""Orchestrators for tests: one in this process with a manual clock, and one in a subprocess."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import skyhop_command

from skyhop_testbed import api
from skyhop_testbed.client import Credential, Testbed
from skyhop_testbed.keys import make_request
from skyhop_testbed.orchestrator import accounts, jobs, nodes
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller
from skyhop_testbed.wire import Wire, client_context, open_http
from skyhop_testbed.words import Role

S = 1_000_000_000
BEGIN_NS = 1_798_761_600 * S
"""2027-01-01 00:00 UTC."""
ADMIN = Caller("root", Role.ADMIN)
ANN = Caller("ann", Role.USER)
BOB = Caller("bob", Role.USER)
PIA = Caller("pia", Role.USER_PRIV)


@dataclass
class StandingClock:
    """Clock that advances only when a test advances it or waits by it."""

    ns: int = BEGIN_NS

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return self.ns

    def monotonic_s(self) -> float:
        """Return the same time in seconds."""
        return self.ns / S

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Advance the clock unless an event is set; return whether it is set."""
        if not event.is_set():
            self.sleep(seconds)
        return event.is_set()

    def sleep(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        self.ns += round(seconds * S)


@dataclass
class LocalOrchestrator:
    """Orchestrator in this process with a manual clock."""

    orchestrator: Orchestrator
    clock: StandingClock

    def pass_s(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        self.clock.sleep(seconds)

    @property
    def now_ns(self) -> int:
        """Time of the clock in ns."""
        return self.clock.ns

    def writing(self, caller: Caller) -> contextlib.AbstractContextManager[Any]:
        """Open a writing request context of a caller."""
        return self.orchestrator.writing(caller)

    def submit(self, text: str, caller: Caller = ANN) -> api.SubmittedJob:
        """Submit a job as a caller."""
        with self.writing(caller) as ctx:
            return jobs.submit(ctx, text, {}, self.orchestrator.objects)

    def report(self, node: str, *bodies: tuple[str, dict[str, Any]], first: int = 0) -> int:
        """Report events of a node, numbered from its last event on or from `first`."""
        with self.writing(Caller(node, Role.NODE)) as ctx:
            last = first or nodes.get(ctx, node)["last_seq"] + 1
            events = [
                event(last + place, self.now_ns, kind, json.dumps(body))
                for place, (kind, body) in enumerate(bodies)
            ]
            return nodes.report(ctx, events)[0]

    def change(
        self, node: str, run: str, state: str, reason: str | None = None, **details: Any
    ) -> None:
        """Report a state change of a run by a node."""
        change = {"at_ns": self.now_ns, "state": state, "actor": "", "reason": reason}
        self.report(node, ("run", {"run": run, "change": {**change, "details": details}}))


@contextlib.contextmanager
def local_orchestrator(directory: Path) -> Iterator[LocalOrchestrator]:
    """Yield an orchestrator with users ann, bob and pia, ann's nodes a and b, and the server s."""
    if not directory.exists():
        shutil.copytree(_filled(), directory)
    clock = StandingClock()
    orchestrator = Orchestrator(directory, ["localhost"], clock=clock)
    try:
        yield LocalOrchestrator(orchestrator, clock)
    finally:
        orchestrator.close()


@functools.cache
def _filled_place() -> tempfile.TemporaryDirectory[str]:
    """Make a state directory to copy, once per process: creating the tables is slow."""
    place = tempfile.TemporaryDirectory(prefix="skyhop-orchestrator-")
    orchestrator = Orchestrator(Path(place.name) / "state", ["localhost"], clock=StandingClock())
    _fill(orchestrator)
    orchestrator.close()
    return place


def _filled() -> Path:
    return Path(_filled_place().name) / "state"


def _fill(orchestrator: Orchestrator) -> None:
    with orchestrator.writing(ITSELF) as ctx:
        for name, role in (
            ("root", "admin"),
            ("ann", "user"),
            ("bob", "user"),
            ("pia", "user-priv"),
        ):
            accounts.put_user(ctx, api.PutUser(name=name, role=role))
        for name in ("a", "b"):
            nodes.put(ctx, api.PutNode(name=name, owner="ann", latitude_deg=41.387))
        nodes.put(ctx, api.PutNode(name="s", address="192.0.2.1"))


def event(seq: int, at_ns: int, kind: str, body: str) -> api.Event:
    """Return an event of a node, with a body that need not be valid."""
    return api.Event(seq=seq, at_ns=at_ns, kind=kind, body=body)


def job(name: str = "j", when: str = 'at = "now"', **keys: str) -> str:
    """Return a job file; keys replace or add lines of its first part."""
    first = {"id": f'"{name}"', "nodes": '["a"]', "length": '"1 min"', **keys}
    run = first.pop("run", 'client = ["true"]')
    lines = "\n".join(f"{key} = {value}" for key, value in first.items())
    return f"{lines}\n[when]\n{when}\n[run]\n{run}\n"


@dataclass
class Served:
    """Orchestrator in a process of its own, and the addresses of its three ports."""

    process: subprocess.Popen[str]
    directory: Path
    users: str
    agents: str
    web: str
    wires: list[Wire] = field(default_factory=list)

    def testbed(self, path: Path | None = None) -> Testbed:
        """Return a client with a credential file, by default the administrator's."""
        return Testbed(Credential.read(path or self.directory / "admin.json"))

    @property
    def authority_pem(self) -> bytes:
        """Certificate of the authority that signs its certificates, PEM."""
        return (self.directory / "keys" / "authority.pem").read_bytes()

    def wire(
        self, address: str, identity_pem: bytes | None = None, token: str | None = None
    ) -> Wire:
        """Return a connection to one of its ports, closed with the orchestrator."""
        made = Wire(open_http(address, client_context(self.authority_pem, identity_pem)), token)
        self.wires.append(made)
        return made

    def enrol(self, node: str, token: str) -> bytes:
        """Enrol a node; return its key and certificate."""
        return enrolled(self.wire(self.users), node, token)

    def agent(self, node: str) -> Wire:
        """Create and enrol a node; return its connection to the agents' port."""
        with self.testbed() as testbed:
            testbed.put_node(api.PutNode(name=node))
            identity_pem = self.enrol(node, testbed.invitation(node)["token"])
        return self.wire(self.agents, identity_pem)


def enrolled(users: Wire, node: str, token: str) -> bytes:
    """Enrol a node over the users' port; return its key and certificate."""
    key, request = make_request(node)
    asked = api.Enrol(node=node, token=token, csr_pem=request)
    return key + users.call(api.ENROL, asked, 60.0).certificate_pem


@contextlib.contextmanager
def served(directory: Path, *more: str) -> Iterator[Served]:
    """Serve a new testbed on free ports of the loopback; `more` are options of the command."""
    listen = [f"--{name}=127.0.0.1:0" for name in ("users", "agents", "web")]
    command = [
        *skyhop_command(),
        "testbed",
        "serve",
        "--state",
        str(directory),
        *listen,
        *more,
    ]
    with (directory.parent / "serve.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment()
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"users at (\S+), agents at (\S+), the page at https://(\S+)", line)
    assert found, (directory.parent / "serve.log").read_text()
    made = Served(process, directory, *found.groups())
    try:
        yield made
    finally:
        for wire in made.wires:
            wire.close()
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("SKYHOP_TESTBED")}
