"""Signed orders from the orchestrator: verified; a schedule older than the present is refused.

A schedule comes whole, or as differences, each of which applies only to the schedule from which it
was made. The node keeps the orders themselves: the last whole schedule and the differences since.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from skyhop.errors import InputError
from skyhop_testbed import differences
from skyhop_testbed.agent.deciding import PlannedRun
from skyhop_testbed.api import OrderKind
from skyhop_testbed.differences import JOB, MODE, POLICY, RUN, SETTINGS
from skyhop_testbed.job import first_fault
from skyhop_testbed.keys import is_signed
from skyhop_testbed.schedule import (
    NodeSchedule,
    NodeSettings,
    ScheduleChange,
    ScheduledJob,
    ScheduledRun,
)
from skyhop_testbed.words import ScavengerMode, Side, key_of

_LARGEST_BYTES = 64_000_000
M = TypeVar("M", bound=BaseModel)


class DivergedError(InputError):
    """A difference is not to the schedule that this node has: the node needs the whole schedule."""


@dataclass(frozen=True)
class StoredOrder:
    """Order with a schedule, or with a difference, as the database keeps it."""

    kind: OrderKind
    body: bytes
    signature: bytes


@dataclass(frozen=True)
class Schedule:
    """Present and future jobs and runs of a node, and its owner's policy."""

    revision: int = 0
    issued_ns: int = 0
    """Time at which the orchestrator signed the last order about it."""
    digest: str = ""
    """Digest of the parts (`differences.digest`); "" if the schedule did not come in parts."""
    digests: Mapping[str, bytes] = field(default_factory=dict)
    """Digest of each part, by the part's name."""
    jobs: Mapping[str, ScheduledJob] = field(default_factory=dict)
    runs: Mapping[str, ScheduledRun] = field(default_factory=dict)
    planned: tuple[PlannedRun, ...] = ()
    """Runs in which the node is the client or the server."""
    policy: Mapping[str, object] = field(default_factory=dict)
    mode: ScavengerMode = ScavengerMode.AUTO
    settings: NodeSettings = field(default_factory=NodeSettings)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Keys of both sides of all runs (`LocalRun.key`)."""
        return frozenset(key_of(run, side) for run in self.runs for side in Side)


def verified(orders_key: bytes, node: str, body: bytes, signature: bytes, kind: type[M]) -> M:
    """Verify an order's signature and node; return its content as a model `kind`.

    Raises:
        InputError: the signature is wrong, the order is for another node, no JSON, or damaged.
    """
    if len(body) > _LARGEST_BYTES:
        raise InputError("an order is too long")
    if not is_signed(orders_key, body, signature):
        raise InputError("an order is not signed by the orchestrator")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("an order is no JSON") from None
    if not isinstance(values, dict) or values.get("node") != node:
        raise InputError("an order is for another node")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _unreadable(error) from None


def _unreadable(error: ValidationError) -> InputError:
    return InputError(f"an order cannot be read: {first_fault(error, 'testbed')}")


def read_schedule(
    orders_key: bytes, node: str, body: bytes, signature: bytes, newer_than: int = 0
) -> Schedule:
    """Verify and parse a whole schedule, of an orchestrator that sends no differences.

    Args:
        orders_key: the orchestrator's public key.
        node: this node's name.
        body: the signed bytes.
        signature: the signature over `body`.
        newer_than: revision of the present schedule; an older one is refused.

    Raises:
        InputError: the signature is wrong, or the schedule is for another node, older, or damaged.
    """
    content = verified(orders_key, node, body, signature, NodeSchedule)
    _check_age(content.revision, newer_than)
    runs = {run.id: run for run in content.runs}
    return Schedule(
        revision=content.revision,
        issued_ns=content.issued_ns,
        jobs=content.jobs,
        runs=runs,
        planned=_planned(node, content.jobs, runs, {}),
        policy=content.policy,
        mode=content.scavenger_mode,
        settings=content.settings,
    )


def read_change(
    orders_key: bytes, node: str, body: bytes, signature: bytes, present: Schedule
) -> tuple[Schedule, bool]:
    """Verify a difference and apply it to the present schedule.

    Returns:
        the schedule that results, and whether it replaces the present one whole.

    Raises:
        DivergedError: the difference is not to the present schedule, or another schedule results
            than the orchestrator's.
        InputError: the signature is wrong, or the difference is for another node, older, or
            damaged.
    """
    change = verified(orders_key, node, body, signature, ScheduleChange)
    is_whole = not change.from_digest
    _check_age(change.revision, present.revision)
    if is_whole:
        present = Schedule()
    elif (change.from_revision, change.from_digest) != (present.revision, present.digest):
        raise DivergedError(
            f"a difference is to revision {change.from_revision} of the schedule, and this node "
            f"has revision {present.revision}"
        )
    try:
        return _changed(node, change, present), is_whole
    except ValidationError as error:
        raise _unreadable(error) from None


def _check_age(revision: int, newer_than: int) -> None:
    if revision < newer_than:
        raise InputError(f"a schedule has revision {revision}, older than {newer_than}")


def _changed(node: str, change: ScheduleChange, before: Schedule) -> Schedule:
    """Return a schedule with a difference applied; parts that have not changed are not parsed."""
    gone = set(change.gone)
    digests = {name: value for name, value in before.digests.items() if name not in gone}
    digests |= differences.digests_of(change.parts)
    if differences.digest(digests) != change.digest:
        raise DivergedError(f"revision {change.revision} of the schedule differs from its digest")
    jobs = {key: each for key, each in before.jobs.items() if f"{JOB}{key}" not in gone}
    runs = {key: each for key, each in before.runs.items() if f"{RUN}{key}" not in gone}
    for name, value in change.parts.items():
        if name.startswith(JOB):
            jobs[name.removeprefix(JOB)] = ScheduledJob.model_validate(value)
        elif name.startswith(RUN):
            run = _run(name.removeprefix(RUN), value)
            runs[run.id] = run
    for run in runs.values():
        if run.job not in jobs:
            raise InputError(f"run {run.id}: there is no job {run.job[:40]!r}")
    values = {name: change.parts[name] for name in (POLICY, MODE, SETTINGS) if name in change.parts}
    head = NodeSchedule.model_validate({"node": node, "revision": change.revision, **values})
    return Schedule(
        revision=change.revision,
        issued_ns=change.issued_ns,
        digest=change.digest,
        digests=digests,
        jobs=jobs,
        runs=runs,
        planned=_planned(node, jobs, runs, {each.run: each for each in before.planned}, before),
        policy=head.policy if POLICY in values else before.policy,
        mode=head.scavenger_mode if MODE in values else before.mode,
        settings=head.settings if SETTINGS in values else before.settings,
    )


def _run(name: str, value: JsonValue) -> ScheduledRun:
    return ScheduledRun.model_validate({**value, "id": name} if isinstance(value, dict) else value)


def _planned(
    node: str,
    jobs: Mapping[str, ScheduledJob],
    runs: Mapping[str, ScheduledRun],
    known: Mapping[str, PlannedRun],
    before: Schedule | None = None,
) -> tuple[PlannedRun, ...]:
    """Return the runs as decisions need them; those that have not changed are `known`."""
    planned = []
    for run in runs.values():
        is_known = (
            before is not None
            and before.runs.get(run.id) is run
            and before.jobs.get(run.job) is jobs[run.job]
        )
        planned.append(
            known[run.id]
            if is_known
            else PlannedRun.of(jobs[run.job].spec, run, run=run.id, is_client=run.client == node)
        )
    return tuple(planned)


def load_stored(orders_key: bytes, node: str, stored: Iterable[StoredOrder]) -> Schedule:
    """Return the schedule to which stored orders lead; an order that does not fit ends them."""
    present = Schedule()
    try:
        for order in stored:
            if order.kind is OrderKind.SCHEDULE:
                present = read_schedule(orders_key, node, order.body, order.signature)
            else:
                present = read_change(orders_key, node, order.body, order.signature, present)[0]
    except InputError:
        return present
    return present


def stored_by_version_1(text: str | None) -> list[StoredOrder]:
    """Return the whole schedule that an agent before differences has stored, if it did."""
    if not text:
        return []
    try:
        body, signature = (base64.b64decode(part) for part in json.loads(text))
    except (ValueError, TypeError):
        return []
    return [StoredOrder(OrderKind.SCHEDULE, body, signature)]
