"""Bodies of the reports that nodes send, one class for each `EventKind` that changes the tables."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from skyhop_testbed.states import Change


class FollowUp(BaseModel):
    """Run that a node created: the next run within a trigger's window."""

    run: str
    after: str
    start_ns: int
    end_ns: int


class RunReport(BaseModel):
    """Change of a run's state; `new` is the run if the node has created it."""

    run: str
    change: Change
    new: FollowUp | None = None


class TaskReport(BaseModel):
    """Reply of a server's node to a task: whether the server is ready, and its port."""

    task: str
    ok: bool = False
    port: int | None = None
    error: str | None = None


class Told(BaseModel):
    """Report that is stored as the node has told it, with all its keys."""

    model_config = ConfigDict(extra="allow")


class TriggerReport(Told):
    """Evaluation of a trigger; `run` is the run that it started."""

    job: str
    run: str | None = None
    fired: bool = False


class ScavengerReport(Told):
    """Whether runs must now give way to the host's own traffic."""

    active: bool


class HealthReport(Told):
    """Versions, programs, clock offset and free disk space of a node."""
