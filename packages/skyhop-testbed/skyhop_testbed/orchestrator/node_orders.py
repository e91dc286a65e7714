"""Orders to one node on one stream: its schedule, tasks of its server, and replies of servers."""

from __future__ import annotations

from skyhop_testbed import api
from skyhop_testbed.orchestrator import nodes
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import Caller, as_json
from skyhop_testbed.orchestrator.schedules import Held, ScheduleOrders


class NodeOrders:
    """Signed orders of a node that it does not have yet.

    Args:
        orchestrator: the orchestrator.
        node: the node, which calls.
        asked: the call that opened the stream.
        held: schedules that nodes hold, by their names; all streams of an orchestrator share it.
    """

    def __init__(
        self, orchestrator: Orchestrator, node: Caller, asked: api.Follow, held: dict[str, Held]
    ) -> None:
        self._orchestrator, self._node = orchestrator, node
        self._schedules = ScheduleOrders(held, node.name, asked)
        self._sent: set[str] = set()
        """Tasks and replies that were sent on this stream."""

    @property
    def again_ns(self) -> int:
        """Time at which the schedule is next due without a change."""
        return self._schedules.again_ns

    def due(self) -> list[api.Order]:
        """Return the orders that are due now."""
        name = self._node.name
        with self._orchestrator.reading(self._node) as ctx:
            schedule = self._schedules.due(ctx)
            tasks, results = nodes.tasks(ctx, name), nodes.results(ctx, name)
        orders = []
        if schedule is not None:
            orders.append(self._signed(schedule[0], schedule[1].model_dump(mode="json")))
        for task in tasks:
            if self._is_new(task["task"]):
                orders.append(self._signed(api.OrderKind.TASK, task))
        for result in results:
            if self._is_new(str(result["run"])):
                body = {"node": name, **result}
                orders.append(self._signed(api.OrderKind.TASK_RESULT, body))
        return orders

    def _is_new(self, name: str) -> bool:
        is_new = name not in self._sent
        self._sent.add(name)
        return is_new

    def _signed(self, kind: api.OrderKind, values: object) -> api.Order:
        body = as_json(values).encode()
        signature = self._orchestrator.authority.sign_order(body, self._node.issuer)
        if kind is api.OrderKind.SCHEDULE_CHANGE:
            return api.Order.packing(kind, body, signature)
        return api.Order(kind=kind, body=body, signature=signature)
