"""Downloads of element sets, kept in a cache.

CelesTrak updates its element sets every two hours and asks clients not to download more often.
Therefore a copy that is less than two hours old is used again.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from skyhop.data.files import write_file
from skyhop.errors import InputError, RunError

FRESH_S = 2 * 3600.0
"""Largest age in s at which a copy is used again."""
TIMEOUT_S = 60.0
MOST_BYTES = 128_000_000
"""Largest download in bytes, the limit of the core, too; the public catalogue is smaller."""
_CHUNK_BYTES = 1 << 20


def is_address(name: str) -> bool:
    """Return whether a name is an HTTP or HTTPS address."""
    return name.startswith(("https://", "http://"))


def cache_directory() -> Path:
    """Return the directory of downloads: `$XDG_CACHE_HOME/skyhop`, or `~/.cache/skyhop`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "skyhop"


def cache_error(place: Path, error: OSError) -> RunError:
    """Return the error to raise when reading or writing `place` in the cache fails."""
    # The error of a write() on a full disk (ENOSPC) names no file.
    file = Path(error.filename or place)
    message = f"{file}: {error.strerror or error}"
    if not file.is_relative_to(cache_directory()):
        return RunError(message)
    return RunError(f"{message}; XDG_CACHE_HOME may name another place for skyhop's cache")


def cached_file(address: str) -> Path:
    """Return the cache file of an address, whether it exists or not."""
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    return cache_directory() / f"{name}.elements"


def download(address: str, fresh_s: float = FRESH_S) -> Path:
    """Return the local copy of a file, downloading it if the copy is missing or too old.

    Args:
        address: address of the file.
        fresh_s: largest age in s at which the copy is used again.

    Raises:
        InputError: the address cannot be reached or answers with an error.
        RunError: the copy cannot be written.
    """
    copy = cached_file(address)
    if copy.is_file() and time.time() - copy.stat().st_mtime < fresh_s:
        return copy
    content = _fetch(address)
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{copy}: cannot write: {error.strerror}") from None
    write_file(copy, content)
    return copy


def _fetch(address: str) -> bytes:
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(address, headers={"User-Agent": "skyhop"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            content = bytearray()
            while chunk := answer.read(_CHUNK_BYTES):
                content += chunk
                if len(content) > MOST_BYTES:
                    raise InputError(f"{address}: more than {MOST_BYTES // 10**6} MB; is it right?")
            return bytes(content)
    except urllib.error.HTTPError as error:
        raise InputError(f"{address}: the server answers {error.code} {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(f"{address}: cannot download: {reason}") from None
