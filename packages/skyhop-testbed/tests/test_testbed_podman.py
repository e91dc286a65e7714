"""Back end `podman` with a real podman: limits, ends, files, and no remains.

The image is made of this machine's own shell; podman's storage is the test's.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_testbed_executor import assignment
from testbed_machine import processes_about

from needs import cases, missing, needs_namespaces, needs_program, needs_root
from skyhop_testbed.executor import keep
from skyhop_testbed.executor.assignment import RESULT_FILE, STOP_FILE, Assignment, Limits
from skyhop_testbed.executor.journal import is_alive, read_journal
from skyhop_testbed.fence import Fence
from skyhop_testbed.words import Backend, Network
from waiting import wait_for

pytestmark = pytest.mark.soak

IMAGE = "localhost/skyhop-test:1"
_PROGRAMS = (
    "bash",
    "cat",
    "env",
    "grep",
    "head",
    "id",
    "ls",
    "sh",
    "sleep",
    "timeout",
    "touch",
    "true",
)
_ALONE = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
"""Whether crun works here: it supports cgroup v1 or v2, not both at once."""


class Containers:
    """Podman with its own storage, and an image in it."""

    def __init__(self, place: Path) -> None:
        self.place, self.run = place, place / "run"
        self.run.mkdir()
        storage = place / "storage.conf"
        roots = f'graphroot = "{place}/graph"\nrunroot = "{place}/runroot"\n'
        storage.write_text(f'[storage]\ndriver = "vfs"\n{roots}')
        self.environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(storage)}

    def command(self, *words: str) -> list[str]:
        """Return a command that, as root, runs in a new mount namespace."""
        if os.geteuid() != 0:
            return list(words)
        return ["unshare", "--mount", "sh", "-c", _ALONE, "sh", *words]

    def podman(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a podman command with this storage."""
        return subprocess.run(
            self.command("podman", *words),
            env=self.environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def make_image(self) -> None:
        """Build an image from programs of this machine and their libraries."""
        root = self.place / "root"
        for directory in ("tmp", "proc", "dev", "sys", "artifacts", "etc"):
            (root / directory).mkdir(parents=True)
        for name in _PROGRAMS:
            file = f"/bin/{name}"
            linked = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
            for each in (file, *re.findall(r"(/\S+) \(0x", linked.stdout)):
                target = root / each[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(os.path.realpath(each), target)
                target.chmod(0o755)
        image = self.place / "root.tar"
        subprocess.run(["tar", "-cf", str(image), "-C", str(root), "."], check=True)
        for words in (
            ("import", "-q", str(image), IMAGE),
            ("run", "--rm", "--init", "--network", "none", "--ulimit", "nofile=1024:1024",
             "--ulimit", "nproc=1024:1024", "--memory", "100m", IMAGE, "true"),
        ):  # fmt: skip
            made = self.podman(*words)
            if made.returncode:
                missing("podman", f"it does not work here: {made.stderr.strip()[-300:]}")

    def start(self, given: Assignment) -> subprocess.Popen[bytes]:
        """Start an executor; its process is the executor itself."""
        given.write(self.run)
        # The files of an earlier try must not count as this one's.
        return subprocess.Popen(
            self.command(sys.executable, "-m", "skyhop_testbed.executor", str(self.run)),
            stderr=subprocess.PIPE, start_new_session=True, env=self.environment, cwd=self.run,
        )  # fmt: skip

    def result(self, executor: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Wait for a run's end; return its result."""
        _, said = executor.communicate(timeout=120)
        assert executor.returncode == 0, said
        result: dict[str, Any] = json.loads((self.run / RESULT_FILE).read_text())
        return result

    def said(self) -> list[str]:
        """Return the lines that the program printed."""
        return (self.run / "stdout").read_text().splitlines()

    def left(self) -> list[str]:
        """Return the names of existing containers."""
        return self.podman("ps", "--all", "--format", "{{.Names}} {{.Status}}").stdout.splitlines()

    def processes(self) -> list[str]:
        """Return the processes of podman that use this storage."""
        return processes_about(str(self.place / "graph"))

    def forget(self) -> None:
        """Empty the run's directory, as before the run."""
        shutil.rmtree(self.run)
        self.run.mkdir()


@pytest.fixture(scope="module")
def machine() -> Iterator[Containers]:
    needs_program("podman", "podman")
    needs_namespaces()
    # Podman misses the end of containers whose files' paths exceed 50 characters.
    with tempfile.TemporaryDirectory(prefix="podman-") as place:
        made = Containers(Path(place))
        made.make_image()
        yield made
        assert made.left() == []
        wait_for(lambda: not made.processes(), 120, made.processes)


@pytest.fixture
def containers(machine: Containers) -> Containers:
    needs_root()
    machine.forget()
    return machine


@pytest.fixture
def of_any_user(machine: Containers) -> Containers:
    """Return podman as root, or without root if an ordinary user runs the tests."""
    machine.forget()
    return machine


def contained(script: str, **others: Any) -> Assignment:
    """Return an assignment of a shell's script in a container."""
    given = assignment(script, **others)
    return replace(given, backend=Backend.PODMAN, image=IMAGE)


def test_a_container_has_its_work_directory_and_no_right_or_secret(
    containers: Containers, tmp_path: Path
) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "list.txt").write_text("brought\n")
    script = """
        cat list.txt; echo kept > out.txt; echo "$SKYHOP_RUN $LEOTEST_RUNID $COLOUR $HOME"
        touch /usr/x /etc/x 2>/dev/null && echo wrote to the image
        touch /tmp/x || echo cannot write to its own
        test "$(id -u)" -eq 0 && echo is root
        grep -q '^CapEff:.0*$' /proc/self/status || echo has capabilities
        grep -q 'NoNewPrivs:.1' /proc/self/status || echo may gain privileges
        test $(ls /proc | grep -c '^[0-9]') -lt 10 || echo saw others
        test -z "$(grep : /proc/net/dev | grep -v lo:)" || echo saw devices
        env | grep -i secret
        exit 3
    """
    os.environ["AGENTS_SECRET"] = containers.environment["AGENTS_SECRET"] = "token"
    try:
        given = contained(script, env={"COLOUR": "red pale"}, inputs=str(inputs))
        result = containers.result(containers.start(given))
    finally:
        del os.environ["AGENTS_SECRET"], containers.environment["AGENTS_SECRET"]
    assert (result["state"], result["reason"], result["exit"]) == ("failed", "exit", 3), (
        containers.run / "stderr"
    ).read_text()
    assert containers.said() == ["brought", "01TEST 01TEST red pale /artifacts"]
    manifest = json.loads((containers.run / keep.FILE).read_text())
    assert [each["name"] for each in manifest["files"]] == ["out.txt"]
    assert containers.left() == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        # The kernel kills a process that exceeds its container's limit.
        ('x=aaaaaaaaaaaaaaaa; while :; do x="$x$x"; done', "memory"),
        ("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 9 & done; wait", "exit"),
        ("while :; do head -c 3000000 /dev/zero > f$((i+=1)); done", "disk"),
        ("sleep 60", "timeout"),
    ],
)
def test_limits_of_a_container_hold(containers: Containers, script: str, reason: str) -> None:
    limits = Limits(memory_bytes=60_000_000, processes=8, disk_bytes=20_000_000)
    seconds = 4.0 if reason == "timeout" else 30.0
    result = containers.result(containers.start(contained(script, limits=limits, seconds=seconds)))
    assert result["reason"] == reason, (result, (containers.run / "stderr").read_text())


def test_a_container_that_does_not_listen_is_gone_within_three_seconds(
    containers: Containers,
) -> None:
    given = contained("trap '' TERM; touch began; while :; do sleep 1; done", network=Network.HOST)
    executor = containers.start(given)
    wait_for((containers.run / "work" / "began").exists)
    (name,) = containers.left()
    assert name.startswith("skyhop_01TEST ")
    labels = containers.podman("inspect", "skyhop_01TEST", "--format", "{{.Config.Labels}}").stdout
    assert "skyhop.run:01TEST" in labels
    assert "leotest:true" in labels
    (containers.run / STOP_FILE).write_text(json.dumps({"reason": "scavenger"}))
    told = time.monotonic()
    pid = read_journal(containers.run)[0].pid
    os.kill(pid, signal.SIGTERM)
    result = containers.result(executor)
    assert time.monotonic() - told < 3.0
    assert (result["state"], result["reason"]) == ("aborted", "scavenger")
    assert containers.left() == []


def test_what_podman_itself_refuses_is_no_programs_end(containers: Containers) -> None:
    given = replace(contained("true"), image="localhost/No such:1")
    result = containers.result(containers.start(given))
    assert (result["state"], result["reason"]) == ("failed", "deploy"), result
    given = contained("true", env={"A": "b\nc"})
    containers.forget()
    result = containers.result(containers.start(given))
    assert (result["state"], result["reason"]) == ("failed", "needs"), result


def test_a_containers_traffic_in_the_hosts_network_is_counted(containers: Containers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        script = (
            f"exec 3<>/dev/tcp/127.0.0.1/{port}; i=0; "
            "while test $i -lt 30; do head -c 100000 /dev/zero >&3; i=$((i+1)); sleep 0.05; done"
        )
        given = replace(contained("true"), command=["bash", "-c", script], network=Network.HOST)
        executor = containers.start(given)
        listener.settimeout(30)
        connection, _ = listener.accept()
        while connection.recv(1 << 16):
            pass
    result = containers.result(executor)
    assert result["state"] == "complete", json.dumps(result)
    assert 1_000_000 < result["traffic"]["tx_bytes"] < 3_300_000


@pytest.mark.parametrize("moment", ["started", "executing", "any"])
def test_a_killed_executor_leaves_no_container(containers: Containers, moment: str) -> None:
    for _ in range(cases(1)):
        containers.forget()
        executor = containers.start(contained("trap '' TERM; touch began; sleep 600"))
        _wait_for_moment(containers, moment)
        os.kill(read_journal(containers.run)[0].pid, signal.SIGKILL)
        executor.communicate(timeout=120)
        wait_for(lambda: not is_alive(containers.run))
        assert containers.left() == []
        # A partially created container is in no list.
        wait_for(lambda: not containers.processes(), 120, containers.processes)
        again = containers.start(contained("trap '' TERM; touch began; sleep 600"))
        result = containers.result(again)
        assert (result["state"], result["reason"]) == ("failed", "killed")


def _wait_for_moment(containers: Containers, moment: str) -> None:
    reached: dict[str, Callable[[], bool]] = {
        "started": lambda: any(s.step == "started" for s in read_journal(containers.run)),
        "executing": (containers.run / "work" / "began").exists,
    }
    wait_for(reached.get(moment, reached["started"]))
    if moment == "any":
        time.sleep(random.uniform(0.0, 0.8))


def _own_address() -> str:
    """Return an address of this machine that is not on its loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        try:
            own.connect(("192.0.2.1", 9))
        except OSError as error:
            missing("network", f"this machine has no route: {error}")
        return str(own.getsockname()[0])


def test_a_container_reaches_what_its_fence_passes_alone(of_any_user: Containers) -> None:
    needs_program("slirp4netns", "slirp4netns")
    here = _own_address()
    with socket.create_server((here, 0)) as open_one, socket.create_server((here, 0)) as closed:
        ports = [each.getsockname()[1] for each in (open_one, closed)]
        fence = Fence([f"allow {here}:{ports[0]}", f"deny {here}"])
        targets = [f"{here}/{port}" for port in ports]
        targets += ["192.168.100.1/80", "169.254.169.254/80", f"10.0.2.2/{ports[0]}", "10.0.0.1/80"]
        script = (
            "cat /etc/resolv.conf; grep -c tap0 /proc/net/dev; "
            f"for each in {' '.join(targets)}; do "
            "(exec 3<>/dev/tcp/$each) 2>/dev/null && echo $each; done; true"
        )
        given = contained("true", network=Network.INTERNET, fence=fence)
        # A packet that the filter drops ends in a timeout: the second port has no route of its own.
        given = replace(given, command=["timeout", "60", "bash", "-c", script])
        result = of_any_user.result(of_any_user.start(given))
        closed.setblocking(False)
        with pytest.raises(BlockingIOError):
            closed.accept()
    assert result["state"] == "complete", (result, (of_any_user.run / "stderr").read_text())
    assert of_any_user.said() == ["nameserver 10.0.2.3", "1", targets[0]]
    assert result["traffic"]["tx_bytes"] > 0
    assert of_any_user.left() == []
