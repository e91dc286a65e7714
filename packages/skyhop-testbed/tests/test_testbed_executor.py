"""Executor of the testbed: a program in a sandbox, at most once, within limits, without remains."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from manual_clock import ManualClock

from damaged import Trial
from needs import cases, kills, missing, needs_namespaces, needs_program
from other_user import USER, as_other_user
from skyhop_testbed.executor import keep
from skyhop_testbed.executor.assignment import (
    RESULT_FILE,
    STOP_FILE,
    Assignment,
    Limits,
)
from skyhop_testbed.executor.backends import launcher
from skyhop_testbed.executor.backends.docker import Docker
from skyhop_testbed.executor.backends.podman import Podman
from skyhop_testbed.executor.cgroup_traffic import GROUP, missing_for_groups
from skyhop_testbed.executor.environment import environment_of, filled_in
from skyhop_testbed.executor.journal import Journal, Step, has_started, is_alive, read_journal
from skyhop_testbed.executor.traffic import SOCKETS
from skyhop_testbed.job import job_of
from skyhop_testbed.words import Backend, Network, Side
from waiting import wait_for

MB = 1_000_000


def assignment(*command: str, seconds: float = 300.0, **others: Any) -> Assignment:
    """Return an assignment of a shell script, or of a program."""
    words = ["sh", "-c", *command] if len(command) == 1 else list(command)
    made = Assignment(
        run=others.pop("run", "01TEST"),
        job="trial",
        node="bcn-1",
        side=Side.CLIENT,
        deadline_ns=time.time_ns() + round(seconds * 1e9),
        command=words,
        network=Network.NONE,
    )
    return replace(made, **others)


def start(directory: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "skyhop_testbed.executor", str(directory)],
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **environment},
    )


@pytest.fixture
def execute(tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Execute an assignment in `tmp_path/run`; return its result."""
    needs_namespaces()
    directory = tmp_path / "run"
    directory.mkdir()

    def run(given: Assignment) -> dict[str, Any]:
        given.write(directory)
        done = start(directory)
        _, said = done.communicate(timeout=120)
        assert done.returncode == 0, said
        result: dict[str, Any] = json.loads((directory / RESULT_FILE).read_text())
        return result

    yield run
    assert not is_alive(directory)


def execute_as_ordinary_user(directory: Path) -> int:
    """Execute a run's assignment without privileges; return the executor's exit status."""
    if os.geteuid() == 0:
        for place in (directory, directory / "run.json"):
            os.chown(place, USER, USER)
    command = [*as_other_user(directory), sys.executable, "-m", "skyhop_testbed.executor"]
    return subprocess.run([*command, str(directory)], check=False, timeout=120).returncode


def printed(tmp_path: Path) -> str:
    return (tmp_path / "run" / "stdout").read_text()


def survivors(mark: str) -> list[str]:
    """Return the other processes with the mark in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in words and int(file.parent.name) != os.getpid():
            found.append(words)
    return found


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("true", ("complete", None, 0, None), marks=pytest.mark.soak),
        pytest.param("exit 3", ("failed", "exit", 3, None), marks=pytest.mark.integration),
        pytest.param(
            "kill -SEGV $$", ("failed", "signal", None, signal.SIGSEGV), marks=pytest.mark.soak
        ),
        pytest.param("sleep 60 & true", ("complete", None, 0, None), marks=pytest.mark.soak),
    ],
)
def test_a_run_ends_as_its_program_does(
    execute: Callable[..., dict[str, Any]],
    script: str,
    expected: tuple[object, ...],
) -> None:
    result = execute(assignment(script))
    found = (result["state"], result["reason"], result["exit"], result["signal"])
    assert found == expected


@pytest.mark.soak
def test_a_program_that_is_not_there_is_no_run(execute: Callable[..., dict[str, Any]]) -> None:
    result = execute(assignment("nosuchprogram", "-x"))
    assert (result["state"], result["reason"]) == ("failed", "deploy")
    assert result["message"] == "nosuchprogram: No such file or directory"


@pytest.mark.soak
def test_time_over_is_what_the_job_says(execute: Callable[..., dict[str, Any]]) -> None:
    result = execute(assignment("sleep", "600", seconds=10.0))
    assert (result["state"], result["reason"]) == ("failed", "timeout")
    assert result["signal"] == signal.SIGTERM, "it is not killed after the grace"


@pytest.mark.soak
def test_time_over_may_be_success(execute: Callable[..., dict[str, Any]]) -> None:
    result = execute(assignment("sleep", "600", seconds=10.0, timeout_is_success=True))
    assert (result["state"], result["reason"], result["partial"]) == ("complete", "timeout", False)


@pytest.mark.integration
def test_a_program_sees_its_work_and_nothing_of_the_host(
    execute: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    secret = tmp_path / "agent.key"
    secret.write_text("secret")
    other = tmp_path / "run" / "run.json"
    script = f"""
        ls -d /root {tmp_path}; ls /home | grep -v run
        cat {secret} {other} /etc/shadow /proc/1/environ && echo read a secret
        touch /usr/x /etc/x /x && echo wrote to the system
        mount -t tmpfs none /tmp && echo mounted
        unshare -Ur true && echo made a namespace
        test $(ls /proc | grep -c '^[0-9]') -lt 10 || echo saw others
        test $(cat /proc/net/dev | wc -l) -eq 3 || echo saw devices
        kill -9 1
        grep -q '^CapBnd:.0*$' /proc/self/status || echo has capabilities
        grep -q 'NoNewPrivs:.1' /proc/self/status || echo may gain privileges
        touch /tmp/x "$HOME/result" && hostname && echo end
    """
    result = execute(assignment(script))
    assert printed(tmp_path).split() == ["bcn-1", "end"]
    assert result["files"] == 1
    assert (tmp_path / "run" / "work" / "result").exists()


_WITH_KEY = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.syscall(250, 1, None)
libc.syscall(248, b"user", b"skyhop-probe", b"secret", 6, -3)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Start a command with a key in its session keyring (system call numbers of x86-64)."""
_BWRAP = [
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
    *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
    *("--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "SANDBOXED", "1"),
]


@pytest.mark.soak
def test_nothing_is_possible_in_a_sandbox_that_bubblewrap_forbids(tmp_path: Path) -> None:
    """Check the comparison in docs/testbed/job-file.md: run the same probe inside both."""
    needs_namespaces()
    needs_program("bwrap", "bwrap")
    probe = Path(__file__).with_name("sandbox_probe.py").read_text()
    directory = tmp_path / "run"
    directory.mkdir()
    assignment("/usr/bin/python3", "-c", probe, env={"SANDBOXED": "1"}).write(directory)
    with_key = [sys.executable, "-c", _WITH_KEY]
    executor = [sys.executable, "-m", "skyhop_testbed.executor", str(directory)]
    subprocess.run([*with_key, *executor], check=True, timeout=120)
    theirs = subprocess.run(
        [*with_key, *_BWRAP, "/usr/bin/python3", "-c", probe],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if theirs.returncode:
        missing("bwrap", f"it does not work here: {theirs.stderr.strip()[-200:]}")
    possible = printed(tmp_path).splitlines()
    print(f"ours: {possible}\nbubblewrap: {theirs.stdout.splitlines()}")
    assert (directory / "stderr").read_text() == ""
    # The key is really there, so the probe can find it outside a sandbox.
    assert platform.machine() != "x86_64" or "find a key" in theirs.stdout.splitlines()
    assert possible == []


@pytest.mark.soak
def test_the_hosts_environment_stays_outside(
    tmp_path: Path, execute: Callable[..., dict[str, Any]]
) -> None:
    os.environ["SECRET_OF_THE_AGENT"] = "token"
    try:
        env = {"COLOUR": "red", "LD_PRELOAD": "/x.so", "SKYHOP_RUN": "other", "HOME": "/root"}
        execute(assignment("env", "-0", env=env, server="10.0.0.1", port=5201))
    finally:
        del os.environ["SECRET_OF_THE_AGENT"]
    found = dict(line.split("=", 1) for line in printed(tmp_path).strip("\0").split("\0"))
    assert found["COLOUR"] == "red"
    assert found["SKYHOP_RUN"] == "01TEST"
    assert found["HOME"] == "/home/run"
    assert (found["LEOTEST_SERVER"], found["LEOTEST_SERVERIP"]) == ("0", "10.0.0.1")
    assert not {"SECRET_OF_THE_AGENT", "LD_PRELOAD", "PYTHONPATH"} & set(found)


@pytest.mark.soak
def test_files_of_the_job_are_there_and_not_kept_unchanged(
    tmp_path: Path, execute: Callable[..., dict[str, Any]]
) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "list.txt").write_text("a\n")
    (inputs / "log.txt").write_text("")
    execute(assignment("cat list.txt; echo b >> log.txt", inputs=str(inputs)))
    assert printed(tmp_path) == "a\n"
    manifest = json.loads((tmp_path / "run" / keep.FILE).read_text())
    assert [each["name"] for each in manifest["files"]] == ["log.txt"]


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("directives", "steps"), [("", []), ("skyhop_testbed.executor=info", ["started", "executing"])]
)
def test_the_environment_chooses_the_log_lines_and_not_the_output(
    tmp_path: Path, directives: str, steps: list[str]
) -> None:
    assignment("echo out; echo error >&2").write(tmp_path)
    done = start(tmp_path, SKYHOP_LOG=directives)
    _, said = done.communicate(timeout=120)
    assert done.returncode == 0, said
    found = re.findall(r"Z  INFO skyhop_testbed\.executor\.journal: step (\w+)", said.decode())
    assert [step for step in found if step in ("started", "executing")] == steps
    assert said.count(b"\n") == len(found)
    assert (tmp_path / "stdout").read_text() + (tmp_path / "stderr").read_text() == "out\nerror\n"


@pytest.mark.soak
def test_output_is_bounded_and_the_program_goes_on(
    tmp_path: Path, execute: Callable[..., dict[str, Any]]
) -> None:
    size = cases(200) * MB
    script = f"head -c {size} /dev/zero; echo end >&2"
    limits = Limits(output_bytes=100_000)
    result = execute(assignment(script, limits=limits, seconds=120.0))
    assert result["state"] == "complete"
    assert result["stdout"] == {"bytes": size, "kept": 100_000}
    assert (tmp_path / "run" / "stdout").stat().st_size == 100_000
    assert (tmp_path / "run" / "stderr").read_text() == "end\n"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("script", "limits", "reason"),
    [
        # Several files, as a single one would end by SIGXFSZ.
        (
            "i=0; while :; do i=$((i+1)); head -c 3000000 /dev/zero > f$i; done",
            Limits(disk_bytes=20 * MB),
            "disk",
        ),
        ("head -c 30000000 /dev/zero > f; exit 7", Limits(disk_bytes=20 * MB), "exit"),
        # Address space of one process, and resident memory of several.
        ("exec python3 -c 'x = bytearray(900_000_000)'", Limits(memory_bytes=300 * MB), "exit"),
        (
            "for i in 1 2 3 4; do "
            "python3 -c 'x = bytearray(b\"x\" * 80_000_000); import time; time.sleep(9)' & "
            "done; wait",
            Limits(memory_bytes=250 * MB),
            "memory",
        ),
    ],
)
def test_limits_hold(
    execute: Callable[..., dict[str, Any]], script: str, limits: Limits, reason: str
) -> None:
    result = execute(assignment(script, limits=limits))
    assert (result["state"], result["reason"]) == ("failed", reason)


@pytest.mark.soak
def test_a_bomb_of_forks_is_kept_in(execute: Callable[..., dict[str, Any]]) -> None:
    bomb = ":() { : & : & }; i=0; while [ $i -lt 200 ]; do sleep 5 & i=$((i+1)); done; wait"
    result = execute(assignment(bomb, limits=Limits(processes=20), seconds=4.0))
    assert result["state"] == "failed"


@pytest.mark.soak
@pytest.mark.parametrize("counted", [GROUP, SOCKETS], ids=["group", "sockets"])
def test_traffic_over_the_hosts_network_is_counted_and_capped(tmp_path: Path, counted: str) -> None:
    """Check both ways of counting: an ordinary user's executor has no control group."""
    needs_namespaces()
    lacks = missing_for_groups()
    if counted == GROUP and lacks:
        missing("root", f"control groups are counted by BPF programs: {lacks}")
    directory = tmp_path / "run"
    directory.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sends = f"exec 3<>/dev/tcp/127.0.0.1/{port}; while :; do head -c 400000; sleep 0.1; done"
        command = ["bash", "-c", f"{sends} < /dev/zero >&3"]
        assignment(*command, network=Network.HOST, data_cap_bytes=2 * MB).write(directory)
        pid = os.fork()
        if pid == 0:
            connection, _ = listener.accept()
            while connection.recv(1 << 16):
                pass
            os._exit(0)
        if counted == GROUP:
            done = start(directory).wait(120)
        else:
            done = execute_as_ordinary_user(directory)
        os.waitpid(pid, 0)
    assert done == 0
    result = json.loads((directory / RESULT_FILE).read_text())
    assert (result["state"], result["reason"]) == ("failed", "data-cap")
    assert 2 * MB < result["traffic"]["tx_bytes"] < 8 * MB
    assert result["traffic"]["counted"] == counted


@pytest.mark.soak
def test_stopping_says_why_and_keeps_what_there_is(tmp_path: Path) -> None:
    needs_namespaces()
    directory = tmp_path / "run"
    directory.mkdir()
    script = "trap 'echo told > told; exit 0' TERM; touch began; sleep 60 & wait"
    assignment(script).write(directory)
    executor = start(directory)
    wait_for((directory / "work" / "began").exists)
    (directory / STOP_FILE).write_text(json.dumps({"reason": "scavenger"}))
    executor.send_signal(signal.SIGTERM)
    executor.communicate(timeout=120)
    result = json.loads((directory / RESULT_FILE).read_text())
    assert (result["state"], result["reason"]) == ("aborted", "scavenger")
    assert result["partial"]
    manifest = json.loads((directory / keep.FILE).read_text())
    assert {each["name"] for each in manifest["files"]} == {"began", "told"}


@pytest.mark.soak
def test_who_does_not_listen_is_killed_within_the_grace(tmp_path: Path) -> None:
    needs_namespaces()
    directory = tmp_path / "run"
    directory.mkdir()
    script = "trap '' TERM; touch began; while :; do sleep 1; done"
    assignment(script, network=Network.HOST).write(directory)
    executor = start(directory)
    wait_for((directory / "work" / "began").exists)
    executor.send_signal(signal.SIGTERM)
    executor.communicate(timeout=120)
    assert json.loads((directory / RESULT_FILE).read_text())["signal"] == signal.SIGKILL
    assert not is_alive(directory)


MOMENTS = ["deploying", "started", "executing", "stopping", "any"]


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_executor_leaves_nothing_and_is_never_repeated(
    tmp_path: Path, moment: str
) -> None:
    needs_namespaces()
    for number in range(max(1, kills() // 10)):
        directory = tmp_path / f"run{number}"
        directory.mkdir()
        mark = f"7{random.randrange(10**8):08d}"
        counter = tmp_path / "inputs"
        counter.mkdir(exist_ok=True)
        script = f"trap '' TERM; echo once >> began; (setsid sleep {mark} &); sleep {mark}"
        assignment(script, inputs=str(counter)).write(directory)
        executor = start(directory)
        if moment == "stopping":
            wait_for((directory / "work" / "began").exists)
            executor.send_signal(signal.SIGTERM)
        _kill_at(executor, directory, moment)
        wait_for(lambda d=directory: not is_alive(d))  # type: ignore[misc]
        assert survivors(mark) == []
        assert str(directory) not in Path("/proc/self/mountinfo").read_text()
        began = directory / "work" / "began"
        times = began.read_text() if began.exists() else None
        if not has_started(directory):
            continue
        again = start(directory)
        again.communicate(timeout=120)
        result = json.loads((directory / RESULT_FILE).read_text())
        assert (result["state"], result["reason"]) == ("failed", "killed")
        assert (began.read_text() if began.exists() else None) == times


def _kill_at(executor: subprocess.Popen[bytes], directory: Path, moment: str) -> None:
    def reached() -> bool:
        return any(step.step == moment for step in read_journal(directory))

    if moment == "any":
        time.sleep(random.uniform(0.0, 0.3))
    else:
        wait_for(reached)
    executor.kill()
    executor.communicate()


@pytest.mark.soak
def test_two_executors_do_not_share_a_run(tmp_path: Path) -> None:
    needs_namespaces()
    directory = tmp_path / "run"
    directory.mkdir()
    assignment("touch began; sleep 60").write(directory)
    first = start(directory)
    wait_for((directory / "work" / "began").exists)
    assert is_alive(directory)
    second = start(directory)
    _, said = second.communicate(timeout=120)
    assert second.returncode == 1
    assert b"another executor works on this run" in said
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=120)
    # A third executor finds the result, and does nothing.
    before = (directory / "journal.jsonl").read_bytes()
    third = start(directory)
    third.communicate(timeout=120)
    assert (third.returncode, (directory / "journal.jsonl").read_bytes()) == (0, before)


def test_a_journal_that_was_cut_off_still_says_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"at_ns": 1, "step": "started"}\n{"at_ns": 2, "st')
    assert has_started(tmp_path)
    journal = Journal(tmp_path)
    journal.add(3, Step.FINISHED)
    assert [step.step for step in read_journal(tmp_path)] == ["started", "finished"]
    with (tmp_path / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.soak
def test_a_scenario_runs_in_the_sandbox(execute: Callable[..., dict[str, Any]]) -> None:
    text = (
        '[run]\nduration = "1 s"\n[path]\nkind = "fixed"\nrtt = "20 ms"\n'
        '[link]\nrate = "5 Mbit/s"\nqueue = "1 BDP"\n[[flow]]\ncc = "cubic"\n'
    )
    given = assignment("true", command=None, scenario=text, seconds=60.0)
    result = execute(given)
    assert (result["state"], result["exit"]) == ("complete", 0), result
    assert result["files"] >= 7


def test_keep_follows_no_link_and_leaves_what_is_odd(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (work / "a.json").write_text("{}")
    (work / "sub" / "deep" / "b.json").write_text("[]")
    (work / "c.log").write_text("log")
    (work / "link.json").symlink_to(tmp_path / "secret")
    (work / "way").symlink_to(tmp_path)
    os.link(tmp_path / "secret", work / "hard.json")
    os.mkfifo(work / "fifo.json")
    (work / "odd\n.json").write_text("x")
    (work / os.fsdecode(b"bad\xff.json")).write_text("x")
    found = [*keep.choose(work, ["*.json", keep.TELEMETRY])]
    kept = [each for each in found if isinstance(each, keep.KeptFile)]
    left = [each for each in found if isinstance(each, keep.SkippedFile)]
    assert {each.name for each in kept} == {"a.json", "sub/deep/b.json"}
    assert {each.name for each in left} == {
        "link.json", "hard.json", "fifo.json", "odd\\n.json", "bad\\udcff.json",
    }  # fmt: skip
    assert {
        each.name for each in keep.choose(work, ["sub"]) if isinstance(each, keep.KeptFile)
    } == {"sub/deep/b.json"}
    descriptor = keep.open_kept(work, "sub/deep/b.json")
    assert os.read(descriptor, 10) == b"[]"
    os.close(descriptor)
    for name in ("link.json", "way/secret"):
        with pytest.raises(OSError, match=r"."):
            keep.open_kept(work, name)


JOB: dict[str, Any] = {
    "id": "trial",
    "nodes": ["bcn-1"],
    "server": "ams-1",
    "length": "1 min",
    "when": {"at": "now"},
    "run": {
        "client": ["iperf3", "-c", "{server}", "-p", "{port}", "-C", "{cc}", "{other"],
        "serve": ["iperf3", "-s", "-p", "{port}"],
    },
}


def test_a_job_becomes_an_assignment_on_each_side() -> None:
    job = job_of(JOB)
    more = {"run": "R", "node": "n", "deadline_ns": 1, "server": "10.0.0.1", "port": 7, "cc": "bbr"}
    client = Assignment.of(job, Side.CLIENT, **more)
    server = Assignment.of(job, Side.SERVER, **more)
    filled = filled_in(client.command or [], client)
    assert filled == ["iperf3", "-c", "10.0.0.1", "-p", "7", "-C", "bbr", "{other"]
    assert filled_in(server.command or [], server) == ["iperf3", "-s", "-p", "7"]
    wanted = {"cc": "skyhop:bbr2", "parameters": {"beta": 0.3}, "sysctl": {"tcp_ecn": 1}}
    job = job_of({**JOB, "kernel": wanted, "run": {**JOB["run"], "network": "veth"}})
    access = job.kernel.access("/run/kernel.sock", "t" * 32)
    assert (access.cc, access.parameters, access.sysctl) == tuple(wanted.values())
    assert access.grants() == ["cc", "sysctl"]
    # A server does not fail by its deadline: it ends when its client has.
    assert (client.timeout_is_success, server.timeout_is_success) == (False, True)
    assert environment_of(server, "/home/run")["LEOTEST_SERVER"] == "1"


def test_an_assignment_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = assignment("true", data_cap_bytes=5, env={"A": "b"})
    given.write(tmp_path)
    assert Assignment.read(tmp_path) == given
    assert (tmp_path / "run.json").stat().st_mode & 0o077 == 0


def test_damaged_assignments_are_refused() -> None:
    whole = asdict(assignment("true", data_cap_bytes=5, env={"A": "b"}, inputs="/x"))
    whole["kernel"] = {"socket": "/s", "token": "t", "cc": "skyhop:bbr2", "parameters": {"a": 1}}
    text = json.dumps(whole, indent=1).encode()
    Trial("assignment", [text]).run(lambda content: Assignment.from_json(content, "run.json"))


def test_containers_are_told_everything_and_labelled(tmp_path: Path) -> None:
    given = assignment(
        "true", image="example/ping:1", backend=Backend.PODMAN, server="10.0.0.1", env={"A": "b c"}
    )
    for back_end in (Podman(ManualClock()), Docker(ManualClock())):
        words = back_end.command(given, tmp_path)
        assert words[:3] == [back_end.name, "run", "--rm"]
        assert words[-5:] == ["--", "example/ping:1", "sh", "-c", "true"]
        text = " ".join(words)
        for part in (
            "--name skyhop_01TEST", "--label skyhop.run=01TEST", "--label skyhop.job=trial",
            "--network none", f"--volume {tmp_path}:/artifacts", "--cap-drop ALL",
            "--security-opt no-new-privileges",
        ):  # fmt: skip
            assert part in text
        assert "b c" not in text
        assert "--env " not in text


@pytest.mark.parametrize("backend", [Backend.PODMAN, Backend.DOCKER])
def test_a_back_end_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    given = assignment("true", image="example/ping:1", backend=backend)
    why = launcher(backend, ManualClock()).unavailable_reason(given)
    assert why == f"{backend.value} is not installed on this node"


@pytest.mark.soak
@pytest.mark.parametrize("backend", [Backend.PODMAN, Backend.DOCKER])
def test_a_back_end_that_is_not_there_is_one_line(tmp_path: Path, backend: Backend) -> None:
    assignment("true", image="example/ping:1", backend=backend).write(tmp_path)
    executor = start(tmp_path, PATH=str(tmp_path))
    assert executor.communicate(timeout=120)[1] == b""
    result = json.loads((tmp_path / RESULT_FILE).read_text())
    assert (result["state"], result["reason"]) == ("failed", "needs")
    assert result["message"] == f"{backend.value} is not installed on this node"


@pytest.mark.soak
def test_an_ordinary_users_executor_does_the_same(tmp_path: Path) -> None:
    needs_namespaces()
    if os.geteuid() != 0:
        missing("root", "the other tests run as an ordinary user already")
    assignment("id -u; unshare -Ur true || echo not nested; touch x").write(tmp_path)
    assert execute_as_ordinary_user(tmp_path) == 0
    assert (tmp_path / "stdout").read_text().split("\n")[:2] == [str(USER), "not nested"]
    assert json.loads((tmp_path / RESULT_FILE).read_text())["files"] == 1
