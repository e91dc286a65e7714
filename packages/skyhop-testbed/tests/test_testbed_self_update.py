"""Self-update with real environments: wheels that pip installs, and the launcher's processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from release_wheels import Signer, contents, write_wheel, write_wheels
from testbed_fake_orchestrator import NODE
from testbed_harness import StandingClock

from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.settings import Allowed, Update
from skyhop_testbed.agent.updating import Updater
from skyhop_testbed.launcher import (
    DIRECTORY,
    MOST_STARTS,
    RESTART_STATUS,
    Choice,
    Launched,
    program_of,
    read_choice,
)
from skyhop_testbed.protocol import Peer
from skyhop_testbed.releases import read_key, sign
from skyhop_testbed.schedule import NodeSettings

_AGENT = """
import sys, time
from pathlib import Path
from skyhop_testbed import launcher

def main():
    if "--help" in sys.argv:
        return {starts}
    told = launcher.Launched.of_environment()
    state = Path(sys.argv[sys.argv.index("--state") + 1])
    with (state / "log").open("a") as log:
        log.write("{version} " + repr(told.version) + chr(10))
    releases = Path(told.releases)
    {body}
"""
_CONFIRMS = "launcher.write_choice(releases, launcher.read_choice(releases).confirmed())"
_BASE, _ENDS, _SILENT, _WORKS = "return 0", "return 3", "time.sleep(600)", f"{_CONFIRMS}; return 0"


def agent(version: str, body: str, starts: int = 0) -> str:
    """Return the module of a fake agent, which logs its version and then does `body`."""
    return _AGENT.format(version=version, body=body, starts=starts)


class _Link:
    """Link that serves releases from memory."""

    is_connected, has_reported_health = True, False

    def __init__(self) -> None:
        self.wire = SimpleNamespace(peer=Peer("1.0", 1, 2))
        self.files: dict[str, bytes] = {}

    def fetch_release(
        self, _version: str, name: str, file: Path, _most: int, _check: Callable[[], None]
    ) -> None:
        file.write_bytes(self.files[name])


class Machine:
    """Base installation with pip and version 1.0, and a node's directory."""

    def __init__(self, place: Path) -> None:
        self.place, self.base, self.state = place, place / "base", place / "state"
        self.state.mkdir()
        self.signer, self.link = Signer(place), _Link()
        subprocess.run([sys.executable, "-m", "venv", self.base], check=True)
        self.python = str(self.base / "bin" / "python")
        wheels = write_wheels(place / "wheels-1.0", "1.0", code=agent("1.0", _BASE))
        command = [self.python, "-I", "-m", "pip", "install", "--no-index", "--quiet"]
        subprocess.run([*command, *wheels.glob("*.whl")], check=True)

    @property
    def releases(self) -> Path:
        """Directory of the releases."""
        return self.state / DIRECTORY

    def update(self, wheels: Path) -> dict[str, str]:
        """Let the present agent install a release; return what it tells."""
        version = wheels.name.removeprefix("wheels-")
        sign(wheels, self.signer.file)
        self.link.files = contents(wheels)
        (packages,) = self.base.glob("lib/python*/site-packages")
        clock: Any = StandingClock()
        identity: Any = SimpleNamespace(node=NODE)
        link: Any = self.link
        db = AgentDb(self.state, clock.now_ns())
        node = Node(identity, self.state, db, link, lambda _: None, clock)
        node.schedule = SimpleNamespace(settings=NodeSettings(release=version), planned=())  # type: ignore[assignment]
        base = subprocess.run(
            [self.python, "-c", "import sys; from skyhop_testbed import launcher; "
             "print(launcher.base_of(sys.prefix))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        present = read_choice(self.releases).current
        launched = Launched(str(self.releases), self.python, base, present)
        update = Update(Allowed.ANY, read_key(self.signer.public))
        updater = Updater(
            node, LocalRuns(node), update, lambda: None, launched=launched, version=present or "1.0"
        )
        updater._installer._packages = packages  # type: ignore[attr-defined]
        updater.prepare(version)
        updater._wanted = version
        if updater._ready:
            updater._switch_if_free(version)
        db.close()
        told = updater.health
        assert told is not None
        return dict(told)

    def start(self, trial_s: float = 60.0) -> int:
        """Start the service's program once; return its exit status."""
        code = (
            "import sys; from skyhop_testbed.launcher import main; "
            f"sys.exit(main(sys.argv[1:], {trial_s}))"
        )
        command = [self.python, "-c", code, "--state", self.state]
        return subprocess.run(command, timeout=120, check=False).returncode

    def log(self) -> list[str]:
        """Return the version of each agent that started, and what its launcher told; clear both."""
        file = self.state / "log"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def written(machine: Machine, version: str, body: str, starts: int = 0, **others: str) -> Path:
    """Write the wheels of a version with a fake agent; return their directory."""
    code = agent(version, body, starts)
    return write_wheels(machine.place / f"wheels-{version}", version, code=code, **others)


@pytest.mark.integration
def test_a_node_updates_itself_and_leaves_versions_that_fail(machine: Machine) -> None:
    assert machine.start() == 0
    assert machine.log() == ["1.0 ''"]

    # A release that ends before it reports is left after some starts, for the base.
    assert machine.update(written(machine, "1.1", _ENDS))["state"] == "ready"
    assert [machine.start() for _ in range(MOST_STARTS + 1)] == [3] * MOST_STARTS + [0]
    assert machine.log() == ["1.1 '1.1'"] * MOST_STARTS + ["1.0 ''"]
    failed = {"1.1": f"it ended {MOST_STARTS} times before it had reported"}
    assert read_choice(machine.releases).failed == failed
    told = machine.update(machine.place / "wheels-1.1")
    assert (told["state"], told["why"]) == ("failed", f"release 1.1 was tried, and {failed['1.1']}")

    # A release that works stays.
    machine.update(written(machine, "1.2", _WORKS))
    assert [machine.start() for _ in range(MOST_STARTS + 2)] == [0] * (MOST_STARTS + 2)
    assert machine.log() == ["1.2 '1.2'"] * (MOST_STARTS + 2)
    assert (machine.releases / "current").resolve() == machine.releases / "1.2"

    # A release that runs and never reports is ended, and the former release is used again. It has
    # not failed: the former release finds out whether the orchestrator could be reached.
    assert machine.update(written(machine, "1.3", _SILENT))["state"] == "ready"
    assert machine.start(trial_s=2.0) == RESTART_STATUS
    assert machine.start() == 0
    assert machine.log() == ["1.3 '1.3'", "1.2 '1.2'"]
    choice = read_choice(machine.releases)
    assert (choice.suspect, choice.silent, set(choice.failed)) == ("1.3", {"1.3": 0}, {"1.1"})


@pytest.mark.soak
def test_what_pip_refuses_is_not_chosen(machine: Machine) -> None:
    absent = "Requires-Python: >=3.11\nRequires-Dist: absent>=1\n"
    told = machine.update(written(machine, "1.4", _WORKS, about=absent))
    assert told["state"] == "refused"
    assert "does not meet its requirements" in told["why"]
    assert "absent" in told["why"]
    told = machine.update(written(machine, "1.5", _WORKS, starts=7))
    assert told["why"] == "release 1.5 was not installed: it does not start: status 7"
    assert read_choice(machine.releases) == Choice()

    # A release may bring what it newly requires.
    made = written(machine, "1.6", _WORKS, about=absent)
    write_wheel(made, "absent", "1.0", {"absent.py": ""})
    assert machine.update(made)["state"] == "ready"
    assert machine.start() == 0
    assert machine.log() == ["1.6 '1.6'"]
    found = subprocess.run(
        [machine.releases / "1.6" / "bin" / "python", "-c", "import absent, skyhop_fake"],
        check=False,
    )
    assert found.returncode == 0


@pytest.mark.integration
def test_a_service_that_is_stopped_has_not_failed(machine: Machine) -> None:
    code = agent("1.1", _SILENT)
    machine.update(write_wheels(machine.place / "wheels-1.1", "1.1", code=code))
    command = [machine.python, "-m", "skyhop_testbed.launcher", "--state", machine.state]
    for _ in range(MOST_STARTS + 1):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            assert "on trial, start 1 of 3" in process.stderr.readline()
            log = machine.state / "log"
            while not log.exists() or not log.read_text().endswith("\n"):
                assert process.poll() is None
            process.terminate()
            assert process.wait(60) == 128 + 15
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        assert machine.log() == ["1.1 '1.1'"]
    assert read_choice(machine.releases).starts == 0
    assert program_of(machine.releases / "1.1").is_file()


@pytest.mark.integration
def test_an_agent_ends_with_its_launcher(machine: Machine) -> None:
    code = agent("1.1", f"(state / 'pid').write_text(str(__import__('os').getpid())); {_SILENT}")
    machine.update(write_wheels(machine.place / "wheels-1.1", "1.1", code=code))
    command = [machine.python, "-m", "skyhop_testbed.launcher", "--state", machine.state]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    pid = machine.state / "pid"
    try:
        while not pid.exists() or not pid.read_text():
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    agent_pid = Path("/proc") / pid.read_text() / "status"
    for _ in range(600):
        if not agent_pid.exists() or "zombie" in agent_pid.read_text():
            return
        subprocess.run(["sleep", "0.1"], check=True)
    pytest.fail("the agent outlives its launcher")
