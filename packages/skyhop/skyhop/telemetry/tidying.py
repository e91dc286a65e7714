"""Folding of a store's journals in a separate process, whose memory is freed when it exits.

Services that store telemetry only append lines to journals, which needs little memory. `python -m
skyhop.telemetry.tidying DIR` writes the Parquet files, which takes a second per terminal every two
hours.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from skyhop.errors import RunError, SkyhopError
from skyhop.telemetry.store import Store

_LONGEST_S = 600.0


def tidy_in_subprocess(directory: Path) -> None:
    """Fold all due journals of a store in a subprocess; block until it ends.

    Raises:
        RunError: a journal could not be folded; it is kept, and the next call tries again.
    """
    command = [sys.executable, "-m", "skyhop.telemetry.tidying", str(directory)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{directory}: cannot tidy up: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise RunError(f"{directory}: cannot tidy up: {lines[-1]}")


if __name__ == "__main__":
    try:
        Store(Path(sys.argv[1])).tidy(time.time_ns())
    except SkyhopError as error:
        sys.exit(str(error))
