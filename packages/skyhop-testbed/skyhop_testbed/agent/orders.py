"""Orders from the orchestrator: schedules, stops, tasks for servers, and replies of servers."""

from __future__ import annotations

import logging
import queue
from typing import TypeVar

from pydantic import BaseModel

from skyhop.errors import InputError
from skyhop_testbed import api
from skyhop_testbed.agent import schedule
from skyhop_testbed.agent.admission import Admission
from skyhop_testbed.agent.agent_db import OLD_SCHEDULE
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.reports import TaskReport
from skyhop_testbed.agent.restored import report_again
from skyhop_testbed.agent.running import report_task
from skyhop_testbed.api import Order, OrderKind
from skyhop_testbed.schedule import ServerAnswer, ServerTask, StopOrder
from skyhop_testbed.words import Reason, Side, State, TaskKind, key_of

_LOG = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)


class Orders:
    """Queue of signed orders, and their verification and execution.

    Args:
        node: the node.
        runs: its runs, which orders start and stop.
        admission: tells whether the node may serve another node's run.
    """

    def __init__(self, node: Node, runs: LocalRuns, admission: Admission) -> None:
        self._node, self._runs, self._admission = node, runs, admission
        self._queue: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._needs_whole = False
        """Whether the node waits for its whole schedule; differences are no use until then."""

    def put(self, order: Order) -> None:
        """Queue an order, and wake the main loop; called by the link's thread."""
        self._queue.put(order)
        self._node.waking.set()

    def execute_all(self) -> None:
        """Execute the queued orders."""
        while not self._queue.empty():
            order = self._queue.get()
            self._node.guarded("an order", lambda order=order: self._execute(order))  # type: ignore[misc]

    def load_schedule(self) -> None:
        """Follow the schedule that an earlier agent has stored."""
        node = self._node
        stored = node.db.orders() or schedule.stored_by_version_1(node.db.get(OLD_SCHEDULE))
        self._follow(schedule.load_stored(node.identity.orders_key, node.name, stored))

    def follows(self) -> api.Follow:
        """Return the call that asks for orders: what the node has, or that it needs the whole."""
        present = self._node.schedule
        digest = "" if self._needs_whole else present.digest
        return api.Follow(revision=present.revision, digest=digest)

    def _execute(self, order: Order) -> None:
        handlers = {
            OrderKind.SCHEDULE: self._replace_schedule,
            OrderKind.SCHEDULE_CHANGE: self._change_schedule,
            OrderKind.STOP: self._stop,
            OrderKind.TASK: self._take_task,
            OrderKind.TASK_RESULT: self._take_answer,
        }
        _LOG.debug("order %s", order.kind)
        try:
            handlers[order.kind](order.content(), order.signature)
        except InputError as error:
            self._node.say(f"refused: {error}")

    def _verified(self, body: bytes, signature: bytes, kind: type[M]) -> M:
        """Verify a signed order; return its content.

        Raises:
            InputError: the signature is wrong, or the order is for another node, or damaged.
        """
        identity = self._node.identity
        return schedule.verified(identity.orders_key, identity.node, body, signature, kind)

    def _replace_schedule(self, body: bytes, signature: bytes) -> None:
        """Follow a whole schedule, of an orchestrator that sends no differences."""
        node = self._node
        new = schedule.read_schedule(
            node.identity.orders_key, node.name, body, signature, node.schedule.revision
        )
        node.db.replace_orders(schedule.StoredOrder(OrderKind.SCHEDULE, body, signature))
        self._follow(new)
        _LOG.info("schedule revision=%s runs=%s", new.revision, len(new.runs))

    def _change_schedule(self, body: bytes, signature: bytes) -> None:
        """Apply a difference to the schedule; ask for the whole schedule if it does not fit."""
        node = self._node
        key = node.identity.orders_key
        try:
            new, is_whole = schedule.read_change(key, node.name, body, signature, node.schedule)
        except schedule.DivergedError as error:
            self._ask_for_whole(str(error))
            return
        except InputError:
            # The node may ask again, once the orchestrator has a schedule that it can follow.
            self._needs_whole = False
            raise
        order = schedule.StoredOrder(OrderKind.SCHEDULE_CHANGE, body, signature)
        if is_whole:
            self._needs_whole = False
            node.db.replace_orders(order)
        else:
            node.db.append_order(order)
        self._follow(new)
        _LOG.info("schedule revision=%s runs=%s bytes=%s", new.revision, len(new.runs), len(body))
        if not is_whole and node.db.orders_are_many():
            self._ask_for_whole("there are many stored differences")

    def _ask_for_whole(self, why: str) -> None:
        if not self._needs_whole:
            _LOG.info("asks for the whole schedule: %s", why)
            self._needs_whole = True
            self._node.link.follow_again()

    def _follow(self, new: schedule.Schedule) -> None:
        self._node.schedule = new
        self._runs.follow_schedule()
        report_again(self._node, self._runs)
        try:
            self._node.policy = Policy.of(new.policy, new.mode)
        except InputError as error:
            self._node.say(f"{error}: the previous policy stays in force")

    def _stop(self, body: bytes, signature: bytes) -> None:
        order = self._verified(body, signature, StopOrder)
        local_run = self._runs.get(order.run)
        if local_run is None:
            return
        reason = Reason(order.reason) if order.reason in list(Reason) else Reason.USER
        self._runs.stop(local_run, reason, "the run was stopped", is_silent=False)

    def _take_answer(self, body: bytes, signature: bytes) -> None:
        answer = self._verified(body, signature, ServerAnswer)
        runner = self._runs.runner(answer.run)
        if runner is not None:
            runner.take_answer(answer)

    def _take_task(self, body: bytes, signature: bytes) -> None:
        task = self._verified(body, signature, ServerTask)
        local_run = self._runs.get(key_of(task.run, Side.SERVER))
        if task.kind is TaskKind.STOP:
            runner = None if local_run is None else self._runs.runner(local_run.key)
            if runner is not None:
                runner.release()
            self._node.report(TaskReport(task.task, task.run, ok=True))
        elif local_run is None:
            self._serve(task)
        elif isinstance(local_run.answer, TaskReport) and local_run.task == task.task:
            # The orchestrator repeats a task whose answer did not reach it.
            self._node.report(local_run.answer)

    def _serve(self, task: ServerTask) -> None:
        """Start the server's side of another node's run, or report why not."""
        node, job = self._node, task.job
        if not task.job_id and job.files:
            node.say(f"run {task.run}: the task names no job: its server runs without files")
        local_run = LocalRun(
            run=task.run,
            side=Side.SERVER,
            state=State.DEPLOYING,
            job=task.job_id,
            spec=job.spec,
            start_ns=task.start_ns,
            end_ns=task.end_ns,
            client=task.client,
            server=node.name,
            files=job.files if task.job_id else {},
            task=task.task,
            fault=job.fault,
        )
        why = self._admission.why_not_serve(local_run, job)
        if why is not None:
            local_run.state, local_run.settled_ns = State.SKIPPED, node.clock.now_ns()
            report_task(node, local_run, why)
        elif not self._runs.serve(local_run):
            report_task(node, local_run, "disk: the node's database cannot be written")
