"""Updates of the agent: releases that its owner allows, from download to the switch.

A release goes through these steps: its signed list is fetched and verified with the owner's key,
its wheels are downloaded, it is installed next to the present version, and when no run is active
the agent chooses it and ends. The launcher starts it on trial. Once the orchestrator has its
report of health, the agent confirms it. If it goes back without a report, this version finds out
whether the orchestrator can be reached, and tries the release again later. Each step leaves a
version that can be started, and can be repeated.
"""

from __future__ import annotations

import logging
import platform
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.tags import Tag, sys_tags
from packaging.version import InvalidVersion, Version

from skyhop.data.marks import Mark
from skyhop.errors import RunError
from skyhop.version import __version__
from skyhop_testbed.agent.agent_db import Durability
from skyhop_testbed.agent.due_times import DueTimes
from skyhop_testbed.agent.installing import Installer, InstallError, VenvInstaller
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.settings import Allowed, Update
from skyhop_testbed.free_space import shortage
from skyhop_testbed.launcher import (
    COMPLETE,
    DIRECTORY,
    Choice,
    Launched,
    is_complete,
    read_choice,
    write_choice,
)
from skyhop_testbed.releases import (
    FILE,
    LARGEST_FILE,
    Release,
    ReleaseError,
    SignedRelease,
    Wheel,
    sha256_of,
)
from skyhop_testbed.words import State, UpdateState

if TYPE_CHECKING:
    from skyhop_testbed.agent.reports import UpdateHealth

_LOG = logging.getLogger(__name__)
_S = 1_000_000_000
_EVERY_S, _REFUSED_S, _UNFIT_S = 60.0, 3600.0, 86_400.0
"""Time in s until the next attempt: after a wait, after a refusal, after a failed installation."""
_QUIET_NS = 30 * _S
"""Time before a run's start in which the agent does not restart."""
_PROOF_S = 300.0
"""Time in s from this agent's start in which a report proves that the orchestrator could be reached
while the release before it was on trial."""
_TRY_AGAIN_S = 3600.0
"""Shortest time in s from this agent's start to another trial of a release that went back."""
_UPLOAD_PATIENCE_S = 6 * 3600.0
"""Time in s for which uploads delay a release that is installed; they go on after the restart."""
_NEEDS_LAUNCHER = (
    "self-update needs the layout of install-node.sh, with skyhop_testbed.launcher as the "
    "service's program: install the node with it"
)
_WHEELS = "wheels"
_HIGHEST = "update:highest"
"""Name under which the database keeps the highest version that a valid release had."""
_MARK = Mark("releases of skyhop, which the agent removes when they are not needed")
_QUIET = (UpdateState.CURRENT, UpdateState.NOT_ALLOWED, UpdateState.WAITING, UpdateState.LOADING)
"""States whose beginning is no line of the log."""


class _NotNowError(Exception):
    """The release cannot go on: its state, the reason, and the time in s until the next attempt."""

    def __init__(self, state: UpdateState, why: str, again_s: float = _EVERY_S) -> None:
        super().__init__(why)
        self.state, self.again_s = state, again_s


class Updater:
    """The agent's part of self-updates.

    Args:
        node: this node.
        runs: its runs, which delay the switch.
        settings: what the owner allows.
        report: function that reports the node's health soon.
        launched: what the launcher has told; `None` if no launcher has started this agent.
        installer: way to install a release; by default a virtual environment.
        version: version of this agent; by default that of the package.
        tags: tags of the wheels that fit this machine, best first.
    """

    def __init__(
        self,
        node: Node,
        runs: LocalRuns,
        settings: Update,
        report: Callable[[], None],
        *,
        launched: Launched | None,
        installer: Installer | None = None,
        version: str | None = None,
        tags: Callable[[], Sequence[Tag]] = lambda: [*sys_tags()],
    ) -> None:
        self._node, self._runs, self._settings, self._report = node, runs, settings, report
        self._launched, self._version, self._tags = launched, Version(version or __version__), tags
        self._releases = node.state / DIRECTORY
        python = launched.python if launched else ""
        self._installer = installer or VenvInstaller(python, node.closing.is_set)
        self._choice = read_choice(self._releases) if launched else Choice()
        self._due, self._began_s = DueTimes(node.clock), node.clock.monotonic_s()
        self._thread: threading.Thread | None = None
        self._wanted, self._state, self._why = "", UpdateState.CURRENT, ""
        self._again_s = 0.0
        self._ready = ""
        """Release that is installed and verified in this process; "" if none is."""
        self._ready_s = 0.0
        if launched is None and settings.allowed is not Allowed.NONE:
            node.say(_NEEDS_LAUNCHER)

    @property
    def health(self) -> UpdateHealth | None:
        """State of the published release on this node, for the report of health."""
        if not self._wanted and not self._is_trial:
            return None
        release = self._choice.current if self._is_trial else self._wanted
        return {"release": release, "state": self._state.value, "why": self._why}

    @property
    def _is_trial(self) -> bool:
        launched, choice = self._launched, self._choice
        return launched is not None and choice.is_trial and choice.current == launched.version != ""

    def do_due(self) -> None:
        """Do, or start, the next step; called by the main loop."""
        if self._is_trial:
            self._end_trial()
            return
        if self._choice.suspect:
            self._judge_suspect()
        wanted = self._node.schedule.settings.release
        if wanted != self._wanted:
            self._wanted, self._ready, self._again_s = wanted, "", 0.0
            self._due.set_due("attempt")
        if not wanted or not self._due.is_due("attempt", 1.0):
            return
        if self._ready == wanted:
            self._switch_if_free(wanted)
        elif self._node.clock.monotonic_s() >= self._again_s and not self._is_working():
            self._thread = threading.Thread(
                target=self._node.guarded,
                args=("update", lambda: self.prepare(wanted)),
                name="update",
                daemon=True,
            )
            self._thread.start()

    def _is_working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def close(self, seconds: float) -> None:
        """Wait for the end of the present step, which notices that the agent ends."""
        if self._thread is not None:
            self._thread.join(seconds)

    # --- download and installation, in a thread of its own ---

    def prepare(self, wanted: str) -> None:
        """Download, verify and install a release, as far as that is possible now."""
        again_s = _EVERY_S
        try:
            self._prepare(wanted)
        except _NotNowError as stop:
            self._tell(stop.state, str(stop))
            again_s = stop.again_s
        except ReleaseError as error:
            self._tell(UpdateState.REFUSED, str(error))
            again_s = _REFUSED_S
        except InstallError as error:
            self._tell(UpdateState.REFUSED, f"release {wanted} was not installed: {error}")
            again_s = _UNFIT_S
        except RunError as error:
            self._tell(UpdateState.WAITING, str(error))
        except OSError as error:
            self._tell(UpdateState.WAITING, f"{error.filename}: {error.strerror}")
        self._again_s = self._node.clock.monotonic_s() + again_s

    def _prepare(self, wanted: str) -> None:
        key = self._check_owner(wanted)
        self._check_free()
        _MARK.make_own(self._releases, 0o755)
        content = self._fetched_list(wanted)
        release = SignedRelease.loads(content).verified(key)
        wheels = self._check(wanted, release)
        place = self._releases / wanted
        mark = content.decode()
        if not (is_complete(self._releases, wanted) and (place / COMPLETE).read_text() == mark):
            self._remove_others(wanted)
            self._check_room(wheels)
            files = [self._downloaded(wanted, wheel) for wheel in wheels]
            self._tell(UpdateState.LOADING, f"release {wanted} is being installed")
            # The mark goes first: a directory that is half removed is never started.
            (place / COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            self._installer.install(files, place, mark)
        shutil.rmtree(self._releases / _WHEELS, ignore_errors=True)
        self._ready_s, self._ready = self._node.clock.monotonic_s(), wanted
        self._tell(
            UpdateState.READY, f"release {wanted} is installed, and begins when no run is active"
        )

    def _check_owner(self, wanted: str) -> bytes:
        """Return the owner's key, if the owner and this installation allow the version.

        Raises:
            _NotNowError: they do not.
        """
        try:
            new = Version(wanted)
        except InvalidVersion:
            raise ReleaseError(f'"{wanted[:40]}" is no version of a release') from None
        if new <= self._version:
            why = f"it runs {self._version}"
            raise _NotNowError(UpdateState.CURRENT, why, _REFUSED_S)
        allowed, key = self._settings.allowed, self._settings.key
        if allowed is Allowed.NONE or key is None:
            why = "its owner allows no update: [update] in agent.toml"
            raise _NotNowError(UpdateState.NOT_ALLOWED, why, _REFUSED_S)
        if allowed is Allowed.PATCH and new.release[:2] != self._version.release[:2]:
            line = ".".join(str(each) for each in self._version.release[:2])
            why = f"its owner allows only patches of {line}, and {wanted} is more"
            raise _NotNowError(UpdateState.NOT_ALLOWED, why, _REFUSED_S)
        if self._launched is None:
            raise _NotNowError(UpdateState.UNSUPPORTED, _NEEDS_LAUNCHER, _REFUSED_S)
        if wanted in self._choice.failed:
            why = f"release {wanted} was tried, and {self._choice.failed[wanted]}"
            raise _NotNowError(UpdateState.FAILED, why, _REFUSED_S)
        self._check_went_back(wanted)
        return key

    def _check_went_back(self, wanted: str) -> None:
        """Check that a release may be tried, if it went back in an earlier trial.

        Raises:
            _NotNowError: it has to wait.
        """
        if wanted not in self._choice.silent:
            return
        pause_s = _TRY_AGAIN_S * max(1, self._choice.silent[wanted]) ** 2
        left_s = self._began_s + pause_s - self._node.clock.monotonic_s()
        why = f"release {wanted} did not reach the orchestrator in its trial"
        if self._choice.suspect == wanted:
            raise _NotNowError(UpdateState.WENT_BACK, f"{why}, and went back")
        if left_s > 0:
            why += f": it is tried again in {left_s / 60:.0f} min"
            raise _NotNowError(UpdateState.WENT_BACK, why, left_s)

    def _check_free(self) -> None:
        """Check that the link may be used now.

        Raises:
            _NotNowError: the owner uses it, the month's data are used up, or the agent ends.
        """
        why = self._node.allowance.held_back()
        if why is None and not self._node.link.is_connected:
            why = "the orchestrator does not answer"
        if why is None and self._node.closing.is_set():
            why = "the agent ends"
        if why is not None:
            raise _NotNowError(UpdateState.WAITING, why)

    def _fetched_list(self, wanted: str) -> bytes:
        """Return the signed list of a release, from its beginning."""
        file = self._releases / FILE
        file.unlink(missing_ok=True)
        self._node.link.fetch_release(wanted, FILE, file, LARGEST_FILE, self._check_free)
        return file.read_bytes()

    def _check(self, wanted: str, release: Release) -> list[Wheel]:
        """Check that a signed release is wanted, newer than all before, and fits this machine.

        Returns:
            its wheels for this machine.

        Raises:
            ReleaseError: it is not, or does not.
            RunError: the database cannot be written.
        """
        if release.version != wanted:
            raise ReleaseError(f"release {wanted} is offered, but {release.version} was signed")
        highest = self._node.db.get(_HIGHEST) or "0"
        if Version(wanted) < Version(highest):
            raise ReleaseError(
                f"release {wanted} is older than {highest}, which this node has seen: sign a "
                "higher version"
            )
        python = platform.python_version()
        if not release.allows_python(python):
            raise ReleaseError(
                f"release {wanted} needs Python {release.requires_python}, and this node has "
                f"{python}"
            )
        peer = self._node.link.wire.peer
        if (
            not release.lowest_protocol <= peer.highest
            or not peer.lowest <= release.highest_protocol
        ):
            raise ReleaseError(
                f"release {wanted} speaks protocols {release.lowest_protocol} to "
                f"{release.highest_protocol}, and the orchestrator {peer.lowest} to {peer.highest}"
            )
        wheels = release.wheels_for(self._tags())
        if highest != wanted and not self._node.db.put(_HIGHEST, wanted, Durability.SYNCED):
            raise RunError("the node's database cannot be written")
        return wheels

    def _check_room(self, wheels: Sequence[Wheel]) -> None:
        """Check that disk and month have room for the wheels.

        Raises:
            _NotNowError: they do not.
        """
        node, total = self._node, sum(each.size for each in wheels)
        here = sum(min(each.size, self._here(each)) for each in wheels)
        left = node.allowance.left_bytes()
        if left is not None and total - here > left:
            why = f"the release needs {total - here:,} bytes, and {left:,} are left in this month"
            raise _NotNowError(UpdateState.WAITING, why, _REFUSED_S)
        needed = total - here + self._installer.needed_bytes(total)
        space, floor = node.space_of(node.state), node.policy.free_floor_bytes
        full = shortage(space, round(floor), "the node's disk", needed)
        if full is not None:
            raise _NotNowError(UpdateState.WAITING, full, _REFUSED_S)

    def _here(self, wheel: Wheel) -> int:
        file = self._file_of(wheel)
        return file.stat().st_size if file.is_file() else 0

    def _file_of(self, wheel: Wheel) -> Path:
        """Return the place of a wheel; a wheel of the same name that differs has another."""
        return self._releases / _WHEELS / wheel.sha256 / wheel.name

    def _downloaded(self, wanted: str, wheel: Wheel) -> Path:
        """Return a wheel's file, after the missing part is downloaded.

        Raises:
            _NotNowError: it is not the wheel that was signed, and is deleted; or the link is busy.
            RunError: the download is incomplete, and goes on later.
        """
        file = self._file_of(wheel)
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if self._here(wheel) < wheel.size:
            done, total = self._here(wheel), wheel.size
            self._tell(UpdateState.LOADING, f"{wheel.name}: {done:,} of {total:,} bytes are here")
            self._node.link.fetch_release(wanted, wheel.name, file, wheel.size, self._check_free)
        if self._here(wheel) < wheel.size:
            raise RunError(f"{wheel.name}: the download ended early, and goes on later")
        if self._here(wheel) != wheel.size or sha256_of(file) != wheel.sha256:
            file.unlink()
            # Each attempt costs the owner's data.
            why = f"{wheel.name}: is not the wheel that was signed"
            raise _NotNowError(UpdateState.REFUSED, why, _UNFIT_S)
        return file

    def _remove_others(self, *kept: str) -> None:
        """Remove all releases except the present, the former and those named."""
        if not _MARK.is_on(self._releases):
            return
        wanted = {*kept, self._choice.current, self._choice.former, _WHEELS}
        for other in self._releases.iterdir():
            if other.is_dir() and not other.is_symlink() and other.name not in wanted:
                with suppress(OSError):
                    (other / COMPLETE).unlink(missing_ok=True)
                shutil.rmtree(other, ignore_errors=True)

    # --- switch and trial, in the main loop ---

    def _switch_if_free(self, wanted: str) -> None:
        why = self._why_busy()
        if why is not None:
            self._tell(UpdateState.READY, f"release {wanted} is installed, and waits for {why}")
            return
        assert self._launched is not None
        choice = self._choice.switched(wanted, self._launched.version, self._launched.base)
        if self._store(choice, UpdateState.WAITING):
            said = f"release {wanted} takes the place of {self._version}: the agent restarts"
            self._restart(said)

    def _restart(self, said: str) -> None:
        self._node.say(said)
        self._node.restarts = True
        self._node.closing.set()

    def _store(self, choice: Choice, state: UpdateState) -> bool:
        """Replace the choice, and return whether it is on the disk; if not, report a state."""
        try:
            write_choice(self._releases, choice)
        except OSError as error:
            self._tell(state, f"{error.filename}: {error.strerror}")
            return False
        self._choice = choice
        return True

    def _judge_suspect(self) -> None:
        """Decide, by this agent's own connection, whether a trial without a report counts."""
        is_reachable = self._node.link.has_reported_health
        if not is_reachable and self._node.clock.monotonic_s() - self._began_s < _PROOF_S:
            return
        version = self._choice.suspect
        if self._store(self._choice.judged(is_reachable=is_reachable), UpdateState.WENT_BACK):
            self._due.set_due("attempt")
            self._again_s = 0.0
            counts = "counts" if is_reachable else "says nothing: the orchestrator does not answer"
            self._node.say(f"the trial of release {version} {counts}")

    def _why_busy(self) -> str | None:
        """Return what a restart would disturb now, as text; `None` if nothing."""
        node = self._node
        for local_run in self._runs:
            if self._runs.runner(local_run.key) is None:
                continue
            is_upload = local_run.state is State.FINISHING
            waited_s = node.clock.monotonic_s() - self._ready_s
            if not is_upload or waited_s < _UPLOAD_PATIENCE_S:
                return f"{'the upload of run' if is_upload else 'run'} {local_run.run}"
        now_ns = node.clock.now_ns()
        for planned in node.schedule.planned:
            if now_ns <= planned.start_ns < now_ns + _QUIET_NS:
                return f"run {planned.run}, which is about to begin"
        return None

    def _end_trial(self) -> None:
        """Confirm the present release once the orchestrator has its report of health."""
        version = self._choice.current
        if Version(version) != self._version:
            why = f"it says that it is {self._version}"
            if self._store(self._choice.rolled_back(why), UpdateState.TRIAL):
                self._restart(f"release {version} goes back: {why}")
            return
        self._tell(UpdateState.TRIAL, f"release {version} is on trial")
        if not self._node.link.has_reported_health:
            return
        if not self._store(self._choice.confirmed(), UpdateState.TRIAL):
            return
        self._remove_others()
        self._node.say(f"release {version} works: it stays")
        self._wanted, self._state, self._why = version, UpdateState.CURRENT, f"it runs {version}"
        self._report()

    def _tell(self, state: UpdateState, why: str) -> None:
        """Note the state of the release; log and report it if it has changed."""
        if (state, why) == (self._state, self._why):
            return
        is_new, self._state, self._why = state != self._state, state, why
        (_LOG.info if state in _QUIET else self._node.say)(f"update: {why}")
        if is_new or state not in (UpdateState.LOADING, UpdateState.WAITING):
            self._report()
