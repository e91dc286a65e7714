"""Program that runs inside a guest: the live engine, with the scenario of a job.

Its only argument is the job's directory, which contains `job.json`. It writes the run to `run`
there, and its error or exit status to `outcome.json`. It prints progress to standard output, one
line each, unless a program of the user prints there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from skyhop.linux.job import JOB, OUTCOME, PROGRESS, RUN


def main(directory: Path) -> None:
    """Run the job, and write its outcome."""
    job: dict[str, Any] = json.loads((directory / JOB).read_text("utf-8"))
    outcome: dict[str, Any]
    try:
        os.chdir(job["working_directory"])
        outcome = {"error": None, "status": _run(job, directory / RUN)}
    except Exception as error:  # the process that booted the guest reports it to the user
        outcome = {"error": type(error).__name__, "message": str(error)}
    staged = directory / f".{OUTCOME}"
    staged.write_text(json.dumps(outcome), "utf-8")
    staged.rename(directory / OUTCOME)


def _run(job: dict[str, Any], directory: Path) -> int | None:
    """Run the scenario into a directory.

    Return the program's exit status, or `None` without one.
    """
    from skyhop import _core
    from skyhop.data.progress import ignore_progress
    from skyhop.engines import run_into
    from skyhop.linux.modules import load_modules

    load_modules(job["modules"])
    scenario = _core.Scenario.from_json(job["scenario"], job["origin"], [])
    # The user's program owns the output, and may end in the middle of a line.
    progress = _print_progress if job["options"]["client"] is None else ignore_progress
    return run_into("live", scenario, directory, options=job["options"], progress=progress)


def _print_progress(done: int, total: int) -> None:
    print(PROGRESS, done, total, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
