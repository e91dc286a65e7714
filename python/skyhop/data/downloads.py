"""Files by address: downloaded once, kept for a while.

CelesTrak updates its element sets every two hours and asks not to be asked more often, so a file
that is younger than that is used again.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from skyhop.data.files import write_file
from skyhop.errors import InputError, RunError

FRESH_S = 2 * 3600.0
TIMEOUT_S = 60.0
# As the loaders have it: the whole public catalogue is smaller.
MOST_BYTES = 128_000_000
_CHUNK_BYTES = 1 << 20


def is_address(name: str) -> bool:
    """Return whether a name is an address to download from."""
    return name.startswith(("https://", "http://"))


def cache_directory() -> Path:
    """Return where downloads are kept: `$XDG_CACHE_HOME/skyhop`, or `~/.cache/skyhop`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "skyhop"


def cache_error(place: Path, error: OSError) -> RunError:
    """Return what to say where the system refuses what is done at `place` in the cache."""
    # Writing what does not fit names no file.
    file = Path(error.filename or place)
    said = f"{file}: {error.strerror or error}"
    if not file.is_relative_to(cache_directory()):
        return RunError(said)
    return RunError(f"{said}; XDG_CACHE_HOME may name another place for skyhop's cache")


def copy_of(address: str) -> Path:
    """Return where the local copy of what is at an address is, or would be."""
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    return cache_directory() / f"{name}.elements"


def downloaded(address: str, fresh_s: float = FRESH_S) -> Path:
    """Return the local copy of what is at an address, downloading it where that is older than 2 h.

    Args:
        address: of the file.
        fresh_s: or older than this.

    Raises:
        InputError: the address cannot be reached or answers with an error.
        RunError: the copy cannot be written.
    """
    copy = copy_of(address)
    if copy.is_file() and time.time() - copy.stat().st_mtime < fresh_s:
        return copy
    content = _fetched(address)
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{copy}: cannot write: {error.strerror}") from None
    write_file(copy, content)
    return copy


def _fetched(address: str) -> bytes:
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
