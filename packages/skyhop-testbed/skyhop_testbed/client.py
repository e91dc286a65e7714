"""Client of the testbed for users: the API behind the command line, also for notebooks.

    testbed = Testbed.of_file("ann.testbed")
    testbed.submit("job.toml")
    for run in testbed.runs():
        print(run.id, run.state)

A credential is a file with the orchestrator's address, its certificate authority, and the user's
token. Its path is given by `--as FILE` or the variable SKYHOP_TESTBED; the default is
~/.config/skyhop/testbed.json.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed import api, wire
from skyhop_testbed.api import A, ApiError, Document, ErrorKind, Operation, Q
from skyhop_testbed.job import LONGEST_FILE_BYTES, Job, read_job
from skyhop_testbed.keys import read_private, trust_digest, write_private
from skyhop_testbed.releases import FILE as RELEASE_FILE
from skyhop_testbed.releases import Release, SignedRelease, check_wheels

if TYPE_CHECKING:
    import polars as pl

VARIABLE = "SKYHOP_TESTBED"
_TIMEOUT_S, _TELEMETRY_TIMEOUT_S = 30.0, 90.0
"""Longest waits in s for an answer, and for telemetry, which a subprocess reads first."""
_UPLOAD_TIMEOUT_S, _RELEASE_PIECE_BYTES = 300.0, 256 << 10
_WRONG = (
    ErrorKind.INVALID,
    ErrorKind.NOT_FOUND,
    ErrorKind.UNAUTHENTICATED,
    ErrorKind.DENIED,
    ErrorKind.CONFLICT,
)


@dataclass(frozen=True)
class Credential:
    """Credential of a user: address, token and certificate authority."""

    address: str
    """HOST:PORT of the users' port."""
    token: str
    authority_pem: str

    def write(self, path: Path) -> None:
        """Write the credential to a file that only its owner may read.

        Raises:
            RunError: the file cannot be written.
        """
        try:
            write_private(path, json.dumps(asdict(self), indent=1).encode())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from None

    @classmethod
    def read(cls, path: Path) -> Credential:
        """Read a credential from a file.

        Raises:
            InputError: the file is missing, is no credential, or other users may read it.
        """
        try:
            values = json.loads(read_private(path))
            return cls(**{key: str(values[key]) for key in ("address", "token", "authority_pem")})
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{path}: is no credential of a testbed") from None


def default_credential() -> Path:
    """Return the credential's default path: the value of SKYHOP_TESTBED, or a file in ~/.config."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "skyhop" / "testbed.json"


class Testbed:
    """Connection of a user to an orchestrator.

    Any method may raise `InputError` (the request is wrong or forbidden) or `RunError` (the
    orchestrator is unreachable or fails).
    """

    __test__ = False

    def __init__(self, credential: Credential) -> None:
        self._address = credential.address
        self._authority_pem = credential.authority_pem
        try:
            trusted = wire.client_context(credential.authority_pem.encode())
        except ValueError as error:
            raise InputError(f"the credential's authority_pem is no certificate: {error}") from None
        self._wire = wire.Wire(wire.open_http(credential.address, trusted), credential.token)
        self._credential = credential
        self._path: Path | None = None

    @classmethod
    def of_file(cls, path: Path | str | None = None) -> Testbed:
        """Return a connection with the credential in a file, by default `default_credential()`.

        Raises:
            InputError: the file is missing, or is no credential.
        """
        if path is None:
            path = default_credential()
            if not path.exists():
                raise InputError(
                    f"{path}: no credential there; name one with --as FILE or {VARIABLE}"
                )
        made = cls(Credential.read(Path(path)))
        made._path = Path(path)
        return made

    def close(self) -> None:
        """Close the connection; store the orchestrator's present authorities in the credential."""
        with suppress(SkyhopError):
            self._follow_rotation()
        self._wire.close()

    def _follow_rotation(self) -> None:
        """Store the authorities in the credential's file if the orchestrator has others now."""
        wanted = self._wire.peer.trust
        if self._path is None or not wanted or wanted == trust_digest(self._pem, ()):
            return
        trusted = self._wire.call(api.TRUST, api.Nothing()).authority_pem.decode()
        replace(self._credential, authority_pem=trusted).write(self._path)

    @property
    def _pem(self) -> bytes:
        return self._authority_pem.encode()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- jobs ---

    def check(self, text: str) -> api.Check:
        """Check a job file's text without submitting it.

        Return its conflicts and first occurrence.
        """
        return self._call(api.CHECK_JOB, api.CheckJob(toml=text))

    def submit(self, path: Path | str) -> api.SubmittedJob:
        """Submit a job file and the input files that it names; return the job."""
        text, files = read_files(Path(path))
        return self._call(api.SUBMIT_JOB, api.SubmitJob(toml=text, files=files))

    def modify(self, name: str, path: Path | str) -> api.SubmittedJob:
        """Replace a job by a new job file; return the new job."""
        text, files = read_files(Path(path))
        return self._call(api.MODIFY_JOB, api.ModifyJob(job=name, toml=text, files=files))

    def cancel(self, name: str) -> api.JobInfo:
        """Cancel a job and its planned runs, and stop its runs in progress."""
        return self._call(api.CANCEL_JOB, api.NamedJob(job=name))

    def jobs(self, *, node: str = "", user: str = "", ended: bool = False) -> list[api.JobInfo]:
        """Return the jobs that the user may see, filtered by node and user."""
        return self._call(api.LIST_JOBS, api.ListJobs(node=node, user=user, ended=ended))

    def next_slot(self, nodes: list[str], length_ns: int, from_ns: int = 0) -> int | None:
        """Return the next time in ns at which all nodes are free for `length_ns`.

        `None` if never.
        """
        request = api.NextSlot(nodes=nodes, length_ns=length_ns, from_ns=from_ns)
        return self._call(api.NEXT_SLOT, request).start_ns

    def calendar(self, nodes: list[str], from_ns: int, to_ns: int) -> list[api.Reservation]:
        """Return the bookings of nodes in a time range."""
        request = api.Calendar(nodes=nodes, from_ns=from_ns, to_ns=to_ns)
        return self._call(api.CALENDAR, request)

    # --- runs ---

    def runs(
        self,
        *,
        job: str = "",
        node: str = "",
        user: str = "",
        states: list[str] | None = None,
        from_ns: int = 0,
        to_ns: int = 0,
        limit: int = 0,
    ) -> list[api.RunInfo]:
        """Return runs, the latest first.

        The list contains only the next future run of each job on each node; `states=["planned"]`
        returns all future runs that are planned so far.
        """
        request = api.ListRuns(
            job=job,
            node=node,
            user=user,
            states=states or [],
            from_ns=from_ns,
            to_ns=to_ns,
            limit=limit,
        )
        return self._call(api.LIST_RUNS, request)

    def run(self, name: str) -> api.RunDocument:
        """Return a run with its events and files."""
        return self._call(api.GET_RUN, api.NamedRun(run=name))

    def watch(self, name: str) -> Iterator[api.RunDocument]:
        """Yield a run whenever it changes, until it has ended."""
        with self._translated_errors():
            yield from self._wire.stream(api.WATCH_RUN, api.NamedRun(run=name))

    def abort(self, name: str, reason: str = "") -> api.RunDocument:
        """Stop a run, or remove a planned one from the calendar."""
        return self._call(api.ABORT_RUN, api.AbortRun(run=name, reason=reason))

    def reschedule(self, name: str, from_ns: int = 0) -> api.RunDocument:
        """Move a planned run to the nearest free time from `from_ns` on; return the new run."""
        return self._call(api.RESCHEDULE_RUN, api.RescheduleRun(run=name, from_ns=from_ns))

    def files(self, name: str) -> Iterator[api.RunFile]:
        """Yield all files of a run."""
        found = self.run(name)
        if found.file_count is None or found.file_count <= len(found.files):
            yield from found.files
            return
        after = ("", "")
        while True:
            asked = api.ListFiles(run=name, after_side=after[0], after_name=after[1])
            part = self._call(api.LIST_FILES, asked)
            yield from part
            if not part:
                return
            after = (part[-1].side, part[-1].name)

    def fetch(self, name: str, directory: Path) -> list[Path]:
        """Download a run's files into a directory, except files already there; return all paths."""
        made = []
        for each in self.files(name):
            path = directory / each.side / each.name
            if not _is_downloaded(path, each):
                self._fetch_file(name, each, path)
            made.append(path)
        return made

    def _fetch_file(self, name: str, each: api.RunFile, path: Path) -> None:
        """Download a file; what an interrupted download left is kept and continued."""
        # The digest is part of the name, because the directory may hold files of the user.
        aside = path.with_name(f".{path.name}.{each.sha256[:16]}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            offset = aside.stat().st_size if aside.exists() else 0
            request = api.Fetch(run=name, side=each.side, name=each.name, offset=offset)
            with self._translated_errors(), aside.open("ab") as file:
                for piece in self._wire.download(api.FETCH, request):
                    file.write(piece)
            if not _is_downloaded(aside, each):
                aside.unlink()
                raise RunError(f"{path}: arrived damaged; fetch it again")
            aside.replace(path)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from None
        finally:
            if aside.exists() and not aside.stat().st_size:
                aside.unlink()

    # --- nodes ---

    def nodes(self, *, active: bool = False) -> list[api.NodeInfo]:
        """Return all nodes; with `active`, only nodes that reported lately."""
        return self._call(api.LIST_NODES, api.ListNodes(active=active))

    def node(self, name: str) -> api.NodeDocument:
        """Return the fields of a node that the user may see."""
        return self._call(api.GET_NODE, api.NamedNode(node=name))

    def set_scavenger(self, node: str, mode: str) -> api.NodeDocument:
        """Set when runs on a node give way to its host's traffic: `auto`, `on` or `off`."""
        return self._call(api.SET_SCAVENGER, api.SetScavenger(node=node, mode=mode))

    def set_policy(self, node: str, policy: Document) -> api.NodeDocument:
        """Set the owner's policy of a node."""
        return self._call(api.SET_POLICY, api.SetPolicy(node=node, policy=policy))

    def telemetry(
        self, node: str, from_ns: int, to_ns: int, fields: list[str] | None = None, step_ns: int = 0
    ) -> pl.DataFrame:
        """Return a node's telemetry in a time range, optionally thinned to a row per `step_ns`."""
        import polars as pl

        request = api.Telemetry(
            node=node, columns=fields or [], from_ns=from_ns, to_ns=to_ns, step_ns=step_ns
        )
        return pl.read_ipc_stream(io.BytesIO(self._download(api.TELEMETRY, request)))

    def obstruction_map(self, node: str) -> Document:
        """Return the newest obstruction map of a node's terminal, in grpcurl's JSON form."""
        content = self._download(api.OBSTRUCTION_MAP, api.NamedNode(node=node))
        return dict(json.loads(content))

    def test_trigger(
        self, expression: str, node: str, from_ns: int, to_ns: int
    ) -> list[api.Evaluation]:
        """Evaluate a trigger on a node's stored telemetry; return the evaluations."""
        request = api.TestTrigger(expression=expression, node=node, from_ns=from_ns, to_ns=to_ns)
        return self._call(api.TEST_TRIGGER, request, _TELEMETRY_TIMEOUT_S)

    def trigger_log(
        self, *, job: str = "", node: str = "", from_ns: int = 0, to_ns: int = 0, limit: int = 0
    ) -> list[api.TriggerLine]:
        """Return evaluations of triggers that nodes have reported, with their reasons."""
        request = api.TriggerLog(job=job, node=node, from_ns=from_ns, to_ns=to_ns, limit=limit)
        return self._call(api.TRIGGER_LOG, request)

    # --- people and the testbed itself ---

    def profile(self) -> api.UserInfo:
        """Return the user's own profile."""
        return self._call(api.GET_PROFILE, api.Nothing())

    def put_profile(self, values: api.PutProfile) -> api.UserInfo:
        """Change the user's own full name and team."""
        return self._call(api.PUT_PROFILE, values)

    def users(self) -> list[api.UserInfo]:
        """Return all users. This method and those that follow are for administrators only."""
        return self._call(api.LIST_USERS, api.Nothing())

    def put_user(self, user: api.PutUser) -> api.UserInfo:
        """Create or change a user."""
        return self._call(api.PUT_USER, user)

    def delete_user(self, name: str) -> int:
        """Delete a user; return the number of the user's jobs that were ended."""
        return self._call(api.DELETE_USER, api.NamedUser(user=name))

    def issue_token(self, user: str, label: str = "", expires_ns: int = 0) -> str:
        """Issue a token for a user; return the token."""
        request = api.IssueToken(user=user, label=label, expires_ns=expires_ns)
        return self._call(api.ISSUE_TOKEN, request)

    def revoke_tokens(self, user: str, which: str = "*") -> int:
        """Revoke tokens of a user; return the number of revoked tokens."""
        return self._call(api.REVOKE_TOKEN, api.RevokeToken(user=user, token=which))

    def put_node(self, node: api.PutNode) -> api.NodeDocument:
        """Create or change a node."""
        return self._call(api.PUT_NODE, node)

    def delete_node(self, name: str) -> None:
        """Delete a node with its telemetry."""
        self._call(api.DELETE_NODE, api.NamedNode(node=name))

    def invitation(self, node: str) -> dict[str, str]:
        """Return the content of an invitation, which enrols a node once within fifteen minutes."""
        token = self._call(api.INVITE, api.NamedNode(node=node))
        return {
            "node": node,
            "token": token,
            "address": self._address,
            "agents": self.config().addresses["agents"],
            "authority_pem": self._authority_pem,
        }

    def credential(self, user: str, label: str = "", expires_ns: int = 0) -> Credential:
        """Issue a token for a user; return a credential with it."""
        token = self.issue_token(user, label, expires_ns)
        return Credential(self._address, token, self._authority_pem)

    def quotas(self, kind: str, name: str) -> list[api.QuotaLine]:
        """Return the quotas of a "user" or a "node": used and allowed."""
        return self._call(api.GET_QUOTAS, api.Quotas(kind=kind, name=name))

    def put_quotas(
        self, kind: str, name: str, values: dict[str, float | None]
    ) -> list[api.QuotaLine]:
        """Set quotas of one user or node, as an administrator; None restores the setting."""
        return self._call(api.PUT_QUOTAS, api.PutQuotas(kind=kind, name=name, values=values))

    def drop(self, run: str) -> int:
        """Delete a run's files now; return the bytes that this frees."""
        return self._call(api.DROP_FILES, api.NamedRun(run=run))

    def config(self) -> api.Config:
        """Return the testbed's settings."""
        return self._call(api.GET_CONFIG, api.Nothing())

    def approve(self, node: str) -> None:
        """Let a node whose certificate has expired have another."""
        self._call(api.APPROVE, api.NamedNode(node=node))

    def authority(self) -> api.AuthorityStatus:
        """Return the authorities that nodes and users trust."""
        return self._call(api.AUTHORITY, api.Nothing())

    def rotate_authority(self) -> api.AuthorityStatus:
        """Let a new authority and new keys of orders sign from now on."""
        return self._call(api.ROTATE_AUTHORITY, api.Nothing())

    def retire_authority(self, *, force: bool = False) -> api.AuthorityStatus:
        """End the trust in the former authority."""
        return self._call(api.RETIRE_AUTHORITY, api.Retire(force=force))

    def publish_release(self, directory: Path) -> Release:
        """Upload the signed release in a directory, and publish it to all nodes.

        Raises:
            InputError: the release is not signed, or a wheel is missing or has changed since.
        """
        try:
            signed = SignedRelease.loads((directory / RELEASE_FILE).read_bytes())
        except OSError as error:
            raise InputError(
                f"{directory / RELEASE_FILE}: {error.strerror}: sign the wheels first, with "
                "skyhop testbed release sign"
            ) from None
        release = signed.verified_by_itself()
        check_wheels(directory, release.wheels)
        here = self._call(api.PUBLISH_RELEASE, api.PublishRelease(signed=signed.dumps().decode()))
        asked = api.NamedRelease(version=release.version)
        with self._translated_errors():
            pieces = _release_pieces(directory, release, here)
            is_published = self._wire.upload(api.UPLOAD_RELEASE, asked, pieces, _UPLOAD_TIMEOUT_S)
        if not is_published:
            raise RunError(f"release {release.version} has not arrived complete: publish it again")
        return release

    def withdraw_release(self, version: str) -> None:
        """End the offer of a release; nodes that have installed it keep it."""
        self._call(api.WITHDRAW_RELEASE, api.NamedRelease(version=version))

    def release_status(self) -> api.ReleaseStatus:
        """Return the published release, and how far it is on each node."""
        return self._call(api.RELEASE_STATUS, api.Nothing())

    def put_config(self, values: Document) -> api.Settings:
        """Change settings of the testbed; return all settings."""
        return self._call(api.PUT_CONFIG, api.PutConfig(values=values))

    def audit(self, from_ns: int = 0, limit: int = 0) -> list[api.AuditLine]:
        """Return the audit log of changes, the latest first."""
        return self._call(api.AUDIT, api.ListAudit(from_ns=from_ns, limit=limit))

    # --- alerts ---

    def alerts(self, *, ended: bool = False, limit: int = 0) -> list[api.Alert]:
        """Return the alerts that the user may see, the latest first; with `ended`, also old ones.

        Administrators see all alerts, owners those of their nodes.
        """
        return self._call(api.LIST_ALERTS, api.ListAlerts(all=ended, limit=limit))

    def webhooks(self) -> list[api.WebhookInfo]:
        """Return the webhooks, to which alerts are sent."""
        return self._call(api.LIST_WEBHOOKS, api.Nothing())

    def put_webhook(self, name: str, url: str, secret: str = "") -> api.WebhookInfo:
        """Create or change a webhook; return it."""
        return self._call(api.PUT_WEBHOOK, api.PutWebhook(name=name, url=url, secret=secret))

    def delete_webhook(self, name: str) -> str:
        """Delete a webhook, and the messages that it has not taken."""
        return self._call(api.DELETE_WEBHOOK, api.NamedWebhook(name=name))

    def test_webhook(self, name: str) -> api.WebhookInfo:
        """Send a test message to a webhook."""
        return self._call(api.TEST_WEBHOOK, api.NamedWebhook(name=name))

    # --- calls ---

    def _call(self, operation: Operation[Q, A], request: Q, timeout_s: float = _TIMEOUT_S) -> A:
        with self._translated_errors():
            return self._wire.call(operation, request, timeout_s)

    def _download(self, operation: Operation[Q, bytes], request: Q) -> bytes:
        with self._translated_errors():
            return b"".join(self._wire.download(operation, request, _TELEMETRY_TIMEOUT_S))

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn errors of the API into `InputError` and `RunError`."""
        try:
            yield
        except ApiError as error:
            if error.kind in _WRONG:
                raise InputError(str(error)) from None
            if error.kind is ErrorKind.UNREACHABLE:
                raise RunError(
                    f"{self._address}: no testbed answers there, or it is not this credential's: "
                    f"{error}"
                ) from None
            raise RunError(f"{self._address}: {error}") from None


def _release_pieces(directory: Path, release: Release, here: Mapping[str, int]) -> Iterator[bytes]:
    """Yield the bytes of a release's wheels that the orchestrator does not have."""
    for wheel in release.wheels:
        offset = here.get(wheel.name, 0)
        with (directory / wheel.name).open("rb") as stream:
            stream.seek(offset)
            while data := stream.read(_RELEASE_PIECE_BYTES):
                yield api.frame(wheel.name, offset, data)
                offset += len(data)


def read_files(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a job file's text, and the content of the input files that it names.

    The names of input files are relative to the job file.

    Raises:
        InputError: a file is missing, or the job file is wrong.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_FILE_BYTES + 1)
        text = content.decode()
        job: Job = read_job(text, str(path))
        return text, {name: (path.parent / name).read_bytes() for name in job.run.files}
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no text in UTF-8") from None


def _is_downloaded(path: Path, file: api.RunFile) -> bool:
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
