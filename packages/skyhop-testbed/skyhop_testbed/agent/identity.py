"""Identity of a node at its orchestrator: its key, its certificate, and the keys it trusts.

An invitation holds the orchestrator's two addresses, its certificate authority, and a token that is
valid once. The private key is generated on the node and never leaves it.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.errors import InputError, RunError

if TYPE_CHECKING:
    import grpc

_ENROL_PATIENCE_S = 20.0
_LARGEST_INVITATION = 100_000
_OPTIONS = [("grpc.enable_http_proxy", 0)]
_KEYS = ("address", "agents", "node", "token", "authority_pem")
_KEY, _CERTIFICATE, _AUTHORITY, _ORDERS = "node.key", "node.pem", "authority.pem", "orders.pub"
_ADDRESSES = "node.json"


@dataclass(frozen=True)
class Identity:
    """Names, keys and certificates in `STATE/identity`."""

    node: str
    agents: str
    """Host and port of the orchestrator's port for agents."""
    key_pem: bytes
    certificate_pem: bytes
    authority_pem: bytes
    orders_key: bytes
    """Public key (Ed25519, 32 bytes) that signs the orchestrator's orders."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the TLS credentials for a connection to the orchestrator."""
        import grpc

        return grpc.ssl_channel_credentials(self.authority_pem, self.key_pem, self.certificate_pem)

    def is_to_renew(self, now: dt.datetime) -> bool:
        """Return whether the certificate is due for renewal: at least `RENEWED_AFTER_DAYS` old."""
        from skyhop_testbed.keys import RENEWED_AFTER_DAYS, valid_until

        begin, _ = valid_until(self.certificate_pem)
        return now - begin >= dt.timedelta(days=RENEWED_AFTER_DAYS)


def enrol(invitation: Path, state: Path) -> Identity:
    """Generate a key, have the orchestrator sign a certificate for it, and store both.

    Args:
        invitation: the file from the testbed's administrator.
        state: the agent's directory.

    Raises:
        InputError: the file is no invitation, its token is used or expired, or the node has a
            certificate already.
        RunError: the orchestrator cannot be reached, or the directory cannot be written.
    """
    from skyhop_testbed.keys import make_request

    values = _invitation(invitation)
    directory = state / "identity"
    if (directory / _CERTIFICATE).exists():
        raise InputError(f"{directory}: holds an identity already: give another directory")
    key, request = make_request(values["node"])
    issued = _request_certificate(values, request)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        addresses = {key_name: values[key_name] for key_name in ("node", "address", "agents")}
        _write(directory / _ADDRESSES, json.dumps(addresses).encode())
        _store(directory, key, issued)
    except OSError as error:
        raise RunError(f"{error.filename or directory}: {error.strerror or error}") from None
    return read_identity(state)


def read_identity(state: Path) -> Identity:
    """Read the node's identity from its directory.

    Raises:
        InputError: the node is not enrolled, other users may read its key, or a file is damaged.
    """
    from skyhop_testbed.keys import read_private

    directory = state / "identity"
    try:
        values = json.loads((directory / _ADDRESSES).read_bytes())
        key, certificate = _split(read_private(directory / _KEY))
        return Identity(
            node=str(values["node"]),
            agents=str(values["agents"]),
            key_pem=key,
            certificate_pem=certificate or (directory / _CERTIFICATE).read_bytes(),
            authority_pem=(directory / _AUTHORITY).read_bytes(),
            orders_key=(directory / _ORDERS).read_bytes(),
        )
    except FileNotFoundError:
        raise InputError(
            f"{state}: this node is not enrolled: run skyhop testbed enrol with its invitation"
        ) from None
    except OSError as error:
        raise InputError(f"{error.filename or directory}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{directory}: cannot be read: {error}: enrol the node again") from None


def renew(state: Path, identity: Identity, stub: Any) -> Identity:
    """Generate a new key, have it certified over a connection that uses the old key, and store it.

    Raises:
        grpc.RpcError: the orchestrator is unreachable, or refuses.
        OSError: the key cannot be written; the old one stays in use.
    """
    from skyhop_testbed.keys import make_request
    from skyhop_testbed.protocol import testbed_pb2 as wire

    key, request = make_request(identity.node)
    issued = stub.Renew(wire.RenewRequest(csr_pem=request), timeout=_ENROL_PATIENCE_S)
    _store(state / "identity", key, issued)
    return read_identity(state)


def _invitation(file: Path) -> dict[str, str]:
    try:
        with file.open("rb") as stream:
            values = json.loads(stream.read(_LARGEST_INVITATION))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{file}: is no invitation: ask for a new one") from None
    if not isinstance(values, dict) or not all(isinstance(values.get(w), str) for w in _KEYS):
        raise InputError(f"{file}: is no invitation: it lacks one of {', '.join(_KEYS)}")
    return {key_name: values[key_name] for key_name in _KEYS}


def _request_certificate(values: dict[str, str], request: bytes) -> Any:
    """Send the invitation's token and a signing request; return the orchestrator's reply."""
    import grpc

    from skyhop_testbed.protocol import testbed_pb2 as wire
    from skyhop_testbed.protocol import testbed_pb2_grpc as services

    credentials = grpc.ssl_channel_credentials(values["authority_pem"].encode())
    with grpc.secure_channel(values["address"], credentials, _OPTIONS) as channel:
        stub = services.EnrolmentStub(channel)
        asked = wire.EnrolRequest(node=values["node"], token=values["token"], csr_pem=request)
        try:
            return stub.Enrol(asked, timeout=_ENROL_PATIENCE_S)
        except grpc.RpcError as error:
            why = " ".join(str(error.details()).split())[:200]
            where = f"orchestrator at {values['address']}"
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise RunError(f"{where}: cannot be reached: {why}") from None
            raise InputError(f"{where}: refuses: {why}") from None


def _store(directory: Path, key: bytes, issued: Any) -> None:
    """Store a key and its certificate in one file, so that both are replaced atomically."""
    _write(directory / _AUTHORITY, issued.authority_pem)
    _write(directory / _ORDERS, issued.orders_key)
    _write(directory / _KEY, key + issued.certificate_pem)
    _write(directory / _CERTIFICATE, issued.certificate_pem)


def _split(content: bytes) -> tuple[bytes, bytes]:
    mark = b"-----BEGIN CERTIFICATE-----"
    key, found, rest = content.partition(mark)
    return key, found + rest


def _write(file: Path, content: bytes) -> None:
    from skyhop_testbed.keys import write_private

    write_private(file, content)
