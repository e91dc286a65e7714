"""Runs of a node: their rows in the database, and the threads that execute them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, KeysView, Mapping

from skyhop_testbed.agent.agent_db import Durability
from skyhop_testbed.agent.deciding import Action, ActionKind, KnownRun, PlannedRun
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.own_traffic import CountedRun
from skyhop_testbed.agent.reports import FollowUp, RunDetails
from skyhop_testbed.agent.running import Runner, has_work_left, run_entry
from skyhop_testbed.executor.assignment import RESULT_FILE
from skyhop_testbed.words import ENDED, Reason, Side, State

_S = 1_000_000_000
_DAY_NS = 86_400 * _S
_FENCE = "fence"
"""Name under which earlier agents kept their last fencing token."""
FORGET_NS = 7 * _DAY_NS
"""Time for which an ended run stays in the database after it has left the schedule, so that it is
not started again.
"""


class LocalRuns:
    """All runs of this node, from the schedule and from triggers and tasks, by `LocalRun.key`.

    A node with a run per minute has ten thousand ended runs: what happens each second looks at the
    unsettled ones only.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._clock = node, node.clock
        self._runs = {local_run.key: local_run for local_run in node.db.local_runs()}
        self._unsettled = {key: each for key, each in self._runs.items() if not each.settled_ns}
        """Runs with work left, and some that the main loop has not yet seen settled."""
        fences = (local_run.fence for local_run in self._runs.values())
        self._highest_fence = max(int(node.db.get(_FENCE) or 0), *fences, 0)
        self._runners: dict[str, Runner] = {}

    def __iter__(self) -> Iterator[LocalRun]:
        # A copy: other threads read while the main loop adds runs.
        return iter([*self._runs.values()])

    def unsettled(self) -> list[LocalRun]:
        """Return the runs with work left."""
        return [each for each in [*self._unsettled.values()] if not each.settled_ns]

    def keys(self) -> KeysView[str]:
        """Return the keys of all runs."""
        return self._runs.keys()

    def get(self, key: str) -> LocalRun | None:
        """Return the run with a key, if there is one."""
        return self._runs.get(key)

    def runner(self, key: str) -> Runner | None:
        """Return the runner of a run, if its thread is alive."""
        runner = self._runners.get(key)
        return None if runner is None or runner.is_done else runner

    def resume(self) -> None:
        """Continue the runs that an earlier agent has left unfinished."""
        for local_run in self:
            if has_work_left(local_run) and local_run.state is not State.ARMED:
                self._start_runner(local_run)

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for all threads to end."""
        limit = self._clock.monotonic_s() + seconds
        for runner in self._runners.values():
            runner.join(max(0.0, limit - self._clock.monotonic_s()))

    # For decisions and measurements.

    def known(self) -> Mapping[str, KnownRun]:
        """Return the runs that decisions need: those with work left, and those in the schedule."""
        schedule = self._node.schedule
        unsettled = {each.key: each for each in self.unsettled()}
        self._unsettled = unsettled
        scheduled = {key: self._runs[key] for key in self._runs.keys() & schedule.keys}
        return {
            key: KnownRun(
                key,
                local_run.run,
                local_run.side,
                local_run.state,
                local_run.spec.overhead,
                local_run.end_ns,
                # A run of a job that has ended is no longer wanted.
                local_run.is_made and local_run.job in schedule.jobs,
            )
            for key, local_run in (unsettled | scheduled).items()
        }

    def planned(self) -> list[PlannedRun]:
        """Return the runs in the schedule, and those that wait for a trigger beyond it."""
        schedule = self._node.schedule
        made = [
            PlannedRun.of(local_run.spec, local_run, run=local_run.run)
            for local_run in self.unsettled()
            if local_run.is_made
            and local_run.run not in schedule.runs
            and local_run.state is State.ARMED
            and local_run.job in schedule.jobs
        ]
        return [*schedule.planned, *made]

    def counted(self) -> list[CountedRun]:
        """Return the runs with a living executor, whose traffic is counted."""
        counted = []
        for key, runner in self._runners.items():
            pid = None if runner.is_done else runner.executor()
            if pid is not None:
                local_run = self._runs[key]
                network = self._node.policy.network_of(local_run.spec.run, local_run.side)
                directory = local_run.directory(self._node.runs)
                counted.append(CountedRun(key, pid, network, directory))
        return counted

    # Changes of runs.

    def apply(self, action: Action) -> None:
        """Apply an action of `decide`."""
        local_run = self._runs.get(action.run)
        if action.kind is ActionKind.STOP:
            assert local_run is not None
            self.stop(local_run, action.reason, action.text, is_silent=action.is_silent)
            return
        if local_run is None:
            local_run = self._add_scheduled(action.run)
        if action.kind is ActionKind.BEGIN:
            self.begin(local_run)
        elif action.kind is ActionKind.ARM:
            local_run.state = State.ARMED
            self._save(local_run)
        else:
            ended = State.SKIPPED if action.kind is ActionKind.SKIP else State.FAILED
            self._end(local_run, ended, action.reason, action.text)

    def _add_scheduled(self, name: str) -> LocalRun:
        schedule = self._node.schedule
        run, job = schedule.runs[name], schedule.jobs[schedule.runs[name].job]
        local_run = LocalRun(
            run=run.id,
            side=Side.CLIENT,
            state=State.PLANNED,
            job=run.job,
            spec=job.spec,
            start_ns=run.start_ns,
            end_ns=run.end_ns,
            client=self._node.name,
            server=run.server or "",
            server_address=run.server_address or run.server or "",
            files=job.files,
            after=run.after,
            fault=job.fault,
        )
        self._add(local_run)
        return local_run

    def _add(self, local_run: LocalRun) -> None:
        self._runs[local_run.key] = self._unsettled[local_run.key] = local_run

    def begin(self, local_run: LocalRun, following: LocalRun | None = None) -> None:
        """Start a run.

        Its fencing token is on disk before the claim, so that it is claimed only once.

        Args:
            local_run: the run.
            following: the next run, which waits for the same trigger to fire again.
        """
        self._highest_fence = max(self._clock.now_ns(), self._highest_fence + 1)
        local_run.fence = self._highest_fence
        local_run.state = State.CLAIMED
        reports = []
        if following is not None:
            self._add(following)
            new = FollowUp(following.run, following.after, following.start_ns, following.end_ns)
            reports.append(run_entry(following, self._clock.now_ns(), {}, new))
        if not self._node.db.save_run(local_run, *reports, also_save=following):
            self._end(local_run, State.FAILED, Reason.DISK, "the node's database cannot be written")
            return
        self._start_runner(local_run)

    def serve(self, local_run: LocalRun) -> bool:
        """Start the server's side of another node's run; return `False` if the disk is full."""
        self._add(local_run)
        if not self._node.db.save_run(local_run):
            return False
        self._start_runner(local_run)
        return True

    def _start_runner(self, local_run: LocalRun) -> None:
        runner = Runner(self._node, local_run)
        self._runners[local_run.key] = runner
        runner.start()

    def stop(
        self, local_run: LocalRun, reason: Reason | None, text: str, *, is_silent: bool
    ) -> None:
        """Abort a run now; with `is_silent`, without a report."""
        runner = self.runner(local_run.key)
        if runner is not None:
            runner.stop(reason, text, is_silent=is_silent)
        elif local_run.state not in ENDED:
            local_run.is_silent |= is_silent
            self._end(local_run, State.ABORTED, reason, text)

    def _end(self, local_run: LocalRun, state: State, reason: Reason | None, text: str) -> None:
        local_run.state, local_run.reason = state, reason
        local_run.settled_ns = self._clock.now_ns()
        self._save(local_run, {"text": text})

    def _save(self, local_run: LocalRun, details: RunDetails | None = None) -> None:
        report = run_entry(local_run, self._clock.now_ns(), details or {})
        reports = [] if local_run.is_silent else [report]
        # No program has begun: after a power failure the node decides about the run again.
        self._node.db.save_run(local_run, *reports, durability=Durability.WRITTEN)

    def follow_schedule(self) -> None:
        """Note which runs the new schedule lists that a trigger on this node has created."""
        for run in self._node.schedule.runs:
            local_run = self._runs.get(run)
            if local_run is not None and local_run.is_made:
                local_run.is_made = False
                self._node.db.save_run(local_run, durability=Durability.HELD)

    def upload_again(self, local_run: LocalRun) -> None:
        """Upload the files of a settled run once more, if they are still here."""
        is_here = (local_run.directory(self._node.runs) / RESULT_FILE).exists()
        if is_here and local_run.is_uploaded and self.runner(local_run.key) is None:
            # `stop` is cleared because the traffic of a stopped run is already accounted.
            local_run.is_uploaded, local_run.settled_ns, local_run.stop = False, 0, None
            self._add(local_run)
            self._node.db.save_run(local_run)
            self._start_runner(local_run)

    def clean(self) -> None:
        """Delete files of runs with no work left that the owner's policy keeps no longer."""
        node, now_ns = self._node, self._clock.now_ns()
        self._runners = {key: r for key, r in self._runners.items() if not r.is_done}
        keep_ns = node.policy.keep_days * _DAY_NS
        for directory in node.runs.iterdir():
            local_run = self._runs.get(directory.name)
            if local_run is None or not local_run.settled_ns or local_run.key in self._runners:
                continue
            if local_run.is_uploaded and now_ns - local_run.settled_ns > keep_ns:
                shutil.rmtree(directory, ignore_errors=True)

    def forget(self) -> None:
        """Delete rows and files of runs that ended too long ago."""
        node, now_ns = self._node, self._clock.now_ns()
        for key, local_run in [*self._runs.items()]:
            if not 0 < local_run.settled_ns < now_ns - FORGET_NS or key in self._runners:
                continue
            may_go = local_run.is_uploaded or now_ns > local_run.keep_until_ns
            if local_run.run not in node.schedule.runs and (may_go or not local_run.starts):
                shutil.rmtree(local_run.directory(node.runs), ignore_errors=True)
                node.db.delete_run(local_run)
                del self._runs[key]
