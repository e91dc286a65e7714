"""Orders from the orchestrator to a node, as JSON whose exact bytes are signed.

The orchestrator makes them (`orchestrator/planning.py`); the agent verifies and reads them
(`agent/schedule.py`). Keys that this version does not know are ignored, except those of a job: its
runs fail instead (`ScheduledJob.fault`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    model_validator,
)

from skyhop.errors import InputError
from skyhop_testbed.ids import is_id
from skyhop_testbed.job import Job, job_of
from skyhop_testbed.words import ScavengerMode, State, TaskKind


def _run_id(value: str) -> str:
    if not is_id(value):
        raise ValueError(f"{value[:40]!r} is no run's id")
    return value


RunId = Annotated[str, AfterValidator(_run_id)]
JobSpec = Annotated[Job, PlainSerializer(Job.as_json)]
"""Job, in the JSON form of its file."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class InputFile(_Part):
    """Input file of a job: its size in bytes and its digest."""

    size: int
    sha256: str


class ScheduledJob(_Part):
    """Job with the facts about its user and files that a node needs."""

    owner: str = ""
    priv: bool = False
    """Whether the job's user may use the kernel service."""
    spec: JobSpec
    files: dict[str, InputFile] = {}
    fault: Annotated[str, Field(exclude=True)] = ""
    """Reason why this version of skyhop cannot read the job; `spec` then does nothing."""

    @model_validator(mode="before")
    @classmethod
    def _read_spec(cls, values: object) -> object:
        """Replace a job that cannot be read, so that the schedule's other jobs can run."""
        if not isinstance(values, dict) or "fault" in values or "spec" not in values:
            return values
        try:
            return {**values, "spec": job_of(values["spec"])}
        except InputError as error:
            return {**values, "spec": _NOTHING, "fault": str(error)}


_NOTHING = job_of(
    {"id": "unreadable", "nodes": ["none"], "length": 1.0, "overhead": False, "when": {"at": "now"},
     "run": {"client": ["true"]}}
)  # fmt: skip


class ScheduledRun(_Part):
    """Run of a job on its client node, as the orchestrator knows it."""

    id: RunId
    job: str
    """Id of the job, a key of `NodeSchedule.jobs`."""
    client: str
    server: str | None = None
    server_address: str | None = None
    start_ns: int
    end_ns: int
    """End of the run in ns; for a job with a trigger, end of the window in which it may fire."""
    state: State
    after: str | None = None
    """Id of the run that this one follows or replaces."""


class NodeSettings(_Part):
    """Settings of the testbed's administrator that apply to all nodes."""

    heartbeat_s: float = 30.0
    late_s: float = 60.0
    """Time in s after its planned start at which a run is skipped instead of started."""
    reschedule_after_s: float = 1800.0
    restored_from_ns: int = 0
    """Time of the backup from which the orchestrator was restored; 0 if it never was. What nodes
    reported since is unknown to it, and they report it again.
    """
    restored_at_ns: int = 0
    """Time of the restoring, which identifies it."""
    trust: str = ""
    """Digest of the keys that the orchestrator wants nodes to trust (`keys.trust_digest`); a node
    that trusts others renews its certificate at once. "" is unknown.
    """
    release: str = ""
    """Version of the published release of skyhop; "" if there is none."""


class NodeSchedule(_Part):
    """Unfinished runs of a node with their jobs, its owner's policy, and settings."""

    node: str
    revision: int
    issued_ns: int = 0
    jobs: dict[str, ScheduledJob] = {}
    runs: list[ScheduledRun] = []
    policy: dict[str, object] = {}
    """Policy of the node's owner; `agent/policy.py` reads it."""
    scavenger_mode: ScavengerMode = ScavengerMode.AUTO
    settings: NodeSettings = NodeSettings()

    @model_validator(mode="after")
    def _check_jobs(self) -> NodeSchedule:
        for run in self.runs:
            if run.job not in self.jobs:
                raise ValueError(f"run {run.id}: there is no job {run.job[:40]!r}")
        return self


class ScheduleChange(_Part):
    """Difference to the schedule that a node holds, or with `from_digest` "" a whole schedule."""

    node: str
    revision: int
    digest: str
    """Digest of the schedule that results (`differences.digest`)."""
    from_revision: int = 0
    from_digest: str = ""
    """Revision and digest of the schedule from which the difference was made."""
    issued_ns: int = 0
    parts: dict[str, JsonValue] = {}
    """Parts that are new or have changed (`differences`); a run's value leaves out its id."""
    gone: list[str] = []
    """Names of the parts that are gone."""


class ServerTask(_Part):
    """Order to start or stop the server's side of another node's run."""

    task: str
    run: RunId
    node: str
    kind: TaskKind
    job_id: str = ""
    client: str = ""
    start_ns: int
    end_ns: int
    job: ScheduledJob


class ServerAnswer(_Part):
    """Message to a run's client: whether the server is ready, and its port."""

    run: str
    ready: bool
    port: int | None = None
    error: str | None = None


class StopOrder(_Part):
    """Order to stop a run."""

    run: str
    reason: str = ""
