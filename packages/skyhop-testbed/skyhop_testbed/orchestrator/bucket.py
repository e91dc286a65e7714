"""Bucket of an S3-compatible store, in which an orchestrator keeps the files of runs.

The administrator switches it on with `bucket.toml` in the state directory. boto3 (the extra `s3`)
is imported only then.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from skyhop.data.quantities import seconds, size_bytes
from skyhop.data.toml import read_toml
from skyhop.errors import InputError, RunError
from skyhop.install import how_to_install
from skyhop_testbed.addresses import is_loopback

FILE = "bucket.toml"
_LARGEST_FILE = 10_000
_LEAST_PART_BYTES = 5 << 20
"""Least size of a part of a multipart upload that S3 accepts, except for the last one."""
_MOST_PARTS = 10_000
_LONGEST_PREFIX = 200
_PIECE_BYTES = 1 << 20
_CONNECT_S, _READ_S, _ATTEMPTS = 10, 60, 4
_KEYS = frozenset(
    {
        "endpoint",
        "bucket",
        "prefix",
        "region",
        "access_key",
        "secret_key",
        "path_style",
        "part",
        "keep_local",
        "read_back",
    }
)


@dataclass(frozen=True)
class BucketSettings:
    """Settings of the bucket, as the administrator wrote them."""

    bucket: str
    endpoint: str | None = None
    """URL of the store; `None` is Amazon's."""
    prefix: str = ""
    """First part of all keys."""
    region: str | None = None
    access_key: str | None = None
    """Access key; `None` leaves the choice to boto3: environment, AWS's files, or role."""
    secret_key: str | None = None
    path_style: bool = True
    """Whether the bucket is in the path of URLs, not in the host's name."""
    part_bytes: int = 64 << 20
    """Size from which files are uploaded in parts, and size of these parts."""
    keep_local_s: float = 86_400.0
    """Time in s for which a file also stays on the orchestrator's disk after its upload."""
    reads_back: bool = True
    """Whether each uploaded object is read and its digest compared, before the file is deleted."""


def read_bucket_settings(file: Path) -> BucketSettings | None:
    """Read `bucket.toml`; return `None` if there is no such file.

    Raises:
        InputError: a key is wrong, or other users may read a secret in the file.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST_FILE).decode()
            is_private = not stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is no TOML: its text is not UTF-8") from None
    values = read_toml(text, str(file))
    try:
        found = _settings(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{file}: {error}") from None
    if found.secret_key is not None and not is_private:
        raise InputError(f"{file}: other users may read the secret key: chmod 600 {file}")
    return found


def _settings(values: dict[str, Any]) -> BucketSettings:
    for key in values:
        if key not in _KEYS:
            raise ValueError(f"{key[:40]}: unknown key; expected {', '.join(sorted(_KEYS))}")
    texts = {
        key: _text(values, key)
        for key in ("bucket", "endpoint", "prefix", "region", "access_key", "secret_key")
    }
    bucket, endpoint = texts["bucket"], texts["endpoint"]
    if not bucket:
        raise ValueError("bucket: is missing: the name of the bucket")
    if endpoint is not None:
        _check_endpoint(endpoint)
    if (texts["access_key"] is None) != (texts["secret_key"] is None):
        raise ValueError("access_key and secret_key go together")
    prefix = texts["prefix"] or ""
    if len(prefix) > _LONGEST_PREFIX or prefix.startswith("/") or not prefix.isprintable():
        raise ValueError(f"prefix: expected at most {_LONGEST_PREFIX} characters, without / first")
    part_bytes = int(size_bytes(str(values.get("part", "64 MB"))))
    if part_bytes < _LEAST_PART_BYTES:
        raise ValueError(f"part: expected at least {_LEAST_PART_BYTES:,} bytes")
    return BucketSettings(
        bucket=bucket,
        endpoint=endpoint,
        prefix=prefix,
        region=texts["region"],
        access_key=texts["access_key"],
        secret_key=texts["secret_key"],
        path_style=_flag(values, "path_style", endpoint is not None),
        part_bytes=part_bytes,
        keep_local_s=seconds(str(values.get("keep_local", "1 day"))),
        reads_back=_flag(values, "read_back", True),
    )


def _text(values: dict[str, Any], key: str) -> str | None:
    value = values.get(key)
    if value is not None and (not isinstance(value, str) or not value.isprintable()):
        raise ValueError(f"{key}: expected a text")
    return value


def _flag(values: dict[str, Any], key: str, default: bool) -> bool:
    value = values.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key}: expected true or false")
    return value


def _check_endpoint(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("endpoint: expected a URL such as https://s3.example.org")
    if parts.scheme == "http" and not is_loopback(f"{parts.hostname}:0"):
        raise ValueError(
            "endpoint: without TLS, networks on the way can read the files: use https://"
        )


class Bucket:
    """Connection to a bucket.

    Args:
        settings: where it is, and with which credentials.

    Raises:
        InputError: boto3 is not installed, or the settings name nothing that boto3 can use.
    """

    def __init__(self, settings: BucketSettings) -> None:
        self.settings = settings
        try:
            import boto3
            from boto3.s3.transfer import TransferConfig
            from botocore.config import Config
        except ImportError:
            raise InputError(
                f"{FILE} needs boto3: {how_to_install('skyhop-testbed[s3]')}"
            ) from None
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            retries={"mode": "standard", "max_attempts": _ATTEMPTS},
            s3={"addressing_style": "path" if settings.path_style else "auto"},
            # Checksums that S3 added in 2024 are unknown to other stores.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self._transfer = TransferConfig(
            multipart_threshold=settings.part_bytes,
            multipart_chunksize=settings.part_bytes,
            max_concurrency=2,
        )
        with _translated_errors("the bucket's settings", InputError):
            self._client: Any = boto3.client(
                "s3",
                endpoint_url=settings.endpoint,
                region_name=settings.region or "us-east-1",
                aws_access_key_id=settings.access_key,
                aws_secret_access_key=settings.secret_key,
                config=config,
            )

    def put(self, file: Path, key: str, sha256: str) -> None:
        """Upload a file, a large one in parts, and check that the object has its digest.

        Raises:
            RunError: the upload failed, or the object is not the file.
            OSError: the file cannot be read.
        """
        size = file.stat().st_size
        with _translated_errors(key):
            self._client.upload_file(
                str(file),
                self.settings.bucket,
                self._key(key),
                ExtraArgs={"Metadata": {"sha256": sha256}},
                Config=self._transfer_of(size),
            )
            stored = self._client.head_object(Bucket=self.settings.bucket, Key=self._key(key))
        if int(stored["ContentLength"]) != size:
            raise RunError(f"{key}: the bucket has {stored['ContentLength']:,} of {size:,} bytes")
        if self.settings.reads_back and self._digest(key, size) != sha256:
            raise RunError(f"{key}: the object in the bucket differs from the file")

    def open(self, key: str, size: int) -> io.BufferedReader:
        """Return an object as a file that is read from the bucket as it is used."""
        return io.BufferedReader(_ObjectReader(self, key, size), _PIECE_BYTES)

    def get(self, key: str, offset: int) -> Any:
        """Return the stream of an object's bytes from an offset on.

        Raises:
            RunError: the bucket does not answer, or has no such object.
        """
        with _translated_errors(key):
            answer = self._client.get_object(
                Bucket=self.settings.bucket, Key=self._key(key), Range=f"bytes={offset}-"
            )
        return answer["Body"]

    def delete(self, key: str) -> None:
        """Delete an object; nothing happens if there is none.

        Raises:
            RunError: the bucket does not answer, or refuses.
        """
        with _translated_errors(key):
            self._client.delete_object(Bucket=self.settings.bucket, Key=self._key(key))

    def check(self) -> None:
        """Write, read and delete an object.

        Raises:
            RunError: one of these failed.
        """
        key, content = f".skyhop-{secrets.token_hex(8)}", secrets.token_bytes(64)
        with _translated_errors(key):
            self._client.put_object(Bucket=self.settings.bucket, Key=self._key(key), Body=content)
        if self._digest(key, len(content)) != hashlib.sha256(content).hexdigest():
            raise RunError(f"{key}: the object in the bucket differs from what was written")
        self.delete(key)

    def _digest(self, key: str, size: int) -> str:
        with self.open(key, size) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def _key(self, key: str) -> str:
        return self.settings.prefix + key

    def _transfer_of(self, size: int) -> Any:
        """Return the transfer's configuration: larger parts if there would be too many."""
        if size <= self.settings.part_bytes * _MOST_PARTS:
            return self._transfer
        from boto3.s3.transfer import TransferConfig

        part_bytes = -(-size // _MOST_PARTS)
        return TransferConfig(
            multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=2
        )


@contextmanager
def _translated_errors(
    what: str, kind: type[InputError] | type[RunError] = RunError
) -> Iterator[None]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error, ValueError) as error:
        said = str(error).splitlines()
        why = said[0] if said else type(error).__name__
        raise kind(f"the bucket: {what}: {why}") from None


class _ObjectReader(io.RawIOBase):
    """Object of a bucket as a file: a request begins at the first read after each seek."""

    def __init__(self, bucket: Bucket, key: str, size: int) -> None:
        self._bucket, self._key, self._size = bucket, key, size
        self._at = 0
        self._body: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if begin + offset != self._at:
            self._end()
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        if self._body is None:
            self._body = self._bucket.get(self._key, self._at)
        with _translated_errors(self._key):
            data: bytes = self._body.read(wanted)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._end()
        super().close()

    def _end(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
