"""Node of the testbed in the test's own process, on a clock that the test advances.

The agent, its link, its database, its runners and the executors are real. A call to the
orchestrator is a direct call of its method, without HTTP. A thread replaces each executor's
process, and a `Script` each run's program.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import threading
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from manual_clock import S_NS, ManualClock
from testbed_fake_orchestrator import NODE, FakeOrchestrator

from skyhop.errors import RunError, SkyhopError
from skyhop.telemetry import tidying
from skyhop.version import __version__
from skyhop_testbed import api
from skyhop_testbed.agent import deploying, own_traffic, reach, running, uploading
from skyhop_testbed.agent.host_networks import HostNetworks
from skyhop_testbed.agent.identity import Identity
from skyhop_testbed.agent.service import Agent, Options
from skyhop_testbed.agent.settings import Settings
from skyhop_testbed.api import ApiError, ErrorKind, Operation
from skyhop_testbed.executor import execution
from skyhop_testbed.executor.assignment import Assignment
from skyhop_testbed.executor.journal import read_journal
from skyhop_testbed.executor.sandbox import AttachDevice, ProgramEnd
from skyhop_testbed.executor.tcp_sockets import TcpSocket
from skyhop_testbed.executor.traffic import Traffic
from skyhop_testbed.keys import make_request
from skyhop_testbed.launcher import Launched
from skyhop_testbed.protocol import OLDEST, PROTOCOL, Peer
from skyhop_testbed.words import ENDED

_FIRST_PID = 1 << 30
"""Pid of the first executor, larger than that of any process."""


@dataclass
class Script:
    """Behaviour of a run's fake program.

    Attributes:
        seconds: its duration.
        exit: its exit status.
        writes: content of the files that it writes, by name.
        obeys_term: whether it ends at SIGTERM.
        listens: whether it accepts connections to its port.
    """

    seconds: float = 0.0
    exit: int = 0
    writes: dict[str, bytes] = field(default_factory=dict)
    obeys_term: bool = True
    listens: bool = False


class _Program:
    """Running script, as a back end's program."""

    def __init__(self, clock: ManualClock, script: Script, work: Path) -> None:
        self._script = script
        self._news, self._tells = os.pipe()
        self._ended: ProgramEnd | None = None
        for name, content in script.writes.items():
            (work / name).write_bytes(content)
        clock.at(script.seconds, lambda: self._end(ProgramEnd(exit=script.exit)))

    def _end(self, how: ProgramEnd) -> None:
        if self._ended is None:
            self._ended = how
            os.write(self._tells, b"x")

    def fileno(self) -> int:
        return self._news

    def poll(self) -> ProgramEnd | None:
        return self._ended

    def terminate(self) -> None:
        if self._script.obeys_term:
            self._end(ProgramEnd(signal=signal.SIGTERM))

    def kill(self) -> None:
        self._end(ProgramEnd(signal=signal.SIGKILL))
        self.wait()

    def wait(self) -> None:
        for each in (self._news, self._tells):
            os.close(each)

    def vanish(self) -> None:
        """End the program, as its executor was killed."""
        if self._ended is None:
            self.kill()

    def processes(self) -> list[int]:
        return []

    def network_process(self) -> int | None:
        return None


class _Launcher:
    """Back end that runs scripts."""

    def __init__(self, node: NodeHere) -> None:
        self._node = node

    def unavailable_reason(self, _assignment: Assignment) -> str | None:
        return None

    def start(
        self,
        assignment: Assignment,
        work: Path,
        _output: tuple[int, int],
        _attach_device: AttachDevice | None,
    ) -> _Program:
        script = self._node.script(assignment.command or [])
        if script.listens:
            self._node.listening.add(assignment.port)
        program = _Program(self._node.clock, script, work)
        self._node.executor().program = program
        return program

    def clean(self, _key: str) -> None:
        pass


class _Journal(execution.Journal):
    """Journal whose files are closed when its executor ends."""

    def close(self) -> None:
        for each in (self._lock, self._file):
            os.close(each)


class _Executor:
    """Executor in a thread, with the interface of `subprocess.Popen` that runners use."""

    def __init__(self, node: NodeHere, directory: Path, pid: int) -> None:
        self.pid, self._directory, self._node = pid, directory, node
        self.wakeup = -1
        """Wakeup descriptor (`signal.set_wakeup_fd`), to which signal numbers are written."""
        self.program: _Program | None = None
        self.journal: _Journal | None = None
        node.executors[pid] = self
        self.thread = threading.Thread(target=self._main, name=f"executor {pid}", daemon=True)
        self.thread.start()

    def _main(self) -> None:
        try:
            execution.execute(self._directory, self._node.clock)
        finally:
            if self.program is not None:
                self.program.vanish()
            if self.journal is not None:
                self.journal.close()
            if self.wakeup >= 0:
                os.close(self.wakeup)
            del self._node.executors[self.pid]

    def poll(self) -> int | None:
        return None if self.thread.is_alive() else 0

    def wait(self, seconds: float | None = None) -> int:
        self.thread.join(seconds)
        return 0


class OrchestratorHere(FakeOrchestrator):
    """Orchestrator whose methods the node calls directly."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self.is_away = False
        self.hears = threading.Event()
        super().__init__(directory, clock)

    def start(self) -> None:
        """Answer calls again after `stop`."""
        self.is_away = False

    def stop(self) -> None:
        """Refuse all calls, as an unreachable orchestrator."""
        self.is_away = True
        self.hears.set()

    def send(self, order: api.Order) -> None:
        """Send an order to the agents that follow."""
        super().send(order)
        self.hears.set()

    def _pass(self, where: str) -> None:
        held = self.held.get(where)
        if held is not None:
            self.reached[where].set()
            self.clock.wait(held, 1e6)


class _Orders:
    """Stream of orders to an agent, with the interface of `wire.Lines`."""

    def __init__(self, orchestrator: OrchestratorHere, revision: int) -> None:
        self._orchestrator, self._is_cancelled = orchestrator, False
        self._orders = self._all(revision)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._orchestrator.hears.set()

    def __iter__(self) -> Iterator[api.Order]:
        return self._orders

    def _all(self, revision: int) -> Iterator[api.Order]:
        at = self._orchestrator
        place = len(at._orders)
        if revision != at.revision:
            yield at.schedule()
        while not self._is_cancelled:
            if at.is_away:
                raise _away()
            at.hears.clear()
            new, place = at._orders[place:], len(at._orders)
            yield from new
            if not new:
                at.clock.wait(at.hears, 1e6)


def _away() -> ApiError:
    return ApiError(ErrorKind.UNREACHABLE, "no answer")


class _Wire:
    """Connection that calls the orchestrator's methods, with the interface of `wire.Wire`."""

    def __init__(self, orchestrator: OrchestratorHere) -> None:
        self._orchestrator = orchestrator

    peer = Peer(__version__, OLDEST, PROTOCOL)

    def call(self, operation: Operation[Any, Any], *asked: Any, **_: Any) -> Any:
        if self._orchestrator.is_away:
            raise _away()
        try:
            method = getattr(self._orchestrator, operation.name.lower())
            return method(*asked[: 2 if operation.uploads else 1])
        except SkyhopError as error:
            raise ApiError(ErrorKind.NOT_FOUND, str(error)) from error

    def download(self, operation: Operation[Any, Any], request: Any, _: float) -> Iterator[bytes]:
        yield self.call(operation, request)

    def upload(
        self, operation: Operation[Any, Any], request: Any, pieces: Iterator[bytes], _: float
    ) -> Any:
        frames = api.Frames()
        fed = [each for data in pieces for each in frames.feed(data)]
        return self.call(operation, request, fed)

    def stream(self, _: Operation[Any, Any], request: api.Follow) -> _Orders:
        if self._orchestrator.is_away:
            raise _away()
        return _Orders(self._orchestrator, request.revision)

    def close(self) -> None:
        pass


class NodeHere:
    """Node with its orchestrator and clock.

    Attributes:
        scripts: scripts by the first word of a run's command.
        said: log lines of the agent.
        settings: the owner's settings.
        internet_lacks: what the machine lacks for the network `internet`.
        launched: launcher of the agent; `None` without one.
        sockets: TCP sockets of this machine, as the agent sees them.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.directory, self.state = directory, directory / "state"
        self.scripts: dict[str, Script] = {}
        self.executors: dict[int, _Executor] = {}
        self.listening: set[int] = set()
        self.said: list[str] = []
        self.settings = Settings()
        self.launched: Launched | None = None
        self.internet_lacks: str | None = None
        self.sockets = Sockets()
        self._pids = iter(range(_FIRST_PID, 2 * _FIRST_PID))
        self.agent: Agent | None = None
        self._threads: list[threading.Thread] = []
        self._replace(patch)
        self.orchestrator = OrchestratorHere(directory / "orchestrator", self.clock)
        self._identity = self._made_identity()
        self.state.mkdir()
        self.says(pop_ping_latency_ms=30.0)
        self.counts(0)

    # Methods for tests.

    def start(self, dish: str | None = None) -> None:
        """Start the agent, also after it has ended or was killed."""
        options = Options(
            dish=dish,
            terminal=self.directory / "terminal.json",
            interface="eth9",
            net_dev=self.directory / "dev",
            say=self.said.append,
            clock=self.clock,
            internet_lacks=lambda: self.internet_lacks,
            launched=self.launched,
        )
        self.agent = Agent(self.state, self._identity, options, self.settings)
        self.agent._node.link.wire = _Wire(self.orchestrator)
        self.agent._node.fetching = defaultdict(self.clock.lock)
        threading.Thread(target=self.agent.run, name="agent", daemon=True).start()

    def end(self) -> None:
        """Ask the agent to end, and wait until its threads have ended."""
        assert self.agent is not None
        self.agent.end()
        self.clock.until(lambda: not self._own_threads(), why=self.log)

    def kill(self) -> None:
        """Kill the agent at its present step; its executors go on."""
        assert self.agent is not None
        self.clock.kill(*self._own_threads())
        self.agent._node.db._base.close()

    def kill_executors(self) -> None:
        """Kill all executors with their programs."""
        self.clock.kill(*(each.thread for each in self.executors.values()))

    def says(self, **values: object) -> None:
        """Set the values that the terminal reports."""
        (self.directory / "terminal.json").write_text(json.dumps(values))

    def counts(self, rx_bytes: int) -> None:
        """Set the received bytes of the host's interface."""
        text = f"Inter-|\n face |\n eth9: {rx_bytes} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        (self.directory / "dev").write_text(text)

    def until(self, is_so: Callable[[], object], seconds: float = 120.0) -> None:
        """Advance the time until a condition holds."""
        self.clock.until(is_so, seconds, self.log)

    def until_settled(self, *runs: str) -> None:
        """Advance the time until the ends of runs are reported."""
        for run in runs:
            self.until(lambda r=run: self.is_settled(r))  # type: ignore[misc]

    def is_settled(self, run: str) -> bool:
        """Return whether a run's end was reported."""
        ended = {state.value for state in ENDED}
        told = self.orchestrator.states(run)
        return any(state.partition("(")[0] in ended for state in told)

    def started(self, run: str) -> list[int]:
        """Return the times of all starts of a run's program, in ns."""
        steps = read_journal(self.state / "runs" / run)
        return [step.at_ns for step in steps if step.step == "started"]

    def log(self) -> str:
        """Return the agent's log."""
        return "\n".join(self.said)

    def close(self) -> None:
        """End all threads, and close the database."""
        self.clock.kill()
        if self.agent is not None:
            self.agent._node.db._base.close()

    # Setup of the node.

    def script(self, command: list[str]) -> Script:
        """Return the script of a command: `sleep N` lasts N s, others end at once."""
        if command[0] == "sleep":
            return self.scripts.get("sleep", Script(float(command[1])))
        return self.scripts.get(command[0], Script())

    def _made_identity(self) -> Identity:
        key, request = make_request(NODE)
        authority = self.orchestrator.authority
        now = dt.datetime.fromtimestamp(self.clock.now_ns() / S_NS, dt.UTC)
        return Identity(
            node=NODE,
            agents="127.0.0.1:1",
            key_pem=key,
            certificate_pem=authority.sign_node(NODE, request, now),
            authority_pem=authority.certificate_pem,
            orders_key=authority.orders_key,
        )

    def _own_threads(self) -> list[threading.Thread]:
        """Return the agent's living threads, without executors."""
        others = {each.thread for each in self.executors.values()}
        return [t for t in self._threads if t.is_alive() and t not in others]

    def _replace(self, patch: pytest.MonkeyPatch) -> None:
        """Replace threads, processes and system calls in the agent's and executor's modules."""
        made, threads = self.clock.thread_class(), self._threads

        class Thread(made):  # type: ignore[valid-type, misc]
            def start(self) -> None:
                threads.append(self)
                super().start()

        patch.setattr(threading, "Thread", Thread)
        patch.setattr(execution, "ProcessSockets", lambda: types.SimpleNamespace(read=_no_traffic))
        patch.setattr(execution.cgroup_traffic, "CountedGroup", _no_group)
        patch.setattr(deploying, "missing_for_groups", lambda: None)
        patch.setattr(reach, "read_host_networks", HostNetworks)
        patch.setattr(own_traffic, "TcpTable", lambda: self.sockets)
        patch.setattr(uploading, "_write_telemetry", lambda *_: None)
        patch.setattr(tidying, "tidy_in_subprocess", lambda _directory: None)
        processes = {"Popen": self._start_executor, "run": self._run_executor, "DEVNULL": -3}
        processes["TimeoutExpired"] = TimeoutError  # type: ignore[assignment]
        patch.setattr(running, "subprocess", types.SimpleNamespace(**processes))
        patch.setattr(running, "os", ModuleWith(os, kill=self._signal))
        patch.setattr(running, "free_port", lambda first, _last: first)
        patch.setattr(running, "listens", self.listening.__contains__)
        patch.setattr(execution, "os", ModuleWith(os, getpid=lambda: self.executor().pid))
        signals = {"signal": lambda *_: None, "set_wakeup_fd": self._take_wakeup}
        patch.setattr(execution, "signal", ModuleWith(signal, **signals))
        patch.setattr(execution, "Journal", self._open_journal)
        patch.setattr(execution, "launcher", lambda _backend, _clock: _Launcher(self))

    def executor(self) -> _Executor:
        """Return the executor of the calling thread."""
        thread = threading.current_thread()
        return next(each for each in self.executors.values() if each.thread is thread)

    def _start_executor(self, command: list[str], **_options: object) -> _Executor:
        return _Executor(self, Path(command[-1]), next(self._pids))

    def _run_executor(self, command: list[str], **_options: object) -> None:
        self._start_executor(command).wait()

    def _signal(self, pid: int, number: int) -> None:
        if pid not in self.executors:
            raise ProcessLookupError
        if number == signal.SIGKILL:
            self.clock.kill(self.executors[pid].thread)
        else:
            os.write(self.executors[pid].wakeup, bytes([number]))

    def _take_wakeup(self, descriptor: int) -> None:
        self.executor().wakeup = descriptor

    def _open_journal(self, directory: Path) -> _Journal:
        journal = self.executor().journal = _Journal(directory)
        return journal


class Sockets:
    """TCP sockets of a machine, with the interface of `TcpTable`."""

    def __init__(self) -> None:
        self.open: list[TcpSocket] = []

    def sockets(self) -> list[TcpSocket]:
        """Return the open sockets."""
        return self.open

    def destroyed(self) -> list[TcpSocket]:
        """Return an empty list of sockets."""
        return []


def _no_group(_run: str) -> None:
    raise RunError("no control groups in tests")


def _no_traffic(_pids: object) -> Traffic:
    return Traffic()


class ModuleWith:
    """Module with some of its names replaced."""

    def __init__(self, module: types.ModuleType, **others: object) -> None:
        self._module = module
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
