"""The whole testbed while its parts are killed: nothing runs twice, nothing is lost in silence.

An orchestrator, two clients and a server's node are real processes; each run's program calls the
test when it begins, so that the test notices a second start. A killed process is started again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import skyhop_command
from testbed_machine import (
    HOSTS_NETWORK,
    Agent,
    Machine,
    Wire,
    check_tables,
    fill,
    machine,
    processes_about,
    seen_by,
)

from needs import cases, needs_namespaces, needs_program, recorded
from skyhop.errors import SkyhopError
from skyhop_testbed import api
from skyhop_testbed.client import Testbed
from skyhop_testbed.words import ENDED, State
from waiting import wait_for

_BULK_BYTES = 3_000_000
_LIFE_S = {"now": 1.8, "server": 2.6, "planned": 3.8}
"""Approximate length of runs of these kinds, in s."""
_DIRECTED = (
    ("agent", "planned"),
    ("orchestrator", "claimed"),
    ("agent", "deploying"),
    ("executor", "executing"),
    ("orchestrator", "executing"),
    ("agent", "executing"),
    ("server", "waiting-server"),
    ("agent", "finishing"),
    ("agent", "armed"),
    ("orchestrator", "finishing"),
)
"""Victims, and states of a run at which they are killed: each once, then at random times."""


class Trial:
    """Testbed, with a record of the processes that were killed."""

    def __init__(self, made: Machine, seed: int) -> None:
        self.made, self.draw = made, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.jobs = 0
        self.without: set[str] = set()
        """Runs whose executor was killed."""

    def submit(self, kind: str) -> str:
        """Submit a job of a kind; return its id."""
        self.jobs += 1
        name, port = f"j{self.jobs}", self.made.sink.port
        server = kind == "server"
        says = f"echo {{run}} > /dev/tcp/127.0.0.1/{port}"
        leaves = f"echo {{run}} > name.txt; head -c {_BULK_BYTES} /dev/zero > bulk"
        serving = f"echo {{run}}.s > /dev/tcp/127.0.0.1/{port}; exec sleep 300"
        when = {
            "planned": f"at = {time.time_ns() + 2 * 10**9}",
            "armed": f'trigger = "pop_ping_latency_ms > 100"\nend = {time.time_ns() + 3600 * 10**9}'
            "\nmax_runs = 1",
        }.get(kind, 'at = "now"')
        made = self.made.submit(
            f"""id = "{name}"
nodes = ["{self.draw.choice(["a", "b"]) if kind != "armed" else "a"}"]
{'server = "s"' if server else ""}
length = "300 s"
overhead = false
[when]
{when}
[run]
client = ["bash", "-c", "{says}; sleep 0.7; {leaves}"]
{f'serve = ["bash", "-c", "{serving}"]' if server else ""}
network = "host"
files = ["input.bin"]
""",
            input=bytes(200_000),
        )
        return made.id

    def state_of(self, job: str) -> tuple[str, str, str] | None:
        """Return client, id and state of a job's run, as in its client's database."""
        for name in ("a", "b"):
            for key, local_run in self.made.agents[name].local_runs().items():
                if local_run["job"] == job:
                    return name, key, local_run["state"]
        for run in self.made.runs().values():
            if run["job"] == job:
                return run["client"], run["id"], run["state"]
        return None

    def kill_at(self, who: str, state: str) -> None:
        """Kill a process as soon as a new run is in a state, or just past it."""
        job = self.submit("server" if "server" in (who, state.partition("-")[2]) else state)
        limit = time.monotonic() + 120
        order = [each.value for each in State]
        while True:
            found = self.state_of(job)
            if found and order.index(found[2]) >= order.index(state):
                break
            assert time.monotonic() < limit, f"{job} never got to {state}\n{self.made.log}"
            time.sleep(0.001)
        self.kill(who, *found)

    def kill(self, who: str, client: str, run: str, state: str) -> None:
        """Kill a process, and start it again."""
        made = self.made
        self.kills[f"{who} {state}"] += 1
        if who == "orchestrator":
            made.end_serving()
            made.serve()
        elif who == "executor":
            agent = made.agents[client]
            wait_for(lambda: agent.executor(run) or self.is_over(agent, run), 120, lambda: made.log)
            pid = agent.executor(run)
            if pid is None:
                self.kills[f"{who} {state}"] -= 1
                return
            self.without.add(run)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        else:
            agent = made.agents["s" if who == "server" else client]
            agent.end()
            agent.start()

    def is_over(self, agent: Agent, run: str) -> bool:
        """Return whether a run's executor will not start any more."""
        local_run = agent.local_runs().get(run)
        return local_run is not None and local_run["state"] in (State.FINISHING, *ENDED)

    def kill_at_random(self) -> None:
        """Kill a random process at a random time of a run."""
        who = self.draw.choice(["agent", "agent", "executor", "executor", "orchestrator", "server"])
        kind = "server" if who == "server" else self.draw.choice(["now", "server", "planned"])
        job = self.submit(kind)
        wait_for(lambda: self.state_of(job))
        until = time.monotonic() + self.draw.uniform(0, _LIFE_S[kind])
        time.sleep(max(0.0, until - time.monotonic()))
        found = self.state_of(job)
        assert found
        self.kill(who, *found)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Callable[[int], Trial]]:
    needs_namespaces()
    needs_program("bash")
    with machine(tmp_path) as made:
        yield lambda seed: _prepared(made, seed)


def _prepared(made: Machine, seed: int) -> Trial:
    made.configure()
    terminal = made.directory / "terminal.json"
    _say(terminal, 30.0)
    for name, node in (("a", {}), ("b", {}), ("s", {"address": "127.0.0.1"})):
        made.agent(name, "--terminal", str(terminal), **node).start()
    with made.testbed() as testbed:
        for name in made.agents:
            # The next cleanup removes all runs that have ended.
            testbed.set_policy(name, {**HOSTS_NETWORK, "keep_days": 0})
        wait_for(lambda: all(node.online for node in testbed.nodes()), 120, lambda: made.log)
    return Trial(made, seed)


def _say(terminal: Path, latency_ms: float) -> None:
    aside = terminal.with_suffix(".new")
    aside.write_text(json.dumps({"pop_ping_latency_ms": latency_ms}))
    aside.replace(terminal)


@pytest.mark.soak
@pytest.mark.alone
def test_whoever_is_killed_no_run_is_begun_twice_and_none_is_lost(
    trial: Callable[[int], Trial],
) -> None:
    seed = int(os.environ.get("SKYHOP_SEED") or random.randrange(2**32))
    tried = trial(seed)
    made = tried.made
    directed = _DIRECTED * max(1, cases(1) // 4)
    at_random = 0 if cases(1) == 1 else 10 * cases(1)
    with recorded("kill", "testbed", len(directed) + at_random, seed):
        for who, state in directed:
            tried.kill_at(who, state)
        _say(made.directory / "terminal.json", 300.0)
        for _ in range(at_random):
            tried.kill_at_random()
        runs = made.wait_ended()
        told = f"{sum(tried.kills.values())} kills: {dict(sorted(tried.kills.items()))}; " + str(
            Counter(f"{run['state']} {run['reason'] or ''}".strip() for run in runs.values())
        )
        print(told)
        starts = made.sink.starts()
        assert not {run: count for run, count in starts.items() if count > 1}, told
        for run in runs.values():
            assert run["state"] in ENDED
            if run["state"] == State.COMPLETE:
                assert starts[run["id"]] == 1
                _check_files(made, run["id"])
            else:
                # Only the death of its executor ends a run.
                assert run["id"] in tried.without, (run, made.log)
                assert (run["state"], run["reason"]) == ("failed", "killed"), (run, made.log)
        check_tables(made)
        _check_nothing_is_left(made)


def _check_files(made: Machine, run: str) -> None:
    place = made.directory / "fetched" / run
    with made.testbed() as testbed:
        testbed.fetch(run, place)
    assert (place / "client" / "name.txt").read_text() == f"{run}\n"
    bulk = (place / "client" / "bulk").read_bytes()
    assert hashlib.sha256(bulk).digest() == hashlib.sha256(bytes(_BULK_BYTES)).digest()


def _check_nothing_is_left(made: Machine) -> None:
    """Check that agents and runs left no processes, mounts or files of runs."""
    for agent in made.agents.values():
        local_runs = agent.local_runs()
        client = {
            key: local_run for key, local_run in local_runs.items() if local_run["side"] == "client"
        }
        runs = made.runs()
        assert {
            key: local_run["state"]
            for key, local_run in client.items()
            if not local_run["is_silent"]
        } == {
            key: runs[key]["state"]
            for key, local_run in client.items()
            if not local_run["is_silent"]
        }
        agent.end(signal.SIGTERM)
        # A starting agent deletes the files that have expired.
        agent.start()
        keeps = lambda agent=agent: [*(agent.state / "runs").glob("[!.]*")]  # noqa: E731
        wait_for(lambda keeps=keeps: not keeps(), 120, lambda keeps=keeps: f"{keeps()}\n{made.log}")
        agent.end(signal.SIGTERM)
    assert processes_about(str(made.directory / "a"), f"127.0.0.1/{made.sink.port}") == []
    assert str(made.directory) not in Path("/proc/self/mounts").read_text()
    incoming = made.state / "runs" / "incoming"
    assert [*incoming.rglob("*")] == [incoming / ".skyhop"]


# --- the orchestrator does not answer ---


def _light(
    name: str, command: str, when: str = 'at = "now"', *, files: bool = False, **keys: str
) -> str:
    """Return a job on node a that does not load the link: one line of bash."""
    first = {"overhead": "false", "length": '"120 s"', **keys}
    lines = "\n".join(f"{key} = {value}" for key, value in first.items())
    text = json.dumps(["bash", "-c", command]) + '\nnetwork = "host"'
    text += '\nfiles = ["input.bin"]' if files else ""
    return f'id = "{name}"\nnodes = ["a"]\n{lines}\n[when]\n{when}\n[run]\nclient = {text}\n'


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Machine]:
    needs_namespaces()
    needs_program("bash")
    with machine(tmp_path) as made:
        made.configure()
        yield made


def _online(made: Machine) -> None:
    with made.testbed() as testbed:
        wait_for(lambda: all(n.online for n in testbed.nodes()), 120, lambda: made.log)


@pytest.mark.soak
def test_runs_that_come_due_while_nobody_answers_are_told_of_afterwards_once(
    made: Machine,
) -> None:
    agent = made.agent("a")
    agent.start()
    _online(made)
    begin_ns = time.time_ns() + 10**9
    says = f"echo {{run}} > /dev/tcp/127.0.0.1/{made.sink.port}; echo {{run}} > name.txt"
    for place in range(3):
        made.submit(_light(f"due-{place}", says, f"at = {begin_ns + place * 10**9}"))
    names = set(made.runs())
    held = lambda: json.dumps(agent.local_runs())  # noqa: E731
    time.sleep(0.3)
    # The orchestrator hangs for two runs, and is gone for the third; the agent restarts.
    made.served.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: len(made.sink.starts()) >= 1, 120, held)
    agent.end()
    agent.start()
    made.end_serving()
    wait_for(lambda: set(made.sink.starts()) == names, 120, held)
    wait_for(
        lambda: all(local_run["state"] == "finishing" for local_run in agent.local_runs().values()),
        120,
        held,
    )
    made.serve()
    runs = made.wait_ended()
    assert {run["state"] for run in runs.values()} == {"complete"}
    assert made.sink.starts() == dict.fromkeys(names, 1)
    check_tables(made)
    with made.testbed() as testbed:
        for name in names:
            told = [each.state for each in testbed.run(name).events]
            assert told == ["claimed", "deploying", "executing", "finishing", "complete"]
            testbed.fetch(name, made.directory / name)
            assert (made.directory / name / "client" / "name.txt").read_text() == f"{name}\n"


_SCALE = 25.0
"""Factor by which silence, heartbeats and the orchestrator's timeouts are shortened.

Timeouts of the node itself (3 s for the answer to a claim) are not scaled.
"""
_AWAY_S = 600.0 / _SCALE
_LENGTH_S, _LATER_S = 60.0, 150.0
"""Length of runs, which a busy machine also keeps, and the start of one run after the outage, in s.
"""


@pytest.mark.soak
@pytest.mark.alone
def test_after_ten_minutes_without_network_nothing_is_lost_and_nothing_comes_twice(
    made: Machine,
) -> None:
    """Cut off the node, which works on; the orchestrator gives its runs up until they report."""
    made.configure(heartbeat_s=10.0 / _SCALE, lost_after_s=75.0 / _SCALE)
    wire = Wire(made.served.agents)
    terminal = made.directory / "terminal.json"
    _say(terminal, 30.0)
    agent = made.agent("a", "--terminal", str(terminal), wire=wire)
    agent.start()
    _online(made)
    says = f"echo {{run}} > /dev/tcp/127.0.0.1/{made.sink.port}; cat input.bin > copy"
    through = f"{says}; sleep 2"
    now_ns = time.time_ns()
    # One run is executing when the network fails; three are due during the outage, in sequence.
    length = f'"{_LENGTH_S} s"'
    made.submit(_light("through", through, length=length, files=True), input=b"x" * 9_000)
    for place, after_s in enumerate((1.8, 3.0, 8.0, _LATER_S)):
        when = f"at = {now_ns + round(after_s * 10**9)}"
        text = _light(f"due-{place}", says, when, length=length, files=True)
        made.submit(text, input=bytes([place]) * 70_000)
    wait_for(lambda: len(agent.inputs()) == 5, 120, lambda: agent.log)
    wait_for(lambda: len(made.sink.starts()) == 1, 120, lambda: agent.log)
    wire.cut()
    cut_ns = time.time_ns()
    time.sleep(_AWAY_S - 1.0)
    wait_for(lambda: len(made.sink.starts()) >= 4, why=lambda: f"{agent.local_runs()}\n{agent.log}")
    # A starting orchestrator checks overdue runs at once, and otherwise every 15 s.
    made.end_serving()
    made.serve()
    lost = lambda: {name for name, run in made.runs().items() if run["state"] == "lost"}  # noqa: E731
    wait_for(lambda: len(lost()) >= 2, _LENGTH_S + 120, lambda: made.log)
    given_up = lost()
    with made.testbed() as testbed:
        assert not testbed.node("a").online
    wire.mend()
    mended_ns = time.time_ns()
    try:
        runs = made.wait_ended()
        wait_for(lambda: _is_told_of(made, cut_ns, mended_ns), 120, lambda: agent.log)
    finally:
        agent.end(signal.SIGTERM)
        wire.close()
    assert {run["state"] for run in runs.values()} == {"complete"}, (runs, made.log)
    assert made.sink.starts() == dict.fromkeys(runs, 1)
    check_tables(made)
    with made.testbed() as testbed:
        for name, run in runs.items():
            told = [each.state for each in testbed.run(name).events]
            assert [state for state in told if state != "lost"] == [
                "claimed", "deploying", "executing", "finishing", "complete",
            ], run  # fmt: skip
            assert ("lost" in told) == (name in given_up)
            testbed.fetch(name, made.directory / name)
            assert (made.directory / name / "client" / "copy").stat().st_size in (9_000, 70_000)


def _is_told_of(made: Machine, from_ns: int, to_ns: int) -> bool:
    """Return whether the terminal's telemetry of a time is there, each second once."""
    with made.testbed() as testbed:
        times = testbed.telemetry("a", from_ns, to_ns)["time_ns"].to_list()
    assert len(times) == len(set(times))
    return len(times) >= 0.8 * (to_ns - from_ns) / 1e9


# --- full disks ---


def _check_lines(log: str) -> None:
    """Check that errors are single lines, without tracebacks."""
    assert "Traceback" not in log, log


def _times_full(agent: Agent) -> int:
    """Return the number of times that the agent's database could not be written."""
    return agent.log.count("cannot be written; changes wait")


@pytest.mark.soak
def test_a_node_whose_disk_is_full_goes_on_when_there_is_room(made: Machine) -> None:
    agent = made.agent("a")
    agent.start(disk_kb=80_000)
    _online(made)
    with made.testbed() as testbed:
        # A floor of free space would keep runs from filling the disk.
        testbed.set_policy("a", {**HOSTS_NETWORK, "free_floor_bytes": 0})
    assert agent.process is not None
    place = seen_by(agent.process, agent.state)
    agent.state = place
    made.submit(_light("greedy", "head -c 100000000 /dev/zero > much; echo over; exit 3"))
    runs = made.wait_ended()
    (greedy,) = runs.values()
    assert (greedy["state"], greedy["reason"]) in {("failed", "exit"), ("failed", "disk")}
    is_whole = lambda: _times_full(agent) == agent.log.count("can be written again")  # noqa: E731
    wait_for(is_whole, why=lambda: agent.log)
    before = _times_full(agent)
    filler = fill(place)
    says = f"echo {{run}} > /dev/tcp/127.0.0.1/{made.sink.port}; echo {{run}} > name.txt"
    made.submit(_light("none", says))
    wait_for(lambda: _times_full(agent) > before, why=lambda: agent.log)
    time.sleep(1.0)
    filler.unlink()
    wait_for(is_whole, why=lambda: agent.log)
    made.submit(_light("more", says))
    runs = made.wait_ended()
    by_job = {run["id"]: (run["state"], run["reason"]) for run in runs.values()}
    assert sorted(str(each) for each in by_job.values())[0] == "('complete', None)", by_job
    assert set(by_job.values()) <= {
        ("complete", None),
        ("failed", "disk"),
        (greedy["state"], greedy["reason"]),
    }
    assert max(made.sink.starts().values()) == 1
    _check_lines(agent.log)
    check_tables(made)


def _make_users(testbed: Testbed, count: int) -> None:
    for place in range(count):
        testbed.put_user(api.PutUser(name=f"u{place}", role="user", team="y" * 500))


def _enlarge(pid: int, place: Path) -> None:
    """Free space on a process's small disk."""
    enter = [needs_program("nsenter"), "-t", str(pid), "-m"]
    command = [*enter, needs_program("mount"), "-o", "remount,size=60m", str(place)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.soak
def test_a_testbed_whose_disk_is_full_serves_nothing_half_and_goes_on(tmp_path: Path) -> None:
    needs_namespaces()
    made = Machine(tmp_path)
    try:
        made.serve(disk_kb=12_000)
        made.state = seen_by(made.served.process, made.state)
        made.served.directory = made.state
        # A floor of free space would refuse the job.
        made.configure(free_floor_bytes=1, free_floor_percent=1e-6)
        made.agent("a").start()
        _online(made)
        says = f"echo {{run}} > /dev/tcp/127.0.0.1/{made.sink.port}; echo {{run}} > name.txt"
        made.submit(_light("large", f"{says}; head -c 20000000 /dev/zero > bulk"))
        wait_for(made.sink.starts, 120, lambda: made.log)
        wait_for(lambda: "No space" in made.log or "full" in made.log, 120, lambda: made.log)
        (name,) = made.runs()
        with made.testbed() as testbed:
            with contextlib.suppress(SkyhopError):
                assert testbed.run(name).files == []
            filler = fill(made.state)
            with pytest.raises(SkyhopError, match="disk"):
                _make_users(testbed, 500)
        filler.unlink()
        _enlarge(made.served.process.pid, tmp_path / "orchestrator")
        runs = made.wait_ended()
        assert runs[name]["state"] == "complete"
        with made.testbed() as testbed:
            files = {file.name: file.size for file in testbed.run(name).files}
            testbed.fetch(name, tmp_path / "fetched")
        assert files["bulk"] == 20_000_000
        assert made.sink.starts() == {name: 1}
        check_tables(made)
        _check_lines(made.log)
    finally:
        made.close()


# --- the host's own traffic ---


_SENDS = """trap "" TERM; exec 3<>/dev/tcp/127.0.0.1/{port}
while :; do echo {{run}} >&3; sleep 0.05; done"""


@pytest.mark.soak
@pytest.mark.alone
def test_an_experiment_is_silent_three_seconds_after_the_hosts_traffic_begins(
    made: Machine,
) -> None:
    terminal = made.directory / "terminal.json"
    _traffic(terminal, 0.0)
    made.configure(reschedule_after_s=2.0)
    agent = made.agent("a", "--terminal", str(terminal))
    agent.start()
    _online(made)
    sends = _SENDS.format(port=made.sink.port)
    made.submit(_light("sends", sends, overhead="true", length='"60 s"'))
    (first,) = made.runs()
    wait_for(lambda: len(made.sink.lines) > 20, 120, lambda: agent.log)
    began = time.time()
    _traffic(terminal, 5e6)
    wait_for(lambda: made.runs()[first]["state"] == "rescheduled", 120, lambda: agent.log)
    last = max(at for at, line in made.sink.lines if line == first)
    print(f"the last packet came {last - began:.2f} s after the host's traffic began")
    assert 0 < last - began <= 3.0
    follower = next(run for run in made.runs().values() if run["after"] == first)
    with made.testbed() as testbed:
        event = next(e for e in testbed.run(first).events if e.state == "rescheduled")
    assert event.reason == "scavenger"
    assert follower["start_ns"] >= event.at_ns + 2 * 10**9
    # The owner's switch takes precedence over the ongoing traffic.
    _switch(made, "off")
    wait_for(lambda: made.sink.starts().get(follower["id"]), 120, lambda: agent.log)
    began = time.time()
    _switch(made, "on")
    switched = time.time()
    wait_for(lambda: made.runs()[follower["id"]]["state"] == "rescheduled", 120, lambda: agent.log)
    last = max(at for at, line in made.sink.lines if line == follower["id"])
    assert last - switched <= 3.0
    _switch(made, "auto")
    with made.testbed() as testbed:
        assert testbed.node("a").scavenger_mode == "auto"
        wait_for(lambda: testbed.node("a").scavenger_active, 120, lambda: agent.log)
        testbed.cancel("sends")
    # Files are uploaded after a quiet minute.
    _traffic(terminal, 0.0)
    made.wait_ended()
    check_tables(made)


def _traffic(terminal: Path, bps: float) -> None:
    aside = terminal.with_suffix(".new")
    values = {"downlink_throughput_bps": bps, "uplink_throughput_bps": bps}
    aside.write_text(json.dumps(values))
    aside.replace(terminal)


def _switch(made: Machine, mode: str) -> None:
    command = [*skyhop_command(), "testbed", "scavenger", "a", mode]
    command += ["--as", str(made.state / "admin.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"a: {mode}\n", done.stderr


# --- resources of an idle testbed ---

_AWAKE_PER_S = 800
"""Wake-ups per second of all threads of an orchestrator and five idle agents."""


@pytest.mark.soak
@pytest.mark.alone
def test_what_an_orchestrator_and_five_idle_agents_take(tmp_path: Path) -> None:
    with machine(tmp_path) as made:
        for place in range(5):
            made.agent(f"n{place}").start()
        _online(made)
        pids = [made.served.process.pid]
        pids += [agent.process.pid for agent in made.agents.values() if agent.process]
        # Imports and first calls at the start are not part of idling.
        time.sleep(2.0)
        before, awake, began = _cpu_s(pids), _awoken(pids), time.monotonic()
        time.sleep(5.0 if cases(1) == 1 else 20.0)
        took_s = time.monotonic() - began
        share = (_cpu_s(pids) - before) / took_s
        per_s = sum((_awoken(pids) - awake).values()) / took_s
        # Processes that read telemetry release their memory at their end.
        with made.testbed() as testbed:
            testbed.telemetry("n0", 0, time.time_ns())
            testbed.test_trigger("pop_ping_latency_ms > 1", "n0", 0, time.time_ns())
        sizes = [_pss_mb(pid) for pid in pids]
    print(f"{100 * share:.1f} % of a core, {per_s:.0f} wakes/s; PSS {sum(sizes):.0f} MB: {sizes}")
    # The rate of wake-ups is the same on any machine, the CPU time is not: some 5 % of a core,
    # or 8 % where system calls are slow.
    assert per_s < _AWAKE_PER_S
    assert share < 0.15
    assert sum(sizes) < 300


def _awoken(pids: list[int]) -> Counter[str]:
    """Return the context switches of each thread of processes, without ended threads."""
    counts: Counter[str] = Counter()
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):
                counts[task.name] = int((task / "schedstat").read_text().split()[2])
    return counts


def _cpu_s(pids: list[int]) -> float:
    """Return the CPU time of processes, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(word) for word in words[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    line = next(line for line in text.splitlines() if line.startswith("Pss:"))
    return round(int(line.split()[1]) / 1000, 1)
