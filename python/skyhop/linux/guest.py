"""What runs inside a guest: the live engine, over the scenario that it was handed.

Its only argument is the job's directory, which holds `job.json`; the run comes to `run` there, and
`outcome.json` says what became of it. Progress goes to standard output, a line each, where no
program prints there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from skyhop.linux.job import JOB, OUTCOME, PROGRESS, RUN


def main(directory: Path) -> None:
    """Do the job, and say what became of it."""
    job: dict[str, Any] = json.loads((directory / JOB).read_text("utf-8"))
    outcome: dict[str, Any]
    try:
        os.chdir(job["working_directory"])
        outcome = {"error": None, "status": _run(job, directory / RUN)}
    except Exception as error:  # whoever started the guest tells it the user
        outcome = {"error": type(error).__name__, "message": str(error)}
    staged = directory / f".{OUTCOME}"
    staged.write_text(json.dumps(outcome), "utf-8")
    staged.rename(directory / OUTCOME)


def _run(job: dict[str, Any], directory: Path) -> int | None:
    """Run the scenario into a directory; return the program's exit status, None without one."""
    from skyhop import _core
    from skyhop.data.progress import ignore_progress
    from skyhop.engines import run_aside
    from skyhop.linux.modules import put_into_kernel

    put_into_kernel(job["modules"])
    scenario = _core.Scenario.from_json(job["scenario"], job["origin"], [])
    # The output is a program's alone, which may end in the middle of a line.
    progress = _tell if job["options"]["client"] is None else ignore_progress
    return run_aside("live", scenario, directory, options=job["options"], progress=progress)


def _tell(done: int, total: int) -> None:
    print(PROGRESS, done, total, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
