"""`skyhop testbed agent`: main loop of the agent, and the threads around it.

One thread decides, every second and whenever an order or a sample arrives. Each run has its own
thread, and so have the terminal, the orders and the reports: none of them blocks another.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import logging
import os
import queue
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop.telemetry import maps
from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed.agent import deploying, schedule
from skyhop_testbed.agent.agent_db import AgentDb, OutboxEntry
from skyhop_testbed.agent.deciding import (
    Action,
    ActionKind,
    KnownRun,
    Objection,
    PlannedRun,
    Situation,
    decide,
    hindrance,
)
from skyhop_testbed.agent.health import EVERY_S as HEALTH_EVERY_S
from skyhop_testbed.agent.health import health
from skyhop_testbed.agent.identity import Identity, read_identity, renew
from skyhop_testbed.agent.link import Link
from skyhop_testbed.agent.local_run import LocalRun, key_of, length_s
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.predicting import PredictionClient
from skyhop_testbed.agent.probing import Prober
from skyhop_testbed.agent.running import Runner, has_work_left, report_task, run_entry
from skyhop_testbed.agent.sensing import CountedRun, Host, Watch
from skyhop_testbed.agent.settings import FILE as SETTINGS
from skyhop_testbed.agent.settings import Settings, read_settings
from skyhop_testbed.agent.surroundings import Surroundings
from skyhop_testbed.agent.triggering import ArmedTrigger, Triggers
from skyhop_testbed.api import Order, OrderKind
from skyhop_testbed.clock import SYSTEM_CLOCK, Clock
from skyhop_testbed.ids import is_id, new_id
from skyhop_testbed.words import ENDED, EventKind, Reason, Side, State, TaskKind

if TYPE_CHECKING:
    from skyhop.telemetry.store import Store
    from skyhop_testbed.triggers import Evaluation

_LOG = logging.getLogger(__name__)
_S = 1_000_000_000
_TELEMETRY_EVERY_S = 2.0
_MOST_SAMPLES = 60
"""Upper limit on telemetry samples in one report."""
_RETENTION_DAYS = 2
_TIDY_EVERY_S = 600.0
_RENEW_EVERY_S = 3600.0
_PREFETCH_EVERY_S = 60.0
_CLEAN_EVERY_S = 60.0
_FRESH_NS = 2 * _S
_FORGET_NS = 7 * 86_400 * _S
"""Time for which an ended run stays in the database after it has left the schedule, so that it is
not started again.
"""


@dataclass(frozen=True)
class Options:
    """Options of the command `skyhop testbed agent`."""

    dish: str | None = None
    """Address of a Starlink terminal."""
    terminal: Path | None = None
    """File with the values of a terminal of another make: a JSON object, rewritten each second."""
    interface: str | None = None
    """Host's device whose counters are the link's traffic; `None` uses the terminal's throughput.
    """
    kernel: str | None = None
    """Path of the kernel service's socket."""
    settings: Path | None = None
    """File of the owner's settings; `None` is `agent.toml` in the agent's directory, if present."""
    net_dev: Path = Path("/proc/net/dev")
    """File with the interface's counters."""
    say: Callable[[str], None] = _LOG.warning
    """Function for warnings; other steps go to the logger itself."""
    clock: Clock = SYSTEM_CLOCK


def run_agent(state: Path, *, options: Options | None = None) -> int:
    """Run a node's agent until a signal ends it; executors of runs continue without it.

    Args:
        state: the directory that `enrol` made.
        options: the options; default values if not given.

    Returns:
        0, after SIGTERM or SIGINT.

    Raises:
        InputError: the node is not enrolled, another agent uses the directory, or the owner's
            settings or a model that they name are wrong.
        RunError: the directory cannot be written.
    """
    chosen = options or Options()
    with _locked(state):
        identity = read_identity(state)
        agent = Agent(state, identity, chosen, _settings(state, chosen))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.end())
        agent.run()
    return 0


def _settings(state: Path, options: Options) -> Settings:
    named = options.settings
    file = named or state / SETTINGS
    found = read_settings(file, is_wanted=named is not None)
    if found.needs_dish and options.dish is None:
        raise InputError(f'{file}: place = "dish" needs the address of the terminal: give --dish')
    return found


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    try:
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise InputError(f"{state}: does not exist: enrol the node first") from None
    except OSError as error:
        raise RunError(f"{state}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(f"{state}: another agent uses this directory") from None
    finally:
        os.close(descriptor)


class Agent:
    """Main loop of the agent: applies orders, starts due runs, reports events."""

    def __init__(
        self, state: Path, identity: Identity, options: Options, settings: Settings
    ) -> None:
        self._say, self._identity, self._state = options.say, identity, state
        self._clock = options.clock
        try:
            for name in ("runs", "inputs"):
                (state / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunError(f"{error.filename}: {error.strerror}") from None
        db = AgentDb(state, self._clock.now_ns(), options.say)
        link = Link(
            identity,
            db,
            on_order=self._on_order,
            revision=lambda: self._node.schedule.revision,
            heartbeat_s=lambda: self._node.schedule.settings.heartbeat_s,
            say=options.say,
            clock=self._clock,
        )
        self._node = Node(identity.node, state, db, link, options.say, self._clock, options.kernel)
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._samples: queue.SimpleQueue[Sequence[Sample]] = queue.SimpleQueue()
        self._local_runs = {local_run.key: local_run for local_run in db.local_runs()}
        self._runners: dict[str, Runner] = {}
        self._triggers = Triggers(db, state, options.say)
        self._host = Host(options.interface, options.net_dev, clock=self._clock)
        self._prober = Prober(settings.probe, options.say, clock=self._clock)
        self._surroundings = Surroundings(settings, options.dish, state, options.say)
        self._predictions = PredictionClient(
            settings, self._surroundings.of_second, options.say, clock=self._clock
        )
        self._watch = Watch(
            options.dish,
            options.terminal,
            host_fields=lambda: {**self._host.values(), **self._surroundings.new_fields()},
            fields_of_second=lambda time_ns: {
                **self._surroundings.of_second(time_ns),
                **self._prober.of_second(time_ns),
            },
            on_samples=self._on_samples,
            on_map=self._on_map,
            say=options.say,
            clock=self._clock,
        )
        self._newest: Sample | None = None
        self._unsent: list[Sample] = []
        self._unsent_map: bytes | None = None
        self._due: dict[str, float] = {}
        self._background: dict[str, threading.Thread] = {}
        self._fetched: dict[str, dict[str, Any]] = {}
        """Digests and sizes of input files already downloaded, by job."""
        self._was_active: bool | None = None
        self._store: Store | None = None
        self._follow(schedule.load_stored(identity.orders_key, identity.node, db.get("schedule")))

    def end(self) -> None:
        """Ask the main loop to end; for signal handlers."""
        self._node.closing.set()
        self._node.waking.set()

    def run(self) -> None:
        """Run the main loop until `end` is called."""
        node = self._node
        self._predictions.start()
        _LOG.info("node %s: follows %s", node.name, self._identity.agents)
        for local_run in self._local_runs.values():
            if has_work_left(local_run) and local_run.state is not State.ARMED:
                self._start_runner(local_run)
        node.link.start()
        self._prober.start()
        self._watch.start()
        while not node.closing.is_set():
            node.waking.clear()
            self._guarded("main loop", self._iterate)
            self._clock.wait(node.waking, self._wait_s())
        self._close()

    def _close(self) -> None:
        self._watch.close()
        self._predictions.close()
        self._surroundings.close()
        self._prober.close()
        limit = self._clock.monotonic_s() + 3.0
        for runner in self._runners.values():
            runner.join(max(0.0, limit - self._clock.monotonic_s()))
        self._guarded("triggers", self._triggers.close)
        self._guarded("telemetry", self._send_telemetry)
        self._node.link.close()
        self._node.db.close()

    def _guarded(self, what: str, do: Callable[[], None]) -> None:
        """Call a function, and log its exception instead of ending the main loop."""
        try:
            do()
        except Exception as error:
            self._say(f"{what}: {type(error).__name__}: {error}")

    def _wait_s(self) -> float:
        """Return the time in s until the next full second, or until a run starts before it."""
        now_ns = self._clock.now_ns()
        until_ns = (now_ns // _S + 1) * _S
        for each in self._node.schedule.planned:
            if now_ns < each.start_ns < until_ns:
                until_ns = each.start_ns
        return (until_ns - now_ns) / _S + 0.002

    def _iterate(self) -> None:
        """Run one iteration of the main loop."""
        while not self._orders.empty():
            order = self._orders.get()
            self._guarded("an order", lambda order=order: self._handle_order(order))  # type: ignore[misc]
        fresh = None
        while not self._samples.empty():
            fresh = self._store_samples(self._samples.get()) or fresh
        if self._is_due("second", 0.95, at_second=True):
            self._guarded("counters", self._measure_host)
            self._guarded("surroundings", lambda: self._surroundings.refresh(self._clock.now_ns()))
        if fresh is not None:
            self._guarded("triggers", lambda: self._evaluate_triggers(fresh))
        for action in decide(self._situation()):
            self._guarded(f"run {action.run}", lambda a=action: self._apply(a))  # type: ignore[misc]
        self._housekeep()

    def _is_due(self, name: str, every_s: float, *, at_second: bool = False) -> bool:
        now = self._clock.now_ns() / _S if at_second else self._clock.monotonic_s()
        # If the clock was set back, the next due time is far ahead; periodic work must not stop
        # until then.
        if name in self._due and now < self._due[name] and self._due[name] - now < 2 * every_s:
            return False
        self._due[name] = (now // 1 + 1) if at_second else now + every_s
        return True

    # Decisions on planned runs, and their execution.

    def _planned(self) -> list[PlannedRun]:
        node, planned = self._node, list(self._node.schedule.planned)
        for local_run in self._local_runs.values():
            is_new = local_run.is_made and local_run.run not in node.schedule.runs
            if is_new and local_run.state is State.ARMED and local_run.job in node.schedule.jobs:
                values = {**vars(local_run), "id": local_run.run, "state": local_run.state.value}
                planned.append(schedule.planned_run(values, node.schedule.jobs, node.name))
        return planned

    def _situation(self) -> Situation:
        node = self._node
        known = {
            key: KnownRun(
                key,
                local_run.run,
                local_run.side,
                local_run.state,
                local_run.is_overhead,
                local_run.end_ns,
                # A run of a job that has ended is no longer wanted.
                local_run.is_made and local_run.job in node.schedule.jobs,
            )
            for key, local_run in self._local_runs.items()
        }
        return Situation(
            now_ns=self._clock.now_ns(),
            planned=self._planned(),
            known=known,
            is_scavenged=self._host.is_active,
            late_ns=round(node.schedule.settings.late_s * _S),
            objection=self._objection,
            has_fired=self._triggers.has_fired,
        )

    def _objection(self, each: PlannedRun) -> Objection | None:
        """Return why this node refuses a run, as reason and text; `None` if it accepts the run."""
        job = self._node.schedule.jobs[each.job]
        return self._objection_to(job, Side.CLIENT)

    def _objection_to(self, job: dict[str, Any], side: Side) -> Objection | None:
        node, now_ns = self._node, self._clock.now_ns()
        moved = node.add_traffic(_utc(now_ns).strftime("%Y-%m"))
        refusal = node.policy.refusal(job, now_ns, moved, side)
        if refusal is not None:
            return Reason.REFUSED, refusal
        lacks = deploying.missing_requirement(job, side, node.kernel)
        return None if lacks is None else (Reason.NEEDS, lacks)

    def _apply(self, action: Action) -> None:
        """Apply an action of `decide`."""
        local_run = self._local_runs.get(action.run)
        if action.kind is ActionKind.STOP:
            assert local_run is not None
            self._stop(local_run, action.reason, action.text, is_silent=action.is_silent)
            return
        if local_run is None:
            local_run = self._local_run_of(self._node.schedule.runs[action.run])
            self._local_runs[local_run.key] = local_run
        if action.kind is ActionKind.BEGIN:
            self._begin(local_run)
        elif action.kind is ActionKind.ARM:
            local_run.state = State.ARMED
            self._save(local_run)
        else:
            ended = State.SKIPPED if action.kind is ActionKind.SKIP else State.FAILED
            self._end(local_run, ended, action.reason, action.text)

    def _local_run_of(self, run: dict[str, Any]) -> LocalRun:
        job = self._node.schedule.jobs[str(run["job"])]
        return LocalRun(
            run=str(run["id"]),
            side=Side.CLIENT,
            state=State.PLANNED,
            job=str(run["job"]),
            spec=job["spec"],
            files=job.get("files") or {},
            start_ns=int(run["start_ns"]),
            end_ns=int(run["end_ns"]),
            client=self._node.name,
            server=str(run.get("server") or ""),
            server_address=str(run.get("server_address") or run.get("server") or ""),
            after=run.get("after"),
        )

    def _begin(self, local_run: LocalRun, following: LocalRun | None = None) -> None:
        """Start a run.

        Its fencing token is on disk before the claim, so that it is claimed only once.

        Args:
            local_run: the run.
            following: the next run, which waits for the same trigger to fire again.
        """
        local_run.fence = self._next_fence()
        local_run.state = State.CLAIMED
        reports = []
        if following is not None:
            new = {key: getattr(following, key) for key in ("run", "after", "start_ns", "end_ns")}
            reports.append(run_entry(following, self._clock.now_ns(), {}, new=new))
        if not self._node.db.save_run(local_run, *reports, also_save=following):
            self._end(local_run, State.FAILED, Reason.DISK, "the node's database cannot be written")
            return
        self._start_runner(local_run)

    def _next_fence(self) -> int:
        fence = max(
            [
                self._clock.now_ns(),
                *(local_run.fence + 1 for local_run in self._local_runs.values()),
            ]
        )
        return max(fence, int(self._node.db.get("fence") or 0) + 1)

    def _start_runner(self, local_run: LocalRun) -> None:
        runner = Runner(self._node, local_run)
        self._runners[local_run.key] = runner
        runner.start()

    def _end(self, local_run: LocalRun, state: State, reason: Reason | None, text: str) -> None:
        local_run.state, local_run.reason, local_run.settled_ns = (
            state,
            reason,
            self._clock.now_ns(),
        )
        self._save(local_run, text=text)

    def _save(self, local_run: LocalRun, **details: Any) -> None:
        reports = (
            [] if local_run.is_silent else [run_entry(local_run, self._clock.now_ns(), details)]
        )
        self._node.db.save_run(local_run, *reports)

    def _stop(
        self, local_run: LocalRun, reason: Reason | None, text: str, *, is_silent: bool
    ) -> None:
        runner = self._runners.get(local_run.key)
        if runner is not None and not runner.is_done:
            runner.stop(reason, text, is_silent=is_silent)
        elif local_run.state not in ENDED:
            local_run.is_silent |= is_silent
            self._end(local_run, State.ABORTED, reason, text)

    # Orders from the orchestrator.

    def _on_order(self, order: Order) -> None:
        self._orders.put(order)
        self._node.waking.set()

    def _handle_order(self, order: Order) -> None:
        _LOG.debug("order %s", order.kind)
        handlers = {
            OrderKind.SCHEDULE: self._handle_schedule,
            OrderKind.STOP: self._handle_stop,
            OrderKind.TASK: self._handle_task,
            OrderKind.TASK_RESULT: self._handle_task_result,
        }
        try:
            handlers[order.kind](order)
        except InputError as error:
            self._say(f"refused: {error}")

    def _handle_schedule(self, order: Order) -> None:
        node = self._node
        new = schedule.read_schedule(
            self._identity.orders_key,
            node.name,
            order.body,
            order.signature,
            node.schedule.revision,
        )
        node.db.put("schedule", new.dumps())
        self._follow(new)
        _LOG.info("schedule revision=%s runs=%s", new.revision, len(new.runs))

    def _follow(self, new: schedule.Schedule) -> None:
        self._node.schedule = new
        self._due.pop("prefetch", None)
        for run in new.runs:
            local_run = self._local_runs.get(run)
            if local_run is not None and local_run.is_made:
                local_run.is_made = False
                self._node.db.save_run(local_run)
        try:
            self._node.policy = Policy.of(new.policy, new.mode)
        except InputError as error:
            self._say(f"{error}: the previous policy stays in force")

    def _verified(self, order: Order) -> dict[str, Any]:
        """Verify a signed order; return its content.

        Raises:
            InputError: the signature is wrong, or the order is for another node.
        """
        key = self._identity.orders_key
        return schedule.verified(key, self._node.name, order.body, order.signature)

    def _handle_stop(self, order: Order) -> None:
        body = self._verified(order)
        local_run = self._local_runs.get(str(body.get("run")))
        if local_run is None:
            return
        try:
            reason = Reason(str(body.get("reason")))
        except ValueError:
            reason = Reason.USER
        self._stop(local_run, reason, "the run was stopped", is_silent=False)

    def _handle_task_result(self, order: Order) -> None:
        body = self._verified(order)
        runner = self._runners.get(str(body.get("run")))
        if runner is not None:
            runner.answer(bool(body.get("ready")), body)

    def _handle_task(self, order: Order) -> None:
        body = self._verified(order)
        if not is_id(str(body.get("run"))):
            raise InputError("a task names no run")
        local_run = self._local_runs.get(key_of(str(body["run"]), Side.SERVER))
        if body.get("kind") == TaskKind.STOP:
            self._release(local_run, body)
        elif local_run is None:
            self._serve(body)
        elif local_run.answer is not None and local_run.task == str(body["task"]):
            # The orchestrator repeats a task whose answer did not reach it.
            self._node.db.add(OutboxEntry(EventKind.TASK, self._clock.now_ns(), local_run.answer))

    def _release(self, local_run: LocalRun | None, body: dict[str, Any]) -> None:
        runner = None if local_run is None else self._runners.get(local_run.key)
        if runner is not None and not runner.is_done:
            runner.release()
        done = {"task": str(body["task"]), "run": str(body["run"]), "ok": True}
        self._node.db.add(OutboxEntry(EventKind.TASK, self._clock.now_ns(), done))

    def _serve(self, body: dict[str, Any]) -> None:
        """Start the server's side of another node's run, or report why not."""
        node, job = self._node, body["job"]
        name = str(body.get("job_id") or "")
        if not name and job.get("files"):
            self._say(f"run {body['run']}: the task names no job: its server runs without files")
        local_run = LocalRun(
            run=str(body["run"]),
            side=Side.SERVER,
            state=State.DEPLOYING,
            job=name,
            spec=job["spec"],
            files=(job.get("files") or {}) if name else {},
            start_ns=int(body["start_ns"]),
            end_ns=int(body["end_ns"]),
            client=str(body.get("client") or ""),
            server=node.name,
            task=str(body["task"]),
        )
        why = self._why_not_serve(local_run, job)
        if why is not None:
            local_run.state, local_run.settled_ns = State.SKIPPED, self._clock.now_ns()
            report_task(node, local_run, why)
            return
        self._local_runs[local_run.key] = local_run
        if not node.db.save_run(local_run):
            report_task(node, local_run, "disk: the node's database cannot be written")
            return
        self._start_runner(local_run)

    def _why_not_serve(self, local_run: LocalRun, job: dict[str, Any]) -> str | None:
        now_ns = self._clock.now_ns()
        if now_ns >= local_run.deadline_ns:
            return "offline: its time is over"
        if local_run.is_overhead:
            if self._host.is_active:
                return "scavenger: the host's own traffic comes first"
            if any(known.occupies_node(now_ns) for known in self._situation().known.values()):
                return "busy: another run occupies the node"
        objection = self._objection_to(job, Side.SERVER)
        return None if objection is None else f"{objection[0].value}: {objection[1]}"

    # Telemetry of the terminal and the host.

    def _on_samples(self, samples: Sequence[Sample]) -> None:
        self._samples.put(self._predictions.with_predictions(samples))
        self._node.waking.set()

    def _on_map(self, content: bytes) -> None:
        """Store the terminal's obstruction map, and queue it for the orchestrator."""
        self._telemetry_store().write_map(self._node.name, content)
        self._unsent_map = content

    def _telemetry_store(self) -> Store:
        if self._store is None:
            from skyhop.telemetry.store import Store

            self._store = Store(self._node.telemetry)
        return self._store

    def _store_samples(self, samples: Sequence[Sample]) -> Sample | None:
        """Store samples locally, and queue them for the orchestrator.

        Return the newest sample if it is newer than all before; otherwise `None`.
        """
        self._unsent += samples
        del self._unsent[:-3600]
        try:
            self._telemetry_store().append(self._node.name, samples)
        except SkyhopError as error:
            self._say(f"telemetry: {error}")
        newest = max(samples, key=lambda sample: int(sample[TIME] or 0))
        if self._newest is not None and int(newest[TIME] or 0) <= int(self._newest[TIME] or 0):
            return None
        self._newest = newest
        return newest

    def _measure_host(self) -> None:
        """Read the host's counters; report when runs must begin or need no longer give way."""
        now_ns = self._clock.now_ns()
        runs = [
            CountedRun(
                key, pid, self._local_runs[key].network if not key.endswith(".server") else "host"
            )
            for key, runner in self._runners.items()
            if not runner.is_done and (pid := runner.executor()) is not None
        ]
        newest = self._newest
        is_fresh = newest is not None and now_ns - int(newest[TIME] or 0) <= _FRESH_NS
        rule = self._node.policy.rule
        decision = self._host.measure(now_ns, runs, rule, newest if is_fresh else None)
        if decision.active != self._was_active:
            body = {**decision.as_json(), "mode": rule.mode.value}
            self._node.db.add(OutboxEntry(EventKind.SCAVENGER, now_ns, body))
            if decision.active or self._was_active is not None:
                self._say(f"scavenger: {'active' if decision.active else 'over'}: {decision.cause}")
            self._was_active = decision.active

    def _evaluate_triggers(self, sample: Sample) -> None:
        """Evaluate the triggers of armed runs, and start the runs of those that fired."""
        armed = {
            local_run.job: local_run
            for local_run in self._local_runs.values()
            if local_run.state is State.ARMED and local_run.side is Side.CLIENT
        }
        self._triggers.follow({job: local_run.spec for job, local_run in armed.items()})
        for each, evaluation in self._triggers.evaluate(sample):
            local_run = armed[each.job]
            run, why = None, evaluation.why
            if evaluation.fired:
                why = self._fire(each, local_run) or ""
                run = None if why else local_run.run
            if self._triggers.is_reportable(each, evaluation):
                self._log_trigger(each, evaluation, run, why)

    def _log_trigger(
        self, armed: ArmedTrigger, evaluation: Evaluation, run: str | None, why: str
    ) -> None:
        body = {
            "job": armed.job,
            "run": run,
            "fired": evaluation.fired,
            "value": evaluation.value,
            "outcome": evaluation.outcome.value,
            "why": why,
            "inputs": evaluation.inputs,
        }
        self._node.db.add(OutboxEntry(EventKind.TRIGGER, evaluation.at_ns, body))

    def _fire(self, armed: ArmedTrigger, local_run: LocalRun) -> str | None:
        """Start the run that waits for a trigger which has fired.

        Return why not, or `None` if it started.
        """
        situation = self._situation()
        each = next((p for p in situation.planned if p.run == local_run.run), None)
        if each is None:
            return "job-ended: the run is not in the schedule any more"
        why = hindrance(situation, each)
        if why is not None:
            return why
        window_end_ns = local_run.end_ns
        armed.runs += 1
        self._triggers.save(armed.job)
        now_ns = self._clock.now_ns()
        local_run.start_ns, local_run.end_ns = now_ns, now_ns + round(length_s(local_run.spec) * _S)
        goes_on = armed.max_runs is None or armed.runs < armed.max_runs
        following = self._next_armed_run(local_run, now_ns, window_end_ns) if goes_on else None
        self._begin(local_run, following)
        return None

    def _next_armed_run(self, before: LocalRun, now_ns: int, end_ns: int) -> LocalRun:
        """Create the next run of a trigger, which waits in the rest of the window."""
        local_run = LocalRun(
            run=new_id(now_ns),
            side=Side.CLIENT,
            state=State.ARMED,
            job=before.job,
            spec=before.spec,
            files=before.files,
            start_ns=now_ns,
            end_ns=end_ns,
            client=before.client,
            server=before.server,
            server_address=before.server_address,
            after=before.run,
            is_made=True,
        )
        self._local_runs[local_run.key] = local_run
        return local_run

    # Periodic work.

    def _housekeep(self) -> None:
        if self._unsent and self._is_due("telemetry", _TELEMETRY_EVERY_S):
            self._send_telemetry()
        if self._unsent_map and self._node.link.is_connected and self._is_due("map", maps.EVERY_S):
            self._send_map()
        if self._is_due("health", HEALTH_EVERY_S):
            self._in_background("health", self._report_health)
        if self._node.link.is_connected and self._is_due("prefetch", _PREFETCH_EVERY_S):
            self._in_background("prefetch", self._prefetch)
        if self._is_due("clean", _CLEAN_EVERY_S):
            self._clean()
        if self._is_due("renew", _RENEW_EVERY_S):
            self._in_background("renewal", self._renew)
        if self._is_due("tidy", _TIDY_EVERY_S):
            self._in_background("tidying", self._tidy)

    def _in_background(self, name: str, do: Callable[[], None]) -> None:
        """Call a slow function in a thread of its own, unless its previous call still runs."""
        old = self._background.get(name)
        if old is None or not old.is_alive():
            do_guarded = lambda: self._guarded(name, do)  # noqa: E731
            self._background[name] = threading.Thread(target=do_guarded, name=name, daemon=True)
            self._background[name].start()

    def _send_telemetry(self) -> None:
        samples, self._unsent = self._unsent, []
        for first in range(0, len(samples), _MOST_SAMPLES):
            body = {"samples": samples[first : first + _MOST_SAMPLES]}
            self._node.db.add(OutboxEntry(EventKind.TELEMETRY, self._clock.now_ns(), body))

    def _send_map(self) -> None:
        """Queue a report of the newest obstruction map, in place of any older one."""
        content, self._unsent_map = self._unsent_map, None
        if content is not None:
            body = {"map": maps.encode_map(content)}
            self._node.db.add(OutboxEntry(EventKind.MAP, self._clock.now_ns(), body))

    def _report_health(self) -> None:
        self._node.db.add(OutboxEntry(EventKind.HEALTH, self._clock.now_ns(), health(self._node)))

    def _prefetch(self) -> None:
        """Download the input files of jobs with planned runs ahead of time.

        The link may be down later, and a triggered run has to begin within a second.
        """
        node, done = self._node, None
        while node.schedule is not done:
            done = node.schedule
            for job in dict.fromkeys(each.job for each in done.planned):
                files = done.jobs[job].get("files") or {}
                is_wanted = files != self._fetched.get(job) and not node.closing.is_set()
                if is_wanted and deploying.prefetch(node, job, files):
                    self._fetched[job] = files

    def _renew(self) -> None:
        if self._identity.is_to_renew(_utc(self._clock.now_ns())):
            self._identity = renew(self._state, self._identity, self._node.link.wire)
            self._node.link.connect(self._identity)
            _LOG.info("node %s: has a new certificate", self._node.name)

    def _tidy(self) -> None:
        """Compact the telemetry store in a separate process; delete samples that are too old."""
        from skyhop.telemetry.store import Store
        from skyhop.telemetry.tidying import tidy_in_subprocess

        if self._node.telemetry.is_dir():
            tidy_in_subprocess(self._node.telemetry)
            Store(self._node.telemetry).expire(self._clock.now_ns() - _RETENTION_DAYS * 86_400 * _S)

    def _clean(self) -> None:
        """Delete files and rows of runs with no work left, and input files unused for a week."""
        node, now_ns = self._node, self._clock.now_ns()
        node.db.trim_outbox()
        self._runners = {key: r for key, r in self._runners.items() if not r.is_done}
        for key, local_run in [*self._local_runs.items()]:
            if not local_run.settled_ns or key in self._runners:
                continue
            old_ns = now_ns - local_run.settled_ns
            if local_run.is_uploaded and old_ns > node.policy.keep_days * 86_400 * _S:
                shutil.rmtree(local_run.directory(node.runs), ignore_errors=True)
            is_expired = now_ns > local_run.keep_until_ns
            may_go = local_run.run not in node.schedule.runs and old_ns > _FORGET_NS
            if may_go and (local_run.is_uploaded or is_expired or not local_run.starts):
                shutil.rmtree(local_run.directory(node.runs), ignore_errors=True)
                node.db.delete_run(local_run)
                del self._local_runs[key]
        for file in node.inputs.iterdir():
            with suppress(OSError):
                if now_ns - file.stat().st_mtime_ns > _FORGET_NS:
                    file.unlink()
                    # The next prefetch downloads again the files that are still needed.
                    self._fetched = {}


def _utc(at_ns: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_ns / _S, dt.UTC)
