"""Updates of an agent: what is refused, what interrupts, and which version can be started then."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from node_here import ModuleWith, NodeHere
from release_wheels import Signer, contents
from testbed_fake_orchestrator import NODE
from testbed_harness import StandingClock

from skyhop.errors import InputError, RunError
from skyhop_testbed.agent import installing, updating
from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.agent.installing import InstallError
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.settings import Allowed, Update, read_settings
from skyhop_testbed.agent.updating import Updater
from skyhop_testbed.free_space import Space
from skyhop_testbed.launcher import (
    COMPLETE,
    DIRECTORY,
    MOST_SILENT,
    MOST_STARTS,
    Choice,
    Launched,
    is_complete,
    prepared,
    program_of,
    read_choice,
    write_choice,
)
from skyhop_testbed.protocol import Peer
from skyhop_testbed.releases import FILE, read_key
from skyhop_testbed.schedule import NodeSettings
from skyhop_testbed.words import ScavengerMode

BASE = "/opt/skyhop.1 1.0"
PIECE_BYTES = 200


class _Inline:
    """Thread that runs at once, in the caller's."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **_: object) -> None:
        self._call = lambda: target(*args)

    def start(self) -> None:
        self._call()

    def is_alive(self) -> bool:
        return False

    def join(self, _seconds: float) -> None:
        pass


class _Link:
    """Link that serves releases from memory, in pieces."""

    def __init__(self) -> None:
        self.wire = SimpleNamespace(peer=Peer("1.0", 1, 2))
        self.is_connected, self.has_reported_health = True, False
        self.files: dict[str, dict[str, bytes]] = {}
        self.asked: list[tuple[str, int]] = []
        self.ends_after: int | None = None
        """Bytes of a file after which a download ends early."""
        self.on_piece: Callable[[], None] = lambda: None

    def fetch_release(
        self, version: str, name: str, file: Path, most: int, check: Callable[[], None]
    ) -> None:
        offset = file.stat().st_size if file.exists() else 0
        self.asked.append((name, offset))
        if version not in self.files:
            raise RunError(f"{name}: not found")
        content = self.files[version][name][: self.ends_after]
        with file.open("ab") as stream:
            for begin in range(offset, len(content), PIECE_BYTES):
                self.on_piece()
                check()
                stream.write(content[begin : begin + PIECE_BYTES])
                if stream.tell() > most:
                    raise RunError(f"{name}: is longer than its announced size")


class _Installer:
    """Installer that writes some files in place of an environment."""

    def __init__(self) -> None:
        self.fault = ""

    def needed_bytes(self, wheels_bytes: int) -> int:
        return 2 * wheels_bytes

    def install(self, wheels: Sequence[Path], place: Path, mark: str) -> None:
        assert all(each.is_file() for each in wheels)
        place.mkdir()
        program_of(place).parent.mkdir()
        (place / "lib").write_text("x")
        if self.fault:
            raise InstallError(self.fault)
        program_of(place).write_text("x")
        installing._finish(place, mark)


class Site:
    """Node whose agent the test starts as the launcher would, in this process."""

    def __init__(self, place: Path) -> None:
        self.state = place / "state"
        self.state.mkdir(parents=True)
        self.clock = StandingClock()
        self.link, self.installer = _Link(), _Installer()
        self.said: list[str] = []
        self.allowed, self.key = Allowed.ANY, b""
        self.wanted = ""
        self.policy = Policy.of({}, ScavengerMode.AUTO)
        self.space = Space(10**12, 10**12)
        self.tags: Any = None
        self.reports = 0
        self._open: list[AgentDb] = []

    @property
    def releases(self) -> Path:
        """Directory of the releases, in the agent's directory."""
        return self.state / DIRECTORY

    def offers(self, directory: Path) -> None:
        """Publish a signed release to the node."""
        self.wanted = directory.name.removeprefix("wheels-")
        self.link.files[self.wanted] = contents(directory)

    def boot(self, *, has_launcher: bool = True) -> Updater:
        """Start the agent of the chosen version; check that the version can be started."""
        choice = prepared(self.releases, BASE) if has_launcher else Choice()
        if choice.current:
            assert is_complete(self.releases, choice.current)
            assert program_of(self.releases / choice.current).read_text() == "x"
        for each in self._open:
            each.close()
        db = AgentDb(self.state, self.clock.now_ns())
        self._open = [db]
        identity: Any = SimpleNamespace(node=NODE)
        link: Any = self.link
        clock: Any = self.clock
        self.node = Node(identity, self.state, db, link, self.said.append, clock)
        self.node.policy = self.policy
        self.node.space_of = lambda _path: self.space
        launched = Launched(str(self.releases), "python", BASE, choice.current)
        more = {} if self.tags is None else {"tags": self.tags}
        return Updater(
            self.node,
            LocalRuns(self.node),
            Update(self.allowed, self.key),
            self._report,
            launched=launched if has_launcher else None,
            installer=self.installer,
            version=choice.current or "1.0",
            **more,
        )

    def _report(self) -> None:
        self.reports += 1

    def works(self, updater: Updater, seconds: int = 200) -> Updater:
        """Let an agent work until it ends, at most for some seconds."""
        settings = NodeSettings(release=self.wanted)
        self.node.schedule = replace(self.node.schedule, settings=settings)
        for _ in range(seconds):
            updater.do_due()
            if self.node.closing.is_set():
                break
            self.clock.sleep(1)
        return updater

    def told(self, updater: Updater) -> tuple[str, str]:
        """Return state and reason in the agent's report of health."""
        health = updater.health
        assert health is not None
        assert health["release"] == self.wanted
        return health["state"], health["why"]

    def result(self, **others: Any) -> tuple[str, str]:
        """Return what a newly started agent tells after it has worked."""
        return self.told(self.works(self.boot(**others)))

    def close(self) -> None:
        """Close the databases of all agents."""
        for each in self._open:
            each.close()


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


@pytest.fixture
def site(tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(updating, "threading", ModuleWith(threading, Thread=_Inline))
    monkeypatch.setattr(installing.os, "sync", lambda: None)
    made = Site(tmp_path / "site")
    made.key = read_key(signer.public)
    yield made
    made.close()


def test_a_release_is_installed_tried_and_confirmed(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    first = site.works(site.boot())
    assert site.node.restarts
    assert site.told(first)[0] == "ready"
    assert read_choice(site.releases) == Choice("1.1", "", BASE, is_trial=True)
    # Each file was asked for once, from its beginning; the wheels are gone.
    assert sorted(site.link.asked) == sorted((name, 0) for name in site.link.files["1.1"])
    assert not (site.releases / "wheels").exists()

    second = site.works(site.boot(), 5)
    assert site.told(second) == ("trial", "release 1.1 is on trial")
    site.link.has_reported_health = True
    site.works(second)
    assert site.told(second)[0] == "current"
    assert read_choice(site.releases) == Choice("1.1", "", BASE)
    assert not site.node.restarts
    assert [each for each in site.said if "works" in each] == ["release 1.1 works: it stays"]
    assert site.result() == ("current", "it runs 1.1")


def test_two_releases_stay(site: Site, signer: Signer) -> None:
    site.link.has_reported_health = True
    for version in ("1.1", "1.2", "1.3"):
        site.offers(signer.release(version))
        site.works(site.boot())
        site.works(site.boot())
    kept = {each.name for each in site.releases.iterdir() if each.is_dir()}
    assert kept == {"1.2", "1.3"}
    assert read_choice(site.releases) == Choice("1.3", "1.2", BASE)


def test_a_release_that_does_not_report_is_left_for_ever(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    site.works(site.boot())
    for _ in range(MOST_STARTS):
        assert site.result()[0] == "trial"
    back = site.works(site.boot(), 5000)
    assert site.told(back) == (
        "failed",
        "release 1.1 was tried, and it ended 3 times before it had reported",
    )
    assert not site.node.restarts
    assert read_choice(site.releases).current == ""
    assert site.reports
    # A higher version is tried.
    site.offers(signer.release("1.2"))
    assert site.result()[0] == "ready"


def test_a_release_that_is_another_version_than_it_says_goes_back(
    site: Site, signer: Signer
) -> None:
    site.offers(signer.release("1.1"))
    site.works(site.boot())
    site.link.has_reported_health = True
    updater = site.boot()
    updater._version = updating.Version("1.0")
    site.works(updater)
    assert site.node.restarts
    choice = read_choice(site.releases)
    assert (choice.current, choice.failed) == ("", {"1.1": "it says that it is 1.0"})


def go_back(site: Site) -> None:
    """Let the trial of the chosen release end without a report, as the launcher ends it."""
    site.works(site.boot(), 5)
    choice = read_choice(site.releases)
    assert choice.is_trial
    write_choice(site.releases, choice.gone_back())


def test_an_outage_after_the_switch_does_not_end_the_release(site: Site, signer: Signer) -> None:
    """Check an outage of an hour that begins with the trial: the release is tried once more."""
    site.offers(signer.release("1.1"))
    site.works(site.boot())
    site.link.is_connected = False
    go_back(site)
    # The former version, here the base, does not reach the orchestrator either.
    back = site.works(site.boot(), 400)
    assert site.told(back)[0] == "went-back"
    assert read_choice(site.releases) == Choice(silent={"1.1": 0}, base=BASE)
    assert [each for each in site.said if "trial of" in each] == [
        "the trial of release 1.1 says nothing: the orchestrator does not answer"
    ]
    site.works(back, 1000)
    site.link.is_connected = site.link.has_reported_health = True
    asked = len(site.link.asked)
    site.works(back, 2000)
    assert site.told(back)[0] == "went-back"
    assert not site.node.restarts
    # An hour after its start the agent tries the release again, which needs no download.
    site.works(back, 400)
    assert site.node.restarts
    assert len(site.link.asked) == asked + 1
    assert site.result() == ("current", "it runs 1.1")
    assert read_choice(site.releases) == Choice("1.1", "", BASE)


def test_a_release_that_reaches_nothing_while_the_former_one_does_fails_in_the_end(
    site: Site, signer: Signer
) -> None:
    site.offers(signer.release("1.1"))
    site.works(site.boot())
    waits = []
    for _ in range(MOST_SILENT):
        site.link.has_reported_health = False
        go_back(site)
        back = site.boot()
        site.works(back, 20)
        site.link.has_reported_health = True
        began_s = site.clock.monotonic_s()
        site.works(back, 20_000)
        waits.append(round(site.clock.monotonic_s() - began_s))
    # The pauses grow, and the last trial was the last.
    assert waits == [pytest.approx(3600 - 20, abs=120), pytest.approx(4 * 3600, abs=120), 20_000]
    assert site.told(back) == (
        "failed",
        "release 1.1 was tried, and it did not reach the orchestrator in 3 trials",
    )
    # A higher version is tried.
    site.offers(signer.release("1.2"))
    assert site.result()[0] == "ready"


def test_a_judgement_that_cannot_be_stored_is_repeated(
    site: Site, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.offers(signer.release("1.1"))
    site.works(site.boot())
    go_back(site)
    site.link.has_reported_health = True

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "choice.json")

    with monkeypatch.context() as patch:
        patch.setattr(updating, "write_choice", full)
        back = site.works(site.boot(), 10)
        assert site.told(back) == ("went-back", "choice.json: No space left on device")
    assert read_choice(site.releases).suspect == "1.1"
    site.works(back, 10)
    choice = read_choice(site.releases)
    assert (choice.suspect, choice.silent) == ("", {"1.1": 1})


# --- the owner's settings ---


def test_the_settings_of_updates(tmp_path: Path, signer: Signer) -> None:
    file = tmp_path / "agent.toml"

    def read(text: str) -> Update:
        file.write_text(text)
        return read_settings(file).update

    assert read("") == Update(Allowed.NONE, None)
    key = f'key = "{signer.public}"'
    assert read(f"[update]\n{key}") == Update(Allowed.NONE, read_key(signer.public))
    for word in ("none", "patch", "any"):
        found = read(f'[update]\nallow = "{word}"\n{key}')
        assert found == Update(Allowed(word), read_key(signer.public))
    for text, said in (
        ('allow = "any"', "update.key: is missing"),
        (f'allow = "all"\n{key}', 'update.allow: expected "none", "patch" or "any"'),
        (f"allow = true\n{key}", "update.allow: expected a text"),
        ('allow = "any"\nkey = "abc"', "update.key: expected the public key"),
        ('allow = "any"\nkey = "é"', "update.key: expected the public key"),
        (f"{key}\nkeys = 1", "update.keys: unknown key"),
    ):
        with pytest.raises(InputError) as refused:
            read(f"[update]\n{text}")
        assert said in str(refused.value)


# --- what is refused ---


def test_the_owner_decides(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    site.allowed = Allowed.NONE
    assert site.result() == (
        "not-allowed",
        "its owner allows no update: [update] in agent.toml",
    )
    site.allowed = Allowed.PATCH
    assert site.result() == ("not-allowed", "its owner allows only patches of 1.0, and 1.1 is more")
    assert not site.link.asked
    assert not site.releases.exists()
    # A release that the owner does not allow is no reason to refuse an older one that is allowed.
    site.offers(signer.release("1.0.1"))
    assert site.result()[0] == "ready"


def test_an_agent_without_the_layout_says_so(site: Site, signer: Signer) -> None:
    site.boot(has_launcher=False)
    assert len(site.said) == 1
    assert site.said[0].startswith("self-update needs the layout of install-node.sh")
    site.offers(signer.release("1.1"))
    state, why = site.result(has_launcher=False)
    assert state == "unsupported"
    assert why.startswith("self-update needs the layout of install-node.sh")
    assert "\n" not in why
    assert not site.link.asked


def test_nothing_is_told_without_a_release(site: Site) -> None:
    updater = site.works(site.boot())
    assert updater.health is None
    assert not site.releases.exists()


def refused(site: Site, why: str) -> None:
    """Check that the offered release is refused, and that nothing of it stays."""
    state, said = site.result()
    assert (state, re.search(why, said) is not None) == ("refused", True), said
    assert [each for each in site.said if re.search(why, each)]
    assert read_choice(site.releases).current == ""
    assert not is_complete(site.releases, site.wanted)
    assert not site.node.restarts


NOT_SIGNED = "is not signed by the key that is trusted"


def test_a_release_of_another_key_is_refused(site: Site, tmp_path: Path) -> None:
    site.offers(Signer(tmp_path, "thief").release("1.1"))
    refused(site, NOT_SIGNED)
    assert [name for name, _ in site.link.asked] == [FILE]


@pytest.mark.parametrize("part", ["manifest", "signature"])
def test_a_changed_list_is_refused(site: Site, signer: Signer, part: str) -> None:
    site.offers(signer.release("1.1"))
    files = site.link.files["1.1"]
    values = json.loads(files[FILE])
    old = values[part]
    values[part] = old.replace('"size":', '"size": ') if part == "manifest" else old[::-1]
    assert values[part] != old
    files[FILE] = json.dumps(values).encode()
    refused(site, NOT_SIGNED)


def test_a_list_of_another_version_is_refused(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    site.link.files["1.5"], site.wanted = site.link.files["1.1"], "1.5"
    refused(site, "release 1.5 is offered, but 1.1 was signed")


@pytest.mark.parametrize("end", [b"x", b"", b"more"])
def test_a_changed_wheel_is_refused(site: Site, signer: Signer, end: bytes) -> None:
    site.offers(signer.release("1.1"))
    files = site.link.files["1.1"]
    name = next(name for name in files if name.startswith("skyhop_testbed"))
    if end:
        files[name] = files[name][:-1] + end
        refused(site, f"{name}: is not the wheel that was signed")
    else:
        files[name] = files[name][:-1]
        assert site.result()[0] == "waiting"
    assert not is_complete(site.releases, "1.1")


def test_a_wrong_wheel_is_not_fetched_again_within_a_day(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    files = site.link.files["1.1"]
    name = next(name for name in files if name.startswith("skyhop_testbed"))
    files[name] = files[name][:-1] + b"x"
    updater = site.works(site.boot())
    asked = len(site.link.asked)
    site.works(updater, 86_000)
    assert len(site.link.asked) == asked
    site.works(updater, 1_000)
    assert len(site.link.asked) > asked


def test_an_older_release_is_refused_although_it_is_newer_than_the_present(
    site: Site, signer: Signer
) -> None:
    site.installer.fault = "broken"
    site.offers(signer.release("1.3"))
    assert site.result() == ("refused", "release 1.3 was not installed: broken")
    site.installer.fault = ""
    site.offers(signer.release("1.2"))
    refused(site, "release 1.2 is older than 1.3, which this node has seen: sign a higher version")
    site.offers(signer.release("1.3"))
    assert site.result()[0] == "ready"


@pytest.mark.parametrize("version", ["0.9", "1.0", "1.0rc1", "1.0.dev3"])
def test_no_downgrade(site: Site, signer: Signer, version: str) -> None:
    site.offers(signer.release(version))
    assert site.result() == ("current", "it runs 1.0")
    assert not site.link.asked


def test_a_version_that_is_a_path_is_refused(site: Site) -> None:
    for wanted in ("../../etc", "1.1/../2", "x"):
        site.wanted = wanted
        assert site.result() == ("refused", f'"{wanted}" is no version of a release')
    assert not site.link.asked


def test_a_release_that_does_not_fit_this_machine_is_refused(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1", about="Requires-Python: >=4\n"))
    refused(site, "release 1.1 needs Python >=4, and this node has 3")
    site.offers(signer.release("1.1", tag="cp311-abi3-linux_sparc64"))
    refused(site, "release 1.1 has no wheel of skyhop for this machine")
    site.offers(signer.release("1.1", protocol="OLDEST, PROTOCOL = 3, 4\n"))
    refused(site, "release 1.1 speaks protocols 3 to 4, and the orchestrator 1 to 2")
    assert {name for name, _ in site.link.asked} == {FILE}


def test_a_release_that_cannot_be_installed_is_not_chosen(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    site.installer.fault = "it does not start: no module"
    refused(site, "release 1.1 was not installed: it does not start: no module")


# --- what delays ---


def test_a_download_that_ends_early_goes_on_where_it_ended(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    name = next(name for name in site.link.files["1.1"] if name.startswith("skyhop_testbed"))
    updater = site.boot()
    site.link.ends_after = 1000
    assert len(site.link.files["1.1"][FILE]) < 1000 < len(site.link.files["1.1"][name])
    site.works(updater, 5)
    assert site.told(updater) == ("waiting", f"{name}: the download ended early, and goes on later")
    site.link.ends_after = None
    assert site.told(site.works(updater))[0] == "ready"
    assert [offset for asked, offset in site.link.asked if asked == name] == [0, 1000]


def test_a_download_gives_way_to_the_owner(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    updater = site.boot()
    pieces = iter(range(1000))

    def owner_begins() -> None:
        if next(pieces) == 12:
            site.node.allowance.update(is_owner_active=True, agent_bytes=0)

    site.link.on_piece = owner_begins
    site.works(updater, 5)
    assert site.told(updater) == ("waiting", "the host's own traffic comes first")
    asked = len(site.link.asked)
    site.works(updater, 500)
    assert len(site.link.asked) == asked
    site.node.allowance.update(is_owner_active=False, agent_bytes=0)
    assert site.told(site.works(updater))[0] == "ready"
    assert site.link.asked[-2][1] + site.link.asked[-1][1] > 0


def test_a_release_waits_for_the_months_data(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    site.policy = Policy.of({"data_cap_bytes_per_month": 2_000}, ScavengerMode.AUTO)
    state, why = site.result()
    assert state == "waiting"
    assert re.fullmatch(r"the release needs [\d,]+ bytes, and 2,000 are left in this month", why)
    assert {name for name, _ in site.link.asked} == {FILE}


def test_a_release_waits_for_disk_space(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    total = sum(len(each) for name, each in site.link.files["1.1"].items() if name != FILE)
    floor = round(site.policy.free_floor_bytes)
    site.space = Space(10**12, floor + 3 * total - 1)
    state, why = site.result()
    assert state == "waiting"
    assert "less than its floor" in why
    assert {name for name, _ in site.link.asked} == {FILE}
    site.space = Space(10**12, floor + 3 * total)
    assert site.result()[0] == "ready"


# --- power failures ---


class PowerCutError(BaseException):
    """The machine is off: no operation on files succeeds any more."""


class _Power:
    """Power of the machine, which fails before one of the changes of files below a directory.

    A file that was written and not synced is then empty or gone, as after a real failure.
    """

    _WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    _CHANGES = frozenset(
        {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link"}
    )

    def __init__(self) -> None:
        self._left: int | None = None
        self._place = ""
        self._unsynced: set[str] = set()
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def failing(self, place: Path, changes: int, *, leaves_empty: bool) -> Iterator[list[bool]]:
        """Fail after some changes; the list that is given says afterwards whether it has failed."""
        self._place, self._left, self._unsynced = str(place), changes, set()
        has_failed: list[bool] = []
        try:
            yield has_failed
        except PowerCutError:
            has_failed.append(True)
        finally:
            self._left = None
        for name in self._unsynced if has_failed else ():
            if leaves_empty and Path(name).is_file():
                os.truncate(name, 0)
            else:
                Path(name).unlink(missing_ok=True)

    def sync(self) -> None:
        """Sync all files, as `os.sync` does."""
        self._step()
        self._unsynced.clear()

    def fsync(self, descriptor: int) -> None:
        """Sync one file, as `os.fsync` does."""
        self._step()
        self._unsynced.discard(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def _step(self) -> None:
        if self._left == 0:
            raise PowerCutError
        if self._left is not None:
            self._left -= 1

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._left is None:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & self._WRITES and str(path).startswith(self._place):
                self._step()
                self._unsynced.add(str(path))
        elif event in self._CHANGES:
            # `shutil.rmtree` names files relative to open directories.
            self._step()
            if event == "os.rename" and str(arguments[0]) in self._unsynced:
                self._unsynced -= {str(arguments[0])}
                self._unsynced |= {str(arguments[1])}


_POWER = _Power()


@pytest.mark.parametrize("leaves_empty", [False, True])
def test_a_power_failure_at_any_step_leaves_a_version_that_starts(
    tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch, leaves_empty: bool
) -> None:
    monkeypatch.setattr(updating, "threading", ModuleWith(threading, Thread=_Inline))
    monkeypatch.setattr(os, "sync", _POWER.sync)
    monkeypatch.setattr(os, "fsync", _POWER.fsync)
    old, new = signer.release("1.1"), signer.release("1.2")
    ended: list[str] = []
    for changes in range(500):
        site = Site(tmp_path / f"site-{changes}")
        site.key, site.link.has_reported_health = read_key(signer.public), True
        site.offers(old)
        site.works(site.boot())
        site.works(site.boot())
        assert read_choice(site.releases) == Choice("1.1", "", BASE)
        site.offers(new)
        with _POWER.failing(site.state, changes, leaves_empty=leaves_empty) as has_failed:
            for _ in range(2):
                site.works(site.boot(), 5)
        ended.append(prepared(site.releases, BASE).current)
        # The machine is on again: the update goes on to its end.
        for _ in range(3):
            site.works(site.boot())
        assert read_choice(site.releases) == Choice("1.2", "1.1", BASE), changes
        site.close()
        if not has_failed:
            break
    # Failures at first leave the former version, and later ones the new version.
    assert ended == sorted(ended)
    assert ended.count("1.1") > 15
    assert ended.count("1.2") > 3


def test_a_half_installed_release_is_installed_again(site: Site, signer: Signer) -> None:
    site.offers(signer.release("1.1"))
    site.works(site.boot())
    (site.releases / "1.1" / COMPLETE).write_text("another list")
    (site.releases / "choice.json").unlink()
    asked = len(site.link.asked)
    assert site.result()[0] == "ready"
    assert len(site.link.asked) - asked == 3
    # A complete one of the same list is taken as it is.
    (site.releases / "choice.json").unlink()
    asked = len(site.link.asked)
    assert site.result()[0] == "ready"
    assert len(site.link.asked) - asked == 1


# --- an agent with its main loop, on a clock that the test advances ---


@pytest.fixture
def node(tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeHere]:
    monkeypatch.setattr(installing.os, "sync", lambda: None)
    monkeypatch.setattr(updating, "VenvInstaller", lambda *_: _Installer())
    monkeypatch.setattr(updating, "__version__", "1.0")
    made = NodeHere(tmp_path / "node", monkeypatch)
    made.settings = replace(made.settings, update=Update(Allowed.ANY, read_key(signer.public)))
    yield made
    made.close()


def launched(node: NodeHere, version: str = "") -> Launched:
    return Launched(str(node.state / DIRECTORY), "python", BASE, version)


def updates(node: NodeHere) -> list[dict[str, Any] | None]:
    """Return what the agent's reports of health say about releases."""
    found = [body["update"] for _, kind, body in node.orchestrator.events if kind == "health"]
    return [each for place, each in enumerate(found) if place == 0 or each != found[place - 1]]


def test_an_active_run_delays_the_switch(node: NodeHere, signer: Signer) -> None:
    node.launched = launched(node)
    node.orchestrator.releases["1.1"] = contents(signer.release("1.1"))
    node.start()
    run = node.orchestrator.plan(job("sleep", "600", length_s=700.0), 5.0)
    node.until(lambda: node.orchestrator.states(run)[-1:] == ["executing"])
    node.orchestrator.offered = "1.1"
    node.orchestrator.publish()
    node.until(lambda: (updates(node)[-1] or {}).get("state") == "ready", 300)
    told = updates(node)[-1]
    assert told is not None
    assert told["why"].endswith(f"run {run}")
    assert node.agent is not None
    assert not node.agent.restarts
    # Its upload delays the switch too.
    node.orchestrator.hold("upload")
    node.until(lambda: node.orchestrator.states(run)[-1:] == ["finishing"], 700)
    node.clock.advance(60)
    told = updates(node)[-1]
    assert told is not None
    assert told["why"].endswith(f"the upload of run {run}")
    assert not node.agent.restarts
    node.orchestrator.release()
    node.until_settled(run)
    node.until(lambda: node.agent is not None and node.agent.restarts)
    node.until(lambda: not node._own_threads())
    assert read_choice(node.state / DIRECTORY).current == "1.1"


def test_a_run_that_begins_soon_delays_the_switch(node: NodeHere, signer: Signer) -> None:
    node.launched = launched(node)
    node.orchestrator.releases["1.1"] = contents(signer.release("1.1"))
    node.orchestrator.offered = "1.1"
    node.orchestrator.plan(job("true"), 25.0)
    node.start()
    node.until(lambda: (updates(node)[-1:] or [None])[-1] is not None)
    node.clock.advance(10)
    assert node.agent is not None
    told = updates(node)[-1]
    assert told is not None
    assert told["why"].endswith("which is about to begin")
    assert not node.agent.restarts
    node.until(lambda: node.agent is not None and node.agent.restarts)


def test_a_new_version_is_confirmed_by_its_report_of_health(
    node: NodeHere, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.launched = launched(node)
    node.orchestrator.releases["1.1"] = contents(signer.release("1.1"))
    node.orchestrator.offered = "1.1"
    node.orchestrator.publish()
    node.start()
    node.until(lambda: node.agent is not None and node.agent.restarts)
    node.until(lambda: not node._own_threads())
    assert prepared(node.state / DIRECTORY, BASE).starts == 1
    monkeypatch.setattr(updating, "__version__", "1.1")
    node.launched = launched(node, "1.1")
    # An agent that does not reach the orchestrator stays on trial.
    node.orchestrator.stop()
    node.start()
    node.clock.advance(600)
    assert read_choice(node.state / DIRECTORY).is_trial
    node.orchestrator.start()
    node.until(lambda: not read_choice(node.state / DIRECTORY).is_trial, 600)
    node.until(lambda: (updates(node)[-1] or {}).get("state") == "current", 600)


def test_an_orchestrator_without_releases_changes_nothing(node: NodeHere) -> None:
    """An orchestrator of an earlier version sends no `release` in its settings."""
    node.launched = launched(node)
    node.start()
    node.orchestrator.publish()
    node.clock.advance(400)
    assert updates(node) == [None]
    assert not (node.state / DIRECTORY).exists()


def job(*command: str, length_s: float = 20.0) -> dict[str, Any]:
    run = {"client": list(command), "network": "none"}
    return {"id": "try", "nodes": [NODE], "length": length_s, "when": {"at": 1}, "run": run}
