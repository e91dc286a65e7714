"""One side of one run, from its claim until its files have arrived: a thread each.

Every step is in the book before it is made, and each can be begun again: an agent that is started
anew goes on where the last one was killed. Only the executor's start cannot, and of that the
executor's own journal says whether it was (`executor.journal`).
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyhop.errors import RunError, SkyhopError
from skyhop.testbed.agent import deploying, uploading
from skyhop.testbed.agent.book import Entry
from skyhop.testbed.agent.life import Life, kind_of, length_s
from skyhop.testbed.agent.link import Waits
from skyhop.testbed.agent.node import Node, boot_id
from skyhop.testbed.executor.assignment import RESULT_FILE, STOP_FILE, write_durably
from skyhop.testbed.executor.journal import Step, has_started, is_alive, read_journal
from skyhop.testbed.states import Change, allowed
from skyhop.testbed.words import ACTIVE, ENDED, EventKind, JobKind, Reason, Side, State

_S = 1_000_000_000
LOOK_S = 0.1
"""How often a run's executor is looked after."""
_CLAIM_S, _CLAIM_AT_ONCE_S = 3.0, 0.4
"""How long an answer to a claim is waited for; less where a trigger has fired."""
_KILLED_AFTER_S = 10.0
"""An executor that was told to stop and has not is killed."""
_OVERDUE_S = 30.0
"""One that lives so long after its run's end is told to stop."""
_MOST_STARTS = 3
_SERVER_SHARE, _LONGEST_SERVER_S = 0.25, 60.0
_LISTENS_S = 0.5
_LONGEST_TRY_S = 300.0


class EndedError(RunError):
    """The run was ended meanwhile: the step is not made."""


class _ClosingError(RunError):
    """The agent ends; the run goes on without it."""


class Runner:
    """What goes through a run's life."""

    def __init__(self, node: Node, life: Life) -> None:
        self.life = life
        self._node, self._clock = node, node.clock
        self._lock = threading.RLock()
        self._stopped, self._answered = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = life.directory(node.runs)
        self._thread = threading.Thread(target=self._main, name=life.key, daemon=True)
        self._is_new = life.state is State.CLAIMED and not life.is_granted and not life.starts
        if life.state in ENDED:
            self._stopped.set()

    def start(self) -> None:
        """Begin, or go on."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        self._thread.join(seconds)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self._thread.is_alive()

    def executor(self) -> int | None:
        """Return the executor's process, `None` where none lives."""
        if not is_alive(self._directory):
            return None
        pids = [s["pid"] for s in read_journal(self._directory) if s["step"] == Step.DEPLOYING]
        if pids:
            return int(pids[-1])
        return self._process.pid if self._process and self._process.poll() is None else None

    def stop(
        self,
        reason: Reason | None,
        text: str,
        *,
        is_silent: bool = False,
    ) -> None:
        """End it now: its program is told to, what there is of its files is kept.

        Args:
            reason: why.
            text: the same in words.
            is_silent: whether the orchestrator decided it and need not be told.
        """
        with self._lock:
            life = self.life
            if life.state in ENDED or life.state is State.FINISHING:
                return
            word = reason.value if reason else None
            life.stop = {"reason": word, "state": State.ABORTED.value, "message": text}
            life.is_silent |= is_silent
            self._to(State.ABORTED, reason, text=text)
        self._stopped.set()
        self._answered.set()
        self._tell_executor()

    def release(self) -> None:
        """End what serves, as its client does not need it any more."""
        with self._lock:
            life = self.life
            if life.state is not State.EXECUTING or self.executor() is None:
                self.stop(None, "its client has ended")
                return
            text = "its client has ended"
            life.stop = {"reason": None, "state": State.COMPLETE.value, "message": text}
            self._node.book.enter(life)
        self._tell_executor()

    def answer(self, ready: bool, values: dict[str, Any]) -> None:
        """Take what the server's node said."""
        with self._lock:
            self.life.answer = {**values, "ready": ready}
            self._node.book.enter(self.life)
        self._answered.set()

    def _main(self) -> None:
        try:
            self._live()
            self._gather()
        except _ClosingError:
            return
        except Exception as error:  # one run's trouble is that run's alone.
            self._give_up(error)
        finally:
            self._node.waking.set()

    def _give_up(self, error: Exception) -> None:
        """Fail a run for a reason that nobody foresaw."""
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._node.say(f"run {self.life.key}: {type(error).__name__}: {error}")
        with suppress(Exception):
            self._kill()
        with suppress(EndedError), self._lock:
            reason = Reason.DISK if is_full else Reason.KILLED
            self._to(State.FAILED, reason, text=f"{type(error).__name__}: {error}"[:300])
        with suppress(Exception):
            self._settle()

    def _live(self) -> None:
        """Go from step to step until its state is final."""
        steps = {
            State.CLAIMED: self._claim,
            State.DEPLOYING: self._deploy,
            State.WAITING_SERVER: self._await_server,
            State.EXECUTING: self._execute,
            State.FINISHING: self._finish,
        }
        while self.life.state in steps:
            self._check_closing()
            before = self.life.state
            with suppress(EndedError):
                steps[before]()
            if self.life.state is before:
                self._clock.sleep(LOOK_S)

    def _to(self, state: State, reason: Reason | None = None, **details: Any) -> None:
        """Make a step: into the book, and into what is reported.

        Raises:
            EndedError: the run's state does not allow it any more.
        """
        with self._lock:
            life = self.life
            if not allowed(life.state, state):
                raise EndedError(f"run {life.key} is {life.state.value}")
            life.state, life.reason = state, reason
            entries = []
            if life.side is Side.CLIENT and not life.is_silent:
                entries.append(run_entry(life, self._clock.now_ns(), details))
            elif life.side is Side.SERVER and state in ENDED and life.answer is None:
                word = reason.value if reason else state.value
                error = f"{word}: {details.get('text', '')}"
                entries.append(_answered(life, self._clock.now_ns(), error))
            self._node.book.enter(life, *entries)

    def _check_closing(self) -> None:
        if self._node.closing.is_set():
            raise _ClosingError("the agent ends")

    def _claim(self) -> None:
        life, now_ns = self.life, self._clock.now_ns()
        late_ns = round(self._node.schedule.settings.late_s * _S)
        if not life.is_granted:
            is_hasty = kind_of(life.spec) is JobKind.TRIGGER
            patience_s = _CLAIM_AT_ONCE_S if is_hasty else _CLAIM_S
            granted, why = self._node.link.claim(life.run, life.fence, now_ns, patience_s)
            self._check_closing()
            if granted is False:
                self._node.say(f"run {life.run}: not granted: {why}")
                with self._lock:
                    life.is_silent = True
                    self._to(State.SKIPPED, Reason.FENCED)
                return
            with self._lock:
                if life.state is not State.CLAIMED:
                    return
                life.is_granted = True
                details = {"fence": life.fence, **_times(life)}
                told = [run_entry(life, now_ns, details)] if granted is None else []
                self._node.book.enter(life, *told)
        if not self._is_new and now_ns > life.start_ns + late_ns:
            self._to(State.SKIPPED, Reason.OFFLINE, text="the agent was away at its start")
            return
        self._to(State.DEPLOYING, **_times(life))

    def _deploy(self) -> None:
        """Have its files here, then wait for its server or start it."""
        life = self.life
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fetch()
        except deploying.MissingError as error:
            self._to(State.FAILED, Reason.DEPLOY, text=str(error))
            return
        has_server = bool(life.server) and life.side is Side.CLIENT
        self._to(State.WAITING_SERVER if has_server else State.EXECUTING)

    def _fetch(self) -> Path | None:
        """Fetch its files; where nobody answers, for a while."""
        limit = self._clock.monotonic_s() + self._patience_s()
        waits = Waits()
        while True:
            try:
                return deploying.fetch_inputs(self._node, self.life)
            except deploying.MissingError:
                if self._clock.monotonic_s() > limit:
                    raise
                self._pause(min(waits.next_s(), 5.0))

    def _patience_s(self) -> float:
        return min(_SERVER_SHARE * length_s(self.life.spec), _LONGEST_SERVER_S)

    def _pause(self, seconds: float) -> None:
        """Wait, but not when the run or the agent ends.

        Raises:
            EndedError: the run was stopped.
        """
        limit = self._clock.monotonic_s() + seconds
        while (left_s := limit - self._clock.monotonic_s()) > 0:
            self._check_closing()
            if self._clock.wait(self._stopped, min(left_s, 0.5)):
                raise EndedError("it was stopped")

    def _await_server(self) -> None:
        limit = self._clock.monotonic_s() + self._patience_s()
        while self.life.answer is None and self._clock.monotonic_s() < limit:
            self._check_closing()
            self._clock.wait(self._answered, 0.2)
            if self._stopped.is_set():
                return
        answer = self.life.answer
        if answer is None:
            self._to(State.FAILED, Reason.SERVER, text="the server's node did not answer in time")
        elif not answer.get("ready"):
            text = str(answer.get("error") or "it is not ready")
            self._to(State.FAILED, Reason.SERVER, text=text[:300])
        else:
            self.life.port = int(answer.get("port") or 0)
            self._to(State.EXECUTING, port=self.life.port)

    def _execute(self) -> None:
        """See a run through that is executed, or is about to be."""
        is_unanswered = self.life.side is Side.SERVER and self.life.answer is None
        if is_unanswered and is_alive(self._directory):
            # The agent was killed between its start and the word of it.
            self._report_ready()
        while not self._is_over():
            self._check_closing()
            if not is_alive(self._directory) and not self._is_over() and not self._revive():
                return
            self._look_after()
            if self._clock.wait(self._stopped, LOOK_S):
                return
        result = self._result()
        self._account(result)
        self._to(State.FINISHING, **_told_of(result))

    def _is_over(self) -> bool:
        return (self._directory / RESULT_FILE).exists() and not is_alive(self._directory)

    def _revive(self) -> bool:
        """Start its executor, or have one write down what a killed one left; return if it may."""
        life = self.life
        if self._process is not None and self._process.poll() is None:
            return True
        if has_started(self._directory):
            if life.starts < 2 * _MOST_STARTS:
                self._start_executor()
                return True
            self._to(State.FAILED, self._lost_reason(), text="nothing is known of its end")
        elif life.stop is not None:
            self._to(State.ABORTED, None, text=str(life.stop.get("message", "")))
        elif life.starts >= _MOST_STARTS:
            self._to(State.FAILED, Reason.KILLED, text="its executor ends before it begins")
        elif self._clock.now_ns() >= life.deadline_ns:
            self._to(State.FAILED, Reason.OFFLINE, text="its time was over before it began")
        else:
            return self._launch()
        return False

    def _launch(self) -> bool:
        life = self.life
        try:
            inputs = self._directory / "inputs"
            given = deploying.assignment_of(
                self._node, life, inputs if life.files and inputs.exists() else None
            )
            if life.side is Side.SERVER:
                life.port = free_port(*self._node.policy.ports)
                given = deploying.assignment_of(self._node, life, None)
            given.write(self._directory)
        except SkyhopError as error:
            # A job that this version does not know, a service that says no, no port that is free.
            refused = isinstance(error, deploying.KernelError)
            reason = Reason.KERNEL if refused else Reason.DEPLOY
            self._to(State.FAILED, reason, text=str(error)[:300])
            return False
        self._start_executor()
        if life.side is Side.SERVER:
            self._report_ready()
        return True

    def _start_executor(self) -> None:
        """Start its executor, which lives on without us."""
        life = self.life
        with self._lock:
            if life.state in ENDED:
                raise EndedError("it was stopped")
            if not has_started(self._directory):
                life.boot = boot_id()
            life.starts += 1
            self._node.book.enter(life)
            command = [sys.executable, "-m", "skyhop.testbed.executor", str(self._directory)]
            with (self._directory / "executor.log").open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=self._directory,
                )
        limit = self._clock.monotonic_s() + 5.0
        while self._clock.monotonic_s() < limit and self._process.poll() is None:
            if is_alive(self._directory):
                return
            self._clock.sleep(0.02)

    def _look_after(self) -> None:
        """See that an executor does not outlive its run's time by far."""
        overdue_ns = self._clock.now_ns() - self.life.end_ns - round(_OVERDUE_S * _S)
        if overdue_ns > 0:
            self._kill()

    def _tell_executor(self) -> None:
        """Have the executor stop as the book says."""
        with self._lock:
            pid = self.executor()
            if pid is None or self.life.stop is None:
                return
            # On a full disk it ends without knowing why.
            with suppress(OSError):
                write_durably(self._directory / STOP_FILE, json.dumps(self.life.stop).encode())
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _kill(self) -> None:
        pid = self.executor()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _result(self) -> dict[str, Any]:
        """Return what the executor says; that of a killed one with why it was."""
        try:
            result: dict[str, Any] = json.loads((self._directory / RESULT_FILE).read_bytes())
        except (OSError, ValueError):
            result = {"state": State.FAILED, "reason": Reason.KILLED}
        if result.get("reason") == Reason.KILLED:
            result["reason"] = self._lost_reason()
        return result

    def _lost_reason(self) -> Reason:
        return Reason.RESTARTED if self.life.boot != boot_id() else Reason.KILLED

    def _account(self, result: dict[str, Any]) -> None:
        """Count what it moved towards the month's cap."""
        moved = result.get("traffic") or {}
        total = int(moved.get("rx_bytes", 0)) + int(moved.get("tx_bytes", 0))
        month = datetime.fromtimestamp(self.life.start_ns / _S, UTC).strftime("%Y-%m")
        self._node.moved(month, total)

    def _finish(self) -> None:
        """Upload, then say what it came to."""
        result = self._result()
        is_there = self._upload()
        if not is_there:
            self._to(State.FAILED, Reason.UPLOAD, text="its files stay on the node")
            return
        is_good = result.get("state") == State.COMPLETE
        reason = None if is_good else _reason(result.get("reason"))
        self._to(State.COMPLETE if is_good else State.FAILED, reason, **_told_of(result))

    def _upload(self) -> bool:
        """Upload its files, for as long as they are kept; return whether they have arrived."""
        life, waits, said = self.life, Waits(), ""
        while not life.is_uploaded:
            self._check_closing()
            try:
                done = uploading.send(self._node, life, self._node.closing.is_set)
            except (SkyhopError, OSError, ValueError) as error:
                done = False
                if str(error) != said:
                    self._node.say(f"run {life.key}: upload: {error}")
                said = str(error)
            if done:
                with self._lock:
                    life.is_uploaded = True
                    self._node.book.enter(life)
                break
            self._check_closing()
            if self._clock.now_ns() > life.keep_until_ns:
                return False
            self._clock.wait(self._node.closing, min(waits.next_s(), _LONGEST_TRY_S))
        return True

    def _gather(self) -> None:
        """After its end: have nothing left of it running, and its files uploaded."""
        began, was_told = self._clock.monotonic_s(), False
        while is_alive(self._directory):
            self._check_closing()
            if not was_told:
                self._tell_executor()
                was_told = self.executor() is not None
            if self._clock.monotonic_s() - began > _KILLED_AFTER_S:
                self._kill()
            self._clock.sleep(LOOK_S)
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if not (self._directory / RESULT_FILE).exists() and has_started(self._directory):
            command = [sys.executable, "-m", "skyhop.testbed.executor", str(self._directory)]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, timeout=30, check=False)
        if self.life.stop is not None and (self._directory / RESULT_FILE).exists():
            self._account(self._result())
        if (self._directory / RESULT_FILE).exists() and self.life.reason is not Reason.UPLOAD:
            self._upload()
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            self.life.settled_ns = self._clock.now_ns()
            self._node.book.enter(self.life)
        if not (self._directory / RESULT_FILE).exists():
            shutil.rmtree(self._directory, ignore_errors=True)

    def _report_ready(self) -> None:
        """Say that what serves listens, or lives; or that it does not."""
        limit = self._clock.monotonic_s() + max(_LISTENS_S, self._patience_s() / 2)
        lives_since: float | None = None
        while self._clock.monotonic_s() < limit and not self._is_over():
            if listens(self.life.port):
                break
            began = any(s["step"] == Step.EXECUTING for s in read_journal(self._directory))
            if began and lives_since is None:
                lives_since = self._clock.monotonic_s()
            if lives_since is not None and self._clock.monotonic_s() - lives_since > _LISTENS_S:
                break
            self._pause(0.05)
        if self._is_over():
            said = self._result().get("message") or "it ended at once"
            task_entry_of(self._node, self.life, f"{self.life.server}: {said}")
        else:
            task_entry_of(self._node, self.life, None)


def task_entry_of(node: Node, life: Life, error: str | None) -> None:
    """Report whether a server's side is ready."""
    node.book.enter(life, _answered(life, node.clock.now_ns(), error))


def _answered(life: Life, at_ns: int, error: str | None) -> Entry:
    body = {
        "task": life.task,
        "run": life.run,
        "ok": error is None,
        "port": life.port if error is None else None,
        "error": error,
    }
    life.answer = body
    return Entry(EventKind.TASK, at_ns, body)


def run_entry(life: Life, at_ns: int, details: dict[str, Any], **others: Any) -> Entry:
    """Return the report of a run's step, as its state is now."""
    change = Change(at_ns, life.state, "", life.reason, _known(details))
    return Entry(EventKind.RUN, at_ns, {"run": life.run, "change": change.as_json(), **others})


def _known(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if value not in (None, "")}


def _times(life: Life) -> dict[str, Any]:
    """Return when a run that a trigger began begins and ends: its row has the window's."""
    if kind_of(life.spec) is not JobKind.TRIGGER:
        return {}
    return {"start_ns": life.start_ns, "end_ns": life.end_ns}


def _told_of(result: dict[str, Any]) -> dict[str, Any]:
    names = ("exit", "signal", "message", "traffic", "began_ns", "ended_ns", "partial")
    return {name: result[name] for name in names if result.get(name) is not None}


def _reason(word: object) -> Reason:
    try:
        return Reason(str(word))
    except ValueError:
        return Reason.KILLED


def free_port(low: int, high: int) -> int:
    """Return a port of a range at which nobody listens.

    Raises:
        RunError: all are taken.
    """
    begin = secrets.randbelow(high - low + 1)
    for step in range(high - low + 1):
        port = low + (begin + step) % (high - low + 1)
        if not listens(port):
            return port
    raise RunError(f"all ports from {low} to {high} are taken")


def listens(port: int) -> bool:
    """Return whether a TCP socket listens at a port of this network namespace."""
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        with suppress(OSError), Path(f"/proc/net/{name}").open() as lines:
            for line in lines:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return True
    return False


def is_to_go_on(life: Life) -> bool:
    """Return whether a run of the book has anything left to do."""
    return life.state in ACTIVE or (life.state in ENDED and not life.settled_ns)
