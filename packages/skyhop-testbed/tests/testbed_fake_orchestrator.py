"""Fake orchestrator for tests of the agent: real HTTP and TLS, with orders that a test makes."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request

from skyhop_testbed import api
from skyhop_testbed.agent.identity import enrol
from skyhop_testbed.clock import SYSTEM_CLOCK, Clock
from skyhop_testbed.ids import new_id
from skyhop_testbed.orchestrator.authority import open_authority
from skyhop_testbed.orchestrator.http import make_app, read_message
from skyhop_testbed.orchestrator.https import HttpsServer, bound
from skyhop_testbed.orchestrator.request_context import NotFoundError, UnknownCallerError

NODE = "bcn-1"
TOKEN = "good-once"
S_NS = 1_000_000_000


class FakeOrchestrator:
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
        self.releases: dict[str, dict[str, bytes]] = {}
        """Files of releases by version."""
        self.offered = ""
        """Version of the published release; "" as of an orchestrator without releases."""
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.claims: list[tuple[str, int]] = []
        self.grants = True
        self.files: dict[str, bytes] = {}
        self.complete: set[tuple[str, str]] = set()
        self.pieces: list[tuple[str, int]] = []
        self.is_old = False
        """Whether it lacks the operations that are newer than the first version."""
        self.batches = 0
        self.reached: dict[str, threading.Event] = {}
        self.held: dict[str, threading.Event] = {}
        self._orders: list[api.Order] = []
        self._ports = (0, 0)
        self.start()

    def start(self) -> None:
        """Serve, on the same ports as before a stop."""
        listeners = [bound(f"localhost:{port}") for port in self._ports]
        users, agents = (int(each.getsockname()[1]) for each in listeners)
        self._ports = (users, agents)
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        pair = (self.directory / "server.key", self.directory / "server.pem")

        async def serve() -> None:
            servers = [
                HttpsServer(make_app([api.ENROL], self._act), *pair),
                HttpsServer(
                    make_app(api.OPERATIONS.values(), self._act),
                    *pair,
                    clients=self.directory / "authority.pem",
                ),
            ]
            for server, listener in zip(servers, listeners, strict=True):
                server.start(listener)
            await self._stopping.wait()
            for server in servers:
                server._server.force_exit = True
                for connection in [*server._server.server_state.connections]:
                    connection.transport.abort()
            await asyncio.gather(*(server.stop() for server in servers))

        self._loop.set_default_executor(ThreadPoolExecutor(16))
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[serve()])
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, as in an outage."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    async def _act(self, operation: api.Operation[Any, Any], http: Request) -> Any:
        message = await read_message(operation, http)
        if operation is api.FOLLOW:
            return self._follow(message)
        more: list[Any] = []
        if operation is api.UPLOAD:
            frames = api.Frames()
            more = [[each async for data in http.stream() for each in frames.feed(data)]]
        method = getattr(self, operation.name.lower())
        made = await asyncio.to_thread(method, message, *more)
        return _only(made) if isinstance(made, bytes) else made

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

    def schedule(self, **others: Any) -> api.Order:
        """Return the schedule, signed."""
        body = {"node": NODE, "revision": self.revision, "issued_ns": self.clock.now_ns()}
        body |= {"jobs": self.jobs, "runs": self.runs, "policy": self.policy}
        body |= {"scavenger_mode": self.mode}
        body["settings"] = {"heartbeat_s": 1.0, "late_s": 120.0, "reschedule_after_s": 1800.0}
        body["settings"] |= {"release": self.offered} if self.offered else {}
        return self.signed(api.OrderKind.SCHEDULE, {**body, **others})

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
        self.send(self.signed(api.OrderKind.TASK, body))
        return name

    def signed(
        self, kind: api.OrderKind, body: dict[str, Any], *, forged: bool = False
    ) -> api.Order:
        """Return a signed order of a kind; with `forged`, its signature is wrong."""
        text = json.dumps({"node": NODE, **body}).encode()
        signature = self.authority.sign_order(text + b" " if forged else text)
        return api.Order(kind=kind, body=text, signature=signature)

    def send(self, order: api.Order) -> None:
        """Send an order to all agents that follow."""
        self._orders.append(order)

    def states(self, run: str) -> list[str]:
        """Return the reported states of a run in order, with reasons in parentheses."""
        return [
            body["change"]["state"] + (f"({r})" if (r := body["change"]["reason"]) else "")
            for _, kind, body in sorted(self.events, key=lambda event: event[0])
            if kind == "run" and body["run"] == run
        ]

    # Called by the agent.

    def enrol(self, request: api.Enrol) -> api.Certificate:
        """Sign the first certificate of a node, if its token is good."""
        if request.token not in self.tokens:
            raise UnknownCallerError("the token is not good any more")
        self.tokens.discard(request.token)
        return self._certificate(request.node, request.csr_pem)

    def renew(self, request: api.Renew) -> api.Certificate:
        """Sign the next certificate of the node."""
        return self._certificate(NODE, request.csr_pem)

    def _certificate(self, node: str, request_pem: bytes) -> api.Certificate:
        now = dt.datetime.now(dt.UTC)
        return api.Certificate(
            certificate_pem=self.authority.sign_node(node, request_pem, now),
            authority_pem=self.authority.certificate_pem,
            orders_key=self.authority.orders_key,
        )

    async def _follow(self, request: api.Follow) -> AsyncIterator[api.Order | None]:
        yield self.schedule() if request.revision != self.revision else None
        place = len(self._orders)
        while not self._stopping.is_set():
            new, place = self._orders[place:], len(self._orders)
            for order in new:
                yield order
            await asyncio.sleep(0.05)

    def claim(self, request: api.Claim) -> api.Grant:
        """Grant the first claim of a run."""
        self.claims.append((request.run, request.fence))
        self._pass("claim")
        fences = {fence for run, fence in self.claims if run == request.run}
        granted = self.grants and len(fences) == 1
        return api.Grant(granted=granted, reason="" if granted else "no")

    def report(self, request: api.Batch) -> int:
        """Record events that are new."""
        self.batches += 1
        known = {seq for seq, _, _ in self.events}
        for event in request.events:
            if event.seq not in known:
                self.events.append((event.seq, event.kind, json.loads(event.body)))
        return max((event.seq for event in request.events), default=0)

    def input(self, request: api.Input) -> bytes:
        """Return an input file from an offset on."""
        self._pass("input")
        if request.name not in self.inputs:
            raise NotFoundError(f"there is no {request.name}")
        return self.inputs[request.name][request.offset :]

    def fetchrelease(self, request: api.FetchRelease) -> bytes:
        """Return a file of a release from an offset on."""
        return self.releases[request.version][request.name][request.offset :]

    def uploadstate(self, request: api.RunSide) -> dict[str, int]:
        """Return the received bytes of each file of a run's side."""
        prefix = f"{request.run}/{request.side}/"
        return {n.removeprefix(prefix): len(d) for n, d in self.files.items() if prefix in n}

    def upload(self, of: api.RunSide, pieces: Iterable[tuple[api.Piece, bytes]]) -> bool:
        """Store pieces of files; a manifest whose files are all there completes a run's side."""
        self._pass("upload")
        place = f"{of.run}/{of.side}"
        for piece, data in pieces:
            name = f"{place}/{piece.name}"
            self.files[name] = self.files.get(name, b"")[: piece.offset] + data
            self.pieces.append((piece.name, len(data)))
        if f"{place}/manifest.json" not in self.files:
            return False
        listed = json.loads(self.files[f"{place}/manifest.json"])["files"]
        if not all(
            hashlib.sha256(self.files.get(f"{place}/{each['name']}", b"-")).hexdigest()
            == each["sha256"]
            for each in listed
        ):
            return False
        self.complete.add((of.run, of.side))
        return True

    def uploadprogress(self, request: api.RunSide) -> api.UploadProgress:
        """Return which files of a run's side are missing; an older orchestrator cannot."""
        if self.is_old:
            raise NotFoundError("there is no such operation here")
        place = f"{request.run}/{request.side}"
        content = self.files.get(f"{place}/manifest.json", b"")
        try:
            listed = json.loads(content)["files"]
        except ValueError:
            return api.UploadProgress(manifest_bytes=len(content), missing=None, offset=0)
        names = [f"{place}/{each['name']}" for each in listed]
        here = [len(self.files[name]) if name in self.files else -1 for name in names]
        missing = [i for i, each in enumerate(listed) if here[i] != each["size"]]
        return api.UploadProgress(
            manifest_bytes=len(content),
            missing=[(i, i + 1) for i in missing],
            offset=max(0, here[missing[0]]) if missing else 0,
        )


async def _only(data: bytes) -> AsyncIterator[bytes]:
    yield data


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
            "import logging\n"
            "from pathlib import Path\n"
            "from skyhop_testbed.agent.service import Options, run_agent\n"
            "logging.basicConfig(level=logging.INFO)\n"
            f"options = Options(**{self._options!r})\n"
            f"run_agent(Path({str(self.state)!r}), options=options)\n"
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
