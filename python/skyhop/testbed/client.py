"""The testbed from a user's side: what the command line and notebooks call.

    testbed = Testbed.of_file("ann.testbed")
    testbed.submit("job.toml")
    for run in testbed.runs():
        print(run["id"], run["state"])

A credential is a file: where the orchestrator is, whom it is signed by, and the user's token. It is
given by `--as FILE`, by the variable SKYHOP_TESTBED, or lies in ~/.config/skyhop/testbed.json.
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
from skyhop.testbed.job import LONGEST_FILE_BYTES, Job, read_job
from skyhop.testbed.keys import read_private, write_private
from skyhop.testbed.protocol import testbed_pb2 as pb
from skyhop.testbed.protocol import testbed_pb2_grpc as stubs

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
    """A user's way in."""

    address: str
    """HOST:PORT of the users' port."""
    token: str
    authority_pem: str

    def write(self, path: Path) -> None:
        """Write it for its user's eyes only.

        Raises:
            RunError: it cannot be written.
        """
        try:
            write_private(path, json.dumps(asdict(self), indent=1).encode())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from None

    @classmethod
    def read(cls, path: Path) -> Credential:
        """Read it.

        Raises:
            InputError: it is not there, is none, or others may read it.
        """
        try:
            values = json.loads(read_private(path))
            return cls(**{key: str(values[key]) for key in ("address", "token", "authority_pem")})
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{path}: is no credential of a testbed") from None


def usual_credential() -> Path:
    """Return where the credential is looked for where none is named."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "skyhop" / "testbed.json"


def open_channel(credential: Credential) -> grpc.Channel:
    """Return a way to the users' port of a testbed; nothing is connected yet."""
    trusted = grpc.ssl_channel_credentials(credential.authority_pem.encode())
    options = [
        ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
        ("grpc.enable_http_proxy", 0),
    ]
    return grpc.secure_channel(credential.address, trusted, options)


class Testbed:
    """An orchestrator, as one user sees it; every call may raise `InputError` or `RunError`."""

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
        """Return the testbed of a credential's file, the usual one where none is named.

        Raises:
            InputError: there is none.
        """
        if path is None:
            path = usual_credential()
            if not path.exists():
                raise InputError(
                    f"{path}: there is no credential; name one with --as FILE or {VARIABLE}"
                )
        return cls(Credential.read(Path(path)))

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- jobs ---

    def check(self, text: str) -> dict[str, Any]:
        """Return what submitting a job file's text would come to: conflicts, the first time."""
        return self._values("CheckJob", pb.JobText(toml=text))

    def submit(self, path: Path | str) -> dict[str, Any]:
        """Submit a job file, with the files that it names."""
        text, files = read_files(Path(path))
        return self._values("SubmitJob", pb.JobText(toml=text, files=files))

    def modify(self, name: str, path: Path | str) -> dict[str, Any]:
        """Put a job file in the place of a job."""
        text, files = read_files(Path(path))
        return self._values("ModifyJob", pb.ModifyJobRequest(job=name, toml=text, files=files))

    def cancel(self, name: str) -> dict[str, Any]:
        """End a job."""
        return self._values("CancelJob", pb.JobName(job=name))

    def jobs(self, *, node: str = "", user: str = "", ended: bool = False) -> list[dict[str, Any]]:
        """Return jobs that are the user's to see."""
        return self._rows("ListJobs", pb.ListJobsRequest(node=node, user=user, ended=ended))

    def next_slot(self, nodes: list[str], length_ns: int, from_ns: int = 0) -> int | None:
        """Return when nodes are free next for so long, None where they never are."""
        asked = pb.NextSlotRequest(nodes=nodes, length_ns=length_ns, from_ns=from_ns)
        slot = self._call("NextSlot", asked)
        return int(slot.start_ns) if slot.found else None

    def calendar(self, nodes: list[str], from_ns: int, to_ns: int) -> list[dict[str, Any]]:
        """Return what has nodes in a time."""
        return self._rows("Calendar", pb.CalendarRequest(nodes=nodes, from_ns=from_ns, to_ns=to_ns))

    # --- runs ---

    def runs(self, **chosen: Any) -> list[dict[str, Any]]:
        """Return runs, the latest first: by `job`, `node`, `user`, `states`, `from_ns`, `limit`.

        Of those still to come there is each job's next one on each node; `states=["planned"]` has
        all that are planned so far.
        """
        return self._rows("ListRuns", pb.ListRunsRequest(**chosen))

    def run(self, name: str) -> dict[str, Any]:
        """Return all that is known of a run."""
        return self._values("GetRun", pb.RunName(run=name))

    def watch(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield a run whenever it changes, until it has ended."""
        with _in_our_words(self._address):
            for document in self._testbed.WatchRun(pb.RunName(run=name), metadata=self._metadata):
                yield json.loads(document.json)

    def abort(self, name: str, reason: str = "") -> dict[str, Any]:
        """Stop a run, or take it off the calendar."""
        return self._values("AbortRun", pb.AbortRunRequest(run=name, reason=reason))

    def reschedule(self, name: str, from_ns: int = 0) -> dict[str, Any]:
        """Move an `at` run that is to come to the nearest free time; return the one in its place.

        Args:
            name: the run's.
            from_ns: it begins no earlier; half an hour from now where this is 0.
        """
        return self._values("RescheduleRun", pb.RescheduleRunRequest(run=name, from_ns=from_ns))

    def fetch(self, name: str, directory: Path) -> list[Path]:
        """Copy a run's files into a directory; what is there already is not fetched again."""
        made = []
        for each in self.run(name)["files"]:
            path = directory / each["side"] / each["name"]
            if not _is_there(path, each["size"], each["sha256"]):
                self._fetch_file(name, each, path)
            made.append(path)
        return made

    def _fetch_file(self, name: str, each: dict[str, Any], path: Path) -> None:
        asked = pb.FetchRequest(run=name, side=each["side"], name=each["name"])
        aside = path.with_name(f".{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _in_our_words(self._address), aside.open("wb") as file:
                for piece in self._testbed.Fetch(asked, metadata=self._metadata):
                    file.write(piece.data)
            if not _is_there(aside, each["size"], each["sha256"]):
                raise RunError(f"{path}: came damaged; fetch it again")
            aside.replace(path)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from None
        finally:
            aside.unlink(missing_ok=True)

    # --- nodes ---

    def nodes(self, *, active: bool = False) -> list[dict[str, Any]]:
        """Return all nodes, or those heard of lately."""
        return self._rows("ListNodes", pb.ListNodesRequest(active=active))

    def node(self, name: str) -> dict[str, Any]:
        """Return what the user may know of a node."""
        return self._values("GetNode", pb.NodeName(node=name))

    def set_scavenger(self, node: str, mode: str) -> dict[str, Any]:
        """Switch whether runs on a node make room for its host."""
        return self._values("SetScavenger", pb.SetScavengerRequest(node=node, mode=mode))

    def set_policy(self, node: str, policy: dict[str, Any]) -> dict[str, Any]:
        """Set what a node's owner allows."""
        asked = pb.SetPolicyRequest(node=node, json=json.dumps(policy))
        return self._values("SetPolicy", asked)

    def telemetry(
        self, node: str, from_ns: int, to_ns: int, fields: list[str] | None = None, step_ns: int = 0
    ) -> pl.DataFrame:
        """Return a node's telemetry."""
        import polars as pl

        asked = pb.TelemetryRequest(
            node=node, fields=fields or [], from_ns=from_ns, to_ns=to_ns, step_ns=step_ns
        )
        with _in_our_words(self._address):
            pieces = self._testbed.Telemetry(asked, metadata=self._metadata)
            data = b"".join(piece.data for piece in pieces)
        return pl.read_ipc_stream(io.BytesIO(data))

    def obstruction_map(self, node: str) -> dict[str, Any]:
        """Return the newest obstruction map of a node's terminal, as grpcurl prints one."""
        return self._values("ObstructionMap", pb.NodeName(node=node))

    def test_trigger(self, expression: str, node: str, from_ns: int, to_ns: int) -> list[Any]:
        """Return what a trigger would have said over a node's kept telemetry."""
        asked = pb.TestTriggerRequest(
            expression=expression, node=node, from_ns=from_ns, to_ns=to_ns
        )
        return list(self._values("TestTrigger", asked)["evaluations"])

    def trigger_log(self, **chosen: Any) -> list[dict[str, Any]]:
        """Return why triggers did or did not fire."""
        return self._rows("TriggerLog", pb.TriggerLogRequest(**chosen))

    # --- people and the testbed itself ---

    def profile(self) -> dict[str, Any]:
        """Return who the user is."""
        return self._values("GetProfile", pb.Nothing())

    def put_profile(self, values: dict[str, Any]) -> dict[str, Any]:
        """Change one's own name and team."""
        return self._values("PutProfile", pb.Document(json=json.dumps(values)))

    def users(self) -> list[dict[str, Any]]:
        """Return all users; for administrators, as what follows is."""
        return self._rows("ListUsers", pb.Nothing())

    def put_user(self, values: dict[str, Any]) -> dict[str, Any]:
        """Make or change a user."""
        return self._values("PutUser", pb.Document(json=json.dumps(values)))

    def delete_user(self, name: str) -> int:
        """Forget a user; return how many jobs of theirs were ended."""
        return int(self._values("DeleteUser", pb.UserName(user=name))["jobs_ended"])

    def issue_token(self, user: str, label: str = "", expires_ns: int = 0) -> str:
        """Return a new token of a user."""
        asked = pb.IssueTokenRequest(user=user, label=label, expires_ns=expires_ns)
        return str(self._call("IssueToken", asked).value)

    def revoke_tokens(self, user: str, which: str = "*") -> int:
        """Take tokens of a user away; return how many."""
        asked = pb.RevokeTokenRequest(user=user, token=which)
        return int(self._values("RevokeToken", asked)["revoked"])

    def put_node(self, values: dict[str, Any]) -> dict[str, Any]:
        """Make or change a node."""
        return self._values("PutNode", pb.Document(json=json.dumps(values)))

    def delete_node(self, name: str) -> None:
        """Take a node off, with its telemetry."""
        self._call("DeleteNode", pb.NodeName(node=name))

    def invitation(self, node: str) -> dict[str, str]:
        """Return what enrols a node once within fifteen minutes, as its file holds it."""
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
        """Return a new credential of a user."""
        token = self.issue_token(user, label, expires_ns)
        return Credential(self._address, token, self._authority_pem)

    def config(self) -> dict[str, Any]:
        """Return the settings."""
        return self._values("GetConfig", pb.Nothing())

    def put_config(self, values: dict[str, Any]) -> dict[str, Any]:
        """Change settings."""
        return self._values("PutConfig", pb.Document(json=json.dumps(values)))

    def audit(self, from_ns: int = 0, limit: int = 0) -> list[dict[str, Any]]:
        """Return who did what, the latest first."""
        return self._rows("Audit", pb.AuditRequest(from_ns=from_ns, limit=limit))

    # --- calls ---

    def _call(self, name: str, asked: Any) -> Any:
        stub = self._testbed if hasattr(self._testbed, name) else self._administration
        with _in_our_words(self._address):
            return getattr(stub, name)(asked, metadata=self._metadata, timeout=_TIMEOUT_S)

    def _values(self, name: str, asked: Any) -> dict[str, Any]:
        return dict(json.loads(self._call(name, asked).json))

    def _rows(self, name: str, asked: Any) -> list[dict[str, Any]]:
        return list(json.loads(self._call(name, asked).json))


def read_files(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a job file's text, and the files beside it that it names.

    Raises:
        InputError: one is not there, or the job is none.
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
        raise InputError(f"{path}: is no text") from None


def _is_there(path: Path, size: int, digest: str) -> bool:
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


class _in_our_words:  # noqa: N801
    """Turns the library's errors into ours."""

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
                f"{self._address}: no testbed answers there, or not the one of this credential"
            ) from None
        raise RunError(f"{self._address}: {details or code.name}") from None
