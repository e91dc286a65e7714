"""Signed orders from the orchestrator: verified; a schedule older than the present is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from skyhop.errors import InputError
from skyhop_testbed.agent.deciding import PlannedRun
from skyhop_testbed.job import first_fault
from skyhop_testbed.keys import is_signed
from skyhop_testbed.schedule import NodeSchedule, NodeSettings, ScheduledJob, ScheduledRun
from skyhop_testbed.words import ScavengerMode

_LARGEST_BYTES = 64_000_000
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Schedule:
    """Present and future jobs and runs of a node, and its owner's policy."""

    revision: int = 0
    jobs: Mapping[str, ScheduledJob] = field(default_factory=dict)
    runs: Mapping[str, ScheduledRun] = field(default_factory=dict)
    planned: tuple[PlannedRun, ...] = ()
    """Runs in which the node is the client or the server."""
    policy: Mapping[str, object] = field(default_factory=dict)
    mode: ScavengerMode = ScavengerMode.AUTO
    settings: NodeSettings = field(default_factory=NodeSettings)
    raw: tuple[bytes, bytes] = (b"", b"")
    """Signed bytes and signature, as stored in the database."""

    def dumps(self) -> str:
        """Return the text for the database: signed bytes and signature in base64."""
        return json.dumps([base64.b64encode(part).decode() for part in self.raw])


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
        raise InputError(f"an order cannot be read: {first_fault(error, 'testbed')}") from None


def read_schedule(
    orders_key: bytes, node: str, body: bytes, signature: bytes, newer_than: int = 0
) -> Schedule:
    """Verify and parse a schedule.

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
    if content.revision < newer_than:
        raise InputError(f"a schedule has revision {content.revision}, older than {newer_than}")
    runs = {run.id: run for run in content.runs}
    return Schedule(
        revision=content.revision,
        jobs=content.jobs,
        runs=runs,
        planned=tuple(
            PlannedRun.of(content.jobs[run.job].spec, run, run=run.id, is_client=run.client == node)
            for run in runs.values()
        ),
        policy=content.policy,
        mode=content.scavenger_mode,
        settings=content.settings,
        raw=(body, signature),
    )


def load_stored(orders_key: bytes, node: str, text: str | None) -> Schedule:
    """Return the stored schedule; an empty one if none is stored, or its signature is wrong."""
    if not text:
        return Schedule()
    try:
        body, signature = (base64.b64decode(part) for part in json.loads(text))
        return read_schedule(orders_key, node, body, signature)
    except (InputError, ValueError, TypeError):
        return Schedule()
