"""`python -m skyhop_testbed.executor RUNDIR`: execute the run of a directory."""

from __future__ import annotations

import sys
from pathlib import Path

from skyhop import logs
from skyhop.errors import InputError, SkyhopError
from skyhop_testbed.clock import SYSTEM_CLOCK
from skyhop_testbed.executor.execution import execute


def main(arguments: list[str]) -> int:
    """Execute the run in a directory.

    Return 0 if the directory then holds a result, good or bad.
    """
    try:
        logs.configure()
        if len(arguments) != 1:
            raise InputError("expected one argument: the directory of a run")
        execute(Path(arguments[0]), SYSTEM_CLOCK)
    except SkyhopError as error:
        print(f"executor: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
