"""Cache of figures, series and reports, which subprocesses make one at a time.

A subprocess makes each of them, because importing matplotlib and polars would permanently enlarge
the orchestrator's memory. It reads the request from standard input and writes one file into a
directory of its own, with limits on memory and time. The key in the cache is the SHA-256 digest of
the request.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from skyhop.data import marks
from skyhop.errors import InputError, RunError
from skyhop_testbed.clock import Clock

_TIMEOUT_S = 60.0
_MOST_DRAWINGS = 300
_MOST_BYTES = 200_000_000
_FAILURE_LIFETIME_S = 5.0
"""Lifetime of a cached failure in s: data that make the drawing possible may arrive later."""
_MARK = marks.Mark("drawings; the orchestrator removes the least recently used ones")
FAILED = "failed"
"""Name of the file with the one-line reason of a failure."""


class Drawings:
    """Cache directory of drawings, which may be deleted at any time.

    Args:
        directory: the cache directory.
        telemetry: directory of the telemetry store, which the subprocess reads.
        clock: source of the times of failures and of the last access.
        timeout_s: limit on a drawing's duration, and on the wait for the subprocess.
    """

    def __init__(
        self, directory: Path, telemetry: Path, clock: Clock, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._directory, self._telemetry = directory, telemetry
        self._clock, self._timeout_s = clock, timeout_s
        self._slot = threading.Semaphore(1)

    def get(self, kind: str, **arguments: str | int | float) -> Path:
        """Return the file of a figure, a series or a report; make it if it is not cached.

        Raises:
            InputError: there are no data to draw.
            RunError: the drawing, or the wait for other drawings, took too long.
        """
        query = {"kind": kind, "telemetry": str(self._telemetry), **arguments}
        text = json.dumps(query, sort_keys=True)
        place = self._directory / hashlib.sha256(text.encode()).hexdigest()
        if not self._is_cached(place):
            if not self._slot.acquire(timeout=self._timeout_s):
                raise RunError("the server is busy with other figures: try again in a minute")
            try:
                if not self._is_cached(place):
                    shutil.rmtree(place, ignore_errors=True)
                    self._make(place, text)
            finally:
                self._slot.release()
        failed = place / FAILED
        if failed.is_file():
            raise InputError(failed.read_text("utf-8"))
        self._touch(place)
        return next(iter(place.iterdir()))

    def _make(self, place: Path, text: str) -> None:
        if _MARK.make(self._directory, 0o700):
            self._tidy()
        aside = Path(tempfile.mkdtemp(prefix=".making-", dir=self._directory))
        try:
            command = [sys.executable, "-m", "skyhop_testbed.web.figure", str(aside)]
            environment = {**os.environ, "POLARS_MAX_THREADS": "1", "MPLBACKEND": "Agg"}
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                timeout=self._timeout_s,
                env=environment,
                check=False,
            )
            if done.returncode or not any(aside.iterdir()):
                raise RunError("the figure could not be drawn")
            if (aside / FAILED).exists():
                self._touch(aside / FAILED)
            aside.replace(place)
        except subprocess.TimeoutExpired:
            raise RunError(
                "the figure took too long to draw: choose a shorter time range"
            ) from None
        except OSError as error:
            raise RunError(f"the figure could not be drawn: {error.strerror}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _tidy(self) -> None:
        """Delete the least recently used drawings beyond the limits on number and size."""
        found = [place for place in self._directory.iterdir() if place.name != marks.NAME]
        kept = sorted(found, key=lambda place: -place.stat().st_mtime)
        size = 0
        for number, place in enumerate(kept):
            size += sum(file.stat().st_size for file in place.iterdir() if file.is_file())
            if number >= _MOST_DRAWINGS or size > _MOST_BYTES:
                shutil.rmtree(place, ignore_errors=True)

    def _touch(self, path: Path) -> None:
        """Set the modification time to now: the time of the failure or of the last access."""
        now_ns = self._clock.now_ns()
        os.utime(path, ns=(now_ns, now_ns))

    def _is_cached(self, place: Path) -> bool:
        try:
            failed_ns = (place / FAILED).stat().st_mtime_ns
        except OSError:
            return place.is_dir()
        return self._clock.now_ns() - failed_ns < _FAILURE_LIFETIME_S * 1e9
