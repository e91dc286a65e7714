"""`skyhop testbed agent`: the process that brings a node's parts together.

One thread decides, every second and whenever there is news; each run has a thread, and so have the
terminal, the orders and the reports. Nothing that one of them waits for holds up the others.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import queue
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop.telemetry import maps
from skyhop.telemetry.fields import TIME, Sample
from skyhop.testbed.agent import deploying, schedule
from skyhop.testbed.agent.book import Book, Entry
from skyhop.testbed.agent.deciding import (
    Action,
    Do,
    Known,
    Objection,
    Planned,
    Situation,
    decide,
    hindrance,
)
from skyhop.testbed.agent.health import EVERY_S as HEALTH_EVERY_S
from skyhop.testbed.agent.health import health
from skyhop.testbed.agent.identity import Identity, read_identity, renewed
from skyhop.testbed.agent.life import Life, key_of, length_s
from skyhop.testbed.agent.link import Link
from skyhop.testbed.agent.node import Node
from skyhop.testbed.agent.policy import Policy
from skyhop.testbed.agent.predicting import Predicting
from skyhop.testbed.agent.probing import Prober
from skyhop.testbed.agent.running import Runner, is_to_go_on, run_entry, task_entry_of
from skyhop.testbed.agent.sensing import Counted, Host, Watch
from skyhop.testbed.agent.settings import FILE as SETTINGS
from skyhop.testbed.agent.settings import Settings, read_settings
from skyhop.testbed.agent.surroundings import Surroundings
from skyhop.testbed.agent.triggering import Armed, Triggers
from skyhop.testbed.clock import SYSTEM_CLOCK, Clock
from skyhop.testbed.ids import is_id, new_id
from skyhop.testbed.words import ENDED, EventKind, Reason, Side, State, TaskKind

if TYPE_CHECKING:
    from skyhop.telemetry.store import Store
    from skyhop.testbed.triggers import Evaluation

_S = 1_000_000_000
_TELEMETRY_EVERY_S = 2.0
_MOST_SAMPLES = 60
"""Of one report."""
_KEPT_DAYS = 2
_TIDY_EVERY_S = 600.0
_RENEW_EVERY_S = 3600.0
_PREFETCH_EVERY_S = 60.0
_CLEAN_EVERY_S = 60.0
_FRESH_NS = 2 * _S
_FORGET_NS = 7 * 86_400 * _S
"""What has ended is known for so long, lest it be begun again."""


@dataclass(frozen=True)
class Options:
    """How an agent is run."""

    dish: str | None = None
    """A Starlink terminal's address."""
    terminal: Path | None = None
    """Where another terminal's values stand: a JSON object, each second anew."""
    interface: str | None = None
    """Of the host: whose counters are the link's. Without one the terminal's rates are taken."""
    kernel: str | None = None
    """The kernel service's socket."""
    settings: Path | None = None
    """What the owner has written down, a file; `agent.toml` beside the rest where there is one."""
    net_dev: Path = Path("/proc/net/dev")
    """Where the interface's counters stand."""
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
    clock: Clock = SYSTEM_CLOCK


def run_agent(state: Path, *, options: Options | None = None) -> int:
    """Run a node's agent until it is told to end; its runs go on without it.

    Args:
        state: the directory that `enrol` made.
        options: how.

    Returns:
        0, after SIGTERM or SIGINT.

    Raises:
        InputError: the node is not enrolled, another agent has the directory, or the owner's
            settings or a model that they name are wrong.
        RunError: the directory cannot be written.
    """
    chosen = options or Options()
    with _alone(state):
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
        raise InputError(f'{file}: place = "dish": there is none: give its address, --dish')
    return found


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    try:
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise InputError(f"{state}: there is no such directory: enrol the node first") from None
    except OSError as error:
        raise RunError(f"{state}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(f"{state}: another agent is at work there") from None
    finally:
        os.close(descriptor)


class Agent:
    """A node's."""

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
        book = Book(state, self._clock.now_ns(), options.say)
        link = Link(
            identity,
            book,
            on_order=self._on_order,
            revision=lambda: self._node.schedule.revision,
            heartbeat_s=lambda: self._node.schedule.settings.heartbeat_s,
            say=options.say,
            clock=self._clock,
        )
        self._node = Node(
            identity.node, state, book, link, options.say, self._clock, options.kernel
        )
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._samples: queue.SimpleQueue[Sequence[Sample]] = queue.SimpleQueue()
        self._lives = {life.key: life for life in book.lives()}
        self._runners: dict[str, Runner] = {}
        self._triggers = Triggers(book, state, options.say)
        self._host = Host(options.interface, options.net_dev, clock=self._clock)
        self._prober = Prober(settings.probe, options.say, clock=self._clock)
        self._around = Surroundings(settings, options.dish, state, options.say)
        self._predicting = Predicting(
            settings, self._around.of_second, options.say, clock=self._clock
        )
        self._watch = Watch(
            options.dish,
            options.terminal,
            add=lambda: {**self._host.values(), **self._around.news()},
            above=lambda time_ns: {
                **self._around.of_second(time_ns),
                **self._prober.of_second(time_ns),
            },
            take=self._take_samples,
            take_map=self._take_map,
            say=options.say,
            clock=self._clock,
        )
        self._newest: Sample | None = None
        self._unsent: list[Sample] = []
        self._unsent_map: bytes | None = None
        self._due: dict[str, float] = {}
        self._helpers: dict[str, threading.Thread] = {}
        self._fetched: dict[str, dict[str, Any]] = {}
        """Of jobs whose files are here what these are."""
        self._was_active: bool | None = None
        self._store: Store | None = None
        self._follow(schedule.loads(identity.orders_key, identity.node, book.get("schedule")))

    def end(self) -> None:
        """End it, from a signal's handler."""
        self._node.closing.set()
        self._node.waking.set()

    def run(self) -> None:
        """Work until it is told to end."""
        node = self._node
        self._predicting.start()
        self._say(f"node {node.name}: follows {self._identity.agents}")
        for life in self._lives.values():
            if is_to_go_on(life) and life.state is not State.ARMED:
                self._set_out(life)
        node.link.start()
        self._prober.start()
        self._watch.start()
        while not node.closing.is_set():
            node.waking.clear()
            self._guarded("a look", self._step)
            self._clock.wait(node.waking, self._wait_s())
        self._close()

    def _close(self) -> None:
        self._watch.close()
        self._predicting.close()
        self._around.close()
        self._prober.close()
        limit = self._clock.monotonic_s() + 3.0
        for runner in self._runners.values():
            runner.join(max(0.0, limit - self._clock.monotonic_s()))
        self._guarded("triggers", self._triggers.close)
        self._guarded("telemetry", self._send_telemetry)
        self._node.link.close()
        self._node.book.close()

    def _guarded(self, what: str, do: Callable[[], None]) -> None:
        """Do something whose failure must not end the rest."""
        try:
            do()
        except Exception as error:
            self._say(f"{what}: {type(error).__name__}: {error}")

    def _wait_s(self) -> float:
        """Return how long nothing is to do: until the next second, or a run's start before it."""
        now_ns = self._clock.now_ns()
        until_ns = (now_ns // _S + 1) * _S
        for each in self._node.schedule.planned:
            if now_ns < each.start_ns < until_ns:
                until_ns = each.start_ns
        return (until_ns - now_ns) / _S + 0.002

    def _step(self) -> None:
        """Do all that is to be done now."""
        while not self._orders.empty():
            order = self._orders.get()
            self._guarded("an order", lambda order=order: self._obey(order))  # type: ignore[misc]
        fresh = None
        while not self._samples.empty():
            fresh = self._keep_samples(self._samples.get()) or fresh
        if self._is_due("second", 0.95, at_second=True):
            self._guarded("counters", self._look_at_host)
            self._guarded("surroundings", lambda: self._around.look(self._clock.now_ns()))
        if fresh is not None:
            self._guarded("triggers", lambda: self._look_at_triggers(fresh))
        for action in decide(self._situation()):
            self._guarded(f"run {action.run}", lambda a=action: self._do(a))  # type: ignore[misc]
        self._housekeep()

    def _is_due(self, name: str, every_s: float, *, at_second: bool = False) -> bool:
        now = self._clock.now_ns() / _S if at_second else self._clock.monotonic_s()
        # A clock that was set back must not silence what goes by it.
        if name in self._due and now < self._due[name] and self._due[name] - now < 2 * every_s:
            return False
        self._due[name] = (now // 1 + 1) if at_second else now + every_s
        return True

    # What is planned, and what becomes of it.

    def _planned(self) -> list[Planned]:
        node, planned = self._node, list(self._node.schedule.planned)
        for life in self._lives.values():
            is_new = life.is_made and life.run not in node.schedule.runs
            if is_new and life.state is State.ARMED and life.job in node.schedule.jobs:
                values = {**vars(life), "id": life.run, "state": life.state.value}
                planned.append(schedule.planned_of(values, node.schedule.jobs, node.name))
        return planned

    def _situation(self) -> Situation:
        node = self._node
        known = {
            key: Known(
                key,
                life.run,
                life.side,
                life.state,
                life.is_overhead,
                life.end_ns,
                # Of a job that was ended, nothing new is wanted.
                life.is_made and life.job in node.schedule.jobs,
            )
            for key, life in self._lives.items()
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

    def _objection(self, each: Planned) -> Objection | None:
        """Return why this node does not do a run."""
        job = self._node.schedule.jobs[each.job]
        return self._objection_to(job, Side.CLIENT)

    def _objection_to(self, job: dict[str, Any], side: Side) -> Objection | None:
        node, now_ns = self._node, self._clock.now_ns()
        moved = node.moved(_utc(now_ns).strftime("%Y-%m"))
        refusal = node.policy.refusal(job, now_ns, moved, side)
        if refusal is not None:
            return Reason.REFUSED, refusal
        lacks = deploying.lacking(job, side, node.kernel)
        return None if lacks is None else (Reason.NEEDS, lacks)

    def _do(self, action: Action) -> None:
        """Do what was decided."""
        life = self._lives.get(action.run)
        if action.do is Do.STOP:
            assert life is not None
            self._stop(life, action.reason, action.text, is_silent=action.is_silent)
            return
        if life is None:
            life = self._life_of(self._node.schedule.runs[action.run])
            self._lives[life.key] = life
        if action.do is Do.BEGIN:
            self._begin(life)
        elif action.do is Do.ARM:
            life.state = State.ARMED
            self._enter(life)
        else:
            ended = State.SKIPPED if action.do is Do.SKIP else State.FAILED
            self._end(life, ended, action.reason, action.text)

    def _life_of(self, run: dict[str, Any]) -> Life:
        job = self._node.schedule.jobs[str(run["job"])]
        return Life(
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

    def _begin(self, life: Life, following: Life | None = None) -> None:
        """Take a run, once and for all: its fence is on the disk before anyone is asked.

        Args:
            life: the run.
            following: the one that waits for the trigger after it.
        """
        life.fence = self._next_fence()
        life.state = State.CLAIMED
        told = []
        if following is not None:
            new = {key: getattr(following, key) for key in ("run", "after", "start_ns", "end_ns")}
            told.append(run_entry(following, self._clock.now_ns(), {}, new=new))
        if not self._node.book.enter(life, *told, also=following):
            self._end(life, State.FAILED, Reason.DISK, "the book cannot be written")
            return
        self._set_out(life)

    def _next_fence(self) -> int:
        fence = max([self._clock.now_ns(), *(life.fence + 1 for life in self._lives.values())])
        return max(fence, int(self._node.book.get("fence") or 0) + 1)

    def _set_out(self, life: Life) -> None:
        runner = Runner(self._node, life)
        self._runners[life.key] = runner
        runner.start()

    def _end(self, life: Life, state: State, reason: Reason | None, text: str) -> None:
        life.state, life.reason, life.settled_ns = state, reason, self._clock.now_ns()
        self._enter(life, text=text)

    def _enter(self, life: Life, **details: Any) -> None:
        told = [] if life.is_silent else [run_entry(life, self._clock.now_ns(), details)]
        self._node.book.enter(life, *told)

    def _stop(self, life: Life, reason: Reason | None, text: str, *, is_silent: bool) -> None:
        runner = self._runners.get(life.key)
        if runner is not None and not runner.is_done:
            runner.stop(reason, text, is_silent=is_silent)
        elif life.state not in ENDED:
            life.is_silent |= is_silent
            self._end(life, State.ABORTED, reason, text)

    # What the orchestrator says.

    def _on_order(self, order: Any) -> None:
        self._orders.put(order)
        self._node.waking.set()

    def _obey(self, order: Any) -> None:
        which = order.WhichOneof("kind")
        try:
            if which == "schedule":
                self._take_schedule(order.schedule)
            elif which == "stop":
                self._take_stop(order.stop)
            elif which == "task":
                self._take_task(order.task)
            elif which == "task_result":
                self._take_result(order.task_result)
        except InputError as error:
            self._say(f"refused: {error}")

    def _take_schedule(self, order: Any) -> None:
        node = self._node
        new = schedule.read_schedule(
            self._identity.orders_key,
            node.name,
            bytes(order.body),
            bytes(order.signature),
            node.schedule.revision,
        )
        node.book.put("schedule", new.dumps())
        self._follow(new)

    def _follow(self, new: schedule.Schedule) -> None:
        self._node.schedule = new
        self._due.pop("prefetch", None)
        for run in new.runs:
            life = self._lives.get(run)
            if life is not None and life.is_made:
                life.is_made = False
                self._node.book.enter(life)
        try:
            self._node.policy = Policy.of(new.policy, new.mode)
        except InputError as error:
            self._say(f"{error}: the policy before stays")

    def _opened(self, order: Any) -> dict[str, Any]:
        """Return what a signed order to this node says.

        Raises:
            InputError: it is not the orchestrator's, or not for this node.
        """
        key = self._identity.orders_key
        return schedule.opened(key, self._node.name, bytes(order.body), bytes(order.signature))

    def _take_stop(self, order: Any) -> None:
        body = self._opened(order)
        life = self._lives.get(str(body.get("run")))
        if life is None:
            return
        try:
            reason = Reason(str(body.get("reason")))
        except ValueError:
            reason = Reason.USER
        self._stop(life, reason, "it was stopped", is_silent=False)

    def _take_result(self, order: Any) -> None:
        body = self._opened(order)
        runner = self._runners.get(str(body.get("run")))
        if runner is not None:
            runner.answer(bool(body.get("ready")), body)

    def _take_task(self, order: Any) -> None:
        body = self._opened(order)
        if not is_id(str(body.get("run"))):
            raise InputError("a task is of no run")
        life = self._lives.get(key_of(str(body["run"]), Side.SERVER))
        if body.get("kind") == TaskKind.STOP:
            self._release(life, body)
        elif life is None:
            self._serve(body)
        elif life.answer is not None and life.task == str(body["task"]):
            # Asked once more: the answer did not arrive.
            self._node.book.add(Entry(EventKind.TASK, self._clock.now_ns(), life.answer))

    def _release(self, life: Life | None, body: dict[str, Any]) -> None:
        runner = None if life is None else self._runners.get(life.key)
        if runner is not None and not runner.is_done:
            runner.release()
        done = {"task": str(body["task"]), "run": str(body["run"]), "ok": True}
        self._node.book.add(Entry(EventKind.TASK, self._clock.now_ns(), done))

    def _serve(self, body: dict[str, Any]) -> None:
        """Serve another node's run, or say why not."""
        node, job = self._node, body["job"]
        name = str(body.get("job_id") or "")
        if not name and job.get("files"):
            self._say(f"run {body['run']}: it is not said of which job: it is served without files")
        life = Life(
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
        why = self._why_not_serve(life, job)
        if why is not None:
            life.state, life.settled_ns = State.SKIPPED, self._clock.now_ns()
            task_entry_of(node, life, why)
            return
        self._lives[life.key] = life
        if not node.book.enter(life):
            task_entry_of(node, life, "disk: the book cannot be written")
            return
        self._set_out(life)

    def _why_not_serve(self, life: Life, job: dict[str, Any]) -> str | None:
        now_ns = self._clock.now_ns()
        if now_ns >= life.deadline_ns:
            return "offline: its time is over"
        if life.is_overhead:
            if self._host.is_active:
                return "scavenger: the host's own traffic comes first"
            if any(known.holds(now_ns) for known in self._situation().known.values()):
                return "busy: another run has the node"
        objection = self._objection_to(job, Side.SERVER)
        return None if objection is None else f"{objection[0].value}: {objection[1]}"

    # What terminal and host say.

    def _take_samples(self, samples: Sequence[Sample]) -> None:
        self._samples.put(self._predicting.complemented(samples))
        self._node.waking.set()

    def _take_map(self, content: bytes) -> None:
        """Keep the terminal's obstruction map here, and for the orchestrator."""
        self._opened_store().keep_map(self._node.name, content)
        self._unsent_map = content

    def _opened_store(self) -> Store:
        if self._store is None:
            from skyhop.telemetry.store import Store

            self._store = Store(self._node.telemetry)
        return self._store

    def _keep_samples(self, samples: Sequence[Sample]) -> Sample | None:
        """Keep samples here and for the orchestrator; return the newest."""
        self._unsent += samples
        del self._unsent[:-3600]
        try:
            self._opened_store().append(self._node.name, samples)
        except SkyhopError as error:
            self._say(f"telemetry: {error}")
        newest = max(samples, key=lambda sample: int(sample[TIME] or 0))
        if self._newest is not None and int(newest[TIME] or 0) <= int(self._newest[TIME] or 0):
            return None
        self._newest = newest
        return newest

    def _look_at_host(self) -> None:
        """Count, decide whether runs make room, and say so when that changes."""
        now_ns = self._clock.now_ns()
        runs = [
            Counted(key, pid, self._lives[key].network if not key.endswith(".server") else "host")
            for key, runner in self._runners.items()
            if not runner.is_done and (pid := runner.executor()) is not None
        ]
        newest = self._newest
        is_fresh = newest is not None and now_ns - int(newest[TIME] or 0) <= _FRESH_NS
        rule = self._node.policy.rule
        decision = self._host.look(now_ns, runs, rule, newest if is_fresh else None)
        if decision.active != self._was_active:
            body = {**decision.as_json(), "mode": rule.mode.value}
            self._node.book.add(Entry(EventKind.SCAVENGER, now_ns, body))
            if decision.active or self._was_active is not None:
                self._say(f"scavenger: {'active' if decision.active else 'over'}: {decision.cause}")
            self._was_active = decision.active

    def _look_at_triggers(self, sample: Sample) -> None:
        """Look at the triggers of runs that are armed, and begin those that fired."""
        armed = {
            life.job: life
            for life in self._lives.values()
            if life.state is State.ARMED and life.side is Side.CLIENT
        }
        self._triggers.follow({job: life.spec for job, life in armed.items()})
        for each, look in self._triggers.evaluate(sample):
            life = armed[each.job]
            run, why = None, look.why
            if look.fired:
                why = self._fire(each, life) or ""
                run = None if why else life.run
            if self._triggers.is_news(each, look):
                self._log_trigger(each, look, run, why)

    def _log_trigger(self, armed: Armed, look: Evaluation, run: str | None, why: str) -> None:
        body = {
            "job": armed.job,
            "run": run,
            "fired": look.fired,
            "value": look.value,
            "outcome": look.outcome.value,
            "why": why,
            "inputs": look.inputs,
        }
        self._node.book.add(Entry(EventKind.TRIGGER, look.at_ns, body))

    def _fire(self, armed: Armed, life: Life) -> str | None:
        """Begin the run that waits; return why not."""
        situation = self._situation()
        each = next((p for p in situation.planned if p.run == life.run), None)
        if each is None:
            return "job-ended: it is not in the schedule any more"
        why = hindrance(situation, each)
        if why is not None:
            return why
        window_end_ns = life.end_ns
        armed.runs += 1
        self._triggers.save(armed.job)
        now_ns = self._clock.now_ns()
        life.start_ns, life.end_ns = now_ns, now_ns + round(length_s(life.spec) * _S)
        goes_on = armed.max_runs is None or armed.runs < armed.max_runs
        following = self._following(life, now_ns, window_end_ns) if goes_on else None
        self._begin(life, following)
        return None

    def _following(self, before: Life, now_ns: int, end_ns: int) -> Life:
        """Make the run of the rest of the window."""
        life = Life(
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
        self._lives[life.key] = life
        return life

    # What is to be done from time to time.

    def _housekeep(self) -> None:
        if self._unsent and self._is_due("telemetry", _TELEMETRY_EVERY_S):
            self._send_telemetry()
        if self._unsent_map and self._node.link.is_connected and self._is_due("map", maps.EVERY_S):
            self._send_map()
        if self._is_due("health", HEALTH_EVERY_S):
            self._help("health", self._report_health)
        if self._node.link.is_connected and self._is_due("prefetch", _PREFETCH_EVERY_S):
            self._help("prefetch", self._prefetch)
        if self._is_due("clean", _CLEAN_EVERY_S):
            self._clean()
        if self._is_due("renew", _RENEW_EVERY_S):
            self._help("renewal", self._renew)
        if self._is_due("tidy", _TIDY_EVERY_S):
            self._help("tidying", self._tidy)

    def _help(self, name: str, do: Callable[[], None]) -> None:
        """Do something beside, which may take its time."""
        old = self._helpers.get(name)
        if old is None or not old.is_alive():
            do_guarded = lambda: self._guarded(name, do)  # noqa: E731
            self._helpers[name] = threading.Thread(target=do_guarded, name=name, daemon=True)
            self._helpers[name].start()

    def _send_telemetry(self) -> None:
        samples, self._unsent = self._unsent, []
        for first in range(0, len(samples), _MOST_SAMPLES):
            body = {"samples": samples[first : first + _MOST_SAMPLES]}
            self._node.book.add(Entry(EventKind.TELEMETRY, self._clock.now_ns(), body))

    def _send_map(self) -> None:
        """Report the newest map alone: those between are of no use to anybody."""
        content, self._unsent_map = self._unsent_map, None
        if content is not None:
            body = {"map": maps.packed(content)}
            self._node.book.add(Entry(EventKind.MAP, self._clock.now_ns(), body))

    def _report_health(self) -> None:
        self._node.book.add(Entry(EventKind.HEALTH, self._clock.now_ns(), health(self._node)))

    def _prefetch(self) -> None:
        """Have the files of jobs here that have runs to come: then nobody may answer.

        A run whose trigger fires has to begin within a second besides.
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
            self._identity = renewed(self._state, self._identity, self._node.link.stub)
            self._node.link.connect(self._identity)
            self._say(f"node {self._node.name}: has a new certificate")

    def _tidy(self) -> None:
        """Fold telemetry into its files, and let go of what is old; in another process."""
        from skyhop.telemetry.store import Store
        from skyhop.telemetry.tidying import tidy_apart

        if self._node.telemetry.is_dir():
            tidy_apart(self._node.telemetry)
            Store(self._node.telemetry).expire(self._clock.now_ns() - _KEPT_DAYS * 86_400 * _S)

    def _clean(self) -> None:
        """Let go of runs that nothing is left to do of, and of files that are kept elsewhere."""
        node, now_ns = self._node, self._clock.now_ns()
        node.book.bound()
        self._runners = {key: r for key, r in self._runners.items() if not r.is_done}
        for key, life in [*self._lives.items()]:
            if not life.settled_ns or key in self._runners:
                continue
            old_ns = now_ns - life.settled_ns
            if life.is_uploaded and old_ns > node.policy.keep_days * 86_400 * _S:
                shutil.rmtree(life.directory(node.runs), ignore_errors=True)
            is_expired = now_ns > life.keep_until_ns
            may_go = life.run not in node.schedule.runs and old_ns > _FORGET_NS
            if may_go and (life.is_uploaded or is_expired or not life.starts):
                shutil.rmtree(life.directory(node.runs), ignore_errors=True)
                node.book.forget(life)
                del self._lives[key]
        for file in node.inputs.iterdir():
            with suppress(OSError):
                if now_ns - file.stat().st_mtime_ns > _FORGET_NS:
                    file.unlink()
                    # What is still wanted of them comes again.
                    self._fetched = {}


def _utc(at_ns: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_ns / _S, dt.UTC)
