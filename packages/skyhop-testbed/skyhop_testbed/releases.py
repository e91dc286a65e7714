"""Releases of skyhop for nodes: the signed list of a release's wheels, and who may have signed it.

The administrator signs a release away from the orchestrator, with an Ed25519 key of its own. The
owner of a node pins the public key, so that an orchestrator that others have broken into can
neither make a release nor change one.
"""

from __future__ import annotations

import ast
import base64
import binascii
import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Annotated, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from skyhop.errors import InputError
from skyhop_testbed.keys import key_pem, read_private, write_private

FILE = "release.json"
"""Name of the signed list in the directory of a release's wheels."""
LARGEST_FILE = 200_000
MOST_BYTES = 600_000_000
"""Upper limits in bytes on the signed list, and on all wheels of a release together."""
SKYHOP, TESTBED = "skyhop", "skyhop-testbed"
_MOST_WHEELS = 200
_KEY_BYTES = 32
_PURPOSE = b"skyhop testbed: release\n"
"""Beginning of the signed bytes; no other signature begins so."""
_PIECE_BYTES = 1 << 20


class ReleaseError(InputError):
    """A release is damaged, or not signed by the key, or does not fit."""


class Wheel(BaseModel):
    """Wheel of a release; its name contains its tags of Python and platform (PEP 427)."""

    model_config = ConfigDict(frozen=True)

    name: Annotated[str, Field(max_length=200)]
    size: Annotated[int, Field(gt=0, le=MOST_BYTES)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        try:
            parse_wheel_filename(name)
        except (InvalidWheelFilename, InvalidVersion):
            raise ValueError("is no name of a wheel") from None
        if "/" in name or "\\" in name:
            raise ValueError("is no name of a file")
        return name

    @property
    def project(self) -> str:
        """Normalized name of the wheel's project."""
        return parse_wheel_filename(self.name)[0]

    @property
    def version(self) -> Version:
        """Version of the wheel."""
        return parse_wheel_filename(self.name)[1]

    @property
    def tags(self) -> frozenset[Tag]:
        """Tags of Python and platform that the wheel is for."""
        return parse_wheel_filename(self.name)[3]


class Release(BaseModel):
    """Content of a release: its version, what it needs, and its wheels."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    version: Annotated[str, Field(max_length=40)]
    requires_python: Annotated[str, Field(max_length=100)]
    lowest_protocol: Annotated[int, Field(ge=1)]
    highest_protocol: Annotated[int, Field(ge=1)]
    """Protocols that the release's agent speaks; an orchestrator has to speak one of them."""
    wheels: Annotated[tuple[Wheel, ...], Field(max_length=_MOST_WHEELS)]
    """Wheels by name. Several of one project are for different machines."""

    @field_validator("version")
    @classmethod
    def _check_version(cls, version: str) -> str:
        try:
            normal = str(Version(version))
        except InvalidVersion:
            raise ValueError("is no version") from None
        if normal != version:
            raise ValueError(f"expected {normal}")
        return version

    @property
    def size(self) -> int:
        """Bytes of all wheels."""
        return sum(each.size for each in self.wheels)

    def canonical(self) -> str:
        """Return the JSON text that is signed: sorted keys, no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def check(self) -> None:
        """Check that the release has skyhop itself, and is not too large.

        Raises:
            ReleaseError: it has not, or is.
        """
        for project in (SKYHOP, TESTBED):
            versions = {each.version for each in self.wheels if each.project == project}
            if versions != {Version(self.version)}:
                raise ReleaseError(f"release {self.version} has no {project} of this version")
        if len({each.name for each in self.wheels}) < len(self.wheels):
            raise ReleaseError(f"release {self.version} names a wheel twice")
        if self.size > MOST_BYTES:
            raise ReleaseError(f"release {self.version} is larger than {MOST_BYTES:,} bytes")

    def allows_python(self, version: str) -> bool:
        """Return whether the release is for a version of Python."""
        try:
            return version in SpecifierSet(self.requires_python, prereleases=True)
        except InvalidSpecifier:
            return False

    def wheels_for(self, tags: Sequence[Tag]) -> list[Wheel]:
        """Return the wheels for a machine, one per project: the one whose tag comes first.

        Args:
            tags: tags of the machine, best first (`packaging.tags.sys_tags`).

        Raises:
            ReleaseError: a project has no wheel for this machine.
        """
        ranks = {tag: rank for rank, tag in enumerate(tags)}
        best: dict[str, tuple[int, Wheel]] = {}
        for wheel in self.wheels:
            rank = min((ranks[tag] for tag in wheel.tags if tag in ranks), default=None)
            if rank is not None and rank < best.get(wheel.project, (len(ranks), wheel))[0]:
                best[wheel.project] = (rank, wheel)
        missing = sorted({each.project for each in self.wheels} - best.keys())
        if missing:
            raise ReleaseError(
                f"release {self.version} has no wheel of {missing[0]} for this machine ({tags[0]})"
            )
        return sorted((wheel for _, wheel in best.values()), key=lambda each: each.name)


class SignedRelease(BaseModel):
    """Release with its signature: the content of the file `FILE`."""

    model_config = ConfigDict(frozen=True)

    manifest: str
    """JSON text of the release, whose exact bytes are signed."""
    signature: str
    """Ed25519 signature over `_PURPOSE` and the manifest, base64."""
    key: str
    """Public key of the signer, base64: a hint for people. Nodes trust only their owner's key."""

    @classmethod
    def loads(cls, content: bytes) -> SignedRelease:
        """Read the content of a file.

        Raises:
            ReleaseError: it is no signed release.
        """
        try:
            if len(content) > LARGEST_FILE:
                raise ValueError("is too long")
            return cls.model_validate_json(content)
        except ValueError:
            raise ReleaseError(f"the signed release cannot be read: make {FILE} again") from None

    def verified(self, public_key: bytes) -> Release:
        """Return the release, if a key has signed it.

        Raises:
            ReleaseError: another key has signed it, or it is damaged.
        """
        try:
            signature = base64.b64decode(self.signature, validate=True)
            key = ed25519.Ed25519PublicKey.from_public_bytes(public_key)
            key.verify(signature, _PURPOSE + self.manifest.encode())
        except (InvalidSignature, binascii.Error, ValueError):
            raise ReleaseError("the release is not signed by the key that is trusted") from None
        try:
            release = Release.model_validate_json(self.manifest)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ReleaseError(f"the release cannot be read: {where}: {first['msg']}") from None
        release.check()
        return release

    def verified_by_itself(self) -> Release:
        """Return the release if its own key has signed it, which shows damage but no forgery.

        Raises:
            ReleaseError: the signature is wrong.
        """
        return self.verified(read_key(self.key))

    def dumps(self) -> bytes:
        """Return the content of a file."""
        return json.dumps(self.model_dump(), indent=1).encode() + b"\n"


def read_key(text: str) -> bytes:
    """Return the bytes of a public key in base64.

    Raises:
        ReleaseError: the text is no public key.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise ReleaseError("expected the public key that skyhop testbed release key prints")
    return key


# --- the signer's side ---


def make_key(file: Path) -> str:
    """Write a new private key to a file, which only its owner may read; return the public key.

    Raises:
        InputError: the file exists.
        OSError: the file cannot be written.
    """
    if file.exists():
        raise InputError(f"{file}: exists already: give another name, or use --show")
    key = ed25519.Ed25519PrivateKey.generate()
    write_private(file, key_pem(key))
    return _public(key)


def public_key(file: Path) -> str:
    """Return the public key of a private key in a file, base64.

    Raises:
        InputError: the file is missing or no key, or other users may read it.
    """
    return _public(_private(file))


def _public(key: ed25519.Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def _private(file: Path) -> ed25519.Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(read_private(file), None)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError(f"{file}: is no key of skyhop testbed release key")
    return key


def sign(directory: Path, key_file: Path) -> Release:
    """Sign the wheels in a directory as a release; write its file `FILE` there.

    Raises:
        InputError: wheels of skyhop are missing or damaged, or the key cannot be read.
        OSError: a file cannot be read or written.
    """
    key = _private(key_file)
    wheels = [_listed(each) for each in sorted(directory.glob("*.whl"))]
    release = _described(directory, wheels)
    release.check()
    text = release.canonical()
    signature = base64.b64encode(key.sign(_PURPOSE + text.encode())).decode()
    signed = SignedRelease(manifest=text, signature=signature, key=_public(key))
    (directory / FILE).write_bytes(signed.dumps())
    return release


def _listed(file: Path) -> Wheel:
    try:
        return Wheel(name=file.name, size=file.stat().st_size, sha256=sha256_of(file))
    except ValidationError as error:
        raise ReleaseError(f"{file}: {error.errors()[0]['msg']}") from None


def _described(directory: Path, wheels: Iterable[Wheel]) -> Release:
    """Return the release of wheels; the wheel of the testbed says the version and what it needs."""
    listed = tuple(wheels)
    found = [each for each in listed if each.project == canonicalize_name(TESTBED)]
    if len(found) != 1:
        raise ReleaseError(f"{directory}: has {len(found)} wheels of {TESTBED}; one is wanted")
    file = directory / found[0].name
    try:
        with zipfile.ZipFile(file) as wheel:
            names = {name.split("/", 1)[-1]: name for name in wheel.namelist()}
            about = HeaderParser().parsestr(wheel.read(names["METADATA"]).decode())
            lowest, highest = _protocols(wheel.read("skyhop_testbed/protocol.py").decode())
    except (zipfile.BadZipFile, KeyError, ValueError, SyntaxError):
        raise ReleaseError(f"{file}: is no wheel of {TESTBED}") from None
    return Release(
        version=str(found[0].version),
        requires_python=about.get("Requires-Python", ">=3"),
        lowest_protocol=lowest,
        highest_protocol=highest,
        wheels=listed,
    )


def _protocols(code: str) -> tuple[int, int]:
    """Return the range of protocols in the source of `protocol.py`, without running it."""
    for line in ast.parse(code).body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "(OLDEST, PROTOCOL)":
            lowest, highest = ast.literal_eval(line.value)
            return int(lowest), int(highest)
    raise ValueError("no range of protocols")


def sha256_of(file: Path) -> str:
    """Return the digest of a file, as hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_wheels(directory: Path, wheels: Iterable[Wheel]) -> None:
    """Check that a directory has wheels as a release lists them.

    Raises:
        ReleaseError: a wheel is missing, or another file.
    """
    for wheel in wheels:
        file = directory / wheel.name
        try:
            is_same = file.stat().st_size == wheel.size and sha256_of(file) == wheel.sha256
        except OSError:
            raise ReleaseError(f"{file}: is missing: sign the release again") from None
        if not is_same:
            raise ReleaseError(f"{file}: is not the wheel that was signed: sign the release again")


def is_missing(sizes: Mapping[str, int], release: Release) -> bool:
    """Return whether wheels of a release are missing among files with these sizes."""
    return any(sizes.get(each.name) != each.size for each in release.wheels)
