"""Schedules of nodes, and the orders that carry them: differences where a node reads them.

A node that reads differences knows its runs for the next `horizon_s` (a setting). The horizon moves
in steps, so that a node with a run per minute gets an order per step, not one per run. A run that
a node itself has ended leaves the node's schedule with the next order. A node that reads no
differences gets its whole schedule, for all planned runs, whenever it changes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from pydantic import JsonValue

from skyhop_testbed import api
from skyhop_testbed.differences import (
    JOB,
    MODE,
    POLICY,
    RUN,
    SETTINGS,
    difference,
    digest,
    digests_of,
)
from skyhop_testbed.orchestrator import statements
from skyhop_testbed.orchestrator.marks import node_marks
from skyhop_testbed.orchestrator.planning import spec_of
from skyhop_testbed.orchestrator.request_context import RequestContext
from skyhop_testbed.schedule import (
    InputFile,
    NodeSchedule,
    NodeSettings,
    ScheduleChange,
    ScheduledJob,
    ScheduledRun,
)
from skyhop_testbed.words import Role, ScavengerMode

_S_NS = 1_000_000_000
_STEP_NS = 3600 * _S_NS
"""Step in which the horizon moves: each node gets the runs of one more hour at a time."""
_NEVER_NS = 2**63 - 1
_MOST_RUNS = 2_000
"""Upper limit on runs in one schedule; later schedules carry the later runs."""
_Schedule = NodeSchedule | ScheduleChange


@dataclass(frozen=True)
class Held:
    """Schedule that a node holds, as far as a difference needs it."""

    revision: int
    digest: str
    digests: Mapping[str, bytes]


class ScheduleOrders:
    """Orders about one node's schedule on one stream of orders.

    Args:
        held: schedules that nodes hold, by their names; all streams of an orchestrator share it.
        name: the node's name.
        asked: the call that opened the stream.
    """

    def __init__(self, held: dict[str, Held], name: str, asked: api.Follow) -> None:
        self._all_held, self._name = held, name
        self._revision, self._reads_differences = asked.revision, asked.digest is not None
        known = held.get(name)
        is_known = known and (known.revision, known.digest) == (asked.revision, asked.digest)
        self._held = known if is_known else None
        self._has_digest = asked.digest or ""
        self._looked: tuple[object, ...] = ()
        """Revision and settings at the last look at the runs."""
        self.again_ns = 0
        """Time of the next look at the runs, if neither changes."""

    def due(self, ctx: RequestContext) -> tuple[api.OrderKind, _Schedule] | None:
        """Return the order that is due now, if any; the caller sends it."""
        row = ctx.first(statements.NODE, node=self._name)
        if row is None:
            return None
        if not self._reads_differences:
            if row["revision"] == self._revision:
                return None
            self._revision = row["revision"]
            return api.OrderKind.SCHEDULE, node_schedule(ctx, row)
        looks = (row["revision"], ctx.settings)
        if looks == self._looked and ctx.now_ns < self.again_ns:
            return None
        self._looked = looks
        change = self._change(ctx, row)
        return None if change is None else (api.OrderKind.SCHEDULE_CHANGE, change)

    def _change(self, ctx: RequestContext, row: sa.RowMapping) -> ScheduleChange | None:
        until_ns, step_ends_ns = _horizon(ctx, self._name)
        runs = _runs(ctx, self._name, until_ns)
        self.again_ns = step_ends_ns
        if len(runs) == _MOST_RUNS:
            self.again_ns = min(step_ends_ns, (ctx.now_ns + runs[-1].start_ns) // 2)
        parts = _parts(ctx, row, runs)
        digests = digests_of(parts)
        made, before = Held(row["revision"], digest(digests), digests), self._held
        is_same = made.digest == (before.digest if before else self._has_digest)
        if is_same:
            # The revision alone is no news; the node keeps the one that it has.
            revision = before.revision if before else self._revision
            self._hold(Held(revision, made.digest, digests))
            return None
        self._hold(made)
        changed, gone = difference(before.digests if before else {}, parts, digests)
        return ScheduleChange(
            node=self._name,
            revision=made.revision,
            digest=made.digest,
            from_revision=before.revision if before else 0,
            from_digest=before.digest if before else "",
            issued_ns=ctx.now_ns,
            parts=dict(changed),
            gone=gone,
        )

    def _hold(self, held: Held) -> None:
        self._held = self._all_held[self._name] = held


def _horizon(ctx: RequestContext, name: str) -> tuple[int, int]:
    """Return up to which time a node knows its runs, and when that moves on, in ns.

    The steps of different nodes begin at different times, so that not all get orders at once.
    """
    shift_ns = zlib.crc32(name.encode()) % 3600 * _S_NS
    step_ends_ns = ((ctx.now_ns + shift_ns) // _STEP_NS + 1) * _STEP_NS - shift_ns
    return step_ends_ns + round(ctx.settings.horizon_s * _S_NS), step_ends_ns


def _runs(ctx: RequestContext, name: str, until_ns: int = _NEVER_NS) -> list[ScheduledRun]:
    """Return a node's unfinished runs that start before a time, earliest first.

    Runs in which the node is only the server are included, so that the node keeps their time free.
    """
    found: dict[str, sa.RowMapping] = {}
    for query in (statements.RUNS_OF_CLIENT, statements.RUNS_OF_SERVER):
        rows = ctx.all(query, node=name, until_ns=until_ns, most=_MOST_RUNS)
        found |= {row["id"]: row for row in rows}
    rows = sorted(found.values(), key=lambda row: (row["start_ns"], row["id"]))[:_MOST_RUNS]
    return [ScheduledRun.model_validate(dict(row)) for row in rows]


def _parts(
    ctx: RequestContext, row: sa.RowMapping, runs: list[ScheduledRun]
) -> dict[str, JsonValue]:
    parts: dict[str, JsonValue] = {
        f"{RUN}{each.id}": each.model_dump(mode="json", exclude={"id"}, exclude_none=True)
        for each in runs
    }
    for name in sorted({each.job for each in runs}):
        parts[f"{JOB}{name}"] = scheduled_job(ctx, name).model_dump(mode="json")
    parts[POLICY] = json.loads(row["policy"])
    parts[MODE] = row["scavenger_mode"]
    parts[SETTINGS] = _settings(ctx).model_dump(mode="json")
    return parts


def _settings(ctx: RequestContext) -> NodeSettings:
    settings = ctx.settings
    return NodeSettings(
        heartbeat_s=settings.heartbeat_s,
        late_s=settings.late_s,
        reschedule_after_s=settings.reschedule_after_s,
        **node_marks(ctx.connection),
    )


def node_schedule(ctx: RequestContext, row: sa.RowMapping) -> NodeSchedule:
    """Return a node's whole schedule: its unfinished runs, their jobs, its policy, the settings."""
    runs = _runs(ctx, row["name"])
    return NodeSchedule(
        node=row["name"],
        revision=row["revision"],
        issued_ns=ctx.now_ns,
        jobs={each: scheduled_job(ctx, each) for each in sorted({r.job for r in runs})},
        runs=runs,
        policy=json.loads(row["policy"]),
        scavenger_mode=ScavengerMode(row["scavenger_mode"]),
        settings=_settings(ctx),
    )


def scheduled_job(ctx: RequestContext, name: str) -> ScheduledJob:
    """Return a job, by its id, in the form that orders to nodes contain."""
    row = ctx.first(statements.JOB_AND_ROLE, name=name)
    assert row is not None
    files = ctx.all(statements.FILES_OF_JOB, job=name)
    return ScheduledJob(
        owner=row["owner"],
        priv=row["role"] in (Role.ADMIN, Role.USER_PRIV),
        spec=spec_of(row),
        files={f["name"]: InputFile(size=f["size"], sha256=f["sha256"]) for f in files},
    )
