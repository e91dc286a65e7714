"""Client of the testbed for users: the API behind the command line, also for notebooks.

    testbed = Testbed.of_file("ann.testbed")
    testbed.submit("job.toml")
    for run in testbed.runs():
        print(run["id"], run["state"])

A credential is a file with the orchestrator's address, its certificate authority, and the user's
token. Its path is given by `--as FILE` or the variable SKYHOP_TESTBED; the default is
~/.config/skyhop/testbed.json.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from skyhop.errors import InputError, RunError
from skyhop_testbed.job import LONGEST_FILE_BYTES, Job, read_job
from skyhop_testbed.keys import read_private, write_private
from skyhop_testbed.protocol import testbed_pb2 as pb
from skyhop_testbed.protocol import testbed_pb2_grpc as stubs

if TYPE_CHECKING:
    import polars as pl

VARIABLE = "SKYHOP_TESTBED"
_TIMEOUT_S = 30.0
_LARGEST_MESSAGE = 64 << 20
_WRONG = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
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


def open_channel(credential: Credential) -> grpc.Channel:
    """Return a gRPC channel to a testbed's port for users; it connects at the first call."""
    trusted = grpc.ssl_channel_credentials(credential.authority_pem.encode())
    options = [
        ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
        ("grpc.enable_http_proxy", 0),
    ]
    return grpc.secure_channel(credential.address, trusted, options)


class Testbed:
    """Connection of a user to an orchestrator.

    Any method may raise `InputError` (the request is wrong or forbidden) or `RunError` (the
    orchestrator is unreachable or fails).
    """

    __test__ = False

    def __init__(self, credential: Credential) -> None:
        self._address = credential.address
        self._authority_pem = credential.authority_pem
        self._metadata = (("authorization", f"Bearer {credential.token}"),)
        self._channel = open_channel(credential)
        self._testbed = stubs.TestbedStub(self._channel)
        self._administration = stubs.AdministrationStub(self._channel)

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
        return cls(Credential.read(Path(path)))

    def close(self) -> None:
        """Close the connection to the orchestrator."""
        self._channel.close()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- jobs ---

    def check(self, text: str) -> dict[str, Any]:
        """Check a job file's text without submitting it.

        Return its conflicts and first occurrence.
        """
        return self._values("CheckJob", pb.JobText(toml=text))

    def submit(self, path: Path | str) -> dict[str, Any]:
        """Submit a job file and the input files that it names; return the job."""
        text, files = read_files(Path(path))
        return self._values("SubmitJob", pb.JobText(toml=text, files=files))

    def modify(self, name: str, path: Path | str) -> dict[str, Any]:
        """Replace a job by a new job file; return the new job."""
        text, files = read_files(Path(path))
        return self._values("ModifyJob", pb.ModifyJobRequest(job=name, toml=text, files=files))

    def cancel(self, name: str) -> dict[str, Any]:
        """Cancel a job and its planned runs, and stop its runs in progress."""
        return self._values("CancelJob", pb.JobName(job=name))

    def jobs(self, *, node: str = "", user: str = "", ended: bool = False) -> list[dict[str, Any]]:
        """Return the jobs that the user may see, filtered by node and user."""
        return self._rows("ListJobs", pb.ListJobsRequest(node=node, user=user, ended=ended))

    def next_slot(self, nodes: list[str], length_ns: int, from_ns: int = 0) -> int | None:
        """Return the next time in ns at which all nodes are free for `length_ns`.

        `None` if never.
        """
        request = pb.NextSlotRequest(nodes=nodes, length_ns=length_ns, from_ns=from_ns)
        slot = self._call("NextSlot", request)
        return int(slot.start_ns) if slot.found else None

    def calendar(self, nodes: list[str], from_ns: int, to_ns: int) -> list[dict[str, Any]]:
        """Return the bookings of nodes in a time range."""
        return self._rows("Calendar", pb.CalendarRequest(nodes=nodes, from_ns=from_ns, to_ns=to_ns))

    # --- runs ---

    def runs(self, **chosen: Any) -> list[dict[str, Any]]:
        """Return runs, the latest first: by `job`, `node`, `user`, `states`, `from_ns`, `limit`.

        The list contains only the next future run of each job on each node; `states=["planned"]`
        returns all future runs that are planned so far.
        """
        return self._rows("ListRuns", pb.ListRunsRequest(**chosen))

    def run(self, name: str) -> dict[str, Any]:
        """Return a run with its events and files."""
        return self._values("GetRun", pb.RunName(run=name))

    def watch(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield a run whenever it changes, until it has ended."""
        with _translated_errors(self._address):
            for document in self._testbed.WatchRun(pb.RunName(run=name), metadata=self._metadata):
                yield json.loads(document.json)

    def abort(self, name: str, reason: str = "") -> dict[str, Any]:
        """Stop a run, or remove a planned one from the calendar."""
        return self._values("AbortRun", pb.AbortRunRequest(run=name, reason=reason))

    def reschedule(self, name: str, from_ns: int = 0) -> dict[str, Any]:
        """Move a planned run of a job with `at` to the nearest free time; return the new run.

        Args:
            name: id of the run.
            from_ns: earliest start; 0 is half an hour from now.
        """
        return self._values("RescheduleRun", pb.RescheduleRunRequest(run=name, from_ns=from_ns))

    def fetch(self, name: str, directory: Path) -> list[Path]:
        """Download a run's files into a directory, except files already there; return all paths."""
        made = []
        for each in self.run(name)["files"]:
            path = directory / each["side"] / each["name"]
            if not _is_downloaded(path, each["size"], each["sha256"]):
                self._fetch_file(name, each, path)
            made.append(path)
        return made

    def _fetch_file(self, name: str, each: dict[str, Any], path: Path) -> None:
        request = pb.FetchRequest(run=name, side=each["side"], name=each["name"])
        aside = path.with_name(f".{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _translated_errors(self._address), aside.open("wb") as file:
                for piece in self._testbed.Fetch(request, metadata=self._metadata):
                    file.write(piece.data)
            if not _is_downloaded(aside, each["size"], each["sha256"]):
                raise RunError(f"{path}: arrived damaged; fetch it again")
            aside.replace(path)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from None
        finally:
            aside.unlink(missing_ok=True)

    # --- nodes ---

    def nodes(self, *, active: bool = False) -> list[dict[str, Any]]:
        """Return all nodes; with `active`, only nodes that reported lately."""
        return self._rows("ListNodes", pb.ListNodesRequest(active=active))

    def node(self, name: str) -> dict[str, Any]:
        """Return the fields of a node that the user may see."""
        return self._values("GetNode", pb.NodeName(node=name))

    def set_scavenger(self, node: str, mode: str) -> dict[str, Any]:
        """Set when runs on a node give way to its host's traffic: `auto`, `on` or `off`."""
        return self._values("SetScavenger", pb.SetScavengerRequest(node=node, mode=mode))

    def set_policy(self, node: str, policy: dict[str, Any]) -> dict[str, Any]:
        """Set the owner's policy of a node."""
        request = pb.SetPolicyRequest(node=node, json=json.dumps(policy))
        return self._values("SetPolicy", request)

    def telemetry(
        self, node: str, from_ns: int, to_ns: int, fields: list[str] | None = None, step_ns: int = 0
    ) -> pl.DataFrame:
        """Return a node's telemetry in a time range, optionally thinned to a row per `step_ns`."""
        import polars as pl

        request = pb.TelemetryRequest(
            node=node, fields=fields or [], from_ns=from_ns, to_ns=to_ns, step_ns=step_ns
        )
        with _translated_errors(self._address):
            pieces = self._testbed.Telemetry(request, metadata=self._metadata)
            data = b"".join(piece.data for piece in pieces)
        return pl.read_ipc_stream(io.BytesIO(data))

    def obstruction_map(self, node: str) -> dict[str, Any]:
        """Return the newest obstruction map of a node's terminal, in grpcurl's JSON form."""
        return self._values("ObstructionMap", pb.NodeName(node=node))

    def test_trigger(self, expression: str, node: str, from_ns: int, to_ns: int) -> list[Any]:
        """Evaluate a trigger on a node's stored telemetry; return the evaluations."""
        request = pb.TestTriggerRequest(
            expression=expression, node=node, from_ns=from_ns, to_ns=to_ns
        )
        return list(self._values("TestTrigger", request)["evaluations"])

    def trigger_log(self, **chosen: Any) -> list[dict[str, Any]]:
        """Return evaluations of triggers that nodes have reported, with their reasons."""
        return self._rows("TriggerLog", pb.TriggerLogRequest(**chosen))

    # --- people and the testbed itself ---

    def profile(self) -> dict[str, Any]:
        """Return the user's own profile."""
        return self._values("GetProfile", pb.Nothing())

    def put_profile(self, values: dict[str, Any]) -> dict[str, Any]:
        """Change the user's own full name and team."""
        return self._values("PutProfile", pb.Document(json=json.dumps(values)))

    def users(self) -> list[dict[str, Any]]:
        """Return all users. This method and those that follow are for administrators only."""
        return self._rows("ListUsers", pb.Nothing())

    def put_user(self, values: dict[str, Any]) -> dict[str, Any]:
        """Create or change a user."""
        return self._values("PutUser", pb.Document(json=json.dumps(values)))

    def delete_user(self, name: str) -> int:
        """Delete a user; return the number of the user's jobs that were ended."""
        return int(self._values("DeleteUser", pb.UserName(user=name))["jobs_ended"])

    def issue_token(self, user: str, label: str = "", expires_ns: int = 0) -> str:
        """Issue a token for a user; return the token."""
        request = pb.IssueTokenRequest(user=user, label=label, expires_ns=expires_ns)
        return str(self._call("IssueToken", request).value)

    def revoke_tokens(self, user: str, which: str = "*") -> int:
        """Revoke tokens of a user; return the number of revoked tokens."""
        request = pb.RevokeTokenRequest(user=user, token=which)
        return int(self._values("RevokeToken", request)["revoked"])

    def put_node(self, values: dict[str, Any]) -> dict[str, Any]:
        """Create or change a node."""
        return self._values("PutNode", pb.Document(json=json.dumps(values)))

    def delete_node(self, name: str) -> None:
        """Delete a node with its telemetry."""
        self._call("DeleteNode", pb.NodeName(node=name))

    def invitation(self, node: str) -> dict[str, str]:
        """Return the content of an invitation, which enrols a node once within fifteen minutes."""
        token = str(self._call("Invite", pb.NodeName(node=node)).value)
        addresses = self.config()["addresses"]
        return {
            "node": node,
            "token": token,
            "address": self._address,
            "agents": addresses["agents"],
            "authority_pem": self._authority_pem,
        }

    def credential(self, user: str, label: str = "", expires_ns: int = 0) -> Credential:
        """Issue a token for a user; return a credential with it."""
        token = self.issue_token(user, label, expires_ns)
        return Credential(self._address, token, self._authority_pem)

    def config(self) -> dict[str, Any]:
        """Return the testbed's settings."""
        return self._values("GetConfig", pb.Nothing())

    def put_config(self, values: dict[str, Any]) -> dict[str, Any]:
        """Change settings of the testbed; return all settings."""
        return self._values("PutConfig", pb.Document(json=json.dumps(values)))

    def audit(self, from_ns: int = 0, limit: int = 0) -> list[dict[str, Any]]:
        """Return the audit log of changes, the latest first."""
        return self._rows("Audit", pb.AuditRequest(from_ns=from_ns, limit=limit))

    # --- calls ---

    def _call(self, name: str, request: Any) -> Any:
        stub = self._testbed if hasattr(self._testbed, name) else self._administration
        with _translated_errors(self._address):
            return getattr(stub, name)(request, metadata=self._metadata, timeout=_TIMEOUT_S)

    def _values(self, name: str, request: Any) -> dict[str, Any]:
        return dict(json.loads(self._call(name, request).json))

    def _rows(self, name: str, request: Any) -> list[dict[str, Any]]:
        return list(json.loads(self._call(name, request).json))


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


def _is_downloaded(path: Path, size: int, digest: str) -> bool:
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


class _translated_errors:  # noqa: N801
    """Context manager that turns gRPC errors into `InputError` and `RunError`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, grpc.RpcError):
            return
        code, details = error.code(), error.details() or ""
        if code in _WRONG:
            raise InputError(details) from None
        if code is grpc.StatusCode.UNAVAILABLE:
            raise RunError(
                f"{self._address}: no testbed answers there, or it is not this credential's"
            ) from None
        raise RunError(f"{self._address}: {details or code.name}") from None
