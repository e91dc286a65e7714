# ruff: noqa: N802, D102
"""Fake orchestrator for tests of the agent: real gRPC and TLS, with orders that a test makes."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from skyhop_testbed.agent.identity import enrol
from skyhop_testbed.clock import SYSTEM_CLOCK, Clock
from skyhop_testbed.ids import new_id
from skyhop_testbed.orchestrator.authority import open_authority
from skyhop_testbed.protocol import testbed_pb2 as wire
from skyhop_testbed.protocol import testbed_pb2_grpc as services

NODE = "bcn-1"
TOKEN = "good-once"
S_NS = 1_000_000_000


class FakeOrchestrator(services.AgentServicer, services.EnrolmentServicer):
    """Orchestrator that records the agent's calls, and can delay or refuse them.

    The timestamps of its orders are those of `clock`.
    """

    def __init__(self, directory: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.directory, self.clock = directory, clock
        self.authority = open_authority(directory, ["localhost"], dt.datetime.now(dt.UTC))
        self.tokens = {TOKEN}
        self.revision = 0
        self.jobs: dict[str, Any] = {}
        self.runs: list[dict[str, Any]] = []
        self.policy: dict[str, Any] = {}
        self.mode = "auto"
        self.inputs: dict[str, bytes] = {}
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.claims: list[tuple[str, int]] = []
        self.grants = True
        self.files: dict[str, bytes] = {}
        self.complete: set[tuple[str, str]] = set()
        self.batches = 0
        self.reached: dict[str, threading.Event] = {}
        self.held: dict[str, threading.Event] = {}
        self._orders: list[Any] = []
        self._news = threading.Condition()
        self._ports = (0, 0)
        self._server: Any = None
        self.start()

    def start(self) -> None:
        """Serve, on the same ports as before a stop."""
        self._server = grpc.server(
            futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)]
        )
        services.add_AgentServicer_to_server(self, self._server)
        services.add_EnrolmentServicer_to_server(self, self._server)
        pair = [(self.authority.server_key_pem, self.authority.server_certificate_pem)]
        authority = self.authority.certificate_pem
        users = grpc.ssl_server_credentials(pair)
        agents = grpc.ssl_server_credentials(pair, authority, True)
        self._ports = (
            self._server.add_secure_port(f"localhost:{self._ports[0]}", users),
            self._server.add_secure_port(f"localhost:{self._ports[1]}", agents),
        )
        self._server.start()

    def stop(self) -> None:
        """Stop serving, as in an outage."""
        self._server.stop(None).wait()

    def invitation(self, token: str = TOKEN) -> Path:
        """Write an invitation file for the node; return its path."""
        file = self.directory / "invitation.json"
        values = {"address": f"localhost:{self._ports[0]}", "agents": f"localhost:{self._ports[1]}"}
        values |= {"node": NODE, "token": token}
        values["authority_pem"] = self.authority.certificate_pem.decode()
        file.write_text(json.dumps(values))
        return file

    def hold(self, where: str) -> None:
        """Block the next calls of a kind until `release`."""
        self.reached[where], self.held[where] = threading.Event(), threading.Event()

    def release(self) -> None:
        """Unblock all calls that wait because of `hold`."""
        for event in self.held.values():
            event.set()
        self.held.clear()

    def _pass(self, where: str) -> None:
        held = self.held.get(where)
        if held is not None:
            self.reached[where].set()
            held.wait(300)

    # Called by tests.

    def plan(
        self, spec: dict[str, Any], start_s: float = 0.0, *, priv: bool = False, **others: Any
    ) -> str:
        """Plan a run of a job and publish the schedule; return the run's id.

        `priv` is whether the job's user may use the kernel service.
        """
        now_ns = self.clock.now_ns()
        job, run = new_id(now_ns), new_id(now_ns)
        files = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in self.inputs.items()
        }
        self.jobs[job] = {"owner": "anna", "priv": priv, "spec": spec, "files": files}
        start_ns = now_ns + round(start_s * S_NS)
        row = {"id": run, "job": job, "client": NODE, "server": None, "server_address": None}
        row |= {"start_ns": start_ns, "end_ns": start_ns + round(spec["length"] * S_NS)}
        self.runs.append({**row, "state": "planned", "after": None, **others})
        self.publish()
        return run

    def publish(self) -> None:
        """Send the present schedule with a new revision."""
        self.revision += 1
        self.send(self.schedule())

    def schedule(self, **others: Any) -> Any:
        """Return the schedule, signed."""
        body = {"node": NODE, "revision": self.revision, "issued_ns": self.clock.now_ns()}
        body |= {"jobs": self.jobs, "runs": self.runs, "policy": self.policy}
        body |= {"scavenger_mode": self.mode}
        body["settings"] = {"heartbeat_s": 1.0, "late_s": 120.0, "reschedule_after_s": 1800.0}
        text = json.dumps({**body, **others}).encode()
        signature = self.authority.sign_order(text)
        order = wire.Schedule(revision=self.revision, body=text, signature=signature)
        return wire.Order(schedule=order)

    def task(
        self,
        run: str,
        kind: str,
        spec: dict[str, Any],
        *,
        files: dict[str, bytes] | None = None,
        priv: bool = False,
    ) -> str:
        """Send the node a server task for a run; return the task's id."""
        name, now_ns = new_id(self.clock.now_ns()), self.clock.now_ns()
        said = {
            file: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for file, data in (files or {}).items()
        }
        job = {"owner": "anna", "priv": priv, "spec": spec, "files": said}
        body = {
            "task": name,
            "job_id": run,
            "run": run,
            "node": NODE,
            "kind": kind,
            "job": job,
            "client": "edh",
        }
        body |= {"start_ns": now_ns, "end_ns": now_ns + round(spec["length"] * S_NS)}
        text = json.dumps(body).encode()
        signed = self.authority.sign_order(text)
        self.send(wire.Order(task=wire.Task(task=name, body=text, signature=signed)))
        return name

    def signed_message(self, kind: Any, body: dict[str, Any], *, forged: bool = False) -> Any:
        """Return a signed message of a kind; with `forged`, its signature is wrong."""
        text = json.dumps({"node": NODE, **body}).encode()
        signature = self.authority.sign_order(text + b" " if forged else text)
        return kind(body=text, signature=signature)

    def send(self, order: Any) -> None:
        """Send an order to all agents that follow."""
        with self._news:
            self._orders.append(order)
            self._news.notify_all()

    def states(self, run: str) -> list[str]:
        """Return the reported states of a run in order, with reasons in parentheses."""
        return [
            body["change"]["state"] + (f"({r})" if (r := body["change"]["reason"]) else "")
            for _, kind, body in sorted(self.events, key=lambda event: event[0])
            if kind == "run" and body["run"] == run
        ]

    # Called by the agent.

    def Enrol(self, request: Any, context: Any) -> Any:
        if request.token not in self.tokens:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not good any more")
        self.tokens.discard(request.token)
        return self._signed(request.node, request.csr_pem)

    def Renew(self, request: Any, context: Any) -> Any:
        name = context.auth_context()["x509_common_name"][0].decode()
        return self._signed(name, request.csr_pem)

    def _signed(self, node: str, request_pem: bytes) -> Any:
        now = dt.datetime.now(dt.UTC)
        certificate = self.authority.sign_node(node, request_pem, now)
        return wire.Certificate(
            certificate_pem=certificate,
            authority_pem=self.authority.certificate_pem,
            orders_key=self.authority.orders_key,
        )

    def Follow(self, request: Any, context: Any) -> Iterator[Any]:
        if request.revision != self.revision:
            yield self.schedule()
        place = len(self._orders)
        while context.is_active():
            with self._news:
                if len(self._orders) == place:
                    self._news.wait(0.2)
                new, place = self._orders[place:], len(self._orders)
            yield from new

    def Claim(self, request: Any, _context: Any) -> Any:
        self.claims.append((request.run, request.fence))
        self._pass("claim")
        fences = {fence for run, fence in self.claims if run == request.run}
        granted = self.grants and len(fences) == 1
        return wire.ClaimReply(granted=granted, fence=request.fence, reason="" if granted else "no")

    def Report(self, request: Any, _context: Any) -> Any:
        self.batches += 1
        known = {seq for seq, _, _ in self.events}
        for event in request.events:
            if event.seq not in known:
                self.events.append((event.seq, event.kind, json.loads(event.json)))
        last = max((event.seq for event in request.events), default=0)
        return wire.Ack(seq=last, at_ns=self.clock.now_ns())

    def Input(self, request: Any, _context: Any) -> Iterator[Any]:
        self._pass("input")
        yield wire.Piece(data=self.inputs[request.name][request.offset :])

    def UploadState(self, request: Any, _context: Any) -> Any:
        prefix = f"{request.run}/{request.side}/"
        there = {n.removeprefix(prefix): len(d) for n, d in self.files.items() if prefix in n}
        return wire.Offsets(offsets=there)

    def Upload(self, request_iterator: Any, _context: Any) -> Any:
        self._pass("upload")
        complete = False
        for chunk in request_iterator:
            name = f"{chunk.run}/{chunk.side}/{chunk.name}"
            self.files[name] = self.files.get(name, b"")[: chunk.offset] + chunk.data
            if chunk.name == "manifest.json":
                listed = json.loads(self.files[name])["files"]
                complete = all(
                    hashlib.sha256(
                        self.files[f"{chunk.run}/{chunk.side}/{each['name']}"]
                    ).hexdigest()
                    == each["sha256"]
                    for each in listed
                )
                self.complete.add((chunk.run, chunk.side))
        return wire.Stored(complete=complete)


class AgentProcess:
    """Enrolled agent in a process of its own."""

    def __init__(self, state: Path, orchestrator: FakeOrchestrator, **options: object) -> None:
        self.state, self._options = state, options
        state.mkdir()
        enrol(orchestrator.invitation(), state)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the agent, or restart it."""
        script = (
            "import sys; from pathlib import Path\n"
            "from skyhop_testbed.agent.service import Options, run_agent\n"
            f"options = Options(**{self._options!r})\n"
            f"sys.exit(run_agent(Path({str(self.state)!r}), options=options))\n"
        ).replace("PosixPath(", "Path(")
        log = (self.state.parent / "agent.log").open("ab")
        self.process = subprocess.Popen([sys.executable, "-c", script], stderr=log, stdout=log)

    def kill(self) -> None:
        """Kill the agent with SIGKILL, as a power failure would."""
        self._end(signal.SIGKILL)

    def end(self) -> None:
        """Terminate the agent with SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(120)
            self.process = None

    def log(self) -> str:
        """Return the log of all its starts."""
        return (self.state.parent / "agent.log").read_text()

    def executors(self) -> list[int]:
        """Return the process ids of this node's live executors."""
        mark = str(self.state).encode()
        found = []
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                try:
                    line = (place / "cmdline").read_bytes()
                except OSError:
                    continue
                if mark in line and b"testbed.executor" in line:
                    found.append(int(place.name))
        return found

    def clear(self) -> None:
        """Kill the agent and its executors."""
        if self.process is not None:
            self.kill()
        for pid in self.executors():
            # Killing one executor may end another.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
