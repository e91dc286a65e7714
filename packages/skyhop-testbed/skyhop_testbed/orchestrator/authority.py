"""The testbed's certificate authority, which signs nodes' certificates, and the order-signing key.

Nodes generate their own keys and send a certificate signing request. A certificate is valid for 90
days; the node renews it from day 60 on. Schedules and tasks are signed with Ed25519, so that a node
need not trust any proxy between it and the orchestrator.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skyhop.errors import InputError, RunError
from skyhop_testbed.keys import RENEWED_AFTER_DAYS, key_pem, read_private, write_private

NODE_DAYS = 90
_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 825
_LARGEST_REQUEST = 16_384
_BACKDATED = dt.timedelta(minutes=10)
"""Time by which certificates begin before they are issued: a node whose clock is slow would reject
a certificate that is valid from now on.
"""


@dataclass(frozen=True)
class Authority:
    """Keys and certificates of a testbed, read from its state directory."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    orders: ed25519.Ed25519PrivateKey
    server_key_pem: bytes
    server_certificate_pem: bytes

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate in PEM, the trust root of users and nodes."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def orders_key(self) -> bytes:
        """Ed25519 public key (32 bytes) that verifies the orchestrator's signed orders."""
        return self.orders.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )

    def sign_order(self, body: bytes) -> bytes:
        """Return the Ed25519 signature of an order to a node, 64 bytes."""
        return self.orders.sign(body)

    def sign_node(self, node: str, request_pem: bytes, now: dt.datetime) -> bytes:
        """Return a client certificate for a node, PEM.

        Raises:
            InputError: the signing request cannot be parsed, or its signature is wrong.
        """
        if len(request_pem) > _LARGEST_REQUEST:
            raise InputError("the certificate request is too long")
        try:
            request = x509.load_pem_x509_csr(request_pem)
            key = request.public_key()
        except ValueError as error:
            raise InputError(f"the certificate request cannot be read: {error}") from None
        if not request.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError(
                "the certificate request is not signed with its own elliptic-curve key"
            )
        builder = _builder(node, key, self.certificate.subject, now, NODE_DAYS)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = builder.add_extension(usage, critical=True).sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)


def issued_ns(certificate: x509.Certificate) -> int:
    """Return the time in ns at which a certificate was issued."""
    return round((certificate.not_valid_before_utc + _BACKDATED).timestamp() * 1e9)


def open_authority(directory: Path, names: list[str], now: dt.datetime) -> Authority:
    """Read the keys in a state directory, and generate those that are missing.

    Args:
        directory: directory of the keys, created with mode 0700.
        names: host names and addresses under which clients reach the orchestrator.
        now: the current time, timezone-aware.

    Raises:
        InputError: a file there is not a key, or other users may read it.
        RunError: the directory cannot be written.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = _key(directory / "authority.key")
        certificate = _authority(directory / "authority.pem", key, now)
        orders = _orders(directory / "orders.key")
        server_key, server = _server(directory, key, certificate, names, now)
    except OSError as error:
        raise RunError(f"{error.filename or directory}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{directory}: a key or certificate cannot be read: {error}") from None
    return Authority(key, certificate, orders, server_key, server)


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    if not path.exists():
        write_private(path, key_pem(ec.generate_private_key(ec.SECP256R1())))
    key = serialization.load_pem_private_key(read_private(path), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} holds another kind of key")
    return key


def _orders(path: Path) -> ed25519.Ed25519PrivateKey:
    if not path.exists():
        write_private(path, key_pem(ed25519.Ed25519PrivateKey.generate()))
    key = serialization.load_pem_private_key(read_private(path), None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError(f"{path} holds another kind of key")
    return key


def _authority(path: Path, key: ec.EllipticCurvePrivateKey, now: dt.datetime) -> x509.Certificate:
    if not path.exists():
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "skyhop testbed")])
        builder = _builder("skyhop testbed", key.public_key(), name, now, _AUTHORITY_DAYS)
        certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).sign(key, hashes.SHA256())
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return x509.load_pem_x509_certificate(path.read_bytes())


def _server(
    directory: Path,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: list[str],
    now: dt.datetime,
) -> tuple[bytes, bytes]:
    """Return the server's key and certificate, reissued if names changed or expiry is near."""
    key = _key(directory / "server.key")
    path = directory / "server.pem"
    wanted = x509.SubjectAlternativeName([_alternative(name) for name in sorted(set(names))])
    if path.exists():
        old = x509.load_pem_x509_certificate(path.read_bytes())
        kept = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if kept == wanted and old.not_valid_after_utc - now > dt.timedelta(days=RENEWED_AFTER_DAYS):
            return key_pem(key), path.read_bytes()
    builder = _builder(names[0], key.public_key(), authority.subject, now, _SERVER_DAYS)
    certificate = (
        builder.add_extension(wanted, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    path.write_bytes(pem)
    return key_pem(key), pem


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: str,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    now: dt.datetime,
    days: int,
) -> x509.CertificateBuilder:
    begin = now - _BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(now + dt.timedelta(days=days))
    )
