"""A whole testbed of real processes on the loopback, whose parts are killed, stopped and looked at.

What a run's program did is told by itself: it calls a `Sink` of the test, which notes when and who.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conftest import skyhop_command
from testbed_harness import Served, _environment

from needs import needs_program, needs_root
from skyhop_testbed import api
from skyhop_testbed.agent.identity import enrol
from skyhop_testbed.client import Testbed
from skyhop_testbed.executor.journal import is_alive, read_journal
from skyhop_testbed.keys import write_private
from skyhop_testbed.states import Change, fold
from skyhop_testbed.words import ENDED, State
from waiting import wait_for

S = 1_000_000_000
HOSTS_NETWORK = {"networks": ["host"]}
"""Policy of an owner who allows the host's network."""
_SETTLED_S = 240.0


class Sink:
    """Takes lines by TCP and datagrams by UDP at one port, and notes when they came."""

    def __init__(self) -> None:
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self.lines: list[tuple[float, str]] = []
        for take in (self._take_lines, self._take_datagrams):
            threading.Thread(target=take, daemon=True).start()

    def _take_lines(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._tcp.accept()
                threading.Thread(target=self._take_line, args=(line,), daemon=True).start()

    def _take_line(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile() as stream:
            for line in stream:
                self.lines.append((time.time(), line.strip()))

    def _take_datagrams(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = self._udp.recv(2000)
                self.lines.append((time.time(), data.split(b" ")[0].decode(errors="replace")))

    def starts(self) -> dict[str, int]:
        """Return how often each run's program, of either side, said that it had begun."""
        counts: dict[str, int] = {}
        for _, line in self.lines:
            counts[line] = counts.get(line, 0) + 1
        return counts

    def close(self) -> None:
        """Close both sockets; errors are ignored."""
        for each in (self._tcp, self._udp):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class Wire:
    """A way to a port of this machine that can be cut: then nothing comes through or is refused."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._whole = threading.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._take, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through: what is sent waits, as packets that are repeated do."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything through again."""
        self._whole.set()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._whole.wait()
        with contextlib.suppress(OSError):
            far = socket.create_connection(self._target)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self._whole.wait()
                other.sendall(data)
        self._whole.wait()
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Agent:
    """A node's agent in a process of its own."""

    def __init__(self, machine: Machine, name: str, *options: str) -> None:
        self.name, self.state = name, machine.directory / name
        self._options, self._log = options, machine.directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, disk_kb: int = 0) -> None:
        """Start it, once more where it was killed; on a small disk of its own if one is named."""
        command = [*skyhop_command(), "testbed", "agent", "--state", str(self.state)]
        command = [*_on_small_disk(self.state, disk_kb), *command]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._options], stdout=log, stderr=log, env=_environment()
            )

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it, at once or as it likes to be; its runs go on."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(120)

    @property
    def log(self) -> str:
        """Text of the process's log file."""
        return self._log.read_text() if self._log.exists() else ""

    def local_runs(self) -> dict[str, dict[str, Any]]:
        """Return the runs of its book as they are now, by their keys."""
        if not (self.state / "book.sqlite").exists():
            return {}
        try:
            with contextlib.closing(_opened(self.state / "book.sqlite")) as book:
                rows = book.execute("SELECT key, json FROM life").fetchall()
        except sqlite3.OperationalError as error:
            # It is being made.
            if "no such table" in str(error) or "unable to open" in str(error):
                return {}
            raise
        return {key: json.loads(text) for key, text in rows}

    def inputs(self) -> list[Path]:
        """Return the files of jobs that are on the node."""
        return [each for each in (self.state / "inputs").iterdir() if not each.suffix]

    def executor(self, key: str) -> int | None:
        """Return the process of a run's executor, while it lives."""
        directory = self.state / "runs" / key
        if not is_alive(directory):
            return None
        pids = [step.pid for step in read_journal(directory) if step.step == "deploying"]
        return int(pids[-1]) if pids else None


class Machine:
    """An orchestrator, agents and what is to be known of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "orchestrator"
        self.sink = Sink()
        self.agents: dict[str, Agent] = {}
        self._ports: list[str] = ["127.0.0.1:0"] * 3
        self._log = directory / "serve.log"
        self.served: Served

    @property
    def log(self) -> str:
        """Text of all log files: the orchestrator's, then those of the agents."""
        return self._log.read_text() + "".join(agent.log for agent in self.agents.values())

    def serve(self, disk_kb: int = 0) -> None:
        """Start the orchestrator, at the same ports each time; on a small disk if one is named."""
        names = zip(("users", "agents", "web"), self._ports, strict=True)
        listen = [f"--{name}={port}" for name, port in names]
        command = [*skyhop_command(), "testbed", "serve", "--state", str(self.state), *listen]
        self.state.mkdir(exist_ok=True)
        command = [*_on_small_disk(self.state, disk_kb), *command]
        with self._log.open("a") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment()
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"users at (\S+), agents at (\S+), the page at https://(\S+)", line)
        assert found, self._log.read_text()
        self._ports = list(found.groups())
        self.served = Served(process, self.state, *found.groups())

    def end_serving(self, number: int = signal.SIGKILL) -> None:
        """End the orchestrator, at once or as it likes to be."""
        process = self.served.process
        for wire in self.served.wires:
            wire.close()
        process.send_signal(number)
        process.wait(120)
        assert process.stdout is not None
        process.stdout.close()

    def configure(self, **settings: float) -> None:
        """Set settings: quick ones unless said."""
        with self.served.testbed() as testbed:
            testbed.put_config({"heartbeat_s": 1.0, "requests_per_minute": 1e5, **settings})

    def agent(self, name: str, *options: str, wire: Wire | None = None, **node: Any) -> Agent:
        """Make a node with its agent, not started yet; with a wire, it goes over that."""
        with self.served.testbed() as testbed:
            testbed.put_node(api.PutNode(name=name, **node))
            # The programs of runs call a sink of the test on the host's loopback.
            testbed.set_policy(name, HOSTS_NETWORK)
            invitation = testbed.invitation(name)
        if wire is not None:
            invitation["agents"] = wire.address
        file = self.directory / f"{name}.invitation"
        write_private(file, json.dumps(invitation).encode())
        made = Agent(self, name, *options)
        enrol(file, made.state)
        self.agents[name] = made
        return made

    @contextlib.contextmanager
    def testbed(self) -> Iterator[Testbed]:
        """Give the testbed as its administrator sees it."""
        with self.served.testbed() as testbed:
            yield testbed

    def submit(self, text: str, **files: bytes) -> api.SubmittedJob:
        """Submit a job; files are named without their ending, `.bin`."""
        place = self.directory / "jobs"
        place.mkdir(exist_ok=True)
        for name, content in files.items():
            (place / f"{name}.bin").write_bytes(content)
        (place / "job.toml").write_text(text)
        with self.testbed() as testbed:
            return testbed.submit(place / "job.toml")

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return all runs as the orchestrator's tables have them."""
        with contextlib.closing(_opened(self.state / "testbed.sqlite")) as base:
            base.row_factory = sqlite3.Row
            return {row["id"]: dict(row) for row in base.execute("SELECT * FROM run")}

    def wait_ended(self, seconds: float = _SETTLED_S) -> dict[str, dict[str, Any]]:
        """Wait until every run has ended and no node has anything left to do; return the runs."""
        wait_for(
            lambda: not self._unfinished(), seconds, lambda: f"{self._unfinished()}\n{self.log}"
        )
        return self.runs()

    def _unfinished(self) -> list[str]:
        ended = {state.value for state in ENDED}
        left = [f"{r['id']} {r['state']}" for r in self.runs().values() if r["state"] not in ended]
        for agent in self.agents.values():
            left += [
                f"{agent.name}: {key} {local_run['state']}"
                for key, local_run in agent.local_runs().items()
                if not local_run["settled_ns"]
            ]
        return left

    def close(self) -> None:
        """End everything, runs too."""
        for agent in self.agents.values():
            if agent.process is not None and agent.process.poll() is None:
                agent.end()
        for agent in self.agents.values():
            for key in agent.local_runs():
                pid = agent.executor(key)
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
        if hasattr(self, "served") and self.served.process.poll() is None:
            self.end_serving()
        self.sink.close()


@contextlib.contextmanager
def machine(directory: Path) -> Iterator[Machine]:
    """Give a testbed whose orchestrator serves; all of it is gone afterwards."""
    made = Machine(directory)
    try:
        made.serve()
        yield made
    finally:
        made.close()


def seen_by(process: subprocess.Popen[Any], place: Path) -> Path:
    """Return a place as a process sees it, which may have disks of its own there."""
    return Path(f"/proc/{process.pid}/root{place}")


def _on_small_disk(place: Path, size_kb: int) -> list[str]:
    """Return what begins a command for which a place is a disk of its own, with what was there."""
    if not size_kb:
        return []
    needs_root()
    beside = place.with_name(f"{place.name}.before")
    script = (
        f'cp -a "{place}" "{beside}" && mount -t tmpfs -o size={size_kb}k none "{place}" && '
        f'cp -a "{beside}/." "{place}" && exec "$@"'
    )
    return [needs_program("unshare"), "--mount", needs_program("sh"), "-c", script, "sh"]


def fill(place: Path) -> Path:
    """Fill a small disk to its last byte; return the file whose end makes room."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


def _opened(file: Path) -> sqlite3.Connection:
    if file.is_relative_to("/proc"):
        # SQLite takes a link for where it seems to lead: it is given a copy.
        with tempfile.TemporaryDirectory() as place:
            for each in (file, file.with_name(f"{file.name}-wal")):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(each, Path(place) / each.name)
            with contextlib.closing(sqlite3.connect(Path(place) / file.name)) as base:
                copied = sqlite3.connect(":memory:")
                base.backup(copied)
                return copied
    return sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)


def check_tables(made: Machine) -> None:
    """Check that the tables are whole, and that each run's state is the fold of its events."""
    with contextlib.closing(_opened(made.state / "testbed.sqlite")) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert not base.execute("PRAGMA foreign_key_check").fetchall()
        base.row_factory = sqlite3.Row
        for run in base.execute("SELECT * FROM run").fetchall():
            rows = base.execute("SELECT * FROM event WHERE run = ? ORDER BY id", (run["id"],))
            changes = [
                Change.from_json({**dict(row), "details": json.loads(row["details"])})
                for row in rows.fetchall()
            ]
            assert fold(changes) == State(run["state"]), (run["id"], changes)
    for agent in made.agents.values():
        with contextlib.closing(_opened(agent.state / "book.sqlite")) as book:
            assert book.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def processes_about(*words: str) -> list[str]:
    """Return the command lines of processes, this one aside, that name one of some words."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if any(word in line for word in words):
                found.append(f"{place.name} {line}")
    return found
