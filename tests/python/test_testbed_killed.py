"""The whole testbed while its parts are killed: nothing runs twice, nothing is lost in silence.

An orchestrator, two clients and a server node, all real processes; each run's program calls the
test when it begins, so that two beginnings are seen. Whoever is killed is started again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import cases, needs_namespaces, needs_program, record_trial
from testbed_machine import Agent, Machine, check_tables, machine, processes_about, wait

from skyhop.testbed.words import ENDED, State

_BULK_BYTES = 3_000_000
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
"""Who is killed, and the state of a run at which: each once, then more of all at random moments."""


class Trial:
    """A testbed, and who of it was killed when."""

    def __init__(self, made: Machine, seed: int) -> None:
        self.made, self.draw = made, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.jobs = 0

    def submit(self, kind: str) -> str:
        """Submit a job of a kind; return its id."""
        self.jobs += 1
        name, port = f"j{self.jobs}", self.made.sink.port
        server = kind == "server"
        says = f"echo {{run}} > /dev/tcp/127.0.0.1/{port}"
        leaves = f"echo {{run}} > name.txt; head -c {_BULK_BYTES} /dev/zero > bulk"
        serving = f"echo {{run}}.s > /dev/tcp/127.0.0.1/{port}; exec sleep 60"
        when = {
            "planned": f"at = {time.time_ns() + 2 * 10**9}",
            "armed": f'trigger = "pop_ping_latency_ms > 100"\nend = {time.time_ns() + 3600 * 10**9}'
            "\nmax_runs = 1",
        }.get(kind, 'at = "now"')
        made = self.made.submit(
            f"""id = "{name}"
nodes = ["{self.draw.choice(["a", "b"]) if kind != "armed" else "a"}"]
{'server = "s"' if server else ""}
length = "40 s"
overhead = false
[when]
{when}
[run]
client = ["bash", "-c", "{says}; sleep 0.7; {leaves}"]
{f'serve = ["bash", "-c", "{serving}"]' if server else ""}
files = ["input.bin"]
""",
            input=bytes(200_000),
        )
        return str(made["id"])

    def state_of(self, job: str) -> tuple[str, str, str] | None:
        """Return a run of a job as its client's book has it: client, run and state."""
        for name in ("a", "b"):
            for key, life in self.made.agents[name].lives().items():
                if life["job"] == job:
                    return name, key, life["state"]
        for run in self.made.runs().values():
            if run["job"] == job:
                return run["client"], run["id"], run["state"]
        return None

    def kill_at(self, who: str, state: str) -> None:
        """Kill somebody as soon as a new run is in a state, or just past it."""
        job = self.submit("server" if "server" in (who, state.partition("-")[2]) else state)
        limit = time.monotonic() + 15
        order = [each.value for each in State]
        while True:
            found = self.state_of(job)
            if found and order.index(found[2]) >= order.index(state):
                break
            assert time.monotonic() < limit, f"{job} never got to {state}\n{self.made.log}"
            time.sleep(0.001)
        client, run, there = found
        self.kill(who, client, run)
        self.kills[f"{who} {there}"] += 1

    def kill(self, who: str, client: str, run: str) -> None:
        """Kill it, and start it again."""
        made = self.made
        if who == "orchestrator":
            made.end_serving()
            made.serve()
        elif who == "executor":
            agent = made.agents[client]
            wait(lambda: agent.executor(run) or self.is_over(agent, run), 10, lambda: made.log)
            pid = agent.executor(run)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        else:
            agent = made.agents["s" if who == "server" else client]
            agent.end()
            agent.start()

    def is_over(self, agent: Agent, run: str) -> bool:
        """Return whether a run's executor is not to come any more."""
        life = agent.lives().get(run)
        return life is not None and life["state"] in (State.FINISHING, *ENDED)

    def kill_at_random(self) -> None:
        """Kill one of all at a moment of chance in the life of a run."""
        who = self.draw.choice(["agent", "agent", "executor", "executor", "orchestrator", "server"])
        kind = "server" if who == "server" else self.draw.choice(["now", "server", "planned"])
        job = self.submit(kind)
        wait(lambda: self.state_of(job), 5)
        until = time.monotonic() + self.draw.uniform(0, 2.5 + 2 * (kind == "planned"))
        time.sleep(max(0.0, until - time.monotonic()))
        found = self.state_of(job)
        assert found
        self.kill(who, found[0], found[1])
        self.kills[f"{who} {found[2]}"] += 1


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
            # Whatever is over is let go of at the next look.
            testbed.set_policy(name, {"keep_days": 0})
        wait(lambda: all(node["online"] for node in testbed.nodes()), 30, lambda: made.log)
    return Trial(made, seed)


def _say(terminal: Path, latency_ms: float) -> None:
    aside = terminal.with_suffix(".new")
    aside.write_text(json.dumps({"pop_ping_latency_ms": latency_ms}))
    aside.replace(terminal)


@pytest.mark.alone
def test_whoever_is_killed_no_run_is_begun_twice_and_none_is_lost(
    trial: Callable[[int], Trial],
) -> None:
    seed = int(os.environ.get("SKYHOP_SEED") or random.randrange(2**32))
    tried = trial(seed)
    made = tried.made
    for who, state in _DIRECTED * max(1, cases(1) // 4):
        tried.kill_at(who, state)
    _say(made.directory / "terminal.json", 300.0)
    for _ in range(cases(2) * (1 if cases(1) == 1 else 5)):
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
            assert run["reason"], run
    complete = sum(run["state"] == State.COMPLETE for run in runs.values())
    assert complete >= len(runs) // 3, told
    check_tables(made)
    _check_nothing_is_left(made)
    record_trial("kills", "testbed", sum(tried.kills.values()), seed, "ok")


def _check_files(made: Machine, run: str) -> None:
    place = made.directory / "fetched" / run
    with made.testbed() as testbed:
        testbed.fetch(run, place)
    assert (place / "client" / "name.txt").read_text() == f"{run}\n"
    bulk = (place / "client" / "bulk").read_bytes()
    assert hashlib.sha256(bulk).digest() == hashlib.sha256(bytes(_BULK_BYTES)).digest()


def _check_nothing_is_left(made: Machine) -> None:
    """Check that neither agents nor runs left processes, mounts or files of runs."""
    for agent in made.agents.values():
        lives = agent.lives()
        client = {key: life for key, life in lives.items() if life["side"] == "client"}
        runs = made.runs()
        assert {key: life["state"] for key, life in client.items() if not life["is_silent"]} == {
            key: runs[key]["state"] for key, life in client.items() if not life["is_silent"]
        }
        agent.end(signal.SIGTERM)
        # An agent that begins looks at what it has kept, and lets go of what had its time.
        agent.start()
        keeps = lambda agent=agent: [*(agent.state / "runs").iterdir()]  # noqa: E731
        wait(lambda keeps=keeps: not keeps(), 20, lambda keeps=keeps: f"{keeps()}\n{made.log}")
        agent.end(signal.SIGTERM)
    assert processes_about(str(made.directory / "a"), f"127.0.0.1/{made.sink.port}") == []
    assert str(made.directory) not in Path("/proc/self/mounts").read_text()
    incoming = made.state / "runs" / "incoming"
    assert [*incoming.rglob("*")] == []
