"""Enumerations of the testbed whose values appear in files, messages and tables.

`states.py` defines which state of a run may follow which.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """State of a run, from planned to its end."""

    PLANNED = "planned"
    """The run has a start time, and waits for it."""
    ARMED = "armed"
    """The run waits in its window for its trigger."""
    CLAIMED = "claimed"
    """The run's node has claimed it; no claim with another fencing token can succeed."""
    DEPLOYING = "deploying"
    """The node fetches the run's input files."""
    WAITING_SERVER = "waiting-server"
    """The client waits until the server's node is ready."""
    EXECUTING = "executing"
    FINISHING = "finishing"
    """The program has ended, and its files are being uploaded."""
    COMPLETE = "complete"
    FAILED = "failed"
    ABORTED = "aborted"
    RESCHEDULED = "rescheduled"
    """The run was moved: another run, whose `after` names this one, takes its place."""
    SKIPPED = "skipped"
    LOST = "lost"
    """The node has not reported the run's end; a later report may replace this state."""


class Reason(StrEnum):
    """Reason why a run ended as it did, or did not begin."""

    EXIT = "exit"
    """The program ended with a status that is not 0."""
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    DATA_CAP = "data-cap"
    DISK = "disk"
    """The node's disk was full, or the run exceeded its disk limit."""
    MEMORY = "memory"
    """The run exceeded its memory limit, or the machine ran out of memory."""
    PROCESSES = "processes"
    """The run exceeded its limit on processes."""
    DEPLOY = "deploy"
    """Input files or the program could not be fetched."""
    REFUSED = "refused"
    """The policy of the node's owner forbids the run."""
    NEEDS = "needs"
    """The node does not have what the job needs."""
    SERVER = "server"
    """The server node was not ready in time, or ended."""
    KERNEL = "kernel"
    """The kernel service refused a request of the job."""
    UPLOAD = "upload"
    KILLED = "killed"
    """The executor ended without a result."""
    RESTARTED = "restarted"
    """The node's machine was rebooted during the run."""
    USER = "user"
    OWNER = "owner"
    SCAVENGER = "scavenger"
    """The run gave way to the host's own traffic."""
    BUSY = "busy"
    """Another run occupied the node."""
    OFFLINE = "offline"
    """The node was offline at the planned time."""
    WINDOW_OVER = "window-over"
    NEVER_FIRED = "never-fired"
    NO_SLOT = "no-slot"
    """The calendar has no free slot before the job's end."""
    FENCED = "fenced"
    """The run has been claimed, moved or ended elsewhere."""
    JOB_ENDED = "job-ended"
    """The job was cancelled or changed."""


class Role(StrEnum):
    """Role of a user; `OWNER` is not assigned but follows from owning a node."""

    ADMIN = "admin"
    USER = "user"
    USER_PRIV = "user-priv"
    """User who may use kernel services."""
    NODE = "node"
    OWNER = "owner"


class Side(StrEnum):
    """Role of a node in a run: client or server."""

    CLIENT = "client"
    SERVER = "server"


class JobKind(StrEnum):
    """How a job's runs start: repeatedly, once, or by a trigger."""

    CRON = "cron"
    AT = "at"
    TRIGGER = "trigger"


class Network(StrEnum):
    """Network access of a run's program."""

    INTERNET = "internet"
    """Network namespace of its own, from which the program reaches the public Internet."""
    HOST = "host"
    """The host's own network, without a fence; only where the node's owner allows it by name."""
    VETH = "veth"
    """Network namespace of its own, with a device from the kernel service."""
    NONE = "none"


class Backend(StrEnum):
    """Back end that confines a run's program: sandbox or container."""

    PROCESS = "process"
    PODMAN = "podman"
    DOCKER = "docker"


class ScavengerMode(StrEnum):
    """Mode that decides when a node's runs give way to its host's own traffic."""

    AUTO = "auto"
    """Runs give way while the host has traffic of its own."""
    ON = "on"
    """Runs give way until the mode changes."""
    OFF = "off"
    """Runs never give way."""


class EventKind(StrEnum):
    """Kind of a report from a node to the orchestrator."""

    RUN = "run"
    """A run's state has changed."""
    TASK = "task"
    """A server's side is ready, or has failed."""
    TELEMETRY = "telemetry"
    """Samples of the node's telemetry."""
    TRIGGER = "trigger"
    """A trigger was evaluated, and fired or did not."""
    SCAVENGER = "scavenger"
    """Runs must begin, or need no longer, give way to the host's own traffic."""
    MAP = "map"
    """The terminal's obstruction map has changed."""
    HEALTH = "health"
    """Versions, programs, clock offset and free disk space of the node."""


class AlertKind(StrEnum):
    """Kind of an alert: the trouble of a node, or of the orchestrator itself."""

    NODE_SILENT = "node-silent"
    NODE_DISK = "node-disk"
    NODE_CLOCK = "node-clock"
    NODE_CERTIFICATE = "node-certificate"
    NODE_UPDATE = "node-update"
    """A release that the node's owner allows does not run there."""
    DISK = "disk"
    SERVER_CERTIFICATE = "server-certificate"
    AUTHORITY_CERTIFICATE = "authority-certificate"
    HOUSEKEEPING = "housekeeping"
    """Rounds of housekeeping fail, for example because the database cannot be written."""
    PAGES = "pages"
    """The process of the web pages ends again and again."""
    BACKUP = "backup"


class UpdateState(StrEnum):
    """State of the published release on a node."""

    CURRENT = "current"
    """The node runs it, or a newer version."""
    NOT_ALLOWED = "not-allowed"
    """The node's owner does not allow it."""
    UNSUPPORTED = "unsupported"
    """The agent was installed in a way that it cannot change by itself."""
    REFUSED = "refused"
    """The release is not signed by the owner's key, older than one that was seen, or unfit."""
    WAITING = "waiting"
    """The download or the installation waits, or goes on later."""
    LOADING = "loading"
    READY = "ready"
    """The release is installed, and waits for the end of runs."""
    TRIAL = "trial"
    """The release runs, and has not reported to the orchestrator yet."""
    WENT_BACK = "went-back"
    """The release ran without reaching the orchestrator; it is tried again later."""
    FAILED = "failed"
    """The release was tried and did not work; it is not tried again."""


class TaskKind(StrEnum):
    """Kind of a task for a server's node."""

    START = "start"
    STOP = "stop"


ENDED = frozenset(
    {
        State.COMPLETE,
        State.FAILED,
        State.ABORTED,
        State.RESCHEDULED,
        State.SKIPPED,
        State.LOST,
    }
)
"""Final states; a later report may still change `LOST`."""

ACTIVE = frozenset(
    {
        State.CLAIMED,
        State.DEPLOYING,
        State.WAITING_SERVER,
        State.EXECUTING,
        State.FINISHING,
    }
)
"""States in which a node works on a run."""


def key_of(run: str, side: Side) -> str:
    """Return the key of one side of a run: in the agent's database, and in names on its machine."""
    return run if side is Side.CLIENT else f"{run}.server"
