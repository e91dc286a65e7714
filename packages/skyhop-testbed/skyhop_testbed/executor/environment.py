"""Command and environment of a run, built from scratch: no variable of the agent leaks in."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from skyhop_testbed import signals
from skyhop_testbed.executor.assignment import Assignment
from skyhop_testbed.packages import import_path
from skyhop_testbed.words import Side

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_START_SKYHOP = "from skyhop.cli import main; main()"
_OWN = ("SKYHOP_", "LD_", "PYTHON")


def command_of(assignment: Assignment, work: Path) -> list[str]:
    """Return program and arguments; write the text of a scenario or study into a file in `work`."""
    if assignment.command is not None:
        return filled_in(assignment.command, assignment)
    skyhop = [sys.executable, "-c", _START_SKYHOP]
    if assignment.scenario is not None:
        file = _source(assignment.scenario, work / "scenario.toml")
        return [*skyhop, assignment.engine, file, "-o", "run"]
    return [
        *skyhop,
        "study",
        "run",
        _source(assignment.study or "", work / "study.toml"),
        "-o",
        "study",
    ]


def filled_in(words: list[str], assignment: Assignment) -> list[str]:
    """Return a command with its placeholders, such as `{port}`, filled in.

    Unknown ones stay as they are.
    """
    values = {
        "server": assignment.server,
        "port": str(assignment.port),
        "node": assignment.node,
        "run": assignment.run,
        "job": assignment.job,
        # If the kernel service loads the congestion control, the sandbox fills in `cc` once the
        # service has chosen its name.
        **({} if assignment.kernel and assignment.kernel.cc else {"cc": assignment.cc}),
        "length_s": f"{assignment.length_s:g}",
    }
    return [_PLACEHOLDER.sub(lambda m: values.get(m[1], m[0]), word) for word in words]


def environment_of(assignment: Assignment, home: str) -> dict[str, str]:
    """Return the program's environment: skyhop's variables, LEOScope's, and the job's."""
    is_server = assignment.side is Side.SERVER
    job = {name: value for name, value in assignment.env.items() if not name.startswith(_OWN)}
    own = {
        "PATH": PATH,
        "HOME": home,
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "USER": "run",
        "SKYHOP_RUN": assignment.run,
        "SKYHOP_JOB": assignment.job,
        "SKYHOP_NODE": assignment.node,
        "SKYHOP_SIDE": assignment.side.value,
        "SKYHOP_SERVER": assignment.server,
        "SKYHOP_PORT": str(assignment.port),
        "SKYHOP_LENGTH_S": f"{assignment.length_s:g}",
        # LEOScope's images read these variables.
        "LEOTEST_SERVER": str(int(is_server)),
        "LEOTEST_RUNID": assignment.run,
        "LEOTEST_JOBID": assignment.job,
        "LEOTEST_NODEID": assignment.node,
        "LEOTEST_SERVERIP": assignment.server,
        "LEOTEST_SERVER_NODEID": assignment.server_node,
    }
    if assignment.signals is not None:
        own[signals.VARIABLE] = f"{signals.DIRECTORY}/{signals.SOCKET}"
    if assignment.command is None:
        own["PYTHONPATH"] = import_path()
        own["PYTHONDONTWRITEBYTECODE"] = "1"
    # A job may set PATH and LANG, but not HOME or the variables that identify the run.
    return {**own, **{name: value for name, value in job.items() if name != "HOME"}}


def _source(text: str, file: Path) -> str:
    """Return skyhop's argument for a scenario or study: a name, or a new file with the text."""
    if "\n" not in text and "=" not in text:
        return text
    file.write_text(text, encoding="utf-8")
    return file.name
