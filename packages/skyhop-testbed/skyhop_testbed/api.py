"""HTTP/JSON API of the orchestrator: its messages, and the table of its operations.

Client, agent, orchestrator and web pages share these types. A new operation is one entry in the
table below and one handler in the orchestrator. Each operation is served on one of two ports over
TLS: users authenticate with a token (`Authorization: Bearer TOKEN`), nodes with their certificate.

A request's fields are parts of the path, and otherwise the query (GET, DELETE) or a JSON object in
the body (POST, PUT). The answer is JSON, the bytes of a file, or for `lines` a stream of JSON
objects, one per line, in which an empty line is a heartbeat. The answer to a refused request is a
`Problem`. Times are UTC in nanoseconds since 1970, sizes bytes; ids are ULIDs.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import from_json

from skyhop.errors import InputError, SkyhopError
from skyhop_testbed.job import Job
from skyhop_testbed.manifests import MOST_FILES
from skyhop_testbed.protocol import since
from skyhop_testbed.words import JobKind, Reason, Role, ScavengerMode, Side, State

LARGEST_REQUEST = 64 << 20
LARGEST_PIECE = 1 << 20
"""Upper limits in bytes on a request's JSON, and on a piece of an upload."""
PACKING = "deflate"
"""Content encoding of compressed requests, which the orchestrator reads: zlib."""
HEARTBEAT_S = 20.0
"""Longest time in s between two lines of a stream."""
_PACK_LEVEL, _PACKED_SHARE = 6, 0.7
"""Level of zlib; share of a body's length above which the body is sent as it is, as base64 adds a
third."""


def _decoded(value: object) -> object:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error:
        raise ValueError("expected base64") from None


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


Document = dict[str, JsonValue]
"""JSON object whose form the API does not determine."""
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Base64 = Annotated[bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, when_used="json")]
"""Bytes that are base64 in JSON; plain `bytes` are text in UTF-8, such as PEM."""
Spec = Annotated[Job, PlainSerializer(Job.as_json)]


class Message(BaseModel):
    """Message of the API; the receiver of an answer ignores fields that it does not know."""

    # A program builds the validators of those messages only that it uses.
    model_config = ConfigDict(frozen=True, defer_build=True)

    def as_json(self) -> Document:
        """Return the JSON object with the fields that were set, sorted by their names."""
        values = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return dict(json.loads(json.dumps(values, sort_keys=True)))


class Request(Message):
    """Request to the orchestrator; fields that it does not know are refused."""

    model_config = ConfigDict(extra="forbid")


# --- errors ---


class ErrorKind(StrEnum):
    """Kind of an error; the last two arise at the client, when no answer comes."""

    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    DENIED = "denied"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    TOO_OFTEN = "too-often"
    INTERNAL = "internal"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"


class Problem(Message):
    """Answer to a refused or failed request: kind of the error, and one line for the user."""

    error: ErrorKind
    message: str


class ApiError(SkyhopError):
    """Request that was refused, failed or not answered."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


# --- requests of users ---


class Nothing(Request):
    """Request that has no fields."""


class CheckJob(Request):
    """Text of a job file to check."""

    toml: str


class SubmitJob(Request):
    """Text of a job file, and the content of the input files that it names."""

    toml: str
    files: dict[str, Base64] = {}


class ModifyJob(SubmitJob):
    """Job file that replaces a job."""

    job: str


class NamedJob(Request):
    """Name or id of a job."""

    job: str


class ListJobs(Request):
    """Filters of a list of jobs; "" for all."""

    node: str = ""
    user: str = ""
    ended: bool = False


class NextSlot(Request):
    """Nodes and length of a free time; `end_ns` 0 for no limit."""

    nodes: list[str] = []
    length_ns: Int64
    from_ns: Int64 = 0
    end_ns: Int64 = 0


class Calendar(Request):
    """Nodes (none for all) and time range of the calendar; `to_ns` 0 for no limit."""

    nodes: list[str] = []
    from_ns: Int64 = 0
    to_ns: Int64 = 0


class ListRuns(Request):
    """Filters of a list of runs; "", 0 and an empty list for all."""

    job: str = ""
    node: str = ""
    user: str = ""
    states: list[str] = []
    from_ns: Int64 = 0
    to_ns: Int64 = 0
    limit: Int64 = 0
    """Upper limit on rows; 0 for 100."""


class NamedRun(Request):
    """Id of a run."""

    run: str


class AbortRun(NamedRun):
    """Run to abort, and a text for its events."""

    reason: str = ""


class RescheduleRun(NamedRun):
    """Planned run to move; `from_ns` is its earliest start, 0 for the testbed's usual delay."""

    from_ns: Int64 = 0


class Fetch(NamedRun):
    """File of a run to download, from an offset on."""

    side: str
    name: str
    offset: Int64 = 0


class ListNodes(Request):
    """Filter of the list of nodes: with `active`, those that reported lately."""

    active: bool = False


class NamedNode(Request):
    """Name of a node."""

    node: str


class SetScavenger(NamedNode):
    """Mode in which a node's runs give way to its host's traffic: auto, on or off."""

    mode: str


class SetPolicy(NamedNode):
    """Policy of a node's owner."""

    policy: Document


class Telemetry(NamedNode):
    """Columns (none for all), time range and step (0 for all samples) of a node's telemetry."""

    columns: list[str] = []
    from_ns: Int64 = 0
    to_ns: Int64 = 0
    step_ns: Int64 = 0


class TestTrigger(NamedNode):
    """Trigger to evaluate on a node's stored telemetry in a time range."""

    __test__ = False

    expression: str
    from_ns: Int64 = 0
    to_ns: Int64 = 0


class TriggerLog(Request):
    """Filters of the evaluations of triggers; "" and 0 for all."""

    job: str = ""
    node: str = ""
    from_ns: Int64 = 0
    to_ns: Int64 = 0
    limit: Int64 = 0
    """Upper limit on rows; 0 for 200."""


class PutProfile(Request):
    """Changes of the user's own profile; `None` leaves a value."""

    full_name: str | None = None
    team: str | None = None


# --- requests of administrators ---


class PutUser(Request):
    """User to create or change; `None` leaves a value."""

    name: str
    full_name: str | None = None
    team: str | None = None
    role: str | None = None
    disabled: bool | None = None


class NamedUser(Request):
    """Name of a user."""

    user: str


class IssueToken(NamedUser):
    """Label and expiry (0 for never) of a new token of a user."""

    label: str = ""
    expires_ns: Int64 = 0


class RevokeToken(NamedUser):
    """Label or id of the tokens of a user to revoke; "*" for all."""

    token: str


class PutNode(Request):
    """Node to create or change; a field that is not set leaves its value."""

    name: str
    owner: str | None = None
    description: str | None = None
    provider: str | None = None
    address: str | None = None
    latitude_deg: float | None = None
    longitude_deg: float | None = None


class Quotas(Request):
    """Quotas of a "user" or a "node"."""

    kind: str
    name: str


class PutQuotas(Request):
    """New quotas of one user or node; `null` restores the testbed's setting."""

    kind: str
    name: str
    values: dict[str, float | None]


class PutConfig(Request):
    """Settings of the testbed to change."""

    values: Document


class Retire(Request):
    """Whether to retire the former authority although nodes have no certificate of the new one."""

    force: bool = False


class ListAudit(Request):
    """Time range of the audit log; `to_ns` 0 for no limit, `limit` 0 for 200 lines."""

    from_ns: Int64 = 0
    to_ns: Int64 = 0
    limit: Int64 = 0


class ListAlerts(Request):
    """Filter of the list of alerts: with `all`, also those that are over; `limit` 0 for 200."""

    all: bool = False
    limit: Int64 = 0


class PutWebhook(Request):
    """Webhook to create or change: address, and the secret that its receiver checks."""

    name: str
    url: str
    secret: str = ""


class NamedWebhook(Request):
    """Name of a webhook."""

    name: str


class PublishRelease(Request):
    """Signed release whose wheels follow: the content of `releases.FILE`."""

    signed: str


class NamedRelease(Request):
    """Version of a release."""

    version: str


# --- requests of nodes ---


class Enrol(NamedNode):
    """Token of an invitation, and the signing request for the node's first certificate, PEM."""

    token: str
    csr_pem: bytes


class Reenrol(NamedNode):
    """Request of a node whose certificate has expired, signed by that certificate's key."""

    certificate_pem: bytes
    csr_pem: bytes
    signature: Base64
    """`keys.sign_request` of the signing request."""


class Renew(Request):
    """Signing request for a node's next certificate, PEM."""

    csr_pem: bytes


class Follow(Request):
    """Revision of the schedule that the node has.

    A node that reads differences also sends the digest of its schedule (`differences.digest`), or
    "" to ask for the whole schedule. A node that sends no digest gets whole schedules only.
    """

    revision: Int64 = 0
    digest: Annotated[str | None, Field(json_schema_extra=since(2))] = None


class Claim(NamedRun):
    """Claim of a run by its node, with a fencing token."""

    fence: Int64
    at_ns: Int64


class Event(Message):
    """Report of a node."""

    seq: Int64
    at_ns: Int64
    kind: str
    body: str
    """JSON text of the report; it is parsed by itself, so that a malformed one is refused alone."""


class Batch(Request):
    """Reports of a node in order of `seq`, each applied once; an empty batch is a heartbeat."""

    events: list[Event] = []
    at_ns: Int64 = 0


class Input(NamedJob):
    """Input file of a job to download, from an offset on."""

    name: str
    offset: Int64 = 0


class FetchRelease(NamedRelease):
    """File of a release to download, from an offset on: its signed list, or a wheel."""

    name: str
    offset: Int64 = 0


class RunSide(NamedRun):
    """Side of a run whose files a node uploads."""

    side: str


class ListFiles(NamedRun):
    """Run whose files are listed, in the order of their sides and names."""

    after_side: str = ""
    after_name: str = ""
    """Side and name of the file after which the list begins."""
    limit: Int64 = 0
    """Upper limit on files; 0 for 1,000."""


class Piece(Message):
    """Header of a piece of an upload, in a line of its own before the piece's bytes."""

    name: str
    offset: Int64
    length: Annotated[int, Field(ge=0, le=LARGEST_PIECE)]


# --- answers ---


class Interval(Message):
    """Time from start to end."""

    start_ns: int
    end_ns: int


class Conflict(Message):
    """Reservation that a job meets, of another job or of itself (`job` is "")."""

    mine: Interval
    theirs: Interval
    job: str
    owner: str
    nodes: list[str]


class Check(Message):
    """Result of the check of a job: its first free time, and the first of its conflicts."""

    job: str
    kind: JobKind
    nodes: list[str]
    server: str | None
    first: Interval | None
    conflicts: list[Conflict]
    conflicts_total: int


class JobInfo(Message):
    """Job with its specification."""

    id: str
    name: str
    owner: str
    kind: JobKind
    state: str
    """One of "active", "over" and "cancelled"."""
    created_ns: int
    overhead: bool
    spec: Spec


class SubmittedJob(JobInfo):
    """Job that was accepted, the number of its planned runs, and the time of the first."""

    runs: int
    first: Interval | None


class Slot(Message):
    """Start of a free time; `None` if there is none."""

    start_ns: int | None


class Reservation(Message):
    """Run in the calendar; every user sees times and owners."""

    id: str
    client: str
    server: str | None
    start_ns: int
    end_ns: int
    state: State
    owner: str
    kind: JobKind
    overhead: bool
    job_name: str
    """Name of the job; "" if the caller may not see the run."""
    reserves: bool


class RunInfo(Message):
    """Run with name, owner and kind of its job."""

    id: str
    job: str
    client: str
    server: str | None
    start_ns: int
    end_ns: int
    state: State
    reason: Reason | None
    fence: int
    after: str | None
    created_ns: int
    job_name: str
    owner: str
    kind: JobKind


class RunEvent(Message):
    """Change of a run's state."""

    id: int
    run: str
    at_ns: int
    received_ns: int
    actor: str
    state: State
    reason: Reason | None
    details: Document
    applied: bool


class RunFile(Message):
    """File that a run left."""

    run: str
    side: Side
    name: str
    size: int
    sha256: str
    stored_ns: int
    expires_ns: int


class RunDocument(RunInfo):
    """Run with its events, its files and its job's specification."""

    events: list[RunEvent]
    files: list[RunFile]
    """First files in the order of their sides and names, and the program's output."""
    file_count: int | None = None
    """Number of all files; `ListFiles` has those that are not in `files`."""
    file_bytes: int | None = None
    spec: Spec


class NodeInfo(Message):
    """Node as every user sees it."""

    name: str
    owner: str | None
    description: str
    provider: str
    latitude_deg: float | None
    longitude_deg: float | None
    scavenger_mode: ScavengerMode
    scavenger_active: bool
    last_seen_ns: int | None
    online: bool
    serves: bool
    health: Document
    clock_off_ms: float | None
    alerts: list[str] = []
    """Kinds of the node's alerts that are not over."""
    version: str = ""
    """Version of skyhop that the agent runs; "" if it has never connected."""
    upgrade: str = ""
    """Side that must be upgraded, and to what; "" if agent and orchestrator understand each other.
    """
    is_waiting: bool = False
    """Whether the node's certificate has expired and it asks an administrator for another."""


class NodeDocument(NodeInfo):
    """Node; the fields of this class are set for its owner and administrators only."""

    address: str = ""
    policy: Document | None = None
    preemptions: list[Document] = []


class Evaluation(Message):
    """Evaluation of a trigger on one sample."""

    at_ns: int
    outcome: str
    value: JsonValue
    why: str | None
    inputs: Document


class TriggerLine(Message):
    """Evaluation of a trigger that a node has reported, with what its agent told of it."""

    model_config = ConfigDict(extra="allow")

    job_name: str
    owner: str
    node: str
    at_ns: int
    fired: bool
    run: str | None
    expression: JsonValue = None
    why: JsonValue = None


class UserInfo(Message):
    """User of the testbed."""

    name: str
    full_name: str
    team: str
    role: Role
    disabled: bool
    created_ns: int = 0
    tokens: int = 0
    """Number of valid tokens, in the list of users."""
    jobs_ended: int = 0
    """Number of jobs that were cancelled because the user was disabled."""


@pydantic_dataclass(frozen=True)
class Settings:
    """Settings that administrators change at run time. Durations are in seconds."""

    reschedule_after_s: float = 1800.0
    """Shortest time from a preemption (or a request to move the run) to the start of the moved run.
    """
    heartbeat_s: float = 30.0
    missed_heartbeats: int | float = 3
    """Number of missed heartbeats after which a node counts as offline."""
    active_s: float = 600.0
    """Time since a node's last report up to which the node is listed as active."""
    lost_after_s: float = 600.0
    """Time after which a run is lost: both its end and its last event are longer ago."""
    horizon_s: float = 86_400.0
    """Time ahead for which nodes know their runs: they go on so long without the orchestrator."""
    late_s: float = 60.0
    """Delay after its planned start up to which a run may begin; later it is skipped."""
    telemetry_retention_s: float = 400 * 86_400.0
    run_retention_s: float = 400 * 86_400.0
    """Time for which an ended run, its events and its job are kept; a run with files stays longer.
    """
    log_retention_s: float = 400 * 86_400.0
    """Time for which lines of the audit log, evaluations of triggers and preemptions are kept."""
    free_floor_bytes: float = 500e6
    """Free space on the disk of the state directory below which jobs and uploads are refused."""
    free_floor_percent: float = 1.0
    """The same floor as a share of the disk; the larger of the two counts."""
    user_jobs: float = 50
    """Quota of active jobs of a user; each quota can be changed for one user or node."""
    user_runs_ahead: float = 10_000
    """Quota of runs that wait for their time."""
    user_kept_bytes: float = 50e9
    """Quota of bytes that files of runs take at the orchestrator."""
    user_upload_bytes_per_day: float = 20e9
    """Quota of bytes that nodes send for a user's runs on one day (UTC)."""
    node_jobs: float = 200
    node_runs_ahead: float = 20_000
    node_kept_bytes: float = 200e9
    node_upload_bytes_per_day: float = 50e9
    files_per_run: int | float = MOST_FILES
    """Quota of files of one side of a run."""
    bytes_per_run: float = 4e9
    """Quota of bytes of one side of a run."""
    requests_per_minute: float = 600.0
    """Upper limit on requests per minute of one caller."""
    refused_per_minute: float = 60.0
    """Upper limit on requests per minute with a wrong credential, per source address."""
    alert_silent_s: float = 900.0
    """Time since a node's last report after which there is an alert."""
    alert_disk_free_bytes: float = 2e9
    """Free disk space, of a node or of the orchestrator, below which there is an alert."""
    alert_clock_ms: float = 100.0
    """Offset of a node's clock above which there is an alert."""
    alert_certificate_days: float = 14.0
    """Time before the end of a certificate from which on there is an alert, in days."""
    alert_backup_days: float = 8.0
    """Age of the latest backup above which there is an alert, in days, if there was a backup."""


class QuotaLine(Message):
    """Quota of a user or a node: used and allowed."""

    kind: str
    """Kind of the holder: "user" or "node"."""
    name: str
    key: str
    """Name of the quota, such as "jobs"."""
    used: float | None = None
    """Present use; None for a limit of each run."""
    allowed: float
    is_own: bool
    """Whether an administrator has set it for this user or node."""


@pydantic_dataclass(frozen=True)
class Config(Settings):
    """Settings, and the testbed's public addresses by port: users, agents and web."""

    addresses: dict[str, str] = field(default_factory=dict)
    shortage: str = ""
    """Why the orchestrator's disk is too full, as one line; "" if it is not."""


class AuditLine(Message):
    """Line of the audit log."""

    id: int
    at_ns: int
    who: str
    what: str
    target: str
    outcome: str


class Alert(Message):
    """Alert: what is wrong with a node, or with the orchestrator (`subject` is "")."""

    id: int
    kind: str
    subject: str
    message: str
    raised_ns: int
    cleared_ns: int | None


class WebhookInfo(Message):
    """Webhook, with the number of messages that it has not taken yet and the last error."""

    name: str
    url: str
    """Address without its path, which may contain a secret."""
    has_secret: bool
    created_ns: int
    waiting: int
    error: str


class Certificate(Message):
    """Certificate of a node and of the authority, PEM, and the key that verifies orders."""

    certificate_pem: bytes
    authority_pem: bytes
    orders_key: Base64
    """Public key (Ed25519, 32 bytes) that signs the orchestrator's orders."""
    orders_keys: list[Base64] = []
    """All public keys that may sign orders now, that one first."""


class Reenrolment(Message):
    """Certificate for a node whose certificate has expired; `None` until it is approved."""

    certificate: Certificate | None = None


class Trust(Message):
    """Certificates of the authorities that sign the orchestrator's certificate, PEM."""

    authority_pem: bytes


class AuthorityInfo(Message):
    """Authority: its name, digest and validity."""

    name: str
    sha256: str
    from_ns: int
    to_ns: int


class AuthorityStatus(Message):
    """Authorities that nodes and users trust."""

    signing: AuthorityInfo
    former: AuthorityInfo | None
    """Authority before the last rotation, trusted until it is retired."""
    nodes_behind: list[str]
    """Nodes without a certificate of the signing one."""


class NodeRelease(Message):
    """Version of a node, and how far the published release is there."""

    node: str
    version: str
    """Version of skyhop that the agent runs; "" if it has never connected."""
    state: str
    """Word of `UpdateState`; "" if the agent says nothing about releases."""
    why: str
    """Sentence with the reason, or with what the node waits for."""


class ReleaseStatus(Message):
    """Published release, and the nodes."""

    version: str
    """Version of the published release; "" if there is none."""
    size: int
    """Bytes of its wheels."""
    key: str
    """Public key of its signer, base64."""
    published_ns: int
    nodes: list[NodeRelease]


class UploadProgress(Message):
    """Part of an upload that has arrived."""

    manifest_bytes: int
    missing: list[tuple[int, int]] | None
    """Files that are missing or incomplete: ranges of their indices in the manifest, without their
    ends; `None` while the manifest is incomplete."""
    offset: int
    """Bytes that have arrived of the first missing file; the others are sent from their beginning.
    """


class OrderKind(StrEnum):
    """Kind of an order to a node, which determines its body."""

    SCHEDULE = "schedule"
    """Complete schedule of the node: it drops runs that are not in it."""
    SCHEDULE_CHANGE = "schedule-change"
    """Difference to the node's schedule, for nodes that read differences."""
    STOP = "stop"
    """Order to stop a run: node, run, reason."""
    TASK = "task"
    """Order to the server node of a run: start or stop the server program."""
    TASK_RESULT = "task-result"
    """Reply of the server node, for the client that waits: node, run, ready, port, error."""


class Order(Message):
    """Order to a node, signed (Ed25519) over the exact bytes of its body, which is JSON."""

    kind: OrderKind
    body: bytes
    signature: Base64
    packed: Base64 = b""
    """Body, compressed with zlib; `body` is empty then. Only nodes that read differences get it."""

    @classmethod
    def packing(cls, kind: OrderKind, body: bytes, signature: bytes) -> Order:
        """Return an order whose body is compressed if that makes it shorter."""
        packed = zlib.compress(body, _PACK_LEVEL)
        if len(packed) > _PACKED_SHARE * len(body):
            return cls(kind=kind, body=body, signature=signature)
        return cls(kind=kind, body=b"", signature=signature, packed=packed)

    def content(self) -> bytes:
        """Return the bytes that are signed.

        Raises:
            InputError: the compressed body is damaged or too long.
        """
        return unpacked(self.packed, LARGEST_REQUEST) if self.packed else self.body


class Grant(Message):
    """Whether a claim is granted, and the reason if it is not."""

    granted: bool
    reason: str


# --- the table of operations ---

Q = TypeVar("Q", bound=Request)
A = TypeVar("A")

USERS = frozenset({Role.ADMIN, Role.USER, Role.USER_PRIV})
ADMINS = frozenset({Role.ADMIN})
NODES = frozenset({Role.NODE})
INVITED: frozenset[Role] = frozenset()
"""No role: the caller of `Enrol` has only an invitation."""


@dataclass(frozen=True)
class Operation(Generic[Q, A]):
    """Operation of the API.

    Attributes:
        name: name in the audit log and in messages.
        method: HTTP method.
        path: path; fields of the request in braces.
        request: type of the request.
        answer: type of the answer (of each line with `lines`); `bytes` for a file.
        roles: roles that may call it; those of nodes are served on the agents' port.
        is_audited: whether calls are written to the audit log, including refused calls.
        lines: whether the answer is a stream of lines.
        uploads: whether the request's body is a stream of pieces; its fields are then in the path.
    """

    name: str
    method: str
    path: str
    request: type[Q]
    answer: type[A]
    roles: frozenset[Role]
    is_audited: bool = False
    lines: bool = False
    uploads: bool = False

    @property
    def path_fields(self) -> list[str]:
        """Names of the request's fields that are in the path."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def has_query(self) -> bool:
        """Whether the other fields are in the query, not in the body."""
        return self.method in ("GET", "DELETE")

    @cached_property
    def adapter(self) -> TypeAdapter[A]:
        """Reader and writer of the answer's JSON."""
        return TypeAdapter(self.answer)


OPERATIONS: dict[str, Operation[Any, Any]] = {}
"""All operations by name."""


def _op(
    name: str, where: str, request: type[Q], answer: type[A], roles: frozenset[Role], **more: bool
) -> Operation[Q, A]:
    method, path = where.split()
    made = Operation(name, method, f"/v1{path}", request, answer, roles, **more)
    OPERATIONS[name] = made
    return made


# fmt: off
ENROL = _op("Enrol", "POST /enrol", Enrol, Certificate, INVITED, is_audited=True)
REENROL = _op("Reenrol", "POST /reenrol", Reenrol, Reenrolment, INVITED, is_audited=True)

RENEW = _op("Renew", "POST /renew", Renew, Certificate, NODES, is_audited=True)
FOLLOW = _op("Follow", "GET /orders", Follow, Order, NODES, lines=True)
CLAIM = _op("Claim", "POST /runs/{run}/claim", Claim, Grant, NODES)
REPORT = _op("Report", "POST /events", Batch, int, NODES)
INPUT = _op("Input", "GET /jobs/{job}/input", Input, bytes, NODES)
UPLOAD_STATE = _op("UploadState", "GET /runs/{run}/uploads/{side}", RunSide, dict[str, int], NODES)
UPLOAD_PROGRESS = _op(
    "UploadProgress", "GET /runs/{run}/uploads/{side}/progress", RunSide, UploadProgress, NODES
)
UPLOAD = _op("Upload", "POST /runs/{run}/uploads/{side}", RunSide, bool, NODES, uploads=True)
FETCH_RELEASE = _op(
    "FetchRelease", "GET /releases/{version}/file", FetchRelease, bytes, NODES
)

CHECK_JOB = _op("CheckJob", "POST /jobs/check", CheckJob, Check, USERS)
SUBMIT_JOB = _op("SubmitJob", "POST /jobs", SubmitJob, SubmittedJob, USERS, is_audited=True)
MODIFY_JOB = _op("ModifyJob", "PUT /jobs/{job}", ModifyJob, SubmittedJob, USERS, is_audited=True)
CANCEL_JOB = _op("CancelJob", "POST /jobs/{job}/cancel", NamedJob, JobInfo, USERS, is_audited=True)
LIST_JOBS = _op("ListJobs", "GET /jobs", ListJobs, list[JobInfo], USERS)
NEXT_SLOT = _op("NextSlot", "GET /calendar/next", NextSlot, Slot, USERS)
CALENDAR = _op("Calendar", "GET /calendar", Calendar, list[Reservation], USERS)
LIST_RUNS = _op("ListRuns", "GET /runs", ListRuns, list[RunInfo], USERS)
LIST_FILES = _op("ListFiles", "GET /runs/{run}/files", ListFiles, list[RunFile], USERS)
GET_RUN = _op("GetRun", "GET /runs/{run}", NamedRun, RunDocument, USERS)
WATCH_RUN = _op("WatchRun", "GET /runs/{run}/watch", NamedRun, RunDocument, USERS, lines=True)
ABORT_RUN = _op("AbortRun", "POST /runs/{run}/abort", AbortRun, RunDocument, USERS, is_audited=True)
RESCHEDULE_RUN = _op(
    "RescheduleRun", "POST /runs/{run}/reschedule", RescheduleRun, RunDocument, USERS,
    is_audited=True,
)
DROP_FILES = _op("DropFiles", "DELETE /runs/{run}/files", NamedRun, int, USERS, is_audited=True)
FETCH = _op("Fetch", "GET /runs/{run}/file", Fetch, bytes, USERS)
LIST_NODES = _op("ListNodes", "GET /nodes", ListNodes, list[NodeInfo], USERS)
GET_NODE = _op("GetNode", "GET /nodes/{node}", NamedNode, NodeDocument, USERS)
SET_SCAVENGER = _op(
    "SetScavenger", "PUT /nodes/{node}/scavenger", SetScavenger, NodeDocument, USERS,
    is_audited=True,
)
SET_POLICY = _op(
    "SetPolicy", "PUT /nodes/{node}/policy", SetPolicy, NodeDocument, USERS, is_audited=True
)
TELEMETRY = _op("Telemetry", "GET /nodes/{node}/telemetry", Telemetry, bytes, USERS)
OBSTRUCTION_MAP = _op("ObstructionMap", "GET /nodes/{node}/map", NamedNode, bytes, USERS)
TEST_TRIGGER = _op(
    "TestTrigger", "POST /nodes/{node}/trigger", TestTrigger, list[Evaluation], USERS
)
TRIGGER_LOG = _op("TriggerLog", "GET /triggers", TriggerLog, list[TriggerLine], USERS)
GET_PROFILE = _op("GetProfile", "GET /profile", Nothing, UserInfo, USERS)
TRUST = _op("Trust", "GET /trust", Nothing, Trust, USERS)
PUT_PROFILE = _op("PutProfile", "PUT /profile", PutProfile, UserInfo, USERS, is_audited=True)

GET_QUOTAS = _op("GetQuotas", "GET /quotas/{kind}/{name}", Quotas, list[QuotaLine], USERS)
PUT_QUOTAS = _op(
    "PutQuotas", "PUT /quotas/{kind}/{name}", PutQuotas, list[QuotaLine], ADMINS, is_audited=True
)
PUT_USER = _op("PutUser", "PUT /users/{name}", PutUser, UserInfo, ADMINS, is_audited=True)
DELETE_USER = _op(
    "DeleteUser", "DELETE /users/{user}", NamedUser, int, ADMINS, is_audited=True
)
LIST_USERS = _op("ListUsers", "GET /users", Nothing, list[UserInfo], ADMINS)
ISSUE_TOKEN = _op(
    "IssueToken", "POST /users/{user}/tokens", IssueToken, str, ADMINS, is_audited=True
)
REVOKE_TOKEN = _op(
    "RevokeToken", "DELETE /users/{user}/tokens", RevokeToken, int, ADMINS, is_audited=True
)
PUT_NODE = _op("PutNode", "PUT /nodes/{name}", PutNode, NodeDocument, ADMINS, is_audited=True)
DELETE_NODE = _op(
    "DeleteNode", "DELETE /nodes/{node}", NamedNode, str, ADMINS, is_audited=True
)
INVITE = _op("Invite", "POST /nodes/{node}/invite", NamedNode, str, ADMINS, is_audited=True)
GET_CONFIG = _op("GetConfig", "GET /config", Nothing, Config, ADMINS)
PUT_CONFIG = _op("PutConfig", "PUT /config", PutConfig, Settings, ADMINS, is_audited=True)
LIST_ALERTS = _op("ListAlerts", "GET /alerts", ListAlerts, list[Alert], USERS)
LIST_WEBHOOKS = _op("ListWebhooks", "GET /webhooks", Nothing, list[WebhookInfo], ADMINS)
PUT_WEBHOOK = _op(
    "PutWebhook", "PUT /webhooks/{name}", PutWebhook, WebhookInfo, ADMINS, is_audited=True
)
DELETE_WEBHOOK = _op(
    "DeleteWebhook", "DELETE /webhooks/{name}", NamedWebhook, str, ADMINS, is_audited=True
)
TEST_WEBHOOK = _op(
    "TestWebhook", "POST /webhooks/{name}/test", NamedWebhook, WebhookInfo, ADMINS,
    is_audited=True,
)
APPROVE = _op("Approve", "POST /nodes/{node}/approve", NamedNode, str, ADMINS, is_audited=True)
AUTHORITY = _op("Authority", "GET /authority", Nothing, AuthorityStatus, ADMINS)
ROTATE_AUTHORITY = _op(
    "RotateAuthority", "POST /authority/rotate", Nothing, AuthorityStatus, ADMINS, is_audited=True
)
RETIRE_AUTHORITY = _op(
    "RetireAuthority", "POST /authority/retire", Retire, AuthorityStatus, ADMINS, is_audited=True
)
PUBLISH_RELEASE = _op(
    "PublishRelease", "POST /releases", PublishRelease, dict[str, int], ADMINS, is_audited=True
)
UPLOAD_RELEASE = _op(
    "UploadRelease", "POST /releases/{version}/wheels", NamedRelease, bool, ADMINS,
    is_audited=True, uploads=True,
)
WITHDRAW_RELEASE = _op(
    "WithdrawRelease", "DELETE /releases/{version}", NamedRelease, str, ADMINS, is_audited=True
)
RELEASE_STATUS = _op("ReleaseStatus", "GET /releases", Nothing, ReleaseStatus, ADMINS)
AUDIT = _op("Audit", "GET /audit", ListAudit, list[AuditLine], ADMINS)
# fmt: on


# --- forms that both sides read and write ---


def unpacked(packed: bytes, most: int) -> bytes:
    """Return the content of bytes that zlib has compressed.

    Raises:
        InputError: the bytes are damaged, or have more than `most` bytes of content.
    """
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(packed, most)
    except zlib.error:
        raise InputError("compressed bytes are damaged") from None
    if not reader.eof:
        raise InputError(f"compressed bytes are cut off, or have more than {most:,} bytes inside")
    return content


def read_object(content: bytes) -> dict[str, object]:
    """Return the JSON object in a request's body.

    Raises:
        InputError: it is no JSON object, or has characters that no text in UTF-8 has.
    """
    try:
        values = from_json(content)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise InputError("expected a JSON object")
    return values


def read_request(operation: Operation[Q, Any], values: object) -> Q:
    """Return a request from its fields.

    Raises:
        InputError: a field is missing, unknown or wrong; the message names it.
    """
    try:
        return operation.request.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "request"
        raise InputError(f"{place[:80]}: {first['msg'][:200]}") from None


def frame(name: str, offset: int, data: bytes) -> bytes:
    """Return a piece of an upload as bytes: the line of its header, and the data."""
    return (
        Piece(name=name, offset=offset, length=len(data)).model_dump_json().encode() + b"\n" + data
    )


_LONGEST_HEADER = 4096


class Frames:
    """Reader of an upload's pieces, fed with the bytes of the body as they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._piece: Piece | None = None

    def feed(self, data: bytes) -> Iterator[tuple[Piece, bytes]]:
        """Yield the pieces that are complete now.

        Raises:
            InputError: a header is damaged, or a piece is larger than `LARGEST_PIECE`.
        """
        self._held += data
        while True:
            if self._piece is None:
                end = self._held.find(b"\n", 0, _LONGEST_HEADER)
                if end < 0:
                    if len(self._held) >= _LONGEST_HEADER:
                        raise InputError("the header of a piece is too long")
                    return
                self._piece = _header(bytes(self._held[:end]))
                del self._held[: end + 1]
            if len(self._held) < self._piece.length:
                return
            piece, self._piece = self._piece, None
            content = bytes(self._held[: piece.length])
            del self._held[: piece.length]
            yield piece, content


def _header(line: bytes) -> Piece:
    try:
        return Piece.model_validate_json(line)
    except ValidationError as error:
        raise InputError(f"a piece is damaged: {error.errors()[0]['msg'][:200]}") from None


def lines_of(pieces: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Yield the lines of a stream, without their ends.

    Raises:
        ValueError: a line is longer than `longest` bytes.
    """
    held = bytearray()
    for piece in pieces:
        held += piece
        while (end := held.find(b"\n")) >= 0:
            yield bytes(held[:end])
            del held[: end + 1]
        if len(held) > longest:
            raise ValueError(f"a line is longer than {longest:,} bytes")
