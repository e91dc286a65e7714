"""Signed schedule from the orchestrator: verified, and refused if older than the present one."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from skyhop.errors import InputError
from skyhop_testbed.agent.deciding import PlannedRun
from skyhop_testbed.agent.local_run import kind_of, length_s
from skyhop_testbed.ids import is_id
from skyhop_testbed.keys import is_signed
from skyhop_testbed.words import ScavengerMode, State

_NS = 1_000_000_000
_LARGEST_BYTES = 64_000_000


@dataclass(frozen=True)
class Settings:
    """Settings of the testbed's administrator that apply to all nodes."""

    heartbeat_s: float = 10.0
    late_s: float = 60.0
    """Time in s after its planned start at which a run is skipped instead of started."""


@dataclass(frozen=True)
class Schedule:
    """Present and future jobs and runs of a node, and its owner's policy."""

    revision: int = 0
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    planned: tuple[PlannedRun, ...] = ()
    """Runs in which the node is the client or the server."""
    policy: dict[str, Any] = field(default_factory=dict)
    mode: ScavengerMode = ScavengerMode.AUTO
    settings: Settings = Settings()
    raw: tuple[bytes, bytes] | None = None
    """Signed bytes and signature, as stored in the database."""

    def dumps(self) -> str:
        """Return the text for the database: signed bytes and signature in base64."""
        body, signature = self.raw or (b"", b"")
        return json.dumps([base64.b64encode(part).decode() for part in (body, signature)])


def verified(orders_key: bytes, node: str, body: bytes, signature: bytes) -> dict[str, Any]:
    """Verify an order's signature and node; return its content.

    Raises:
        InputError: the signature is wrong, the order is for another node, or no JSON.
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
    return values


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
    values = verified(orders_key, node, body, signature)
    try:
        revision = int(values["revision"])
        if revision < newer_than:
            raise InputError(f"a schedule has revision {revision}, older than {newer_than}")
        jobs = dict(values["jobs"])
        runs = {str(run["id"]): dict(run) for run in values["runs"]}
        settings = values.get("settings") or {}
        known = {k: float(v) for k, v in settings.items() if k in Settings.__dataclass_fields__}
        return Schedule(
            revision=revision,
            jobs=jobs,
            runs=runs,
            planned=tuple(planned_run(run, jobs, node) for run in runs.values()),
            policy=dict(values.get("policy") or {}),
            mode=ScavengerMode(values.get("scavenger_mode") or "auto"),
            settings=Settings(**known),
            raw=(body, signature),
        )
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise InputError(f"a schedule cannot be read: {type(error).__name__} {error}") from None


def load_stored(orders_key: bytes, node: str, text: str | None) -> Schedule:
    """Return the stored schedule; an empty one if none is stored, or its signature is wrong."""
    if not text:
        return Schedule()
    try:
        body, signature = (base64.b64decode(part) for part in json.loads(text))
        return read_schedule(orders_key, node, body, signature)
    except (InputError, ValueError, TypeError):
        return Schedule()


def planned_run(run: dict[str, Any], jobs: dict[str, dict[str, Any]], node: str) -> PlannedRun:
    """Convert a run in a schedule to the form that `deciding` uses.

    Raises:
        KeyError, TypeError, ValueError, StopIteration: the run is damaged.
    """
    if not is_id(str(run["id"])):
        raise ValueError(f"{str(run['id'])[:40]!r} is no run's id")
    spec = jobs[str(run["job"])]["spec"]
    return PlannedRun(
        run=str(run["id"]),
        job=str(run["job"]),
        kind=kind_of(spec),
        is_overhead=bool(spec.get("overhead", True)),
        is_client=run["client"] == node,
        start_ns=int(run["start_ns"]),
        end_ns=int(run["end_ns"]),
        length_ns=round(length_s(spec) * _NS),
        state=State(run["state"]),
        after=run.get("after"),
    )
