"""Execution of one side of one run, from its claim to the end of its upload; one thread per run.

Every step is noted in the database before it is taken, and every step but one can be repeated: a
restarted agent continues from the last step that was written before its predecessor was killed. The
exception is the start of the program; the executor's own journal records whether it has happened
(`executor.journal`).
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Unpack

from skyhop.errors import RunError, SkyhopError
from skyhop.logs import fields
from skyhop_testbed.agent import deploying, uploading
from skyhop_testbed.agent.agent_db import Durability, OutboxEntry
from skyhop_testbed.agent.link import Backoff, RefusedError
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.node import Node, boot_id
from skyhop_testbed.agent.reports import FollowUp, RunDetails, RunReport, TaskReport
from skyhop_testbed.executor.assignment import RESULT_FILE
from skyhop_testbed.executor.journal import Step, has_started, is_alive, read_journal
from skyhop_testbed.executor.result import Outcome, Result
from skyhop_testbed.schedule import ServerAnswer
from skyhop_testbed.states import Change, allowed
from skyhop_testbed.words import ACTIVE, ENDED, JobKind, Reason, Side, State

_LOG = logging.getLogger(__name__)
_S = 1_000_000_000
POLL_S = 0.1
"""Interval in s at which a run's executor is checked."""
_CLAIM_S, _CLAIM_AT_ONCE_S = 3.0, 0.4
"""Longest wait in s for the answer to a claim; shorter for a run that a trigger starts."""
_KILLED_AFTER_S = 10.0
"""Time in s after which an executor that was told to stop is killed."""
_OVERDUE_S = 30.0
"""Time in s after the end of its run at which an executor is killed."""
_MOST_STARTS = 3
_SERVER_SHARE, _LONGEST_SERVER_S = 0.25, 60.0
_LISTENS_S = 0.5
_LONGEST_TRY_S = 300.0
_HELD_BACK_S = 1.0
"""Interval in s at which an upload that is held back is tried again."""


class EndedError(RunError):
    """The run has ended meanwhile, so its next step must not be taken."""


class _ClosingError(RunError):
    """The agent ends; the run's executor continues without it."""


class Runner:
    """Driver of one run through its states (claim, deploy, execute, upload) on its own thread."""

    def __init__(self, node: Node, local_run: LocalRun) -> None:
        self.local_run = local_run
        self._node, self._clock = node, node.clock
        self._lock = threading.RLock()
        self._stopped, self._answered = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = local_run.directory(node.runs)
        self._thread = threading.Thread(target=self._main, name=local_run.key, daemon=True)
        self._refusal = ""
        """Why the orchestrator has refused the files for good."""
        self._is_new = (
            local_run.state is State.CLAIMED and not local_run.is_granted and not local_run.starts
        )
        if local_run.state in ENDED:
            self._stopped.set()

    def start(self) -> None:
        """Start the thread, which continues from the run's saved state."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for the thread to end."""
        self._thread.join(seconds)

    @property
    def is_done(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def executor(self) -> int | None:
        """Return the pid of the run's executor; `None` if no executor is alive."""
        if not is_alive(self._directory):
            return None
        pids = [e.pid for e in read_journal(self._directory) if e.step is Step.DEPLOYING]
        if pids:
            return pids[-1]
        return self._process.pid if self._process and self._process.poll() is None else None

    def stop(
        self,
        reason: Reason | None,
        text: str,
        *,
        is_silent: bool = False,
    ) -> None:
        """Abort the run now: its program is told to end, and its files so far are uploaded.

        Args:
            reason: the reason to record.
            text: the reason as text.
            is_silent: whether no report is needed, because the orchestrator already knows.
        """
        with self._lock:
            local_run = self.local_run
            if local_run.state in ENDED or local_run.state is State.FINISHING:
                return
            local_run.stop = Outcome(State.ABORTED, reason, text)
            local_run.is_silent |= is_silent
            self._change_state(State.ABORTED, reason, text=text)
        self._stopped.set()
        self._answered.set()
        self._tell_executor()

    def release(self) -> None:
        """End a server's side as complete, because its client has ended."""
        with self._lock:
            local_run = self.local_run
            if local_run.state is not State.EXECUTING or self.executor() is None:
                self.stop(None, "its client has ended")
                return
            local_run.stop = Outcome(State.COMPLETE, None, "its client has ended")
            self._node.db.save_run(local_run, durability=Durability.WRITTEN)
        self._tell_executor()

    def take_answer(self, answer: ServerAnswer) -> None:
        """Record the reply of the server's node."""
        with self._lock:
            self.local_run.answer = answer
            self._node.db.save_run(self.local_run, durability=Durability.HELD)
        self._answered.set()

    def _main(self) -> None:
        try:
            self._run_steps()
            self._clean_up()
        except _ClosingError:
            return
        except Exception as error:  # a failing run must not affect others.
            self._fail(error)
        finally:
            self._node.waking.set()

    def _fail(self, error: Exception) -> None:
        """Fail the run after an unexpected exception."""
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._node.say(f"run {self.local_run.key}: {type(error).__name__}: {error}")
        with suppress(Exception):
            self._kill()
        with suppress(EndedError), self._lock:
            reason = Reason.DISK if is_full else Reason.KILLED
            self._change_state(State.FAILED, reason, text=f"{type(error).__name__}: {error}"[:300])
        with suppress(Exception):
            self._settle()

    def _run_steps(self) -> None:
        """Execute one step after another until the run's state is final."""
        steps = {
            State.CLAIMED: self._claim,
            State.DEPLOYING: self._deploy,
            State.WAITING_SERVER: self._await_server,
            State.EXECUTING: self._execute,
            State.FINISHING: self._finish,
        }
        while self.local_run.state in steps:
            self._check_closing()
            before = self.local_run.state
            with suppress(EndedError):
                steps[before]()
            if self.local_run.state is before:
                self._clock.sleep(POLL_S)

    def _change_state(
        self, state: State, reason: Reason | None = None, **details: Unpack[RunDetails]
    ) -> None:
        """Change the run's state: save it, and queue its report.

        Raises:
            EndedError: the run's present state does not allow the change.
        """
        with self._lock:
            local_run = self.local_run
            if not allowed(local_run.state, state):
                raise EndedError(f"run {local_run.key} is {local_run.state.value}")
            local_run.state, local_run.reason = state, reason
            _LOG.info(
                "run %s %s %s", local_run.key, state.value, fields({"reason": reason, **details})
            )
            entries = []
            if local_run.side is Side.CLIENT and not local_run.is_silent:
                entries.append(run_entry(local_run, self._clock.now_ns(), details))
            elif local_run.side is Side.SERVER and state in ENDED and local_run.answer is None:
                word = reason.value if reason else state.value
                error = f"{word}: {details.get('text', '')}"
                entries.append(_task_entry(local_run, self._clock.now_ns(), error))
            self._node.db.save_run(local_run, *entries, durability=_durability_of(state))

    def _check_closing(self) -> None:
        if self._node.closing.is_set():
            raise _ClosingError("the agent ends")

    def _claim(self) -> None:
        local_run, now_ns = self.local_run, self._clock.now_ns()
        late_ns = round(self._node.schedule.settings.late_s * _S)
        if not local_run.is_granted:
            is_hasty = local_run.spec.when.kind is JobKind.TRIGGER
            patience_s = _CLAIM_AT_ONCE_S if is_hasty else _CLAIM_S
            granted, why = self._node.link.claim(local_run.run, local_run.fence, now_ns, patience_s)
            self._check_closing()
            if granted is False:
                self._node.say(f"run {local_run.run}: not granted: {why}")
                with self._lock:
                    local_run.is_silent = True
                    self._change_state(State.SKIPPED, Reason.FENCED)
                return
            with self._lock:
                if local_run.state is not State.CLAIMED:
                    return
                local_run.is_granted = True
                details: RunDetails = {"fence": local_run.fence, **_times(local_run)}
                reports = [run_entry(local_run, now_ns, details)] if granted is None else []
                self._node.db.save_run(local_run, *reports, durability=Durability.HELD)
        if not self._is_new and now_ns > local_run.start_ns + late_ns:
            self._change_state(
                State.SKIPPED, Reason.OFFLINE, text="the agent was away at its start"
            )
            return
        self._change_state(State.DEPLOYING, **_times(local_run))

    def _deploy(self) -> None:
        """Fetch the input files, then go on to waiting for the server's side or to execution."""
        local_run = self.local_run
        if local_run.fault:
            self._change_state(State.FAILED, Reason.DEPLOY, text=local_run.fault)
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fetch()
        except deploying.MissingError as error:
            self._change_state(State.FAILED, Reason.DEPLOY, text=str(error))
            return
        has_server = bool(local_run.server) and local_run.side is Side.CLIENT
        self._change_state(State.WAITING_SERVER if has_server else State.EXECUTING)

    def _fetch(self) -> Path | None:
        """Fetch the input files; retry for a while if they cannot be fetched."""
        limit = self._clock.monotonic_s() + self._patience_s()
        backoff = Backoff()
        while True:
            try:
                return deploying.fetch_inputs(self._node, self.local_run)
            except deploying.MissingError:
                if self._clock.monotonic_s() > limit:
                    raise
                self._pause(min(backoff.next_s(), 5.0))

    def _patience_s(self) -> float:
        return min(_SERVER_SHARE * self.local_run.spec.length_s, _LONGEST_SERVER_S)

    def _pause(self, seconds: float) -> None:
        """Sleep, unless the run is stopped or the agent ends.

        Raises:
            EndedError: the run was stopped.
        """
        limit = self._clock.monotonic_s() + seconds
        while (left_s := limit - self._clock.monotonic_s()) > 0:
            self._check_closing()
            if self._clock.wait(self._stopped, min(left_s, 0.5)):
                raise EndedError("the run was stopped")

    def _await_server(self) -> None:
        limit = self._clock.monotonic_s() + self._patience_s()
        while self.local_run.answer is None and self._clock.monotonic_s() < limit:
            self._check_closing()
            self._clock.wait(self._answered, 0.2)
            if self._stopped.is_set():
                return
        match self.local_run.answer:
            case ServerAnswer(ready=True, port=port):
                self.local_run.port = port or 0
                self._change_state(State.EXECUTING, port=self.local_run.port)
            case ServerAnswer(error=error):
                text = error or "the server is not ready"
                self._change_state(State.FAILED, Reason.SERVER, text=text[:300])
            case _:
                text = "the server's node did not answer in time"
                self._change_state(State.FAILED, Reason.SERVER, text=text)

    def _execute(self) -> None:
        """Start the executor, unless it has started already, and follow it to its end."""
        is_unanswered = self.local_run.side is Side.SERVER and self.local_run.answer is None
        if is_unanswered and is_alive(self._directory):
            # The previous agent was killed after it started the executor and before it reported
            # that.
            self._report_ready()
        while not self._is_over():
            self._check_closing()
            if (
                not is_alive(self._directory)
                and not self._is_over()
                and not self._ensure_executor()
            ):
                return
            self._kill_overdue()
            if self._clock.wait(self._stopped, POLL_S):
                return
        result = self._result()
        self._account(result)
        self._change_state(State.FINISHING, **_result_details(result))

    def _is_over(self) -> bool:
        return (self._directory / RESULT_FILE).exists() and not is_alive(self._directory)

    def _ensure_executor(self) -> bool:
        """Start an executor if none runs; return `False` if the run has ended instead.

        An executor started after another was killed only writes the killed one's result.
        """
        local_run = self.local_run
        if self._process is not None and self._process.poll() is None:
            return True
        if has_started(self._directory):
            if local_run.starts < 2 * _MOST_STARTS:
                self._start_executor()
                return True
            self._change_state(
                State.FAILED, self._lost_reason(), text="the outcome of its program is unknown"
            )
        elif local_run.stop is not None:
            self._change_state(State.ABORTED, None, text=local_run.stop.message or "")
        elif local_run.starts >= _MOST_STARTS:
            self._change_state(
                State.FAILED, Reason.KILLED, text="its executor ends before it begins"
            )
        elif self._clock.now_ns() >= local_run.deadline_ns:
            self._change_state(
                State.FAILED, Reason.OFFLINE, text="its time was over before it began"
            )
        else:
            return self._launch()
        return False

    def _launch(self) -> bool:
        local_run = self.local_run
        try:
            inputs = self._directory / "inputs"
            given = deploying.assignment_of(
                self._node, local_run, inputs if local_run.files and inputs.exists() else None
            )
            if local_run.side is Side.SERVER:
                local_run.port = free_port(*self._node.policy.ports)
                given = deploying.assignment_of(self._node, local_run, None)
            given.write(self._directory)
        except SkyhopError as error:
            # The kernel service refuses, or no port is free.
            refused = isinstance(error, deploying.KernelError)
            reason = Reason.KERNEL if refused else Reason.DEPLOY
            self._change_state(State.FAILED, reason, text=str(error)[:300])
            return False
        self._start_executor()
        if local_run.side is Side.SERVER:
            self._report_ready()
        return True

    def _start_executor(self) -> None:
        """Start the executor in a session of its own, so that it outlives the agent."""
        local_run = self.local_run
        with self._lock:
            if local_run.state in ENDED:
                raise EndedError("the run was stopped")
            if not has_started(self._directory):
                local_run.boot = boot_id()
            local_run.starts += 1
            self._node.db.save_run(local_run)
            command = [sys.executable, "-m", "skyhop_testbed.executor", str(self._directory)]
            with (self._directory / "executor.log").open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=self._directory,
                )
        _LOG.debug(
            "run %s: executor pid=%s start=%s", local_run.key, self._process.pid, local_run.starts
        )
        limit = self._clock.monotonic_s() + 5.0
        while self._clock.monotonic_s() < limit and self._process.poll() is None:
            if is_alive(self._directory):
                return
            self._clock.sleep(0.02)

    def _kill_overdue(self) -> None:
        """Kill an executor that still runs `_OVERDUE_S` after its run's end."""
        overdue_ns = self._clock.now_ns() - self.local_run.end_ns - round(_OVERDUE_S * _S)
        if overdue_ns > 0:
            self._kill()

    def _tell_executor(self) -> None:
        """If the run is to stop, write `stop.json` and send SIGTERM to the executor."""
        with self._lock:
            pid = self.executor()
            if pid is None or self.local_run.stop is None:
                return
            # If the disk is full, the executor ends without a recorded reason.
            with suppress(OSError):
                self.local_run.stop.write_stop(self._directory)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _kill(self) -> None:
        pid = self.executor()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _result(self) -> Result:
        """Return the executor's result; if the executor was killed, the result tells why."""
        result = Result.read(self._directory)
        if result.reason is Reason.KILLED:
            return replace(result, reason=self._lost_reason())
        return result

    def _lost_reason(self) -> Reason:
        return Reason.RESTARTED if self.local_run.boot != boot_id() else Reason.KILLED

    def _account(self, result: Result) -> None:
        """Add the run's traffic to the month's total on this node."""
        total = result.traffic.rx_bytes + result.traffic.tx_bytes if result.traffic else 0
        month = datetime.fromtimestamp(self.local_run.start_ns / _S, UTC).strftime("%Y-%m")
        self._node.allowance.add(month, total)

    def _finish(self) -> None:
        """Upload the files, then change to the final state and report it."""
        result = self._result()
        is_there = self._upload()
        if not is_there:
            text = self._refusal or "the files stay on the node"
            self._change_state(State.FAILED, Reason.UPLOAD, text=text[:300])
            return
        if result.state is State.COMPLETE:
            self._change_state(State.COMPLETE, **_result_details(result))
        else:
            reason = result.reason or Reason.KILLED
            self._change_state(State.FAILED, reason, **_result_details(result))

    def _upload(self) -> bool:
        """Upload the files, with retries for the retention time, unless they are refused for good.

        Return whether all have arrived.
        """
        local_run, backoff, said = self.local_run, Backoff(), ""
        while not local_run.is_uploaded:
            self._check_closing()
            if self._node.allowance.held_back() and self._clock.now_ns() < local_run.keep_until_ns:
                self._clock.wait(self._node.closing, _HELD_BACK_S)
                continue
            try:
                done = uploading.send(self._node, local_run, self._node.closing.is_set)
            except RefusedError as error:
                self._node.say(f"run {local_run.key}: upload: {error}")
                self._refusal, local_run.is_given_up = str(error), True
                return False
            except (SkyhopError, OSError, ValueError) as error:
                done = False
                if str(error) != said:
                    self._node.say(f"run {local_run.key}: upload: {error}")
                said = str(error)
            if done:
                with self._lock:
                    local_run.is_uploaded = True
                    self._node.db.save_run(local_run, durability=Durability.HELD)
                break
            self._check_closing()
            if self._node.allowance.held_back():
                backoff.clear()
                continue
            if self._clock.now_ns() > local_run.keep_until_ns:
                return False
            self._clock.wait(self._node.closing, min(backoff.next_s(), _LONGEST_TRY_S))
        return True

    def _clean_up(self) -> None:
        """Clean up after the final state: end the executor, upload the files of a stopped run."""
        began, was_signalled = self._clock.monotonic_s(), False
        while is_alive(self._directory):
            self._check_closing()
            if not was_signalled:
                self._tell_executor()
                was_signalled = self.executor() is not None
            if self._clock.monotonic_s() - began > _KILLED_AFTER_S:
                self._kill()
            self._clock.sleep(POLL_S)
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if not (self._directory / RESULT_FILE).exists() and has_started(self._directory):
            command = [sys.executable, "-m", "skyhop_testbed.executor", str(self._directory)]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, timeout=30, check=False)
        if self.local_run.stop is not None and (self._directory / RESULT_FILE).exists():
            self._account(self._result())
        if (self._directory / RESULT_FILE).exists() and self.local_run.reason is not Reason.UPLOAD:
            self._upload()
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            self.local_run.settled_ns = self._clock.now_ns()
            self._node.db.save_run(self.local_run, durability=Durability.HELD)
        if not (self._directory / RESULT_FILE).exists():
            shutil.rmtree(self._directory, ignore_errors=True)

    def _report_ready(self) -> None:
        """Report that the server listens, or has run for `_LISTENS_S`.

        Or that it has ended already.
        """
        limit = self._clock.monotonic_s() + max(_LISTENS_S, self._patience_s() / 2)
        lives_since: float | None = None
        while self._clock.monotonic_s() < limit and not self._is_over():
            if listens(self.local_run.port):
                break
            began = any(e.step is Step.EXECUTING for e in read_journal(self._directory))
            if began and lives_since is None:
                lives_since = self._clock.monotonic_s()
            if lives_since is not None and self._clock.monotonic_s() - lives_since > _LISTENS_S:
                break
            self._pause(0.05)
        if self._is_over():
            said = self._result().message or "the program ended at once"
            report_task(self._node, self.local_run, f"{self.local_run.server}: {said}")
        else:
            report_task(self._node, self.local_run, None)


def _durability_of(state: State) -> Durability:
    """Return what a change to a state must survive.

    The claim and the start of the program are synced before they are acted on. After a power
    failure, the executor's files tell how far a run has come, so that a step between is repeated.
    """
    if state in ENDED:
        return Durability.SYNCED
    # The server's node starts only when the orchestrator knows that the client waits.
    return Durability.WRITTEN if state is State.WAITING_SERVER else Durability.HELD


def report_task(node: Node, local_run: LocalRun, error: str | None) -> None:
    """Report that a server's side is ready, or with `error`, why it is not."""
    node.db.save_run(local_run, _task_entry(local_run, node.clock.now_ns(), error))


def _task_entry(local_run: LocalRun, at_ns: int, error: str | None) -> OutboxEntry:
    is_ready = error is None
    port = local_run.port if is_ready else None
    local_run.answer = TaskReport(local_run.task, local_run.run, is_ready, port, error)
    return OutboxEntry(at_ns, local_run.answer)


def run_entry(
    local_run: LocalRun,
    at_ns: int,
    details: RunDetails,
    new: FollowUp | None = None,
    *,
    state: State | None = None,
) -> OutboxEntry:
    """Return a report of a run's present state, or of an earlier `state`, for the outbox."""
    known = {name: value for name, value in details.items() if value not in (None, "")}
    is_present = state is None or state is local_run.state
    reason = local_run.reason if is_present else None
    change = Change(at_ns, state or local_run.state, "", reason, known)
    return OutboxEntry(at_ns, RunReport(local_run.run, change, new))


def _times(local_run: LocalRun) -> RunDetails:
    """Return actual start and end of a run that a trigger starts.

    The schedule has only the window.
    """
    if local_run.spec.when.kind is not JobKind.TRIGGER:
        return {}
    return {"start_ns": local_run.start_ns, "end_ns": local_run.end_ns}


def _result_details(result: Result) -> RunDetails:
    return {
        "exit": result.exit,
        "signal": result.signal,
        "message": result.message,
        "traffic": result.traffic,
        "began_ns": result.began_ns,
        "ended_ns": result.ended_ns,
        "partial": result.partial,
    }


def free_port(low: int, high: int) -> int:
    """Return a free TCP port of a range, chosen at random.

    Raises:
        RunError: all ports are in use.
    """
    begin = secrets.randbelow(high - low + 1)
    for step in range(high - low + 1):
        port = low + (begin + step) % (high - low + 1)
        if not listens(port):
            return port
    raise RunError(f"all ports from {low} to {high} are taken")


def listens(port: int) -> bool:
    """Return whether a TCP socket listens on a port in this network namespace."""
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        with suppress(OSError), Path(f"/proc/net/{name}").open() as lines:
            for line in lines:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return True
    return False


def has_work_left(local_run: LocalRun) -> bool:
    """Return whether a run in the database is active, or has ended and still has work left."""
    return local_run.state in ACTIVE or (local_run.state in ENDED and not local_run.settled_ns)
