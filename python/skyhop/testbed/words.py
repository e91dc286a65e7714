"""The words of the testbed that stand in files, messages and tables: each once, here.

States and their order are those of a run's life: `states.py` says which follows which.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a run is."""

    PLANNED = "planned"
    """Has a time, and waits for it."""
    ARMED = "armed"
    """Waits for its trigger, in its window."""
    CLAIMED = "claimed"
    """Its node has taken it, once and for all."""
    DEPLOYING = "deploying"
    """Files are fetched, the program is looked for."""
    WAITING_SERVER = "waiting-server"
    """The server node gets ready."""
    EXECUTING = "executing"
    FINISHING = "finishing"
    """The program has ended; files are uploaded."""
    COMPLETE = "complete"
    FAILED = "failed"
    ABORTED = "aborted"
    RESCHEDULED = "rescheduled"
    """Another run, which names this one, takes its place."""
    SKIPPED = "skipped"
    LOST = "lost"
    """Its node did not return with a word of it; a later report settles it."""


class Reason(StrEnum):
    """Why a run ended where it did, or did not begin."""

    EXIT = "exit"
    """The program ended with a status that is not 0."""
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    DATA_CAP = "data-cap"
    DISK = "disk"
    """The node had no room for it."""
    MEMORY = "memory"
    """It took more than the node's owner lets it have, or than there was."""
    PROCESSES = "processes"
    """It started more than the node's owner lets it have."""
    DEPLOY = "deploy"
    """Files or the program are not to be had."""
    REFUSED = "refused"
    """The node's owner does not allow it."""
    NEEDS = "needs"
    """The node lacks what the job needs."""
    SERVER = "server"
    """The server node was not ready in time, or ended."""
    KERNEL = "kernel"
    """The kernel service refused what the job asks for."""
    UPLOAD = "upload"
    KILLED = "killed"
    """The executor ended without a word."""
    RESTARTED = "restarted"
    """The node's machine was started anew meanwhile."""
    USER = "user"
    OWNER = "owner"
    SCAVENGER = "scavenger"
    """The host's own traffic came first."""
    BUSY = "busy"
    """Another run had the node."""
    OFFLINE = "offline"
    """The node was not there at the time."""
    WINDOW_OVER = "window-over"
    NEVER_FIRED = "never-fired"
    NO_SLOT = "no-slot"
    """There is no room left before the job's end."""
    FENCED = "fenced"
    """The run has been claimed, moved or ended elsewhere."""
    JOB_ENDED = "job-ended"
    """The job was cancelled or changed."""


class Role(StrEnum):
    """What a user may do; `OWNER` is not given but follows from owning a node."""

    ADMIN = "admin"
    USER = "user"
    USER_PRIV = "user-priv"
    """May use kernel services."""
    NODE = "node"
    OWNER = "owner"


class Side(StrEnum):
    """Which end of a run a node is."""

    CLIENT = "client"
    SERVER = "server"


class JobKind(StrEnum):
    """When a job runs."""

    CRON = "cron"
    AT = "at"
    TRIGGER = "trigger"


class Network(StrEnum):
    """What a run's program sees of the network."""

    HOST = "host"
    VETH = "veth"
    """A namespace of its own, from the kernel service."""
    NONE = "none"


class Backend(StrEnum):
    """What a run's program is kept in."""

    PROCESS = "process"
    PODMAN = "podman"
    DOCKER = "docker"


class ScavengerMode(StrEnum):
    """Whether a node's runs make room for its host."""

    AUTO = "auto"
    """While the host's own traffic is sensed."""
    ON = "on"
    """Now and until further notice."""
    OFF = "off"
    """Never."""


class EventKind(StrEnum):
    """What a node reports."""

    RUN = "run"
    """A run's state has changed."""
    TASK = "task"
    """A server's side is ready, or is not."""
    TELEMETRY = "telemetry"
    """Samples of its terminal."""
    TRIGGER = "trigger"
    """A trigger was evaluated, and fired or did not."""
    SCAVENGER = "scavenger"
    """The host's own traffic began or ended."""
    MAP = "map"
    """Its terminal's obstruction map has changed."""
    HEALTH = "health"
    """What the node has: versions, programs, clock offset, room."""


class TaskKind(StrEnum):
    """What a server node is asked for."""

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
"""States after which nothing comes; but what a node says later settles `LOST`."""

ACTIVE = frozenset(
    {
        State.CLAIMED,
        State.DEPLOYING,
        State.WAITING_SERVER,
        State.EXECUTING,
        State.FINISHING,
    }
)
"""States in which a node is at work on a run."""
