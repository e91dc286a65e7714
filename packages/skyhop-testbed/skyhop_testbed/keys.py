"""Keys, certificates and secrets of agents and orchestrator: creation, storage, verification."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from skyhop.data.files import Scratch
from skyhop.errors import InputError

RENEWED_AFTER_DAYS = 60
"""Age in days at which a certificate, valid for 90 days, is renewed."""
_PRIVATE = 0o600
_ORDERS_KEY_BYTES = 32
_RENEWAL = b"skyhop testbed: renewal of an expired certificate\n"
"""Beginning of the bytes that prove the possession of a key; no other signature begins so."""


def fingerprint(certificate_pem: bytes) -> bytes:
    """Return the SHA-256 digest of a certificate, which identifies it in the testbed.

    Raises:
        ValueError: the text is no certificate.
    """
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    return certificate.fingerprint(hashes.SHA256())


def valid_until(certificate_pem: bytes) -> tuple[dt.datetime, dt.datetime]:
    """Return beginning and end of a certificate's validity, in UTC."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def make_request(node: str) -> tuple[bytes, bytes]:
    """Return a new private key, and a certificate signing request for it, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return key_pem(key), request.public_bytes(serialization.Encoding.PEM)


def is_signed(orders_key: bytes, body: bytes, signature: bytes) -> bool:
    """Return whether `signature` is the orchestrator's Ed25519 signature over `body`.

    `orders_key` is one public key of 32 bytes, or several in a row, each of which may have signed.
    """
    for start in range(0, len(orders_key), _ORDERS_KEY_BYTES):
        try:
            key = orders_key[start : start + _ORDERS_KEY_BYTES]
            ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, body)
        except (InvalidSignature, ValueError):
            continue
        return True
    return False


def trust_digest(authority_pem: bytes, orders_keys: Iterable[bytes]) -> str:
    """Return a digest of the keys that a node trusts, by which orchestrator and node compare them.

    Args:
        authority_pem: certificates of the authorities.
        orders_keys: public keys that sign orders.
    """
    return hashlib.sha256(authority_pem + b"".join(orders_keys)).hexdigest()[:32]


def sign_request(key_pem_: bytes, request_pem: bytes) -> bytes:
    """Return the signature over a signing request by the key of an earlier certificate, in DER.

    Raises:
        ValueError: the text is no elliptic-curve key.
    """
    key = serialization.load_pem_private_key(key_pem_, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("is another kind of key")
    return key.sign(_RENEWAL + request_pem, ec.ECDSA(hashes.SHA256()))


def is_request_of(certificate_pem: bytes, request_pem: bytes, signature: bytes) -> bool:
    """Return whether the key of a certificate has signed a signing request (`sign_request`)."""
    key = x509.load_pem_x509_certificate(certificate_pem).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(signature, _RENEWAL + request_pem, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def secret_hash(secret: str) -> bytes:
    """Return the digest of a secret for storage; a secret of 256 random bits needs no salt."""
    return hashlib.sha256(secret.encode()).digest()


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    with Scratch(path.parent) as scratch:
        aside = scratch / path.name
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)


def read_private(path: Path) -> bytes:
    """Read a secret file, which only its owner may read.

    Raises:
        InputError: other users may read the file.
    """
    if path.stat().st_mode & 0o077:
        raise InputError(f"{path}: other users may read this secret; run chmod 600 on it")
    return path.read_bytes()


def key_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    """Return a private key in PEM (PKCS #8, not encrypted)."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
