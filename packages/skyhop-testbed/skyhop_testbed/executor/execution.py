"""Execution of a run, from its start to its result.

Once `started` is in the journal on disk, no executor starts the program again. An executor that
finds `started` there, written by an executor that is dead, records that the run was killed, and
lists the files that the run left.
"""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed.clock import Clock
from skyhop_testbed.executor import cgroup_traffic, keep, limits
from skyhop_testbed.executor.assignment import (
    RESULT_FILE,
    WORK,
    Assignment,
    open_durably,
    write_durably,
)
from skyhop_testbed.executor.backends import Program, launcher
from skyhop_testbed.executor.journal import Journal, Step, has_started
from skyhop_testbed.executor.output import Output
from skyhop_testbed.executor.result import CountedTraffic, Outcome, OutputSize, Result
from skyhop_testbed.executor.sandbox import AttachDevice, ProgramEnd
from skyhop_testbed.executor.traffic import (
    NAMESPACE,
    SOCKETS,
    ProcessSockets,
    Traffic,
    namespace_traffic,
)
from skyhop_testbed.executor.user_network import Namespaces, UserNetwork
from skyhop_testbed.kernel.client import KernelClient
from skyhop_testbed.words import Backend, Network, Reason, State

POLL_S = 0.5
"""Interval in s at which limits and traffic are checked."""
PORTS_S = 0.1
"""Interval in s at which the listening ports of a run are looked at, if its fence allows any."""
GRACE_S = 5.0
"""Time in s between SIGTERM and SIGKILL for a program that can no longer send packets."""
GRACE_WITH_NETWORK_S = 0.8
"""Time in s between SIGTERM and SIGKILL for a program that can still send packets: the host's own
traffic is waiting.
"""
_TRAFFIC_EVERY = 10
"""Number of checks between two journal entries about traffic."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DISK_FULL = Outcome(
    State.FAILED, Reason.DISK, "the node's disk was full: there was no room for the result"
)
_STDOUT, _STDERR = "stdout", "stderr"


def execute(directory: Path, clock: Clock) -> None:
    """Execute the assignment in `directory/run.json`, and write `result.json` there.

    Raises:
        InputError: the directory is missing, or holds no assignment.
        RunError: another executor works on the run, or the journal cannot be written.
    """
    directory = directory.resolve()
    assignment = Assignment.read(directory)
    try:
        journal = Journal(directory)
        if (directory / RESULT_FILE).exists():
            return
        if has_started(directory):
            _finish_killed(directory, assignment, journal, clock)
        else:
            _Execution(directory, assignment, journal, clock).run()
    except OSError as error:
        raise RunError(f"{directory}: {error.strerror}") from None


def _finish_killed(directory: Path, assignment: Assignment, journal: Journal, clock: Clock) -> None:
    """Write the result of a run whose executor was killed."""
    launcher(assignment.backend, clock).clean(assignment.key)
    cgroup_traffic.remove_group(assignment.key)
    killed = Result(state=State.FAILED, reason=Reason.KILLED)
    finish(directory, assignment, journal, killed, clock)


class _Execution:
    """Execution of one run, up to its result."""

    def __init__(
        self, directory: Path, assignment: Assignment, journal: Journal, clock: Clock
    ) -> None:
        self._directory, self._assignment, self._journal = directory, assignment, journal
        self._clock, self._launcher = clock, launcher(assignment.backend, clock)
        self._work = directory / WORK
        self._kernel: KernelClient | None = None
        self._network: UserNetwork | None = None
        self._program: Program | None = None
        self._group: cgroup_traffic.CountedGroup | None = None
        self._sockets = ProcessSockets()
        self._moved = Traffic()
        self._stop: Outcome | None = None
        """Outcome of the run, once the program was told to end."""
        self._kill_at: float | None = None
        self._killed_before = 0
        """Number of OOM kills on this machine before the program started."""
        # The deadline is given in UTC; it is converted now, so that later changes of the wall clock
        # do not move it.
        left_s = (assignment.deadline_ns - self._clock.now_ns()) / 1e9
        self._deadline = self._clock.monotonic_s() + left_s
        self._wakeup, wakeup_writer = os.pipe()
        os.set_blocking(wakeup_writer, False)
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(wakeup_writer)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        self._journal.add(self._clock.now_ns(), Step.DEPLOYING, pid=os.getpid())
        try:
            self._deploy()
            result = self._supervise()
        except _NotStartedError as error:
            result = Result(state=State.FAILED, reason=error.reason, message=str(error))
        except OSError as error:
            if error.errno not in _FULL:
                raise
            if self._program is not None:
                self._program.kill()
            result = Result(**vars(_DISK_FULL))
        finally:
            if self._kernel is not None:
                self._kernel.close()
            if self._network is not None:
                self._network.close()
            if self._group is not None:
                self._group.close()
        finish(self._directory, self._assignment, self._journal, result, self._clock)

    def _deploy(self) -> None:
        assignment = self._assignment
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(mode=0o755)
        if assignment.inputs is not None:
            try:
                shutil.copytree(assignment.inputs, self._work, dirs_exist_ok=True, symlinks=True)
            except (OSError, shutil.Error) as error:
                raise _NotStartedError(Reason.DEPLOY, f"input files: {error}") from None
        lacking = self._launcher.unavailable_reason(assignment)
        if lacking:
            raise _NotStartedError(Reason.NEEDS, lacking)
        if self._left_s() <= 0:
            raise _NotStartedError(Reason.TIMEOUT, "its time was over before it began")

    def _supervise(self) -> Result:
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
        self._count_traffic(is_last=True)
        for output in outputs:
            output.close()
        self._journal.add(
            self._clock.now_ns(),
            Step.ENDED,
            exit=ended.exit,
            signal=ended.signal,
            failed=ended.failed,
        )
        stdout, stderr = (OutputSize(output.bytes, output.kept) for output in outputs)
        return Result(
            **vars(self._verdict(ended)),
            began_ns=began_ns,
            ended_ns=self._clock.now_ns(),
            exit=ended.exit,
            signal=ended.signal,
            traffic=CountedTraffic(**asdict(self._moved), counted=self._counted()),
            stdout=stdout,
            stderr=stderr,
        )

    def _start(self, outputs: list[Output]) -> Program:
        """Write `started` to the journal, then start the program."""
        assignment = self._assignment
        descriptors = (outputs[0].writes, outputs[1].writes)
        attach: dict[Network, AttachDevice] = {
            Network.VETH: self._attach_device,
            Network.INTERNET: self._attach_internet,
        }
        attach_device = attach.get(assignment.network)
        self._count_group()
        self._journal.add(self._clock.now_ns(), Step.STARTED)
        try:
            return self._launcher.start(assignment, self._work, descriptors, attach_device)
        except _NotStartedError:
            raise
        except (SkyhopError, OSError) as error:
            raise _NotStartedError(Reason.NEEDS, str(error)) from None

    def _count_group(self) -> None:
        """Have the kernel count the run by its control group, if it uses the host's network.

        Without the necessary privileges the sockets are counted.
        """
        assignment = self._assignment
        if assignment.network is not Network.HOST or assignment.backend is not Backend.PROCESS:
            return
        with suppress(RunError):
            self._group = cgroup_traffic.CountedGroup(assignment.key)
            self._group.join()
            text = str(self._group.map_id).encode()
            write_durably(self._directory / cgroup_traffic.FILE, text)

    def _attach_internet(self, namespaces: Namespaces) -> None:
        """Connect the run's network namespace to the Internet."""
        self._network = UserNetwork(self._directory, namespaces, self._assignment.fence)

    def _attach_device(self, namespaces: Namespaces) -> str | None:
        """Request the run's device, and the job's kernel settings, from the kernel service.

        Returns:
            The kernel's name of the run's congestion control, if the job loads one.
        """
        access = self._assignment.kernel
        if access is None:
            raise _NotStartedError(Reason.NEEDS, "this node has no kernel service")
        try:
            self._kernel = KernelClient(access.socket)
            self._kernel.attach(
                self._assignment.run, access.token, namespaces.network, leoscope=access.leoscope
            )
            return self._kernel.prepare(access)
        except SkyhopError as error:
            raise _NotStartedError(Reason.KERNEL, str(error)) from None

    def _wait(self, outputs: list[Output]) -> ProgramEnd:
        """Supervise the program until it has ended."""
        assert self._program is not None
        with selectors.DefaultSelector() as selector:
            for output in outputs:
                selector.register(output, selectors.EVENT_READ, output.read)
            selector.register(self._program, selectors.EVENT_READ, lambda: True)
            selector.register(self._wakeup, selectors.EVENT_READ, self._on_signal)
            if self._kernel is not None:
                selector.register(self._kernel, selectors.EVENT_READ, self._on_kernel_lost)
            if self._network is not None:
                selector.register(self._network, selectors.EVENT_READ, self._on_network_lost)
            checks, next_check = 0, self._clock.monotonic_s()
            while True:
                left_s = min(next_check - self._clock.monotonic_s(), self._port_check_s())
                for key, _ in self._clock.select(selector, left_s):
                    if not key.data():
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._program and (ended := self._program.poll()):
                        self._program.wait()
                        return ended
                if self._kill_at is not None and self._clock.monotonic_s() >= self._kill_at:
                    self._program.kill()
                    return ProgramEnd(signal=signal.SIGKILL)
                if self._clock.monotonic_s() >= next_check:
                    self._check(checks)
                    checks += 1
                    next_check = self._clock.monotonic_s() + POLL_S
                self._open_ports()
                next_check = min(next_check, self._next_change())

    def _next_change(self) -> float:
        """Return the monotonic time in s of the next deadline: the run's, or the SIGKILL's."""
        return self._deadline if self._kill_at is None else self._kill_at

    def _port_check_s(self) -> float:
        """Return the longest time in s until the program's listening ports are looked at."""
        return PORTS_S if self._network is not None and self._assignment.fence.listen else POLL_S

    def _open_ports(self) -> None:
        """Open the ports on which the program listens."""
        assert self._program is not None
        if self._network is not None and self._stop is None:
            try:
                self._network.open_ports(self._program.network_process())
            except RunError as error:
                self._end(Outcome(State.FAILED, Reason.NEEDS, str(error)))

    def _on_network_lost(self) -> bool:
        self._end(Outcome(State.FAILED, Reason.NEEDS, "the run's network has ended"))
        return False

    def _on_kernel_lost(self) -> bool:
        self._end(Outcome(State.FAILED, Reason.KERNEL, "the kernel service has ended"))
        return False

    def _left_s(self) -> float:
        return self._deadline - self._clock.monotonic_s()

    def _check(self, checks: int) -> None:
        """Check the run's limits and deadline; stop the program if it has exceeded one."""
        self._count_traffic()
        if checks % _TRAFFIC_EVERY == _TRAFFIC_EVERY - 1:
            self._journal.add(self._clock.now_ns(), Step.TRAFFIC, **asdict(self._moved))
        if self._stop is not None:
            return
        assert self._program is not None
        assignment = self._assignment
        pids = self._program.processes()
        found = limits.exceeded(
            assignment.limits, self._work, pids, self._moved, assignment.data_cap_bytes
        )
        if found:
            self._end(Outcome(State.FAILED, *found))
        elif self._left_s() <= 0:
            state = State.COMPLETE if assignment.timeout_is_success else State.FAILED
            self._end(Outcome(state, Reason.TIMEOUT, "the run reached its deadline"))

    def _count_traffic(self, *, is_last: bool = False) -> None:
        """Update the run's traffic; once the namespace is gone, the last value stays."""
        assert self._program is not None
        if self._group is not None:
            moved = self._group.read()
        elif self._assignment.network is Network.HOST:
            moved = self._sockets.read(self._program.processes())
        elif is_last and self._network is not None:
            # The executor still has the namespace open.
            moved = self._network.counters() or Traffic()
        elif is_last and self._kernel is not None:
            # The kernel service still has the namespace open, which other processes can no longer
            # reach.
            with suppress(SkyhopError):
                self._moved = Traffic(*self._kernel.counters())
            return
        else:
            process = self._program.network_process()
            moved = namespace_traffic(process) if process else Traffic()
        self._moved = max(self._moved, moved, key=lambda each: each.bytes)

    def _counted(self) -> str:
        if self._group is not None:
            return cgroup_traffic.GROUP
        return SOCKETS if self._assignment.network is Network.HOST else NAMESPACE

    def _on_signal(self) -> bool:
        """Stop the program; the agent has written the reason to `stop.json` before its signal."""
        os.read(self._wakeup, 512)
        self._end(Outcome.read_stop(self._directory))
        return True

    def _end(self, outcome: Outcome) -> None:
        """Send SIGTERM to the program, and set the time of the SIGKILL."""
        if self._stop is not None:
            return
        self._stop = outcome
        self._journal.add(
            self._clock.now_ns(), Step.STOPPING, reason=outcome.reason, message=outcome.message
        )
        assert self._program is not None
        grace_s = GRACE_WITH_NETWORK_S
        if self._assignment.network is not Network.HOST:
            grace_s = GRACE_S
            self._count_traffic()
            if self._network is not None:
                self._network.cut()
            if self._kernel is not None and not self._kernel.cut():
                grace_s = GRACE_WITH_NETWORK_S
        self._kill_at = self._clock.monotonic_s() + grace_s
        self._program.terminate()

    def _verdict(self, ended: ProgramEnd) -> Outcome:
        """Return the outcome of a run, given how its program ended."""
        if self._stop is not None:
            return self._stop
        if ended.failed is not None:
            return Outcome(State.FAILED, Reason.DEPLOY, ended.failed)
        if ended.signal == signal.SIGKILL and limits.killed_for_memory() > self._killed_before:
            return Outcome(State.FAILED, Reason.MEMORY, "the kernel's OOM killer ended it")
        if ended.signal is not None:
            return Outcome(State.FAILED, Reason.SIGNAL)
        if ended.exit:
            return Outcome(State.FAILED, Reason.EXIT)
        return Outcome(State.COMPLETE)


class _NotStartedError(SkyhopError):
    """The program was not started, for the given reason."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def finish(
    directory: Path, assignment: Assignment, journal: Journal, result: Result, clock: Clock
) -> None:
    """Write the manifest, then the result, so that a result implies a manifest.

    If the disk is full, the work directory is deleted to make room for both.
    """
    try:
        _finish(directory, assignment, journal, result, clock)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        shutil.rmtree(directory / WORK, ignore_errors=True)
        full = replace(result, **vars(_DISK_FULL))
        _finish(directory, assignment, journal, full, clock)


def _finish(
    directory: Path, assignment: Assignment, journal: Journal, result: Result, clock: Clock
) -> None:
    work = directory / WORK
    found: Iterator[keep.KeptFile | keep.SkippedFile] = iter(())
    if work.is_dir():
        found = keep.choose(work, assignment.keep, _input_digests(assignment))
    is_partial = result.state is not State.COMPLETE
    of = keep.Origin(assignment.run, assignment.node, assignment.side, is_partial)
    with open_durably(directory / keep.FILE) as stream:
        kept = keep.write_kept(stream, of, found, assignment.limits.files)
    if kept.is_exceeded:
        of = replace(of, partial=True)
        if result.state is State.COMPLETE:
            result = replace(result, **vars(_too_many_files(assignment)))
    replace(result, **vars(of), files=kept.files).write(directory)
    journal.add(clock.now_ns(), Step.FINISHED, state=result.state, reason=result.reason)


def _too_many_files(assignment: Assignment) -> Outcome:
    said = (
        f"it left more than {assignment.limits.files:,} files to keep; the first of them are "
        "uploaded: pack them into an archive"
    )
    return Outcome(State.FAILED, Reason.DISK, said)


def _input_digests(assignment: Assignment) -> dict[str, str]:
    """Return the digests of the job's input files, by name."""
    if assignment.inputs is None:
        return {}
    try:
        inputs = [*keep.choose(Path(assignment.inputs), ["*"])]
    except OSError as error:
        raise InputError(f"{assignment.inputs}: {error.strerror}") from None
    return {each.name: each.sha256 for each in inputs if isinstance(each, keep.KeptFile)}
