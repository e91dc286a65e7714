"""Room for results of runs on this node: one budget for all runs together, and the disk's floor.

A run that works may write up to its limits, so that its limits count; an ended one counts with the
size of its directory. Where a new run does not fit, the oldest results go first that the
orchestrator has, or has refused for good. Results that wait for their upload stay.
"""

from __future__ import annotations

import shutil

from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.executor.limits import size_of
from skyhop_testbed.free_space import shortage
from skyhop_testbed.words import ACTIVE, State

_WRITING = ACTIVE - {State.FINISHING}


class Room:
    """Bytes that runs of this node take, and those that they may take."""

    def __init__(self, node: Node, runs: LocalRuns) -> None:
        self._node, self._runs = node, runs
        self._sizes: dict[str, int] = {}
        """Sizes of the directories of runs with no work left, by key; 0 if they are deleted."""

    @property
    def most_bytes_of_run(self) -> int:
        """Bytes that one run may write: its files and its two outputs."""
        limits = self._node.policy.limits
        return limits.disk_bytes + 2 * limits.output_bytes

    def why_full(self) -> str | None:
        """Return, as one line, why the node's disk takes nothing new; None if it does."""
        space = self._node.space_of(self._node.state)
        return shortage(space, self._node.policy.free_floor_bytes, "the node's disk")

    def why_none(self, promised: int) -> str | None:
        """Return, as one line, why a new run may not begin; None if there is room for it.

        Results that may go are deleted if the run fits only then.

        Args:
            promised: bytes promised to runs that are about to begin.
        """
        full = self.why_full()
        if full is not None and self._delete_oldest():
            full = self.why_full()
        if full is not None:
            return full
        most, needed = self._node.policy.results_bytes, self.most_bytes_of_run + promised
        if self._most_used_bytes() + needed <= most:
            return None
        while self.used_bytes() + needed > most:
            if not self._delete_oldest():
                return (
                    f"results of runs take {self.used_bytes():,} of results_bytes = {most:,.0f}, "
                    f"and new runs may write {needed:,}: wait for uploads, or ask the node's owner"
                )
        return None

    def used_bytes(self) -> int:
        """Return the bytes that runs take or may still write."""
        return sum(self._taken(each) for each in [*self._runs])

    def _most_used_bytes(self) -> int:
        """Return an upper bound of `used_bytes`.

        It looks at directories of runs with work left only: a node may have ten thousand others.
        """
        runs, unsettled = self._runs, self._runs.unsettled()
        for key in self._sizes.keys() - runs.keys():
            self._sizes.pop(key, None)
        for key in runs.keys() - self._sizes.keys():
            local_run = runs.get(key)
            if local_run is not None and local_run.settled_ns:
                self._taken(local_run)
        settled = sum([*self._sizes.values()]) - sum(self._sizes.get(r.key, 0) for r in unsettled)
        return settled + sum(self._taken(each) for each in unsettled)

    def _taken(self, local_run: LocalRun) -> int:
        if local_run.state in _WRITING:
            return self.most_bytes_of_run
        directory = local_run.directory(self._node.runs)
        if not directory.exists():
            self._sizes[local_run.key] = 0
            return 0
        if not local_run.settled_ns:
            return size_of(directory)[0]
        if not self._sizes.get(local_run.key):
            self._sizes[local_run.key] = size_of(directory)[0]
        return self._sizes[local_run.key]

    def _delete_oldest(self) -> bool:
        """Delete the results that may go first; return whether there were any."""
        node = self._node
        may_go = [
            each
            for each in [*self._runs]
            if each.settled_ns
            and (each.is_uploaded or each.is_given_up)
            and self._runs.runner(each.key) is None
            and each.directory(node.runs).exists()
        ]
        if not may_go:
            return False
        oldest = min(may_go, key=lambda each: (not each.is_uploaded, each.settled_ns))
        node.say(f"run {oldest.key}: its results are deleted, as new runs need their room")
        shutil.rmtree(oldest.directory(node.runs), ignore_errors=True)
        return not oldest.directory(node.runs).exists()
