"""The testbed's authorities, which sign nodes' certificates, and the keys that sign orders.

Nodes generate their own keys and send a certificate signing request. A certificate is valid for 90
days; the node renews it from day 60 on. Schedules and tasks are signed with Ed25519, so that a node
need not trust any proxy between it and the orchestrator.

Both keys can be rotated: `rotate` makes a new generation, which signs from then on, and `retire`
ends the trust in the former one. The first generation's files are in the directory of the keys,
those of a later one in a directory with its number; `authorities.json` names the ones in use, so
that a change of generation is one replaced file.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skyhop.data.files import Scratch
from skyhop.errors import InputError, RunError
from skyhop_testbed.keys import (
    RENEWED_AFTER_DAYS,
    key_pem,
    read_private,
    trust_digest,
    write_private,
)

NODE_DAYS = 90
_AUTHORITY_DAYS = 3650
FIRST_NAME = "skyhop testbed"
"""Name of a testbed's first authority."""
TRUSTED = "trusted.pem"
"""File with the certificates of all authorities that sign certificates of nodes."""
_KEY, _CERTIFICATE, _ORDERS = "authority.key", "authority.pem", "orders.key"
_PLACES, _FIRST = "authorities.json", "."
"""File that names the generations in use, and the place of the first one."""
_SERVER_DAYS = 825
_LARGEST_REQUEST = 16_384
_BACKDATED = dt.timedelta(minutes=10)
"""Time by which certificates begin before they are issued: a node whose clock is slow would reject
a certificate that is valid from now on.
"""


@dataclass(frozen=True)
class Generation:
    """Authority's key and certificate, and the key that signs orders of the same time."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    orders: ed25519.Ed25519PrivateKey

    @property
    def name(self) -> str:
        """Name of the authority, the issuer of its certificates."""
        return common_name(self.certificate.subject)

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def orders_key(self) -> bytes:
        """Ed25519 public key (32 bytes) that verifies signed orders."""
        return self.orders.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )


@dataclass(frozen=True)
class Authority:
    """Keys and certificates of a testbed, read from its state directory.

    After a rotation, nodes and users trust the signing generation and the former one, until the
    former one is retired. The server's certificate is of the former one meanwhile, because all of
    them trust that one.
    """

    signing: Generation
    former: Generation | None
    server_key_pem: bytes
    server_certificate_pem: bytes

    @property
    def certificate_pem(self) -> bytes:
        """Certificates of all trusted authorities in PEM, the signing one first."""
        return b"".join(each.certificate_pem for each in self.trusted)

    @property
    def trusted(self) -> list[Generation]:
        """Generations that nodes and users trust, the signing one first."""
        return [self.signing, *([self.former] if self.former else [])]

    @property
    def orders_key(self) -> bytes:
        """Ed25519 public key (32 bytes) of the signing generation, which verifies orders."""
        return self.signing.orders_key

    @property
    def orders_keys(self) -> list[bytes]:
        """Public keys of orders of all trusted generations, the signing one's first."""
        return [each.orders_key for each in self.trusted]

    @property
    def trust(self) -> str:
        """Digest of the keys that nodes are to trust."""
        return trust_digest(self.certificate_pem, self.orders_keys)

    def sign_order(self, body: bytes, issuer: str = "") -> bytes:
        """Return the Ed25519 signature of an order to a node, 64 bytes.

        Args:
            body: the order.
            issuer: issuer of the certificate that the node uses: a node that has none of the
                signing generation does not know that generation's key either.
        """
        is_former = self.former is not None and issuer == self.former.name
        chosen = self.former if self.former is not None and is_former else self.signing
        return chosen.orders.sign(body)

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
        builder = _builder(node, key, self.signing.certificate.subject, now, NODE_DAYS)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = builder.add_extension(usage, critical=True).sign(
            self.signing.key, hashes.SHA256()
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


def issued_ns(certificate: x509.Certificate) -> int:
    """Return the time in ns at which a certificate was issued."""
    return round((certificate.not_valid_before_utc + _BACKDATED).timestamp() * 1e9)


def common_name(name: x509.Name) -> str:
    """Return the common name in the name of a certificate's subject or issuer."""
    return str(name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


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
    with _translated(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        places = _read_places(directory)
        if not (directory / _PLACES).exists():
            _fill(directory, FIRST_NAME, now)
        signing = _generation(directory / places.signing)
        former = None if places.former is None else _generation(directory / places.former)
        server_key, server = _server(directory, former or signing, names, now)
        made = Authority(signing, former, server_key, server)
        _replace(directory / TRUSTED, made.certificate_pem)
        _replace(directory / _CERTIFICATE, (former or signing).certificate_pem)
        _remove_retired(directory, places)
        return made


def rotate(directory: Path, now: dt.datetime) -> None:
    """Generate the keys of a new generation, which signs from now on; the former stays trusted.

    Raises:
        InputError: a former generation is still trusted.
        RunError: the directory cannot be written.
    """
    with _translated(directory):
        places = _read_places(directory)
        if places.former is not None:
            raise InputError("the former authority is still trusted: retire it first")
        number = 1 + max([1, *(int(p.name) for p in directory.iterdir() if p.name.isdigit())])
        with Scratch(directory) as scratch:
            made = scratch / str(number)
            made.mkdir(mode=0o700)
            _fill(made, f"{FIRST_NAME} {number} of {now:%Y-%m-%d}", now)
            made.rename(directory / str(number))
        # The new generation counts from here on: its files are complete.
        _write_places(directory, _Places(str(number), places.signing))


def retire(directory: Path) -> None:
    """End the trust in the former generation, and remove its keys.

    Raises:
        InputError: there is no former generation.
        RunError: the directory cannot be written.
    """
    with _translated(directory):
        places = _read_places(directory)
        if places.former is None:
            raise InputError("no former authority is trusted: nothing to retire")
        _write_places(directory, _Places(places.signing, None))


@dataclass(frozen=True)
class _Places:
    """Directories of the signing and the former generation, relative to that of the keys."""

    signing: str
    former: str | None


def _read_places(directory: Path) -> _Places:
    try:
        values = json.loads((directory / _PLACES).read_bytes())
    except FileNotFoundError:
        return _Places(_FIRST, None)
    signing, former = values["signs"], values["former"]
    for place in (signing, former):
        if place not in (None, _FIRST) and not str(place).isdigit():
            raise ValueError(f"{_PLACES} names no directory of keys")
    return _Places(str(signing), None if former is None else str(former))


def _write_places(directory: Path, places: _Places) -> None:
    content = json.dumps({"signs": places.signing, "former": places.former}).encode()
    write_private(directory / _PLACES, content)


def _remove_retired(directory: Path, places: _Places) -> None:
    """Remove the keys of generations that are no longer trusted."""
    kept = {places.signing, places.former}
    found = [p.name for p in directory.iterdir() if p.name.isdigit() and p.is_dir()]
    for place in (each for each in [_FIRST, *found] if each not in kept):
        for name in (_KEY, _ORDERS, *([] if place == _FIRST else [_CERTIFICATE])):
            (directory / place / name).unlink(missing_ok=True)
        if place != _FIRST:
            (directory / place).rmdir()


def _fill(directory: Path, name: str, now: dt.datetime) -> None:
    """Generate the files of a generation that are missing."""
    key = _key(directory / _KEY)
    _authority(directory / _CERTIFICATE, key, name, now)
    _orders(directory / _ORDERS)


def _generation(directory: Path) -> Generation:
    key = _key(directory / _KEY, may_make=False)
    certificate = x509.load_pem_x509_certificate((directory / _CERTIFICATE).read_bytes())
    return Generation(key, certificate, _orders(directory / _ORDERS, may_make=False))


@contextlib.contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"{error.filename or directory}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{directory}: a key or certificate cannot be read: {error}") from None


def _replace(path: Path, content: bytes) -> None:
    """Write a file unless it has this content."""
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


def _key(path: Path, *, may_make: bool = True) -> ec.EllipticCurvePrivateKey:
    if may_make and not path.exists():
        write_private(path, key_pem(ec.generate_private_key(ec.SECP256R1())))
    key = serialization.load_pem_private_key(read_private(path), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} holds another kind of key")
    return key


def _orders(path: Path, *, may_make: bool = True) -> ed25519.Ed25519PrivateKey:
    if may_make and not path.exists():
        write_private(path, key_pem(ed25519.Ed25519PrivateKey.generate()))
    key = serialization.load_pem_private_key(read_private(path), None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError(f"{path} holds another kind of key")
    return key


def _authority(path: Path, key: ec.EllipticCurvePrivateKey, name: str, now: dt.datetime) -> None:
    """Write an authority's own certificate if it is missing.

    Each generation has another name, because OpenSSL looks for an issuer by its name.
    """
    if not path.exists():
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(name, key.public_key(), subject, now, _AUTHORITY_DAYS)
        certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).sign(key, hashes.SHA256())
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _server(
    directory: Path, issuer: Generation, names: list[str], now: dt.datetime
) -> tuple[bytes, bytes]:
    """Return the server's key and certificate.

    It is issued again if names or the authority changed, or its expiry is near.
    """
    key = _key(directory / "server.key")
    path = directory / "server.pem"
    wanted = x509.SubjectAlternativeName([_alternative(name) for name in sorted(set(names))])
    if path.exists():
        old = x509.load_pem_x509_certificate(path.read_bytes())
        kept = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_fresh = old.not_valid_after_utc - now > dt.timedelta(days=RENEWED_AFTER_DAYS)
        if kept == wanted and is_fresh and old.issuer == issuer.certificate.subject:
            return key_pem(key), path.read_bytes()
    builder = _builder(names[0], key.public_key(), issuer.certificate.subject, now, _SERVER_DAYS)
    certificate = (
        builder.add_extension(wanted, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
        .sign(issuer.key, hashes.SHA256())
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
