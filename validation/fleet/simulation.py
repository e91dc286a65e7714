"""A simulated fleet: its nodes, jobs of users, outages, and owners' traffic."""

from __future__ import annotations

import gc
import math
import random
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed import api
from skyhop_testbed.orchestrator import accounts, jobs, nodes
from skyhop_testbed.orchestrator.handlers import put_config
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    Caller,
    ConflictError,
    RequestContext,
)
from skyhop_testbed.store.tables import audit, event, job, preemption, run, task, trigger_log
from skyhop_testbed.words import ENDED, Role, State
from validation.fleet.events import BEGIN_NS, EventClock, S
from validation.fleet.node import SimNode
from validation.fleet.transport import Hub, Work

DAY_S = 86_400.0
_NODES_PER_USER = 10
_SHARES = {"minute": 0.005, "six hours": 0.25, "trigger": 0.1, "server": 0.02, "client": 0.06}
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
    """Kinds of the first nodes, the others have a run per hour; empty for `_SHARES`."""
    retention_days: float = 0.0
    """Time for which the orchestrator keeps ended runs and logs; 0 for its default."""
    heartbeat_every_s: float = 12 * 3600.0
    """Interval of the heartbeats that are simulated; those between are counted with their costs."""


@dataclass
class Costs:
    """Mean costs of the nodes of a kind, per node and day, and their numbers."""

    kind: str
    count: int
    per_day: dict[str, float]


@dataclass(frozen=True)
class Size:
    """Size of the orchestrator's database at the end of a day."""

    day: float
    file_bytes: int
    rows: dict[str, int]
    """Number of rows by the table's name."""


@dataclass
class Outcome:
    """Measurements of a simulation."""

    world: World
    kinds: list[Costs]
    runs: dict[str, int] = field(default_factory=dict)
    """Number of runs by their state, of those that the orchestrator still has."""
    ends: dict[int, int] = field(default_factory=dict)
    """Number of runs whose time is over by the number of their ends, `lost` aside."""
    work: dict[str, Work] = field(default_factory=dict)
    """The orchestrator's write transactions by the work for which they were made."""
    counted: dict[str, int] = field(default_factory=dict)
    """Heartbeats that were counted without a call of the orchestrator, by their kind."""
    sizes: list[Size] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
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
        self.hub = Hub(directory / "orchestrator", self.clock)
        self.nodes: dict[str, SimNode] = {}
        self.outages = 0
        self._telemetry: dict[str, float] = {}
        self._at_jobs = 0
        self._sizes: list[Size] = []

    def run(self, most_s: float = math.inf) -> Outcome:
        """Simulate all days; return what was measured.

        The last day is the one in which the simulation has taken `most_s` seconds.
        """
        began, began_cpu_s = time.perf_counter(), time.process_time()
        # Most objects, such as runs and schedules, live for days: looking at them often is no use.
        gc.set_threshold(50_000, 20, 50)
        self._set_retention()
        self._make_nodes()
        self._submit_jobs()
        self._plan_events()
        events, days_s = 0, self.world.days * DAY_S
        passed_s = 0.0
        while passed_s < days_s:
            passed_s = min(passed_s + DAY_S, days_s)
            events += self.clock.run_until(BEGIN_NS + round(passed_s * S))
            self._sizes.append(self._size(passed_s / DAY_S))
            took_s, took_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu_s
            self._say(
                f"day {passed_s / DAY_S:g}: {events:,} events, {took_s:.0f} s ({took_cpu_s:.0f} s "
                "of CPU time)"
            )
            if took_s > most_s:
                break
        self.world = replace(self.world, days=passed_s / DAY_S)
        outcome = self._outcome()
        outcome.events = events
        outcome.wall_s = time.perf_counter() - began
        outcome.cpu_s = time.process_time() - began_cpu_s
        self.close()
        return outcome

    def close(self) -> None:
        """Stop all nodes and the orchestrator."""
        for each in self.nodes.values():
            if each.is_on:
                each.stop()
        self.hub.orchestrator.close()

    def _set_retention(self) -> None:
        if self.world.retention_days:
            kept_s = self.world.retention_days * DAY_S
            changed: api.Document = {"run_retention_s": kept_s, "log_retention_s": kept_s}
            with self.hub.orchestrator.writing(ITSELF) as ctx:
                put_config(ctx, changed)

    # Nodes and jobs.

    def _make_nodes(self) -> None:
        kinds = [*self._kinds()]
        with self.hub.orchestrator.writing(ITSELF) as ctx:
            for place, kind in enumerate(kinds):
                owner = _owner(f"n{place}")
                accounts.put_user(ctx, api.PutUser(name=owner, role="user"))
                address = "192.0.2.1" if kind == "server" else ""
                nodes.put(ctx, api.PutNode(name=f"n{place}", owner=owner, address=address))
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
        if self.world.kinds:
            yield from ["hour"] * left
            return
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

    def _submit(self, node: str, job: str, when: str, length: str, server: str = "") -> None:
        """Submit a job of one node.

        Raises:
            SkyhopError: the orchestrator refuses the job.
        """
        run_lines = 'client = ["true"]\n' + ('serve = ["true"]\n' if server else "")
        text = (
            f'id = "{job}-{node}"\nnodes = ["{node}"]\nlength = "{length}"\n'
            + (f'server = "{server}"\n' if server else "")
            + f"[when]\n{when}\n[run]\n{run_lines}"
        )
        orchestrator = self.hub.orchestrator
        orchestrator.what = "submission of a job"
        with orchestrator.writing(Caller(_owner(node), Role.USER)) as ctx:
            jobs.submit(ctx, text, {}, orchestrator.objects)

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
            clock.after(min(0.45 * self.world.days, 2.45) * DAY_S, self._stop_orchestrator)
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
            # The node may have another run then.
            with suppress(ConflictError):
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

    def _outcome(self) -> Outcome:
        by_kind: dict[str, list[dict[str, float]]] = defaultdict(list)
        for node in self.nodes.values():
            by_kind[node.kind].append(node.costs())
        with self.hub.orchestrator.reading(ITSELF) as ctx:
            rows = ctx.all(sa.select(run.c.state, sa.func.count().label("n")).group_by(run.c.state))
            ends = _ends(ctx)
        return Outcome(
            self.world,
            [self._mean(kind, found) for kind, found in by_kind.items()],
            runs={row["state"]: row["n"] for row in rows},
            ends=ends,
            work=dict(self.hub.work),
            counted=self.hub.counted,
            sizes=self._sizes,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            outages=self.outages,
        )

    def _size(self, day: float) -> Size:
        files = (self._directory / "orchestrator").glob("testbed.sqlite*")
        with self.hub.orchestrator.reading(ITSELF) as ctx:
            rows = {
                table.name: int(ctx.scalar(sa.select(sa.func.count()).select_from(table)))
                for table in (run, event, task, job, trigger_log, preemption, audit)
            }
        return Size(day, sum(each.stat().st_size for each in files), rows)

    def _mean(self, kind: str, found: list[dict[str, float]]) -> Costs:
        days = self.world.days
        if kind == "telemetry" and self._telemetry:
            found, days = [self._telemetry], _TELEMETRY_S / DAY_S
        mean = {name: sum(each[name] for each in found) / len(found) / days for name in found[0]}
        # The size of the file is not per day.
        mean["file_bytes"] *= days
        return Costs(kind, len(found), mean)


def _owner(node: str) -> str:
    """Return the user who owns a node and submits its jobs."""
    return f"u{int(node[1:]) // _NODES_PER_USER}"


def _ends(ctx: RequestContext) -> dict[int, int]:
    """Return the number of runs, by the number of their ends, whose time is over for an hour."""
    final = [state.value for state in ENDED if state is not State.LOST]
    is_end = (event.c.run == run.c.id) & event.c.applied & event.c.state.in_(final)
    over = run.c.end_ns < ctx.now_ns - 3600 * S
    ends = (
        sa.select(sa.func.count(event.c.id).label("ends"))
        .select_from(run.join(event, is_end, isouter=True))
        .where(over, run.c.state != State.LOST)
        .group_by(run.c.id)
        .subquery()
    )
    rows = ctx.all(sa.select(ends.c.ends, sa.func.count().label("runs")).group_by(ends.c.ends))
    return {row["ends"]: row["runs"] for row in rows}
