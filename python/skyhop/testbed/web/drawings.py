"""Figures, series and reports: made by processes of their own, one at a time, and kept.

matplotlib and polars would take of the orchestrator's memory for good what one figure needs for a
second. A maker is told on its standard input what to make, and writes files into a directory of
its own; it may not take more than so much memory and time. What was made is found again by a digest
of what was asked for.
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
from typing import Any

from skyhop.errors import InputError, RunError
from skyhop.testbed.clock import Clock

_PATIENCE_S = 60.0
_MOST_KEPT = 300
_MOST_KEPT_BYTES = 200_000_000
_FAILED_KEPT_S = 5.0
"""What there was nothing to draw of may have something to draw of soon."""
FAILED = "failed"
"""The file that says in one line why nothing was made."""


class Drawings:
    """What was drawn, in a directory of its own, which may be deleted at any time.

    Args:
        directory: where it is kept.
        telemetry: the store's directory, which makers read.
        clock: the time of a failure, and of the last look at a drawing.
        patience_s: how long a drawing may take, and how long a request waits for its turn.
    """

    def __init__(
        self, directory: Path, telemetry: Path, clock: Clock, patience_s: float = _PATIENCE_S
    ) -> None:
        self._directory, self._telemetry = directory, telemetry
        self._clock, self._patience_s = clock, patience_s
        self._one = threading.Semaphore(1)

    def made(self, kind: str, **asked: Any) -> Path:
        """Return the file of a figure, a series or a report; it is made if it is not there.

        Raises:
            InputError: what was asked for cannot be made: there are no such data.
            RunError: it took too long, or others are waited for.
        """
        asked = {"kind": kind, "telemetry": str(self._telemetry), **asked}
        text = json.dumps(asked, sort_keys=True)
        place = self._directory / hashlib.sha256(text.encode()).hexdigest()
        if not self._is_made(place):
            if not self._one.acquire(timeout=self._patience_s):
                raise RunError("others' figures are being drawn: try again in a minute")
            try:
                if not self._is_made(place):
                    shutil.rmtree(place, ignore_errors=True)
                    self._make(place, text)
            finally:
                self._one.release()
        failed = place / FAILED
        if failed.is_file():
            raise InputError(failed.read_text("utf-8"))
        self._touch(place)
        return next(iter(place.iterdir()))

    def _make(self, place: Path, text: str) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._tidy()
        aside = Path(tempfile.mkdtemp(prefix=".making-", dir=self._directory))
        try:
            command = [sys.executable, "-m", "skyhop.testbed.web.figure", str(aside)]
            environment = {**os.environ, "POLARS_MAX_THREADS": "1", "MPLBACKEND": "Agg"}
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                timeout=self._patience_s,
                env=environment,
                check=False,
            )
            if done.returncode or not any(aside.iterdir()):
                raise RunError("this could not be drawn")
            if (aside / FAILED).exists():
                self._touch(aside / FAILED)
            aside.replace(place)
        except subprocess.TimeoutExpired:
            raise RunError("this takes too long to draw: choose a shorter time") from None
        except OSError as error:
            raise RunError(f"this could not be drawn: {error.strerror}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _tidy(self) -> None:
        """Delete what nobody has looked at for longest, where there is too much."""
        kept = sorted(self._directory.iterdir(), key=lambda place: -place.stat().st_mtime)
        held = 0
        for number, place in enumerate(kept):
            held += sum(file.stat().st_size for file in place.iterdir() if file.is_file())
            if number >= _MOST_KEPT or held > _MOST_KEPT_BYTES:
                shutil.rmtree(place, ignore_errors=True)

    def _touch(self, path: Path) -> None:
        """Note on a file or directory that it was made or looked at now."""
        now_ns = self._clock.now_ns()
        os.utime(path, ns=(now_ns, now_ns))

    def _is_made(self, place: Path) -> bool:
        try:
            failed_ns = (place / FAILED).stat().st_mtime_ns
        except OSError:
            return place.is_dir()
        return self._clock.now_ns() - failed_ns < _FAILED_KEPT_S * 1e9
