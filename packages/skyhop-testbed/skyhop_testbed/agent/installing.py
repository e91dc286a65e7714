"""Installation of a release next to the present version, without a network.

A release gets a virtual environment of its own, made by the interpreter of the base installation.
It begins with a copy of the present packages, so that a release brings only the wheels that have
changed: files are hard links where the file system allows that. pip then installs the release's
wheels without looking for others, and checks that all requirements are met. The file `COMPLETE` is
written last, when everything else is on the disk: a directory without it is never started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from skyhop.errors import RunError
from skyhop_testbed.executor.limits import size_of
from skyhop_testbed.launcher import COMPLETE, program_of

_LONGEST_S, _EVERY_S = 1800.0, 0.5
_UNPACKED = 4
"""Upper limit on the size of installed files, as a multiple of their wheels' size."""
_SAID_CHARACTERS = 200


class InstallError(RunError):
    """A release cannot be installed; another attempt would end in the same way."""


class Installer(Protocol):
    """Way to install a release."""

    def needed_bytes(self, wheels_bytes: int) -> int:
        """Return an upper limit on the disk space that an installation takes."""

    def install(self, wheels: Sequence[Path], place: Path, mark: str) -> None:
        """Install wheels at a place that does not exist; write `mark` to `COMPLETE` at the end.

        Raises:
            InstallError: the wheels do not work here.
            RunError: the installation was interrupted, or failed for now.
            OSError: a file cannot be written.
        """


class VenvInstaller:
    """Installation into a virtual environment.

    Args:
        python: interpreter of the base installation, which has pip.
        stopped: function that tells whether the installation is to be given up.
        packages: directory of the packages to begin with; by default this process's.
    """

    def __init__(
        self, python: str, stopped: Callable[[], bool], packages: Path | None = None
    ) -> None:
        self._python, self._stopped = python, stopped
        self._packages = packages or Path(sysconfig.get_path("purelib"))

    def needed_bytes(self, wheels_bytes: int) -> int:
        """Return an upper limit on the disk space that an installation takes."""
        return size_of(self._packages)[0] + _UNPACKED * wheels_bytes

    def install(self, wheels: Sequence[Path], place: Path, mark: str) -> None:
        """Install wheels at a place that does not exist; write `mark` to `COMPLETE` at the end."""
        self._run("make an environment", "-m", "venv", "--without-pip", str(place))
        (packages,) = place.glob("lib/python*/site-packages")
        shutil.copytree(
            self._packages, packages, symlinks=True, copy_function=_link, dirs_exist_ok=True
        )
        pip = ["-I", "-m", "pip", "--python", str(place / "bin" / "python")]
        without = ["--no-index", "--no-deps", "--no-input", "--quiet"]
        self._run("install", *pip, "install", *without, *map(str, wheels))
        self._run("meet its requirements", *pip, "check")
        self._run("start", program=program_of(place))
        _finish(place, mark)

    def _run(self, what: str, *arguments: str, program: Path | None = None) -> None:
        """Run a command with low priority.

        Raises:
            InstallError: the command fails.
            RunError: the agent ends meanwhile, or the command takes too long.
        """
        command = [str(program), "testbed", "--help"] if program else [self._python, *arguments]
        own = {name: each for name, each in os.environ.items() if not name.startswith("PYTHON")}
        own |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                ["nice", *command],
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                status = self._wait(child)
            finally:
                child.kill()
                child.wait()
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines()
        if status:
            said = lines[-1][:_SAID_CHARACTERS] if lines else f"status {status}"
            raise InstallError(f"it does not {what}: {said}")

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        end_s = time.monotonic() + _LONGEST_S
        while not self._stopped() and time.monotonic() < end_s:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(_EVERY_S)
        raise RunError("the installation was interrupted: it begins again later")


def _link(source: str, target: str) -> None:
    """Make a hard link to a file, or a copy if the system does not allow the link."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _finish(place: Path, mark: str) -> None:
    """Have the system write all files to the disk, and then the mark of a complete release."""
    place.chmod(0o755)
    os.sync()
    with (place / COMPLETE).open("w", encoding="utf-8") as stream:
        stream.write(mark)
        stream.flush()
        os.fsync(stream.fileno())
