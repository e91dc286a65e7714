"""A simulated fleet: its nodes, jobs of users, outages, and owners' traffic."""

from __future__ import annotations

import random
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from skyhop.errors import SkyhopError
from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed import api
from skyhop_testbed.orchestrator import accounts, jobs, nodes
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller
from skyhop_testbed.store.tables import run
from skyhop_testbed.words import Role
from validation.fleet.events import BEGIN_NS, EventClock, S
from validation.fleet.node import SimNode
from validation.fleet.transport import Hub, TimedOrchestrator

DAY_S = 86_400.0
_USER = Caller("ann", Role.USER)
_SHARES = {"minute": 0.01, "six hours": 0.25, "trigger": 0.1, "server": 0.02, "client": 0.06}
"""Shares of the kinds of nodes; the others have a run per hour."""
_TICK_S = 3600.0
_TELEMETRY_S, _TELEMETRY_EVERY_S = DAY_S, 10.0


@dataclass(frozen=True)
class World:
    """Size, length and seed of a simulation, and kinds of its nodes."""

    agents: int
    days: float
    seed: int = 1
    kinds: tuple[str, ...] = ()
    """Kinds of the nodes; empty for the shares of `_SHARES`."""
    heartbeat_every_s: float = 6 * 3600.0
    """Interval of the heartbeats that are simulated; those between are counted with its size."""


@dataclass
class Costs:
    """Mean costs of the nodes of a kind, per node and day, and their numbers."""

    kind: str
    count: int
    per_day: dict[str, float]


@dataclass
class Outcome:
    """Measurements of a simulation."""

    world: World
    kinds: list[Costs]
    runs: dict[str, int] = field(default_factory=dict)
    """Number of runs by their state at the orchestrator."""
    orchestrator: dict[str, float] = field(default_factory=dict)
    longest_at: str = ""
    wall_s: float = 0.0
    events: int = 0
    memory_bytes: int = 0
    outages: int = 0


class Fleet:
    """Orchestrator with simulated nodes.

    Args:
        directory: directory for all files, which must be empty.
        world: what is simulated.
        say: takes a line about the progress, once a simulated day.
    """

    def __init__(
        self, directory: Path, world: World, say: Callable[[str], None] = lambda _line: None
    ) -> None:
        self.world, self._say, self._directory = world, say, directory
        self.clock = EventClock()
        self._chance = random.Random(world.seed)
        self.hub = Hub(self._open_orchestrator, self.clock)
        self.nodes: dict[str, SimNode] = {}
        self.outages = 0
        self._telemetry: dict[str, float] = {}
        self._at_jobs = 0

    def _open_orchestrator(self) -> TimedOrchestrator:
        return TimedOrchestrator(self._directory / "orchestrator", ["localhost"], clock=self.clock)

    def run(self) -> Outcome:
        """Simulate all days; return what was measured."""
        began = time.perf_counter()
        self._make_nodes()
        self._submit_jobs()
        self._plan_events()
        events, days_s = 0, self.world.days * DAY_S
        passed_s = 0.0
        while passed_s < days_s:
            passed_s = min(passed_s + DAY_S, days_s)
            events += self.clock.run_until(BEGIN_NS + round(passed_s * S))
            took_s = time.perf_counter() - began
            self._say(f"day {passed_s / DAY_S:g}: {events:,} events, {took_s:.0f} s")
        outcome = self._outcome(events, time.perf_counter() - began)
        self.close()
        return outcome

    def close(self) -> None:
        """Stop all nodes and the orchestrator."""
        for each in self.nodes.values():
            if each.is_on:
                each.stop()
        self.hub.orchestrator.close()

    # Nodes and jobs.

    def _make_nodes(self) -> None:
        kinds = [*self._kinds()]
        with self.hub.orchestrator.writing(ITSELF) as ctx:
            accounts.put_user(ctx, api.PutUser(name="ann", role="user"))
            for place, kind in enumerate(kinds):
                address = "192.0.2.1" if kind == "server" else ""
                nodes.put(ctx, api.PutNode(name=f"n{place}", owner="ann", address=address))
        for place, kind in enumerate(kinds):
            name = f"n{place}"
            self.nodes[name] = SimNode(
                name,
                kind,
                self._directory / name,
                self.hub,
                self.clock,
                heartbeat_every_s=self.world.heartbeat_every_s,
                seed=place,
            )
            self.nodes[name].start()

    def _kinds(self) -> Iterator[str]:
        """Yield the kind of each node."""
        yield from self.world.kinds
        count = self.world.agents
        left = count - len(self.world.kinds)
        for kind, share in _SHARES.items():
            of_kind = max(1, round(share * count)) if count > len(_SHARES) else 1
            for _ in range(min(of_kind, left)):
                yield kind
                left -= 1
        if left:
            yield "telemetry"
            left -= 1
        if left:
            yield "idle"
            left -= 1
        yield from ["hour"] * left

    def _submit_jobs(self) -> None:
        servers = [n.name for n in self.nodes.values() if n.kind == "server"]
        for place, node in enumerate(self.nodes.values()):
            name, minute = node.name, place % 59
            if node.kind == "minute":
                self._submit(name, "m", f'cron = "* * * * *"\nend = "{self._end()}"', "30 s")
            elif node.kind in ("hour", "telemetry"):
                self._submit(name, "h", f'cron = "{minute} * * * *"', "5 min")
            elif node.kind == "six hours":
                self._submit(name, "s", f'cron = "{minute} */6 * * *"', "20 min")
            elif node.kind == "trigger":
                when = f'trigger = "pop_ping_latency_ms > 100"\nend = "{self._end()}"'
                self._submit(name, "t", when, "2 min")
            elif node.kind == "client" and servers:
                server = servers[place % len(servers)]
                when = f'cron = "{(minute * 4) % 60} */4 * * *"'
                self._submit(name, "c", when, "3 min", server=server)

    def _end(self) -> str:
        end_s = (BEGIN_NS // S) + (self.world.days + 2) * DAY_S
        return datetime.fromtimestamp(end_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _submit(self, node: str, job: str, when: str, length: str, server: str = "") -> bool:
        """Submit a job of one node; return whether the node was free."""
        run_lines = 'client = ["true"]\n' + ('serve = ["true"]\n' if server else "")
        text = (
            f'id = "{job}-{node}"\nnodes = ["{node}"]\nlength = "{length}"\n'
            + (f'server = "{server}"\n' if server else "")
            + f"[when]\n{when}\n[run]\n{run_lines}"
        )
        orchestrator = self.hub.orchestrator
        orchestrator.what = "submission of a job"
        try:
            with orchestrator.writing(_USER) as ctx:
                jobs.submit(ctx, text, {}, orchestrator.objects)
        except SkyhopError:
            return False
        return True

    # What happens.

    def _plan_events(self) -> None:
        clock, chance = self.clock, self._chance
        clock.after(60.0, self._tick)
        for node in self.nodes.values():
            self._plan_owner(node)
            self._plan_outage(node)
            if node.kind == "trigger":
                clock.after(chance.uniform(600.0, 7200.0), partial(self._raise_latency, node))
            if node.kind == "telemetry":
                clock.after(1.0, partial(self._record, node))
                clock.after(_TELEMETRY_S, partial(self._note_costs, node))
        if self.world.days >= 1:
            clock.after(self.world.days * DAY_S * 0.45, self._stop_orchestrator)
        clock.after(3600.0, self._submit_at)

    def _tick(self) -> None:
        if not self.hub.is_away:
            self.hub.orchestrator.what = "housekeeping"
            self.hub.orchestrator.tick()
        self.clock.after(_TICK_S, self._tick)

    def _plan_owner(self, node: SimNode) -> None:
        """Plan the owner's next traffic: some times a day, for minutes."""
        self.clock.after(self._chance.expovariate(4 / DAY_S), lambda: self._owner(node))

    def _owner(self, node: SimNode) -> None:
        node.owner_begins(self._chance.uniform(60.0, 1800.0))
        self._plan_owner(node)

    def _plan_outage(self, node: SimNode) -> None:
        """Plan the next outage of a node or its link: each about once in ten days."""
        self.clock.after(self._chance.expovariate(1 / (5 * DAY_S)), lambda: self._outage(node))

    def _outage(self, node: SimNode) -> None:
        self.outages += 1
        seconds = min(self._chance.expovariate(1 / 7200.0), DAY_S)
        if self._chance.random() < 0.5 and node.is_on:  # noqa: PLR2004
            node.stop()
            self.clock.after(seconds, node.start)
        elif node.is_on:
            node.cut()
            self.clock.after(seconds, node.mend)
        self._plan_outage(node)

    def _stop_orchestrator(self) -> None:
        self.outages += 1
        self.hub.stop()
        self.clock.after(6 * 3600.0, self.hub.start)

    def _submit_at(self) -> None:
        """Submit a job with `at` somewhere, as users do some times a day."""
        if not self.hub.is_away:
            self._at_jobs += 1
            node = self._chance.choice([*self.nodes])
            at = datetime.fromtimestamp(
                self.clock.now_ns() // S + self._chance.randrange(600, 200_000), UTC
            )
            when = f'at = "{at.strftime("%Y-%m-%dT%H:%M:%SZ")}"\nend = "{self._end()}"'
            self._submit(node, f"a{self._at_jobs}", when, "3 min")
        self.clock.after(self._chance.expovariate(self.world.agents / 10 / DAY_S), self._submit_at)

    def _note_costs(self, node: SimNode) -> None:
        self._telemetry.update(node.costs())

    def _raise_latency(self, node: SimNode) -> None:
        """Have the terminal's latency rise for a second, so that triggers fire."""
        for second, value in enumerate((30.0, 150.0, 30.0)):
            sample = {"pop_ping_latency_ms": value}
            self.clock.after(float(second), partial(node.measure, sample))
        self.clock.after(self._chance.uniform(600.0, 7200.0), lambda: self._raise_latency(node))

    def _record(self, node: SimNode) -> None:
        """Give ten seconds of a terminal's telemetry."""
        now_ns = self.clock.now_ns()
        seconds = round(_TELEMETRY_EVERY_S)
        node.record([self._sample(now_ns - (seconds - 1 - k) * S) for k in range(seconds)])
        if now_ns < BEGIN_NS + _TELEMETRY_S * S:
            self.clock.after(_TELEMETRY_EVERY_S, lambda: self._record(node))

    def _sample(self, time_ns: int) -> Sample:
        draw = self._chance.uniform
        return {
            TIME: time_ns,
            "pop_ping_latency_ms": draw(20, 60),
            "pop_ping_drop_rate": 0.0,
            "downlink_throughput_bps": draw(1e4, 1e8),
            "uplink_throughput_bps": draw(1e4, 1e7),
            "user_rx_bps": draw(0, 1e6),
            "user_tx_bps": draw(0, 1e5),
            "node_load": round(draw(0, 1), 3),
            "hour": 12.5,
            "exp_rx_rate_bytes": 0.0,
            "exp_tx_rate_bytes": 0.0,
        }

    # Outcome.

    def _outcome(self, events: int, wall_s: float) -> Outcome:
        by_kind: dict[str, list[dict[str, float]]] = defaultdict(list)
        for node in self.nodes.values():
            by_kind[node.kind].append(node.costs())
        made = self.hub.orchestrator
        with made.reading(ITSELF) as ctx:
            rows = ctx.all(sa.select(run.c.state, sa.func.count().label("n")).group_by(run.c.state))
        files = (self._directory / "orchestrator").glob("testbed.sqlite*")
        return Outcome(
            self.world,
            [self._mean(kind, found) for kind, found in by_kind.items()],
            runs={row["state"]: row["n"] for row in rows},
            orchestrator={
                "longest_s": made.longest_s,
                "busy_s": made.busy_s,
                "transactions": made.transactions,
                "bytes_written": made.bytes_written,
                "file_bytes": sum(each.stat().st_size for each in files),
            },
            longest_at=made.longest_at,
            wall_s=wall_s,
            events=events,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            outages=self.outages,
        )

    def _mean(self, kind: str, found: list[dict[str, float]]) -> Costs:
        days = self.world.days
        if kind == "telemetry" and self._telemetry:
            found, days = [self._telemetry], _TELEMETRY_S / DAY_S
        mean = {name: sum(each[name] for each in found) / len(found) / days for name in found[0]}
        # The size of the file is not per day.
        mean["file_bytes"] *= days
        return Costs(kind, len(found), mean)
