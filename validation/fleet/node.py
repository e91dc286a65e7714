"""One simulated node: an agent's own parts, whose threads and main loop are events of a clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed import api
from skyhop_testbed.agent.admission import Admission
from skyhop_testbed.agent.agent_db import FILE, AgentDb, Durability
from skyhop_testbed.agent.deciding import Situation, decide
from skyhop_testbed.agent.health import EVERY_S as _HEALTH_EVERY_S
from skyhop_testbed.agent.identity import Identity
from skyhop_testbed.agent.link import Backoff, Link
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.orders import Orders
from skyhop_testbed.agent.reports import HealthReport, ScavengerReport
from skyhop_testbed.agent.room import Room
from skyhop_testbed.agent.running import EndedError, Runner, report_task
from skyhop_testbed.agent.telemetry_outbox import TelemetryOutbox
from skyhop_testbed.agent.trigger_runs import TriggerRuns
from skyhop_testbed.agent.triggering import Triggers
from skyhop_testbed.api import ApiError
from skyhop_testbed.executor.result import CountedTraffic, Result
from skyhop_testbed.schedule import ServerAnswer
from skyhop_testbed.words import ENDED, Reason, ScavengerMode, Side, State
from validation.fleet.transport import EMPTY, HEALTH, HereWire, Hub, written_bytes

if TYPE_CHECKING:
    from validation.fleet.events import EventClock

S = 1_000_000_000
_STEP_S = 0.01
_UPLOAD_S, _SERVER_READY_S = 2.0, 1.0
_CHECKPOINT_BYTES = 1000 * 4120
"""Bytes of SQLite's log between two checkpoints, each of which syncs twice."""


class CountedDb(AgentDb):
    """Database that counts the bytes that it writes."""

    bytes_written = 0

    def _commit(self, statements: Sequence[Any], durability: Durability) -> None:
        before = written_bytes()
        super()._commit(statements, durability)
        self.bytes_written += written_bytes() - before


@dataclass(frozen=True)
class HereIdentity(Identity):
    """Identity whose connection is the simulation's."""

    wire: Any = None

    def open_wire(self) -> Any:
        """Return the node's connection."""
        return self.wire


class EventRunner(Runner):
    """Runner whose program lasts a given time, and whose steps are events."""

    def __init__(self, node: Node, local_run: LocalRun, sim: SimNode) -> None:
        super().__init__(node, local_run)
        self._sim, self._is_over_now = sim, False

    def start(self) -> None:
        """Plan the first step of the run."""
        self._sim.after(_STEP_S, self._step)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self._is_over_now

    def executor(self) -> int | None:
        """Return no process, as programs are simulated."""
        return None

    def join(self, seconds: float) -> None:
        """Return at once, as there is no thread."""

    def stop(self, reason: Reason | None, text: str, *, is_silent: bool = False) -> None:
        """Abort the run, and settle it."""
        super().stop(reason, text, is_silent=is_silent)
        self._sim.after(_STEP_S, self._end)

    def release(self) -> None:
        """End the server's side, because its client has ended."""
        self.stop(None, "its client has ended")

    def take_answer(self, answer: ServerAnswer) -> None:
        """Take the reply of the server's node, and go on."""
        super().take_answer(answer)
        self._sim.after(_STEP_S, self._step)

    def _step(self) -> None:
        """Take the steps that need no time."""
        local_run = self.local_run
        try:
            if local_run.state is State.CLAIMED:
                self._claim()
            if local_run.state is State.DEPLOYING:
                self._deploy()
            if local_run.state is State.WAITING_SERVER:
                if local_run.answer is None:
                    self._sim.after(self._patience_s(), self._give_up_server)
                    return
                self._await_answer()
            if local_run.state is State.EXECUTING:
                self._execute_for_its_time()
            elif local_run.state is State.FINISHING:
                self._finish_now()
            elif local_run.state in ENDED:
                self._end()
        except EndedError:
            self._end()
        self._sim.wake()

    def _await_answer(self) -> None:
        answer = self.local_run.answer
        if isinstance(answer, ServerAnswer) and answer.ready:
            self._change_state(State.EXECUTING, port=answer.port or 0)
        else:
            self._change_state(State.FAILED, Reason.SERVER, text="the server is not ready")

    def _give_up_server(self) -> None:
        if self.local_run.state is State.WAITING_SERVER and self.local_run.answer is None:
            text = "the server's node did not answer in time"
            self._change_state(State.FAILED, Reason.SERVER, text=text)
            self._end()
            self._sim.wake()

    def _execute_for_its_time(self) -> None:
        local_run = self.local_run
        if local_run.starts:
            # The node was away during the run.
            self._change_state(State.FAILED, Reason.RESTARTED)
            self._end()
            return
        local_run.starts += 1
        self._node.db.save_run(local_run)
        if local_run.side is Side.SERVER:
            self._sim.after(_SERVER_READY_S, self._report_server)
            return
        self._sim.runs_begun += 1
        self._sim.after(0.6 * local_run.spec.length_s, self._program_ends)

    def _report_server(self) -> None:
        if self.local_run.state is State.EXECUTING:
            report_task(self._node, self.local_run, None)
            self._sim.wake()

    def _program_ends(self) -> None:
        if self.local_run.state is not State.EXECUTING:
            return
        self._account(_RESULT)
        self._change_state(
            State.FINISHING,
            ended_ns=self._clock.now_ns(),
            traffic=_RESULT.traffic,
            exit=0,
            began_ns=self.local_run.start_ns,
            partial=False,
        )
        self._sim.after(_UPLOAD_S, self._step)
        self._sim.wake()

    def _finish_now(self) -> None:
        self.local_run.is_uploaded = True
        self._node.db.save_run(self.local_run, durability=Durability.HELD)
        self._change_state(State.COMPLETE, exit=0, traffic=_RESULT.traffic)
        self._sim.runs_complete += 1
        self._end()

    def _end(self) -> None:
        if not self._is_over_now:
            self._is_over_now = True
            self._settle()
            self._sim.wake()


_RESULT = Result(
    state=State.COMPLETE, exit=0, traffic=CountedTraffic(1_000_000, 100_000, "sockets")
)


class EventRuns(LocalRuns):
    """Runs whose runners are events."""

    sim: SimNode

    def _start_runner(self, local_run: LocalRun) -> None:
        runner = EventRunner(self._node, local_run, self.sim)
        self._runners[local_run.key] = runner
        runner.start()


class SimNode:
    """A node: its agent while it runs, and what it has cost so far.

    Args:
        name: its name.
        kind: the group in which the page counts it.
        directory: its directory.
        hub: the orchestrator.
        clock: the clock.
        heartbeat_every_s: interval of the heartbeats that are simulated; those between are counted.
        seed: seed of its backoff.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        directory: Path,
        hub: Hub,
        clock: EventClock,
        *,
        heartbeat_every_s: float,
        seed: int,
    ) -> None:
        self.name, self.kind, self.directory = name, kind, directory
        self._hub, self.clock, self._heartbeat_every_s = hub, clock, heartbeat_every_s
        directory.mkdir()
        for each in ("runs", "inputs"):
            (directory / each).mkdir()
        self.wire = HereWire(hub, clock, name, self._deliver)
        self.traffic = self.wire.traffic
        self._chance = random.Random(seed)
        self._life = 0
        """Number of starts of the agent; events of an earlier agent do nothing."""
        self.is_on = False
        self.runs_begun = self.runs_complete = self.preemptions = 0
        self.syncs = self.commits = self.bytes_written = 0
        self.db: CountedDb | None = None
        self._last_sent_s = self._last_health_s = 0.0

    # Life of the agent.

    def start(self) -> None:
        """Start the agent; it reads what an earlier agent has left."""
        self._life += 1
        self.is_on = True
        authority = self._hub.orchestrator.authority
        identity = HereIdentity(self.name, "", b"", b"", b"", authority.orders_key, wire=self.wire)
        self.db = CountedDb(self.directory, self.clock.now_ns())
        self._wire_of(identity)
        self.host = SimpleNamespace(is_active=False)
        triggers = Triggers(self.db, self.directory, lambda _line: None)
        self.runs = EventRuns(self.node)
        self.runs.sim = self
        room = Room(self.node, self.runs)
        self._admission = Admission(self.node, self.runs, self.host, room, triggers.has_fired)  # type: ignore[arg-type]
        self.orders = Orders(self.node, self.runs, self._admission)
        self._trigger_runs = TriggerRuns(self.node, self.runs, triggers, self._admission)
        self.telemetry = TelemetryOutbox(self.node)
        self._backoff, self._is_sending, self._is_flushing = (
            Backoff(self._chance.getrandbits(32)),
            False,
            False,
        )
        self._woken_ns = 1 << 62
        self.orders.load_schedule()
        self.runs.resume()
        self._last_sent_s = self._last_health_s = self.clock.monotonic_s()
        self.node.report(_HEALTH)
        self.after(self._chance.uniform(0.1, 5.0), self._send)
        self.after(self._chance.uniform(1.0, 60.0), self._clean)
        self.after(self._chance.uniform(1.0, 60.0), self._forget)
        self.after(self._chance.uniform(5.0, 20.0), self._beat)
        self.wake()

    def _wire_of(self, identity: Identity) -> None:
        assert self.db is not None
        self.link = Link(
            identity,
            self.db,
            on_order=lambda order: self.orders.put(order),  # noqa: PLW0108 (made later)
            follows=lambda: self.orders.follows(),  # noqa: PLW0108 (made later)
            heartbeat_s=lambda: self.node.schedule.settings.heartbeat_s,
            say=lambda _line: None,
            clock=self.clock,
        )
        self._stream: Any = None
        self.node = Node(identity, self.directory, self.db, self.link, print, self.clock)
        self.link.follow_again = self._follow_again  # type: ignore[method-assign]

    def stop(self) -> None:
        """Kill the agent, as a power failure would: held changes are lost."""
        assert self.db is not None
        self._count_heartbeats()
        self._life += 1
        self.is_on = False
        self._count_writes()
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        self._trigger_runs._triggers._publisher.close()
        self.db._base.close()
        self.db = None

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Plan a call of this agent; it is not made if the agent ends before."""
        life = self._life
        self.clock.after(seconds, lambda: do() if life == self._life else None)

    # Main loop.

    def wake(self, seconds: float = 0.0) -> None:
        """Have the main loop run soon, or in `seconds`."""
        at_ns = self.clock.now_ns() + round(seconds * S)
        if at_ns < self._woken_ns:
            self._woken_ns = at_ns
            self.after(seconds, lambda: self._iterate(at_ns))

    def _iterate(self, planned_ns: int) -> None:
        if planned_ns != self._woken_ns:
            return
        self._woken_ns = 1 << 62
        self.orders.execute_all()
        situation = self._admission.situation()
        for action in decide(situation):
            self.runs.apply(action)
        self._plan_writes()
        next_ns = self._next_ns(situation)
        if next_ns is not None:
            self.wake((next_ns - situation.now_ns) / S + 0.002)

    def _next_ns(self, situation: Situation) -> int | None:
        """Return when something is next to be decided, in ns."""
        now_ns, next_ns = situation.now_ns, 1 << 62
        for planned in situation.planned:
            if planned.start_ns > now_ns:
                next_ns = min(next_ns, planned.start_ns)
            elif planned.is_client and planned.key not in situation.known:
                # The run waits for another to end.
                return now_ns + S
            elif planned.end_ns > now_ns:
                next_ns = min(next_ns, planned.end_ns)
        return None if next_ns == 1 << 62 else next_ns

    def _plan_writes(self) -> None:
        """Flush held changes within a second, and send what is due, as the agent's threads do."""
        assert self.db is not None
        if self.db._waiting and not self._is_flushing:
            self._is_flushing = True
            self.after(1.0, self._flush)
        if self.db.has_reports.is_set():
            self._plan_send(0.02)

    def _flush(self) -> None:
        assert self.db is not None
        self._is_flushing = False
        self.db.flush()
        self._plan_writes()

    def _clean(self) -> None:
        assert self.db is not None
        self.db.trim_outbox()
        self.runs.clean()
        self._plan_writes()
        # The agent does this each minute; without reports it writes nothing.
        self.after(60.0 if self.db.has_more() or self.kind == "minute" else 900.0, self._clean)

    def _forget(self) -> None:
        self.runs.forget()
        self._plan_writes()
        self.after(3600.0, self._forget)

    # Connection.

    def _send(self) -> None:
        assert self.db is not None
        self._is_sending = False
        self._count_heartbeats()
        try:
            self.link._send_all()
        except ApiError as error:
            self.link.is_connected = False
            self._is_sending = True
            self.after(self._backoff.next_s(error.kind), self._send)
            return
        self._last_sent_s = self.clock.monotonic_s()
        self._backoff.clear()
        self.link.is_connected = True
        if self._stream is None:
            self._follow()
        self._plan_writes()

    def _count_heartbeats(self) -> None:
        """Count the heartbeats since the last report that were not simulated.

        A health report goes with the next heartbeat, so that every tenth or so has one. On a busy
        node, it goes with other reports.
        """
        if not self.link.is_connected or self.wire.is_cut or self._hub.is_away:
            return
        now_s = self.clock.monotonic_s()
        every_s = self.node.schedule.settings.heartbeat_s + 1.5
        beats = max(0, math.ceil((now_s - self._last_sent_s) / every_s) - 1)
        reports = int((now_s - self._last_health_s) / _HEALTH_EVERY_S)
        self._last_health_s += reports * _HEALTH_EVERY_S
        if reports > beats:
            self.node.report(_HEALTH)
            reports = beats
        self.wire.count_heartbeats(HEALTH, reports)
        self.wire.count_heartbeats(EMPTY, beats - reports)

    def _follow(self) -> None:
        try:
            self._stream = self.link._open_orders()
        except ApiError:
            self.after(5.0, self._follow)

    def _follow_again(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        self.after(0.5, self._follow)

    def _deliver(self, order: api.Order | None) -> None:
        if order is None:
            self._stream = None
            # The agent notices at its next heartbeat.
            self._plan_send(self._chance.uniform(1.0, 30.0))
        elif self.is_on:
            self.link._dispatch(order)
            self.wake()

    def _beat(self) -> None:
        """Send a heartbeat with a health report and one without, so that the costs are known."""
        if not self._is_sending:
            self._send()
            self.node.report(_HEALTH)
            self._send()
            self._send()
        self.after(self._heartbeat_every_s, self._beat)

    def _plan_send(self, seconds: float) -> None:
        if self.is_on and not self._is_sending:
            self._is_sending = True
            self.after(seconds, self._send)

    def cut(self) -> None:
        """Cut the node's link to the orchestrator; its agent goes on."""
        self._count_heartbeats()
        self.wire.is_cut = True
        self.link.is_connected = False
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    def mend(self) -> None:
        """Mend the link; the agent notices at its next try."""
        self.wire.is_cut = False
        self._last_sent_s = self._last_health_s = self.clock.monotonic_s()
        self._plan_send(self._chance.uniform(1.0, 30.0))

    # What happens on the node.

    def owner_begins(self, seconds: float) -> None:
        """Have the owner's traffic begin, and end after some time."""
        if self.is_on and not self.host.is_active:
            self.preemptions += 1
            self._set_owner(is_active=True)
            self.after(seconds, lambda: self._set_owner(is_active=False))

    def _set_owner(self, *, is_active: bool) -> None:
        self.host.is_active = is_active
        self.node.report(
            ScavengerReport(
                is_active, self.clock.now_ns(), "user traffic", 2e6, 1e5, ScavengerMode.AUTO
            )
        )
        self.wake()

    def measure(self, sample: Mapping[str, object]) -> None:
        """Evaluate the triggers of armed runs on a sample."""
        if self.is_on:
            self._trigger_runs.evaluate({**sample, TIME: self.clock.now_ns()})  # type: ignore[dict-item]
            self.wake()

    def record(self, samples: Sequence[Sample]) -> None:
        """Store samples, and report them, as the agent's main loop does."""
        if self.is_on:
            self.telemetry.put(samples)
            before = written_bytes()
            self.telemetry.take_new()
            self.telemetry.send_due()
            self.bytes_written += written_bytes() - before
            self._plan_writes()

    # Costs.

    def _count_writes(self) -> None:
        if self.db is not None:
            counts = self.db.counts
            self.syncs += counts.syncs + 2 * (self.db.bytes_written // _CHECKPOINT_BYTES)
            self.commits += counts.commits
            self.bytes_written += self.db.bytes_written
            counts.syncs = counts.commits = self.db.bytes_written = 0

    def costs(self) -> dict[str, float]:
        """Return what the node has cost so far."""
        self._count_writes()
        if self.is_on:
            self._count_heartbeats()
            self._last_sent_s = self.clock.monotonic_s()
        if self._stream is not None:
            # Count the heartbeats of the open stream.
            self._stream.cancel()
            self._stream = None
        files = self.directory.glob(f"{FILE}*")
        return {
            "up_bytes": self.traffic.up_bytes,
            "down_bytes": self.traffic.down_bytes,
            "requests": self.traffic.requests,
            "syncs": self.syncs,
            "commits": self.commits,
            "bytes_written": self.bytes_written,
            "file_bytes": sum(each.stat().st_size for each in files),
            "runs": self.runs_begun,
            "complete": self.runs_complete,
            "preemptions": self.preemptions,
        }


_HEALTH = HealthReport(
    version="0.1.0",
    programs=["bash", "curl", "iperf3", "ping", "python3", "skyhop"],
    kernel={"release": "6.12.0", "service": False, "congestion": ["bbr", "cubic", "reno"]},
    disk_free_bytes=20_000_000_000,
    clock_offset_ms=0.4,
    load=0.2,
    backends={"process": None, "podman": "podman is not installed", "docker": None},
    networks=["host", "none"],
)
