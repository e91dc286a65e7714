"""Identity of a node at its orchestrator: its key, its certificate, and the keys it trusts.

An invitation holds the orchestrator's two addresses, its certificate authority, and a token that is
valid once. The private key is generated on the node and never leaves it.
"""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop.errors import InputError, RunError
from skyhop_testbed.agent.lock import locked

if TYPE_CHECKING:
    from skyhop_testbed.api import Certificate
    from skyhop_testbed.wire import Wire

_ENROL_PATIENCE_S = 20.0
_LARGEST_INVITATION = 100_000
_KEYS = ("address", "agents", "node", "token", "authority_pem")
_KEY, _CERTIFICATE, _AUTHORITY, _ORDERS = "node.key", "node.pem", "authority.pem", "orders.pub"
_ADDRESSES = "node.json"
_NEXT = "next.key"
"""Key and signing request of a certificate that waits for an administrator."""


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
    """Public key (Ed25519, 32 bytes) that signs the orchestrator's orders; after a rotation of its
    keys two of them in a row, the present one first.
    """
    address: str = ""
    """Host and port of the orchestrator's port for users and enrolment."""
    proxy: str | None = field(default=None, compare=False)
    """URL of the HTTP proxy of the owner's settings; it is not stored with the identity."""

    def open_wire(self) -> Wire:
        """Return a connection to the orchestrator's port for agents."""
        from skyhop_testbed.wire import Wire, client_context, open_http

        context = client_context(self.authority_pem, self.key_pem + self.certificate_pem)
        return Wire(open_http(self.agents, context, self.proxy))

    def is_to_renew(self, now: dt.datetime) -> bool:
        """Return whether the certificate is due for renewal: at least `RENEWED_AFTER_DAYS` old."""
        from skyhop_testbed.keys import RENEWED_AFTER_DAYS, valid_until

        begin, _ = valid_until(self.certificate_pem)
        return now - begin >= dt.timedelta(days=RENEWED_AFTER_DAYS)

    def has_expired(self, now: dt.datetime) -> bool:
        """Return whether the certificate is no longer valid."""
        from skyhop_testbed.keys import valid_until

        return now > valid_until(self.certificate_pem)[1]

    @property
    def trust(self) -> str:
        """Digest of the keys that this node trusts (`keys.trust_digest`)."""
        from skyhop_testbed.keys import trust_digest

        return trust_digest(self.authority_pem, [self.orders_key])


def enrol(invitation: Path, state: Path) -> Identity:
    """Generate a key, have the orchestrator sign a certificate for it, and store both.

    A directory that is enrolled as this node keeps its database, results and telemetry, and gets a
    new identity; the orchestrator then refuses the former certificate.

    Args:
        invitation: the file from the testbed's administrator.
        state: the agent's directory.

    Raises:
        InputError: the file is no invitation, its token is used or expired, the directory is
            another node's, or an agent uses it now.
        RunError: the orchestrator cannot be reached, or the directory cannot be written.
    """
    values = _invitation(invitation)
    if not (state / "identity" / _CERTIFICATE).exists():
        return _enrol(values, state)
    with locked(state):
        _check_same_node(state, values)
        return _enrol(values, state)


def _check_same_node(state: Path, values: dict[str, str]) -> None:
    """Check that a directory with an identity is the invited node's, at the same testbed.

    A testbed is the same if it has the same address or authority. A damaged identity passes: to
    enrol again is its remedy.
    """
    directory = state / "identity"
    with suppress(OSError, ValueError, KeyError, TypeError):
        old = json.loads((directory / _ADDRESSES).read_bytes())
        name, address = str(old["node"]), str(old["address"])
        if name != values["node"]:
            raise InputError(
                f"{state}: is enrolled as {name}, and the invitation is for {values['node']}: give "
                "another directory"
            )
        trusted = (directory / _AUTHORITY).read_text("ascii")
        is_known = address == values["address"] or values["authority_pem"].strip() in trusted
        if not is_known:
            raise InputError(
                f"{state}: is enrolled at {address}, and the invitation is of another testbed at "
                f"{values['address']}: give another directory"
            )


def _enrol(values: dict[str, str], state: Path) -> Identity:
    from skyhop_testbed.agent.settings import FILE, read_settings
    from skyhop_testbed.keys import make_request

    directory = state / "identity"
    key, request = make_request(values["node"])
    proxy = read_settings(state / FILE, is_wanted=False).proxy
    issued = _request_certificate(values, request, proxy)
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
            address=str(values.get("address", "")),
        )
    except FileNotFoundError:
        raise InputError(
            f"{state}: this node is not enrolled: run skyhop testbed enrol with its invitation"
        ) from None
    except OSError as error:
        raise InputError(f"{error.filename or directory}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{directory}: cannot be read: {error}: enrol the node again") from None


def renew(state: Path, identity: Identity, wire: Wire) -> Identity:
    """Generate a new key, have it certified over a connection that uses the old key, and store it.

    Raises:
        ApiError: the orchestrator is unreachable, or refuses.
        OSError: the key cannot be written; the old one stays in use.
    """
    from skyhop_testbed import api
    from skyhop_testbed.keys import make_request

    key, request = make_request(identity.node)
    issued = wire.call(api.RENEW, api.Renew(csr_pem=request), _ENROL_PATIENCE_S)
    _store(state / "identity", key, issued)
    return replace(read_identity(state), proxy=identity.proxy)


def reenrol(state: Path, identity: Identity, wire: Wire) -> Identity | None:
    """Ask for a certificate after the old one has expired, with a proof of the old one's key.

    The request stays the same until it is granted, as an administrator approves this one request.

    Args:
        state: the agent's directory.
        identity: the present identity.
        wire: connection to the orchestrator's port for users, from `open_public_wire`.

    Returns:
        the new identity; `None` while the request waits for an administrator.

    Raises:
        ApiError: the orchestrator is unreachable, or refuses.
        OSError: the key cannot be written.
    """
    from skyhop_testbed import api
    from skyhop_testbed.keys import make_request, read_private, sign_request

    file = state / "identity" / _NEXT
    if not file.exists():
        _write(file, b"".join(make_request(identity.node)))
    key, request = _split(read_private(file), b"-----BEGIN CERTIFICATE REQUEST-----")
    asked = api.Reenrol(
        node=identity.node,
        certificate_pem=identity.certificate_pem,
        csr_pem=request,
        signature=sign_request(identity.key_pem, request),
    )
    issued = wire.call(api.REENROL, asked, _ENROL_PATIENCE_S).certificate
    if issued is None:
        return None
    _store(state / "identity", key, issued)
    file.unlink()
    return replace(read_identity(state), proxy=identity.proxy)


def open_public_wire(identity: Identity) -> Wire:
    """Return a connection to the orchestrator's port for users, without a certificate."""
    from skyhop_testbed.wire import Wire, client_context, open_http

    context = client_context(identity.authority_pem)
    return Wire(open_http(identity.address, context, identity.proxy))


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


def _request_certificate(
    values: dict[str, str], request: bytes, proxy: str | None = None
) -> Certificate:
    """Send the invitation's token and a signing request; return the orchestrator's reply."""
    from skyhop_testbed import api
    from skyhop_testbed.wire import Wire, client_context, open_http

    where = f"orchestrator at {values['address']}"
    asked = api.Enrol(node=values["node"], token=values["token"], csr_pem=request)
    try:
        context = client_context(values["authority_pem"].encode())
    except ValueError as error:
        raise InputError(f"the invitation's authority_pem is no certificate: {error}") from None
    wire = Wire(open_http(values["address"], context, proxy))
    try:
        return wire.call(api.ENROL, asked, _ENROL_PATIENCE_S)
    except api.ApiError as error:
        if error.kind in (api.ErrorKind.UNREACHABLE, api.ErrorKind.TIMEOUT):
            raise RunError(f"{where}: cannot be reached: {str(error)[:200]}") from None
        raise InputError(f"{where}: refuses: {str(error)[:200]}") from None
    finally:
        wire.close()


def _store(directory: Path, key: bytes, issued: Certificate) -> None:
    """Store a key and its certificate in one file, so that both are replaced atomically."""
    _write(directory / _AUTHORITY, issued.authority_pem)
    _write(directory / _ORDERS, b"".join(issued.orders_keys) or issued.orders_key)
    _write(directory / _KEY, key + issued.certificate_pem)
    _write(directory / _CERTIFICATE, issued.certificate_pem)


def _split(content: bytes, mark: bytes = b"-----BEGIN CERTIFICATE-----") -> tuple[bytes, bytes]:
    key, found, rest = content.partition(mark)
    return key, found + rest


def _write(file: Path, content: bytes) -> None:
    from skyhop_testbed.keys import write_private

    write_private(file, content)
