"""Downloads of element sets, kept in a cache.

CelesTrak updates its element sets every two hours and asks clients not to download more often.
Therefore a copy that is less than two hours old is used again. If a newer one is refused or out of
reach, an older copy is used with a note, and the server is not asked again for a while.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop.data.files import write_file
from skyhop.errors import InputError, RunError

if TYPE_CHECKING:
    import urllib.error
    from collections.abc import Callable

FRESH_S = 2 * 3600.0
"""Largest age in s at which a copy is used again."""
RETRY_S = 900.0
"""Time in s for which a failed download is not tried again."""
TIMEOUT_S = 60.0
MOST_BYTES = 128_000_000
"""Largest download in bytes, the limit of the core, too; the public catalogue is smaller."""
_CHUNK_BYTES = 1 << 20
_LONGEST_EXPLANATION = 300
"""Largest number of characters of a server's explanation that an error shows."""
_LOG = logging.getLogger(__name__)


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


def download(
    address: str, fresh_s: float = FRESH_S, on_old_copy: Callable[[str], None] | None = None
) -> Path:
    """Return the local copy of a file, downloading it if the copy is missing or too old.

    If the download fails, the old copy is used. The failure is remembered: for `RETRY_S`, further
    calls answer without a question to the server.

    Args:
        address: address of the file.
        fresh_s: largest age in s at which the copy is used again.
        on_old_copy: called with the reason if the old copy is used; by default a note on standard
            error says it.

    Raises:
        InputError: there is no copy, and the address cannot be reached or answers with an error.
        RunError: the copy cannot be written.
    """
    copy = cached_file(address)
    if copy.is_file() and time.time() - copy.stat().st_mtime < fresh_s:
        return copy
    failure = copy.with_suffix(".failure")
    message, until = _recent_failure(failure) or ("", "")
    if not message:
        try:
            content = _fetch(address)
        except InputError as error:
            message = str(error)
            _write(failure, message.encode())
        else:
            _write(copy, content)
            failure.unlink(missing_ok=True)
            return copy
    if not copy.is_file():
        raise InputError(message + until)
    if on_old_copy is not None:
        on_old_copy(message)
    else:
        _note_old_copy(copy, message + until)
    return copy


def _recent_failure(failure: Path) -> tuple[str, str] | None:
    """Return why a download failed less than `RETRY_S` ago, and until when that counts."""
    try:
        age_s = time.time() - failure.stat().st_mtime
        if not 0 <= age_s < RETRY_S:
            return None
        message = failure.read_text("utf-8", "replace")
    except OSError:
        return None
    wait_min = max(1, round((RETRY_S - age_s) / 60))
    return message, f"; skyhop asks again in {wait_min} min (or remove {failure})"


def _note_old_copy(copy: Path, message: str) -> None:
    hours = (time.time() - copy.stat().st_mtime) / 3600
    age = f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"  # noqa: PLR2004 (2 days)
    print(f"note: {message}; using the copy of {age} ago", file=sys.stderr)
    _LOG.warning("old copy used", extra={"copy": str(copy)})


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{file}: cannot write: {error.strerror}") from None
    write_file(file, content)


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
        explanation = _explanation(error)
        raise InputError(
            f"{address}: the server answers {error.code} {error.reason}{explanation}"
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        raise InputError(f"{address}: cannot download: {reason}") from None


def _explanation(answer: urllib.error.HTTPError) -> str:
    """Return the text of a server's answer in one line, as the end of a message."""
    try:
        text = answer.read(_CHUNK_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
    if "<" in text:
        return ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f": {line[:_LONGEST_EXPLANATION].rstrip('.')}" if line else ""
