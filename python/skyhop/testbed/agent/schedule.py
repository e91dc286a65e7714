"""What the orchestrator wants of a node: signed, and never older than what is there already."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from skyhop.errors import InputError
from skyhop.testbed.agent.deciding import Planned
from skyhop.testbed.agent.life import kind_of, length_s
from skyhop.testbed.ids import is_id
from skyhop.testbed.keys import is_signed
from skyhop.testbed.words import ScavengerMode, State

_NS = 1_000_000_000
_LARGEST_BYTES = 64_000_000


@dataclass(frozen=True)
class Settings:
    """What the testbed's administrator set for all nodes."""

    heartbeat_s: float = 10.0
    late_s: float = 60.0
    """A run that has not begun so long after its start does not begin."""


@dataclass(frozen=True)
class Schedule:
    """All that a node has to do from now on."""

    revision: int = 0
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    planned: tuple[Planned, ...] = ()
    """Its runs, those that it serves among them."""
    policy: dict[str, Any] = field(default_factory=dict)
    mode: ScavengerMode = ScavengerMode.AUTO
    settings: Settings = Settings()
    raw: tuple[bytes, bytes] | None = None
    """As it was signed, to be kept."""

    def dumps(self) -> str:
        """Return it for the book, signature included."""
        body, signature = self.raw or (b"", b"")
        return json.dumps([base64.b64encode(part).decode() for part in (body, signature)])


def opened(orders_key: bytes, node: str, body: bytes, signature: bytes) -> dict[str, Any]:
    """Return what an order says.

    Raises:
        InputError: the orchestrator did not sign it, it is another node's, or no order.
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
    orders_key: bytes, node: str, body: bytes, signature: bytes, than: int = 0
) -> Schedule:
    """Read a schedule.

    Args:
        orders_key: of the orchestrator.
        node: this one.
        body: as it was signed.
        signature: the orchestrator's.
        than: the revision that is followed already.

    Raises:
        InputError: it is not the orchestrator's, not for this node, older, or damaged.
    """
    values = opened(orders_key, node, body, signature)
    try:
        revision = int(values["revision"])
        if revision < than:
            raise InputError(f"a schedule is of revision {revision}, older than {than}")
        jobs = dict(values["jobs"])
        runs = {str(run["id"]): dict(run) for run in values["runs"]}
        settings = values.get("settings") or {}
        known = {k: float(v) for k, v in settings.items() if k in Settings.__dataclass_fields__}
        return Schedule(
            revision=revision,
            jobs=jobs,
            runs=runs,
            planned=tuple(planned_of(run, jobs, node) for run in runs.values()),
            policy=dict(values.get("policy") or {}),
            mode=ScavengerMode(values.get("scavenger_mode") or "auto"),
            settings=Settings(**known),
            raw=(body, signature),
        )
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise InputError(f"a schedule cannot be read: {type(error).__name__} {error}") from None


def loads(orders_key: bytes, node: str, text: str | None) -> Schedule:
    """Return the schedule that was kept; an empty one where there is none that can be trusted."""
    if not text:
        return Schedule()
    try:
        body, signature = (base64.b64decode(part) for part in json.loads(text))
        return read_schedule(orders_key, node, body, signature)
    except (InputError, ValueError, TypeError):
        return Schedule()


def planned_of(run: dict[str, Any], jobs: dict[str, dict[str, Any]], node: str) -> Planned:
    """Return a run as it is decided on.

    Raises:
        KeyError, TypeError, ValueError, StopIteration: it is none.
    """
    if not is_id(str(run["id"])):
        raise ValueError(f"{str(run['id'])[:40]!r} is no run's id")
    spec = jobs[str(run["job"])]["spec"]
    return Planned(
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
