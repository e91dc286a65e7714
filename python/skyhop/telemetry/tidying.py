"""Folding a store's journals in a process of its own, which takes its memory with it when it ends.

A service that keeps telemetry appends lines, for which it needs nothing; files are written here:
`python -m skyhop.telemetry.tidying DIR`, a second for each terminal every two hours.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop.telemetry.store import Store

_LONGEST_S = 600.0


def tidy_apart(directory: Path) -> None:
    """Fold all journals of a store that are due, in another process; for a thread of a service.

    Raises:
        RunError: something could not be folded; its journal stays, and is tried the next time.
    """
    command = [sys.executable, "-m", "skyhop.telemetry.tidying", str(directory)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{directory}: cannot tidy up: {error}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise RunError(f"{directory}: cannot tidy up: {said[-1]}")


def main() -> None:
    """Tidy up the store that is named; what is damaged is said, and does not stop the rest."""
    store = Store(Path(sys.argv[1]))
    now_ns, failures = time.time_ns(), []
    for node in store.nodes():
        try:
            while store.tidy(now_ns, node):
                pass
        except (InputError, RunError) as error:
            failures.append(str(error))
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    try:
        main()
    except SkyhopError as error:
        sys.exit(str(error))
