"""A run from its start to its result.

Once the journal has `started` on the disk, nobody starts the program again: an executor that finds
it there, its writer being dead, writes down that the run was killed and what it left.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import shutil
import signal
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop.testbed.clock import Clock
from skyhop.testbed.executor import keep, limits
from skyhop.testbed.executor.assignment import (
    RESULT_FILE,
    STOP_FILE,
    WORK,
    Assignment,
    write_durably,
)
from skyhop.testbed.executor.backends import Program, keeper
from skyhop.testbed.executor.journal import Journal, Step, has_started
from skyhop.testbed.executor.output import Output
from skyhop.testbed.executor.sandbox import Ended
from skyhop.testbed.executor.traffic import NAMESPACE, SOCKETS, Moved, OfSockets, of_namespace
from skyhop.testbed.kernel.client import KernelClient
from skyhop.testbed.words import Network, Reason, State

LOOK_S = 0.5
"""How often limits and traffic are looked at."""
GRACE_S = 5.0
"""What a program has after its TERM, where it cannot send any more."""
GRACE_WITH_NETWORK_S = 0.8
"""And where it can: the host's own traffic waits."""
_TRAFFIC_EVERY = 10
"""Every so many looks the traffic is written down."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_ROOM = {
    "state": State.FAILED,
    "reason": Reason.DISK,
    "message": "the node's disk was full: there was no room to write down what it came to",
}
_STDOUT, _STDERR = "stdout", "stderr"


def execute(directory: Path, clock: Clock) -> None:
    """Do what `directory/run.json` says, and leave `result.json` there.

    Raises:
        InputError: there is no such directory or no assignment in it.
        RunError: another executor is at it, or the disk refuses the journal.
    """
    directory = directory.resolve()
    assignment = Assignment.read(directory)
    try:
        journal = Journal(directory)
        if (directory / RESULT_FILE).exists():
            return
        if has_started(directory):
            _settle(directory, assignment, journal, clock)
        else:
            _Execution(directory, assignment, journal, clock).run()
    except OSError as error:
        raise RunError(f"{directory}: {error.strerror}") from None


def _settle(directory: Path, assignment: Assignment, journal: Journal, clock: Clock) -> None:
    """Write down what became of a run whose executor was killed."""
    keeper(assignment.backend, clock).clean(assignment.run)
    outcome = {"state": State.FAILED, "reason": Reason.KILLED}
    finish(directory, assignment, journal, outcome, clock)


class _Execution:
    """One run, while it lasts."""

    def __init__(
        self, directory: Path, assignment: Assignment, journal: Journal, clock: Clock
    ) -> None:
        self._directory, self._assignment, self._journal = directory, assignment, journal
        self._clock, self._keeper = clock, keeper(assignment.backend, clock)
        self._work = directory / WORK
        self._kernel: KernelClient | None = None
        self._program: Program | None = None
        self._sockets = OfSockets()
        self._moved = Moved()
        self._stop: dict[str, Any] | None = None
        """Why the program was told to end, and to what it leads."""
        self._kill_at: float | None = None
        self._killed_before = 0
        """Processes of this machine, by the kernel, for want of memory."""
        # The deadline is given on the wall's clock; what changes that later is not the run's.
        left_s = (assignment.deadline_ns - self._clock.now_ns()) / 1e9
        self._deadline = self._clock.monotonic_s() + left_s
        self._told, tells = os.pipe()
        os.set_blocking(tells, False)
        os.set_blocking(self._told, False)
        signal.set_wakeup_fd(tells)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        self._journal.add(self._clock.now_ns(), Step.DEPLOYING, pid=os.getpid())
        outcome: dict[str, Any] = {}
        try:
            self._deploy()
            outcome = self._supervise()
        except _NotStartedError as error:
            outcome = {"state": State.FAILED, "reason": error.reason, "message": str(error)}
        except OSError as error:
            if error.errno not in _FULL:
                raise
            if self._program is not None:
                self._program.kill()
            outcome = dict(_NO_ROOM)
        finally:
            if self._kernel is not None:
                self._kernel.close()
        finish(self._directory, self._assignment, self._journal, outcome, self._clock)

    def _deploy(self) -> None:
        assignment = self._assignment
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(mode=0o755)
        if assignment.inputs is not None:
            try:
                shutil.copytree(assignment.inputs, self._work, dirs_exist_ok=True, symlinks=True)
            except (OSError, shutil.Error) as error:
                raise _NotStartedError(Reason.DEPLOY, f"its files: {error}") from None
        lacking = self._keeper.lacks(assignment)
        if lacking:
            raise _NotStartedError(Reason.NEEDS, lacking)
        if self._left_s() <= 0:
            raise _NotStartedError(Reason.TIMEOUT, "its time was over before it began")

    def _supervise(self) -> dict[str, Any]:
        outputs = [
            Output(self._directory / name, self._assignment.limits.output_bytes)
            for name in (_STDOUT, _STDERR)
        ]
        began_ns = self._clock.now_ns()
        self._killed_before = limits.killed_for_memory()
        self._program = self._start(outputs)
        self._journal.add(self._clock.now_ns(), Step.EXECUTING)
        for output in outputs:
            output.close_writing()
        ended = self._wait(outputs)
        self._look(is_last=True)
        for output in outputs:
            output.close()
        self._journal.add(
            self._clock.now_ns(),
            Step.ENDED,
            exit=ended.exit,
            signal=ended.signal,
            failed=ended.failed,
        )
        return {
            **self._judged(ended),
            "began_ns": began_ns,
            "ended_ns": self._clock.now_ns(),
            "exit": ended.exit,
            "signal": ended.signal,
            "traffic": {**asdict(self._moved), "counted": self._counted()},
            **{
                name: {"bytes": output.bytes, "kept": output.kept}
                for name, output in zip((_STDOUT, _STDERR), outputs, strict=True)
            },
        }

    def _start(self, outputs: list[Output]) -> Program:
        """Start the program: from here on it has been started."""
        assignment = self._assignment
        descriptors = (outputs[0].writes, outputs[1].writes)
        furnish = self._furnish if assignment.network is Network.VETH else None
        self._journal.add(self._clock.now_ns(), Step.STARTED)
        try:
            return self._keeper.start(assignment, self._work, descriptors, furnish)
        except _NotStartedError:
            raise
        except (SkyhopError, OSError) as error:
            raise _NotStartedError(Reason.NEEDS, str(error)) from None

    def _furnish(self, namespace: int) -> str | None:
        """Have the kernel service give the run its device, and what the job asks for."""
        access = self._assignment.kernel
        if access is None:
            raise _NotStartedError(Reason.NEEDS, "this node has no kernel service")
        try:
            self._kernel = KernelClient(access.socket)
            self._kernel.attach(
                self._assignment.run, access.token, namespace, leoscope=access.leoscope
            )
            return self._kernel.prepare(access)
        except SkyhopError as error:
            raise _NotStartedError(Reason.KERNEL, str(error)) from None

    def _wait(self, outputs: list[Output]) -> Ended:
        """Go through the run's time, until its program has ended."""
        assert self._program is not None
        with selectors.DefaultSelector() as selector:
            for output in outputs:
                selector.register(output, selectors.EVENT_READ, output.read)
            selector.register(self._program, selectors.EVENT_READ, lambda: True)
            selector.register(self._told, selectors.EVENT_READ, self._told_to_stop)
            if self._kernel is not None:
                selector.register(self._kernel, selectors.EVENT_READ, self._lost_kernel)
            looks, next_look = 0, self._clock.monotonic_s()
            while True:
                left_s = next_look - self._clock.monotonic_s()
                for key, _ in self._clock.select(selector, left_s):
                    if not key.data():
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._program and (ended := self._program.news()):
                        self._program.wait()
                        return ended
                if self._kill_at is not None and self._clock.monotonic_s() >= self._kill_at:
                    self._program.kill()
                    return Ended(signal=signal.SIGKILL)
                if self._clock.monotonic_s() >= next_look:
                    self._check(looks)
                    looks += 1
                    next_look = self._clock.monotonic_s() + LOOK_S
                next_look = min(next_look, self._next_change())

    def _next_change(self) -> float:
        """Return when the run's time, or that of its grace, is over."""
        return self._deadline if self._kill_at is None else self._kill_at

    def _lost_kernel(self) -> bool:
        self._end(Reason.KERNEL, "the kernel service has ended")
        return False

    def _left_s(self) -> float:
        return self._deadline - self._clock.monotonic_s()

    def _check(self, looks: int) -> None:
        """Look at what the run has taken, and at the time."""
        self._look()
        if looks % _TRAFFIC_EVERY == _TRAFFIC_EVERY - 1:
            self._journal.add(self._clock.now_ns(), Step.TRAFFIC, **asdict(self._moved))
        if self._stop is not None:
            return
        assert self._program is not None
        assignment = self._assignment
        pids = self._program.processes()
        found = limits.passed(
            assignment.limits, self._work, pids, self._moved, assignment.data_cap_bytes
        )
        if found:
            self._end(*found)
        elif self._left_s() <= 0:
            is_success = assignment.timeout_is_success
            self._end(
                Reason.TIMEOUT,
                "its time was over",
                State.COMPLETE if is_success else State.FAILED,
            )

    def _look(self, *, is_last: bool = False) -> None:
        """Count the run's traffic: what was counted stays when its namespace is gone."""
        assert self._program is not None
        if self._assignment.network is Network.HOST:
            moved = self._sockets.look(self._program.processes())
        elif is_last and self._kernel is not None:
            # The service still has the namespace, which is gone for all others.
            with suppress(SkyhopError):
                self._moved = Moved(*self._kernel.counters())
            return
        else:
            process = self._program.network_process()
            moved = of_namespace(process) if process else Moved()
        self._moved = max(self._moved, moved, key=lambda each: each.bytes)

    def _counted(self) -> str:
        return SOCKETS if self._assignment.network is Network.HOST else NAMESPACE

    def _told_to_stop(self) -> bool:
        """Stop as `stop.json` says, which the agent wrote before it sent the signal."""
        os.read(self._told, 512)
        try:
            values = json.loads((self._directory / STOP_FILE).read_bytes()[:100_000])
            reason = Reason(values["reason"]) if values.get("reason") else None
            state = State(values.get("state", State.ABORTED))
            message = str(values.get("message", ""))
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            reason, state, message = Reason.OWNER, State.ABORTED, "told to stop"
        self._end(reason, message, state)
        return True

    def _end(self, reason: Reason | None, message: str, state: State = State.FAILED) -> None:
        """Have the program end: by its own hand in the time of grace, or by ours after it."""
        if self._stop is not None:
            return
        self._stop = {"state": state, "reason": reason, "message": message}
        self._journal.add(
            self._clock.now_ns(), Step.STOPPING, reason=reason and reason.value, message=message
        )
        assert self._program is not None
        grace_s = GRACE_WITH_NETWORK_S
        if self._assignment.network is not Network.HOST:
            grace_s = GRACE_S
            if self._kernel is not None and not self._kernel.cut():
                grace_s = GRACE_WITH_NETWORK_S
        self._kill_at = self._clock.monotonic_s() + grace_s
        self._program.terminate()

    def _judged(self, ended: Ended) -> dict[str, Any]:
        """Return what a run came to, whose program ended like this."""
        if self._stop is not None:
            return self._stop
        if ended.failed is not None:
            return {"state": State.FAILED, "reason": Reason.DEPLOY, "message": ended.failed}
        if ended.signal == signal.SIGKILL and limits.killed_for_memory() > self._killed_before:
            message = "the kernel ended it for want of memory"
            return {"state": State.FAILED, "reason": Reason.MEMORY, "message": message}
        if ended.signal is not None:
            return {"state": State.FAILED, "reason": Reason.SIGNAL}
        if ended.exit:
            return {"state": State.FAILED, "reason": Reason.EXIT}
        return {"state": State.COMPLETE, "reason": None}


class _NotStartedError(SkyhopError):
    """The program was not started."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def finish(
    directory: Path,
    assignment: Assignment,
    journal: Journal,
    outcome: dict[str, Any],
    clock: Clock,
) -> None:
    """Write the manifest, then the result: who sees the result finds the manifest.

    Where there is no room for them, what the program wrote makes it.
    """
    try:
        _finish(directory, assignment, journal, outcome, clock)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        shutil.rmtree(directory / WORK, ignore_errors=True)
        _finish(directory, assignment, journal, {**outcome, **_NO_ROOM}, clock)


def _finish(
    directory: Path,
    assignment: Assignment,
    journal: Journal,
    outcome: dict[str, Any],
    clock: Clock,
) -> None:
    work = directory / WORK
    kept: list[keep.Kept] = []
    left: list[keep.Left] = []
    if work.is_dir():
        kept, left = keep.choose(work, assignment.keep, _brought(assignment))
    is_partial = outcome["state"] is not State.COMPLETE
    details = {"run": assignment.run, "node": assignment.node, "side": assignment.side.value}
    manifest = keep.as_json(kept, left, {**details, "partial": is_partial})
    write_durably(directory / keep.FILE, manifest)
    result = {**details, "partial": is_partial, "files": len(kept), **outcome}
    write_durably(directory / RESULT_FILE, json.dumps(result, indent=1).encode())
    ended = {"state": outcome["state"], "reason": outcome["reason"]}
    journal.add(clock.now_ns(), Step.FINISHED, **ended)


def _brought(assignment: Assignment) -> dict[str, str]:
    """Return the digests of the files that the job brought."""
    if assignment.inputs is None:
        return {}
    try:
        brought, _ = keep.choose(Path(assignment.inputs), ["*"])
    except OSError as error:
        raise InputError(f"{assignment.inputs}: {error.strerror}") from None
    return {each.name: each.sha256 for each in brought}
