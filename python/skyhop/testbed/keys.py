"""Keys, certificates and secrets as both sides have them: made, kept, checked."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from skyhop.errors import InputError

RENEWED_AFTER_DAYS = 60
"""A certificate of 90 days is renewed after so many."""
_PRIVATE = 0o600


def fingerprint(certificate_pem: bytes) -> bytes:
    """Return the SHA-256 of a certificate, by which it is known here.

    Raises:
        ValueError: it is none.
    """
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    return certificate.fingerprint(hashes.SHA256())


def valid_until(certificate_pem: bytes) -> tuple[dt.datetime, dt.datetime]:
    """Return from when and until when a certificate is valid."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def make_request(node: str) -> tuple[bytes, bytes]:
    """Return a new key, and the request that asks for its certificate, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return key_pem(key), request.public_bytes(serialization.Encoding.PEM)


def is_signed(orders_key: bytes, body: bytes, signature: bytes) -> bool:
    """Return whether the orchestrator signed this."""
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(orders_key).verify(signature, body)
    except (InvalidSignature, ValueError):
        return False
    return True


def secret_hash(secret: str) -> bytes:
    """Return what is kept of a secret of 256 random bits: no salt is needed for those."""
    return hashlib.sha256(secret.encode()).digest()


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read: whole, or not at all."""
    aside = path.with_name(f".{path.name}.partial")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def read_private(path: Path) -> bytes:
    """Read a file that nobody else may read.

    Raises:
        InputError: others may.
    """
    if path.stat().st_mode & 0o077:
        raise InputError(f"{path}: others may read this secret; run chmod 600 on it")
    return path.read_bytes()


def key_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    """Return a private key as files hold it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
