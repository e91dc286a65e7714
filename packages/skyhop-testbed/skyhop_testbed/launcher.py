"""Launcher of a node's agent: starts the chosen version, and leaves a new version that fails.

The service of a node starts the launcher of the base installation, which `install-node.sh` makes
and the agent cannot write. The agent puts other versions, the releases, into `STATE/releases`, each
a virtual environment of its own, and chooses one in the file `choice.json` there. The file is
replaced atomically and holds all that has to change together: current and former version, the trial
of a new version, and versions that have failed. A version is on trial until its agent has
reported to the orchestrator. If it ends `MOST_STARTS` times before, or takes longer than `TRIAL_S`,
the launcher chooses the former version again.

A version that ends by itself has failed. A version that runs without a report may only have met an
outage: the former version finds out by its own connection, and the trial is repeated later. After
`MOST_SILENT` trials during which the orchestrator could be reached, that version has failed too.

Self-updates never change the launcher, and it starts later versions than its own. The names below
and the form of the file therefore stay as they are, and the module needs only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path

DIRECTORY, FILE, LINK, COMPLETE = "releases", "choice.json", "current", ".complete"
"""Directory of the releases in the agent's directory, the file of the choice there, a link to the
current release for people, and the last file that an installation writes into its release."""
VARIABLE = "SKYHOP_LAUNCHER"
"""Environment variable by which the launcher describes itself to the agent (`Launched`)."""
MOST_STARTS, TRIAL_S = 3, 1800.0
"""Starts of a version on trial, and time in s that each may take until the orchestrator has its
report."""
MOST_SILENT = 3
"""Trials without a report, while the orchestrator could be reached, until a version has failed.
"""
RESTART_STATUS = 75
"""Exit status (EX_TEMPFAIL) upon which the service is started again."""
_EVERY_S, _GRACE_S = 5.0, 30.0
_NAME = re.compile("[0-9A-Za-z][0-9A-Za-z.!+]{0,60}")
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Choice:
    """Version to start; "" as a version is the base installation."""

    current: str = ""
    former: str = ""
    """Version before the current one, to which a failed trial returns."""
    base: str = ""
    """Base installation when the current version was chosen (`base_of`); another base ends the
    choice, because the owner has installed it since."""
    is_trial: bool = False
    starts: int = 0
    """Starts of the current version in its trial."""
    failed: dict[str, str] = field(default_factory=dict)
    """Versions that are never tried again, with the reason of each."""
    suspect: str = ""
    """Version whose trial has ended without a report, as long as the former version does not know
    whether the orchestrator could be reached; "" if there is none."""
    silent: dict[str, int] = field(default_factory=dict)
    """Versions whose trial has ended without a report, with the number of their trials in which the
    orchestrator could be reached."""

    def switched(self, version: str, former: str, base: str) -> Choice:
        """Return the choice of a new version, on trial, which may return to the `former` one."""
        return replace(self, current=version, former=former, base=base, is_trial=True, starts=0)

    def confirmed(self) -> Choice:
        """Return the choice after a trial that has succeeded."""
        silent = {each: count for each, count in self.silent.items() if each != self.current}
        return replace(self, is_trial=False, starts=0, silent=silent)

    def rolled_back(self, why: str) -> Choice:
        """Return the choice of the former version, after the current one has failed."""
        failed = {**self.failed, self.current: why}
        return replace(
            self, current=self.former, former="", is_trial=False, starts=0, failed=failed
        )

    def gone_back(self) -> Choice:
        """Return the choice of the former version, after a trial without a report.

        Whether the current version has failed is open (`judged`).
        """
        return replace(
            self,
            current=self.former,
            former="",
            is_trial=False,
            starts=0,
            suspect=self.current,
            silent={self.current: 0, **self.silent},
        )

    def judged(self, *, is_reachable: bool) -> Choice:
        """Return the choice once the former version knows what the suspect could have reached.

        Args:
            is_reachable: whether the former version has reached the orchestrator soon after its
                start. If it has not, the trial says nothing about the suspect.
        """
        version, known = self.suspect, replace(self, suspect="")
        if not is_reachable:
            return known
        count = self.silent.get(version, 0) + 1
        failed = self.failed
        if count >= MOST_SILENT:
            failed = {**failed, version: f"it did not reach the orchestrator in {count} trials"}
        return replace(known, silent={**self.silent, version: count}, failed=failed)


@dataclass(frozen=True)
class Launched:
    """Launcher of an agent, as the agent knows it from its environment."""

    releases: str
    """Directory of the releases."""
    python: str
    """Interpreter of the base installation, which has pip."""
    base: str
    version: str
    """Release that was started; "" for the base installation."""

    @classmethod
    def of_environment(cls) -> Launched | None:
        """Return the description in this process's environment; `None` without a launcher."""
        try:
            return cls(**{key: str(each) for key, each in json.loads(os.environ[VARIABLE]).items()})
        except (KeyError, ValueError, TypeError, AttributeError):
            return None


def read_choice(releases: Path) -> Choice:
    """Return the choice in a directory of releases; a missing or damaged one is the base."""
    try:
        values = json.loads((releases / FILE).read_bytes())
        known = {key: values[key] for key in asdict(Choice()) if key in values}
        if any(type(each) is not type(getattr(Choice(), key)) for key, each in known.items()):
            return Choice()
        if any(type(each) is not int for each in known.get("silent", {}).values()):
            return Choice()
        return Choice(**known)
    except (OSError, ValueError, TypeError):
        return Choice()


def write_choice(releases: Path, choice: Choice) -> None:
    """Replace the choice: after a power failure the file has the old or the new one.

    Raises:
        OSError: the file cannot be written.
    """
    aside = releases / f"{FILE}.new"
    with aside.open("w", encoding="utf-8") as stream:
        json.dump(asdict(choice), stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(releases / FILE)
    directory = os.open(releases, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def is_complete(releases: Path, version: str) -> bool:
    """Return whether a release can be started: its installation was finished."""
    place = releases / version
    is_named = bool(_NAME.fullmatch(version)) and version not in (FILE, LINK)
    return is_named and (place / COMPLETE).is_file() and program_of(place).is_file()


def program_of(place: Path) -> Path:
    """Return the command `skyhop` of a virtual environment."""
    return place / "bin" / "skyhop"


def base_of(prefix: str) -> str:
    """Return what identifies the base installation at a prefix: its real path and its version."""
    try:
        version = metadata.version("skyhop-testbed")
    except metadata.PackageNotFoundError:
        version = ""
    return f"{os.path.realpath(prefix)} {version}"


def choice_to_start(choice: Choice, base: str, is_whole: Callable[[str], bool]) -> Choice:
    """Return the choice of the version to start now, with this start counted.

    Args:
        choice: the stored choice.
        base: the present base installation.
        is_whole: function that tells whether a release can be started.
    """
    if choice.current and choice.base != base:
        # The owner has installed another base by hand since.
        return Choice(failed=choice.failed, silent=choice.silent)
    if choice.is_trial and choice.starts >= MOST_STARTS:
        choice = choice.rolled_back(f"it ended {choice.starts} times before it had reported")
    if choice.current and not is_whole(choice.current):
        choice = choice.rolled_back("its files are incomplete")
        if choice.current and not is_whole(choice.current):
            choice = replace(choice, current="")
    return replace(choice, starts=choice.starts + 1) if choice.is_trial else choice


def prepared(releases: Path, base: str) -> Choice:
    """Return the choice to start, after its starts are counted on the disk."""
    stored = read_choice(releases)
    choice = choice_to_start(stored, base, lambda version: is_complete(releases, version))
    if choice != stored:
        try:
            write_choice(releases, choice)
        except OSError as error:
            _say(f"{releases / FILE}: {error.strerror}")
            if choice.is_trial:
                # A start that is not counted could repeat for ever.
                choice = choice.rolled_back("")
    return choice


def _link(releases: Path, version: str) -> None:
    """Let the link `current` name the version in use; people read it, the launcher does not."""
    with contextlib.suppress(OSError):
        link, aside = releases / LINK, releases / f"{LINK}.new"
        if not version:
            link.unlink(missing_ok=True)
        elif not link.is_symlink() or str(link.readlink()) != version:
            aside.unlink(missing_ok=True)
            aside.symlink_to(version)
            aside.replace(link)


def _state_of(arguments: Sequence[str]) -> Path:
    """Return the agent's directory among the arguments of `skyhop testbed agent`."""
    for place, each in enumerate(arguments):
        if each == "--state" and place + 1 < len(arguments):
            return Path(arguments[place + 1]).absolute()
        if each.startswith("--state="):
            return Path(each.removeprefix("--state=")).absolute()
    return Path("agent").absolute()


def main(arguments: Sequence[str], trial_s: float = TRIAL_S) -> int:
    """Start the agent of the chosen version in this process, or in a child while it is on trial."""
    releases, base = _state_of(arguments) / DIRECTORY, base_of(sys.prefix)
    choice = prepared(releases, base)
    _link(releases, choice.current)
    place = releases / choice.current if choice.current else Path(sys.prefix)
    command = [str(program_of(place)), "testbed", "agent", *arguments]
    launched = Launched(str(releases), sys.executable, base, choice.current)
    environment = {**os.environ, VARIABLE: json.dumps(asdict(launched))}
    if not choice.is_trial:
        os.execve(command[0], command, environment)
    _say(f"release {choice.current} is on trial, start {choice.starts} of {MOST_STARTS}")
    try:
        # The launcher has a single thread.
        child = subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent)  # noqa: PLW1509
    except OSError as error:
        write_choice(releases, choice.rolled_back(f"it cannot be started: {error.strerror}"))
        return RESTART_STATUS
    return _watched(child, releases, choice, trial_s)


def _end_with_parent() -> None:
    """Have the kernel end this process with the launcher: two agents would fight for the lock."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _watched(child: subprocess.Popen[bytes], releases: Path, choice: Choice, trial_s: float) -> int:
    """Wait for the agent's end; end it when its trial takes too long. Return the exit status."""
    signals: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        signals.append(number)
        child.send_signal(number)

    for each in _SIGNALS:
        signal.signal(each, pass_on)
    end_s = time.monotonic() + trial_s
    while _is_on_trial(releases, choice) and not signals and time.monotonic() < end_s:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(min(_EVERY_S, max(0.05, end_s - time.monotonic())))
            break
    if child.poll() is None and not signals and _is_on_trial(releases, choice):
        _stop(child)
        _say(f"release {choice.current} has not reported after {trial_s / 60:g} min: it goes back")
        write_choice(releases, choice.gone_back())
        return RESTART_STATUS
    status = child.wait()
    if signals and _is_on_trial(releases, choice):
        # The service was stopped: the version has not failed.
        write_choice(releases, replace(choice, starts=choice.starts - 1))
    return status if status >= 0 else 128 - status


def _is_on_trial(releases: Path, choice: Choice) -> bool:
    present = read_choice(releases)
    return present.is_trial and present.current == choice.current


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _say(line: str) -> None:
    print(f"skyhop launcher: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
