"""`skyhop testbed agent`: main loop of the agent, and the threads around it.

One thread decides, every second and whenever an order or a sample arrives. Each run has its own
thread, and so have the terminal, the orders and the reports: none of them blocks another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from skyhop.cli.stopping import stop_on_signals
from skyhop.data.marks import Mark
from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import Sample
from skyhop_testbed import api
from skyhop_testbed.agent.admission import Admission
from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.agent.clock_check import await_clock
from skyhop_testbed.agent.deciding import decide
from skyhop_testbed.agent.due_times import DueTimes
from skyhop_testbed.agent.host_traffic import HostTraffic
from skyhop_testbed.agent.housekeeping import Housekeeping
from skyhop_testbed.agent.identity import Identity, read_identity
from skyhop_testbed.agent.link import Link
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.lock import locked
from skyhop_testbed.agent.node import Node, clock_error_ns
from skyhop_testbed.agent.orders import Orders
from skyhop_testbed.agent.own_traffic import OwnTraffic
from skyhop_testbed.agent.predicting import PredictionClient
from skyhop_testbed.agent.probing import Prober
from skyhop_testbed.agent.reach import Reach
from skyhop_testbed.agent.room import Room
from skyhop_testbed.agent.run_signals import RunSignals
from skyhop_testbed.agent.sensing import Host, Watch
from skyhop_testbed.agent.settings import FILE as SETTINGS
from skyhop_testbed.agent.settings import Settings, read_settings
from skyhop_testbed.agent.surroundings import Surroundings
from skyhop_testbed.agent.telemetry_outbox import TelemetryOutbox
from skyhop_testbed.agent.trigger_runs import TriggerRuns
from skyhop_testbed.agent.triggering import Triggers
from skyhop_testbed.agent.updating import Updater
from skyhop_testbed.clock import SYSTEM_CLOCK, Clock
from skyhop_testbed.executor.user_network import Availability
from skyhop_testbed.free_space import SpaceOf, space_of
from skyhop_testbed.launcher import Launched

_LOG = logging.getLogger(__name__)
_S = 1_000_000_000
_FILES = Mark("files of the agent's runs, which the agent removes when they are not needed")
_LAST_STEPS_S = 3.0
"""Time in s for which the end of the agent waits for the threads of runs."""


@dataclass(frozen=True)
class Options:
    """Options of the command `skyhop testbed agent`."""

    dish: str | None = None
    """Address of a Starlink terminal."""
    terminal: Path | None = None
    """File with the values of a terminal of another make: a JSON object, rewritten each second."""
    interface: str | None = None
    """Host's device whose counters are the link's traffic; `None` uses the terminal's throughput.
    """
    kernel: str | None = None
    """Path of the kernel service's socket."""
    settings: Path | None = None
    """File of the owner's settings; `None` is `agent.toml` in the agent's directory, if present."""
    net_dev: Path = Path("/proc/net/dev")
    """File with the interface's counters."""
    say: Callable[[str], None] = _LOG.warning
    """Function for warnings; other steps go to the logger itself."""
    clock: Clock = SYSTEM_CLOCK
    internet_lacks: Callable[[], str | None] | None = None
    """Function that returns what the network `internet` lacks here; by default a real look."""
    space_of: SpaceOf = space_of
    """Function that returns the space of a disk."""
    launched: Launched | None = field(default_factory=Launched.of_environment)
    """Launcher that has started this agent; `None` without one."""


def run_agent(state: Path, *, options: Options | None = None) -> bool:
    """Run a node's agent until Ctrl-C, SIGTERM or SIGHUP; executors of runs continue without it.

    Args:
        state: the directory that `enrol` made.
        options: the options; default values if not given.

    Returns:
        whether the agent is to be started again, in another version.

    Raises:
        InputError: the node is not enrolled, another agent uses the directory, or the owner's
            settings or a model that they name are wrong.
        RunError: the directory cannot be written.
    """
    chosen = options or Options()
    with locked(state):
        settings = _settings(state, chosen)
        identity = replace(read_identity(state), proxy=settings.proxy)
        agent = Agent(state, identity, chosen, settings)
        stop_on_signals(agent.end)
        agent.run()
        return agent.restarts


def _settings(state: Path, options: Options) -> Settings:
    named = options.settings
    file = named or state / SETTINGS
    found = read_settings(file, is_wanted=named is not None)
    if found.needs_dish and options.dish is None:
        raise InputError(f'{file}: place = "dish" needs the address of the terminal: give --dish')
    return found


class Agent:
    """Main loop of the agent: applies orders, starts due runs, reports events."""

    def __init__(
        self, state: Path, identity: Identity, options: Options, settings: Settings
    ) -> None:
        say, clock = options.say, options.clock
        self._clock, self._due = clock, DueTimes(clock)
        self._node = node = self._open_node(state, identity, options)
        self._prober = Prober(settings.probe, say, clock=clock)
        own = OwnTraffic(options.dish, lambda: self._prober.moved)
        self._host = Host(options.interface, options.net_dev, own=own, clock=clock)
        self._surroundings = Surroundings(settings, options.dish, state, say)
        self._predictions = PredictionClient(
            settings, self._surroundings.of_second, say, clock=clock
        )
        triggers = Triggers(node.db, state, say)
        self._signals = node.signals = RunSignals(node.name, settings, clock, clock_error_ns, say)
        self._runs = LocalRuns(node)
        room = Room(node, self._runs)
        self._admission = Admission(node, self._runs, self._host, room, triggers.has_fired)
        self._orders = Orders(node, self._runs, self._admission)
        self._trigger_runs = TriggerRuns(node, self._runs, triggers, self._admission)
        self._telemetry = TelemetryOutbox(node)
        self._traffic = HostTraffic(node, self._host, self._runs)
        self._housekeeping = Housekeeping(node, self._runs, room, lambda: self._updater.health)
        self._updater = Updater(
            node,
            self._runs,
            settings.update,
            self._housekeeping.report_health,
            launched=options.launched,
        )
        self._watch = Watch(
            options.dish,
            options.terminal,
            host_fields=lambda: {**self._host.values(), **self._surroundings.new_fields()},
            fields_of_second=lambda time_ns: {
                **self._surroundings.of_second(time_ns),
                **self._prober.of_second(time_ns),
            },
            on_samples=lambda samples: self._telemetry.put(
                self._predictions.with_predictions(samples)
            ),
            on_map=self._telemetry.put_map,
            say=say,
            clock=clock,
        )
        self._orders.load_schedule()

    def _open_node(self, state: Path, identity: Identity, options: Options) -> Node:
        try:
            for name in ("runs", "inputs"):
                _FILES.make_own(state / name, 0o700)
        except OSError as error:
            raise RunError(f"{error.filename}: {error.strerror}") from None
        db = AgentDb(state, options.clock.now_ns(), options.say)
        link = Link(
            identity,
            db,
            on_order=self._on_order,
            follows=self._follows,
            heartbeat_s=lambda: self._node.schedule.settings.heartbeat_s,
            say=options.say,
            clock=options.clock,
        )
        reach = Reach(options.dish, [identity.agents], options.say)
        internet = Availability(options.clock, options.internet_lacks)
        return Node(
            identity,
            state,
            db,
            link,
            options.say,
            options.clock,
            options.kernel,
            reach=reach,
            internet=internet,
            space_of=options.space_of,
        )

    def _follows(self) -> api.Follow:
        return self._orders.follows()

    def _on_order(self, order: Any) -> None:
        self._orders.put(order)

    def end(self) -> None:
        """Ask the main loop to end; for signal handlers."""
        self._node.closing.set()
        self._node.waking.set()

    @property
    def restarts(self) -> bool:
        """Whether the agent has ended to be started again, in another version."""
        return self._node.restarts

    def run(self) -> None:
        """Run the main loop until `end` is called."""
        node = self._node
        await_clock(node)
        self._predictions.start()
        _LOG.info("node %s: follows %s", node.name, node.identity.agents)
        if lacking := node.internet_lacks():
            node.say(f"most jobs will be refused: {lacking}")
        self._runs.resume()
        node.link.start()
        self._prober.start()
        self._watch.start()
        while not node.closing.is_set():
            node.waking.clear()
            node.guarded("main loop", self._iterate)
            self._clock.wait(node.waking, self._wait_s())
        self._close()

    def _close(self) -> None:
        node = self._node
        for part in (self._watch, self._predictions, self._surroundings, self._prober):
            part.close()
        self._runs.join(_LAST_STEPS_S)
        self._updater.close(_LAST_STEPS_S)
        node.guarded("signals", self._signals.close)
        node.guarded("triggers", self._trigger_runs.close)
        node.guarded("telemetry", self._telemetry.send)
        node.guarded("telemetry", self._telemetry.store)
        node.link.close()
        node.allowance.save()
        node.db.close()

    def _wait_s(self) -> float:
        """Return the time in s until the next full second, or until a run starts before it."""
        now_ns = self._clock.now_ns()
        until_ns = (now_ns // _S + 1) * _S
        for each in self._node.schedule.planned:
            if now_ns < each.start_ns < until_ns:
                until_ns = each.start_ns
        return (until_ns - now_ns) / _S + 0.002

    def _iterate(self) -> None:
        """Run one iteration of the main loop."""
        guarded = self._node.guarded
        self._orders.execute_all()
        sample = self._telemetry.take_new()
        if self._due.is_due("second", 0.95, at_second=True):
            guarded("counters", lambda: self._traffic.measure(self._telemetry.fresh()))
            if self._traffic.has_cap_changed:
                self._housekeeping.report_health()
            guarded("surroundings", lambda: self._surroundings.refresh(self._clock.now_ns()))
        guarded("signals", lambda: self._serve_signals(sample))
        if sample is not None:
            guarded("triggers", lambda: self._trigger_runs.evaluate(sample))
        for action in decide(self._admission.situation()):
            guarded(f"run {action.run}", lambda a=action: self._runs.apply(a))  # type: ignore[misc]
        self._telemetry.send_due()
        self._housekeeping.do_due()
        guarded("update", self._updater.do_due)
        self._node.db.flush()

    def _serve_signals(self, sample: Sample | None) -> None:
        node = self._node
        self._signals.serve(self._runs.unsettled(), node.runs, node.policy, sample)
