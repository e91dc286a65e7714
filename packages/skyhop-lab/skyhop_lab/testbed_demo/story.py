"""Script of the demo, executed as a user of the testbed, over the testbed's protocol.

It shows a scheduled run, a run that a trigger starts when a link's RTT rises, and a run that gives
way to its host's owner and is repeated. Each line that it prints has the time since the demo's
beginning.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.errors import InputError, RunError
from skyhop_lab.testbed_demo import jobs, network, plan
from skyhop_lab.testbed_demo.guard import Guard, Message
from skyhop_lab.testbed_demo.testbench import Testbench
from skyhop_testbed.clock import SYSTEM_CLOCK, Clock
from skyhop_testbed.words import ENDED, State

if TYPE_CHECKING:
    import socket

    from skyhop_testbed.api import Document, PutNode, RunDocument, RunInfo, TriggerLine
    from skyhop_testbed.client import Testbed

_S = 1_000_000_000
_POLL_S = 0.15
_READY_S = 60.0
_SLACK_S = 30.0
"""Time in s beyond a run's length after which the demo gives up waiting for the run."""
_BEFORE_RISE_S = 6.0
"""Length in s of the telemetry that the trigger needs before it can detect a rise."""
_UNDISTURBED_S = 4.0
_SILENCE_S = 1.5
_OWNER_BPS = 4e6
_FINISH_S = 40.0
_ALL_STATES = [state.value for state in State]
_LINKS, _RUNS = "links", "runs"


@dataclass(frozen=True)
class Options:
    """Options of the command `skyhop testbed demo`."""

    output: Path
    """Directory for the files of the runs and the records of the links."""
    state: Path | None = None
    """Directory for all other files; by default a temporary one."""
    is_quick: bool = False
    keep: bool = False
    on_page: Callable[[str], None] = lambda _address: None
    say: Callable[[str], None] = print
    show: Callable[[list[dict[str, Any]]], None] = lambda _rows: None
    """Function that prints the runs as a table."""


@dataclass
class _TestbenchState:
    """Facts from the testbench's messages so far."""

    links_ns: dict[str, int] = field(default_factory=dict)
    """Start of each site's link, in ns since 1970."""
    namespaces: int = 0
    packets: Message = field(default_factory=Message)
    is_finished: bool = False


def run_demo(options: Options, clock: Clock = SYSTEM_CLOCK) -> list[RunDocument]:
    """Start a testbed, run the demo's experiments, and delete all but their files.

    Returns:
        The runs, in the form of the testbed's protocol, in order.

    Raises:
        InputError: a directory is not empty.
        RunError: the machine lacks a program or a permission, or an expected event did not occur.
    """
    network.ip_program()
    programs = jobs.Programs.find_installed()
    for directory in (options.output, options.state):
        if directory is not None and directory.exists() and any(_entries(directory)):
            raise InputError(f"{directory}: is not empty: name another directory")
    state = _state(options.state)
    lengths = plan.QUICK if options.is_quick else plan.FULL

    def testbench(channel: socket.socket) -> None:
        Testbench(channel, state, lengths, clock).run()

    guard = Guard(testbench, None if options.state else state)
    try:
        return _Story(options, guard, state, lengths, programs, clock=clock).run()
    finally:
        guard.close()
        if options.state is None:
            # The guard removes the directory too, unless it was killed.
            shutil.rmtree(state, ignore_errors=True)


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}") from None


def _state(named: Path | None) -> Path:
    try:
        if named is None:
            return Path(tempfile.mkdtemp(prefix="skyhop-demo-"))
        named.mkdir(mode=0o700, parents=True, exist_ok=True)
        return named.absolute()
    except OSError as error:
        raise RunError(f"{error.filename}: {error.strerror}") from None


class _Story:
    def __init__(
        self,
        options: Options,
        guard: Guard,
        state: Path,
        lengths: plan.Lengths,
        programs: jobs.Programs,
        *,
        clock: Clock,
    ) -> None:
        self._options, self._guard, self._state = options, guard, state
        self._lengths, self._programs, self._clock = lengths, programs, clock
        self._begin_ns = clock.now_ns()
        self._testbench = _TestbenchState()

    def run(self) -> list[RunDocument]:
        """Run all experiments, and download their files."""
        from skyhop_testbed.client import Testbed

        self._await_testbench()
        credential = self._state / "orchestrator" / "admin.json"
        with Testbed.of_file(credential) as testbed:
            page = self._open_page(testbed, credential)
            self._bring_nodes(testbed)
            now_ns = self._clock.now_ns()
            files = jobs.job_files(self._state / "jobs", self._lengths, self._programs, now_ns)
            self._scheduled(testbed, files[jobs.SCHEDULED])
            armed = self._arm(testbed, files[jobs.TRIGGERED])
            self._preempted(testbed, files[jobs.PREEMPTED])
            self._triggered(testbed, armed)
            if self._lengths.waits_for_again:
                self._tried_again(testbed)
            runs = self._fetch(testbed)
            self._options.show([_row(run) for run in runs])
            if self._options.keep:
                self._keep(page)
        self._finish()
        return runs

    def _say(self, text: str, at_ns: int | None = None) -> None:
        passed_s = ((at_ns or self._clock.now_ns()) - self._begin_ns) / _S
        self._options.say(f"{passed_s:6.1f} s  {text}")

    # --- messages of the testbench ---

    def _process_messages(self, patience_s: float = _POLL_S) -> None:
        """Process the testbench's messages; wait at most `patience_s` seconds for the first."""
        for message in self._guard.messages(patience_s):
            event = message["event"]
            if event == "link":
                self._testbench.links_ns[message["site"]] = message["at_ns"]
            elif event == "joined":
                self._testbench.namespaces = message["namespaces"]
            elif event == "packets":
                self._testbench.packets = message
            elif event == "finished":
                self._testbench.is_finished = True

    def _await(self, what: Callable[[], object], patience_s: float, missing: str) -> None:
        """Wait until `what` returns a true value, but at most `patience_s` seconds.

        Raises:
            RunError: the condition does not hold in time; `missing` describes it.
        """
        limit = self._clock.monotonic_s() + patience_s
        while not what():
            if self._clock.monotonic_s() > limit:
                raise RunError(f"after {patience_s:.0f} s {missing}")
            self._process_messages()

    def _await_testbench(self) -> None:
        log = self._state / "logs" / "orchestrator.log"

        def serves() -> bool:
            with suppress(OSError):
                return "serving users at" in log.read_text(errors="replace")
            return False

        self._await(
            lambda: self._testbench.namespaces and serves(),
            _READY_S,
            "the demo's processes are not ready",
        )
        self._say(
            f"up: {len(plan.SITES)} emulated links, "
            f"{self._testbench.namespaces} network namespaces, an orchestrator"
        )

    # --- nodes ---

    def _open_page(self, testbed: Testbed, credential: Path) -> str:
        """Print the page's address, and write a token for the login; return the address."""
        from skyhop_testbed.keys import write_private

        address = str(testbed.config().addresses["web"])
        token = str(json.loads(credential.read_text())["token"])
        login = self._state / "login.txt"
        write_private(login, f"{token}\n".encode())
        self._say(f"the page: {address} (its certificate is the demo's own)")
        self._say(f"to log in, the token in {login}")
        self._options.on_page(address)
        return address

    def _bring_nodes(self, testbed: Testbed) -> None:
        """Invite and enrol all nodes, start their agents, and wait until all are online."""
        from skyhop_testbed.api import PutNode

        testbed.put_config({"reschedule_after_s": self._lengths.again_s})
        for site in plan.SITES:
            node = PutNode(
                name=site.name,
                description=site.city,
                latitude_deg=site.latitude_deg,
                longitude_deg=site.longitude_deg,
            )
            self._enrol(testbed, node)
        self._enrol(testbed, PutNode(name=plan.SERVER_NODE, address=plan.SERVER))
        # Connections of a second or two end between two readings of their counters; bytes that are
        # not counted as the run's would count as the owner's traffic.
        for name in (plan.SERVER_NODE, plan.SCHEDULED.name):
            testbed.set_scavenger(name, "off")
        self._allow(testbed)
        port = int(str(testbed.config().addresses["agents"]).rpartition(":")[2])
        self._guard.send_order(do="agents", port=port)
        wanted = len(plan.SITES) + 1
        self._await(
            lambda: sum(node.online for node in testbed.nodes()) == wanted,
            _READY_S,
            "not all agents are online",
        )
        self._say(f"enrolled and online: {', '.join(node.name for node in testbed.nodes())}")

    def _allow(self, testbed: Testbed) -> None:
        """Set the owners' policies: runs use the hosts' own networks, whose addresses are private.

        A run looks at single hops, and no run may depend on slirp4netns here.
        """
        for name in (*(site.name for site in plan.SITES), plan.SERVER_NODE):
            policy: Document = {"networks": ["host"]}
            if name == plan.PREEMPTED.name:
                policy["scavenger"] = {"idle_s": self._lengths.idle_s}
            testbed.set_policy(name, policy)

    def _enrol(self, testbed: Testbed, node: PutNode) -> None:
        from skyhop_testbed.agent import enrol
        from skyhop_testbed.keys import write_private

        testbed.put_node(node)
        place = self._state / "agents" / node.name
        place.mkdir(mode=0o700, parents=True)
        invitation = place / "invitation.json"
        write_private(invitation, json.dumps(testbed.invitation(node.name)).encode())
        enrol(invitation, place)

    # --- the three experiments ---

    def _scheduled(self, testbed: Testbed, file: Path) -> None:
        """Run the scheduled experiment to its end."""
        submitted_ns = self._clock.now_ns()
        run = self._submitted(testbed, file)
        tool = "iperf3" if self._programs.has_iperf3 else "TCP streams"
        self._say(f"scheduled: {run.job_name} on {run.client}, now: round trips and {tool}")
        run = self._ended(testbed, run.id)
        begun_ns = _time_of(run, State.EXECUTING)
        if begun_ns:
            self._say(
                f"  executing {(begun_ns - submitted_ns) / _S:.2f} s after it was submitted",
                begun_ns,
            )
        self._say(f"  {_end(run)}, {len(run.files)} files")

    def _arm(self, testbed: Testbed, file: Path) -> str:
        """Submit the triggered experiment, and wait until it is armed; return the run's id."""
        run = self._submitted(testbed, file)
        self._say(f"armed: {run.job_name} on {run.client}: {jobs.TRIGGER}")
        self._await(
            lambda: testbed.run(run.id).state != State.PLANNED,
            _SLACK_S,
            "the run is not armed",
        )
        return str(run.id)

    def _triggered(self, testbed: Testbed, name: str) -> None:
        """Wait until the trigger starts the run; report the delays, then wait for the run's end."""
        patience_s = 2 * self._lengths.period_s + _BEFORE_RISE_S
        self._await(
            lambda: testbed.run(name).state != State.ARMED, patience_s, "no trigger has fired"
        )
        fired = self._firing(testbed, testbed.run(name))
        begun_ns = _time_of(testbed.run(name), State.EXECUTING)
        if fired is not None and begun_ns:
            rise_ns, node = self._rise_before(begun_ns), plan.TRIGGERED.name
            self._say(f"triggered: the round trips of {node}'s link rise to {plan.RAISED}", rise_ns)
            self._say("  the trigger fires, by the sample of that second", fired.at_ns)
            self._say(
                f"  executing {(begun_ns - fired.at_ns) / _S:.2f} s after the sample, "
                f"{(begun_ns - rise_ns) / _S:.2f} s after the rise",
                begun_ns,
            )
        run = self._ended(testbed, name)
        self._say(f"  {_end(run)}, {len(run.files)} files: each hop's round-trip time")

    def _firing(self, testbed: Testbed, run: RunInfo) -> TriggerLine | None:
        """Wait for the reports of the firing and of the run's start; return the firing, if any."""
        fired: list[TriggerLine] = []

        def is_known() -> bool:
            fired[:] = [each for each in testbed.trigger_log(job=run.job) if each.fired]
            now = testbed.run(run.id)
            return now.state in ENDED or bool(fired and _time_of(now, State.EXECUTING))

        self._await(is_known, _SLACK_S, "a triggered run has not begun")
        return fired[0] if fired else None

    def _rise_before(self, at_ns: int) -> int:
        """Return the time in ns of the link's last RTT rise at or before `at_ns`."""
        begin_ns = self._testbench.links_ns[plan.TRIGGERED.name]
        rises = [begin_ns + round(rise_s * _S) for rise_s in plan.rises_s(self._lengths)]
        return max((rise for rise in rises if rise <= at_ns), default=begin_ns)

    def _preempted(self, testbed: Testbed, file: Path) -> None:
        """Start the owner's traffic while a run loads the link; report how fast the run stops."""
        run = self._submitted(testbed, file)
        name = str(run.id)
        self._say(f"loading: {run.job_name} on {run.client}")
        self._await(
            lambda: self._testbench.packets.get("run_first_ns"),
            _SLACK_S,
            "the upload has not begun",
        )
        self._await_passed(_UNDISTURBED_S)
        self._guard.send_order(do="owner", seconds=self._lengths.owner_s, bps=_OWNER_BPS)
        self._await(
            lambda: self._testbench.packets.get("owner_first_ns"),
            _SLACK_S,
            "the owner has not begun",
        )
        owner_ns = self._testbench.packets["owner_first_ns"]
        self._say(f"  the owner of {run.client} begins to watch a film", owner_ns)
        self._await(self._is_silent, self._lengths.preempted_job_s + _SLACK_S, "the upload goes on")
        last_ns = self._testbench.packets["run_last_ns"]
        self._say(
            f"  the run's last packet, {(last_ns - owner_ns) / _S:.2f} s after the owner's first",
            last_ns,
        )
        run = self._ended(testbed, name)
        self._say(f"  {_end(run)}")
        again = self._after(testbed, name)
        if again:
            later_s = (again.start_ns - self._clock.now_ns()) / _S
            self._say(f"  the run is planned again in {later_s:.0f} s")

    def _is_silent(self) -> bool:
        last_ns = self._testbench.packets.get("run_last_ns", 0)
        return self._clock.now_ns() - last_ns > _SILENCE_S * _S

    def _after(self, testbed: Testbed, name: str) -> RunInfo | None:
        found = testbed.runs(job=testbed.run(name).job, states=_ALL_STATES)
        return next((run for run in found if run.after == name), None)

    def _tried_again(self, testbed: Testbed) -> None:
        """Wait for the end of the run that replaces the preempted one."""
        rescheduled = [State.RESCHEDULED.value]
        stopped = testbed.runs(node=plan.PREEMPTED.name, states=rescheduled)
        again = self._after(testbed, stopped[0].id) if stopped else None
        if again is None:
            return
        run = self._ended(testbed, again.id, self._lengths.again_s)
        begun_ns = _time_of(run, State.EXECUTING)
        self._say(f"  {run.job_name} once more", begun_ns or None)
        self._say(f"  {_end(run)}")

    def _submitted(self, testbed: Testbed, file: Path) -> RunInfo:
        """Submit a job; return its only run."""
        made = testbed.submit(file)
        found = testbed.runs(job=made.id, states=_ALL_STATES)
        if not found:
            raise RunError(f"{file.name}: has no run")
        return found[0]

    def _ended(self, testbed: Testbed, name: str, begins_in_s: float = 0.0) -> RunDocument:
        """Wait for a run to end; return the run."""
        ended = {state.value for state in ENDED}
        self._await(
            lambda: testbed.run(name).state in ended,
            begins_in_s + self._lengths.job_s + _SLACK_S,
            f"run {name} has not ended",
        )
        return testbed.run(name)

    def _await_passed(self, seconds: float) -> None:
        limit = self._clock.monotonic_s() + seconds
        while self._clock.monotonic_s() < limit:
            self._process_messages()

    # --- the end ---

    def _fetch(self, testbed: Testbed) -> list[RunDocument]:
        """Download the files of all runs; return the runs."""
        runs = [testbed.run(each.id) for each in reversed(testbed.runs())]
        for run in runs:
            if run.files:
                testbed.fetch(run.id, self._options.output / _RUNS / _directory(run))
        return runs

    def _keep(self, page: str) -> None:
        """Keep the testbed running until Ctrl-C, so that the user can look at the page."""
        self._say(f"still running, until Ctrl-C: {page}")
        with suppress(KeyboardInterrupt):
            while True:
                self._process_messages(1.0)

    def _finish(self) -> None:
        """End the testbench's processes in order, then copy the records of the links."""
        self._guard.send_order(do="finish")
        self._await(lambda: self._testbench.is_finished, _FINISH_S, "the links have not ended")
        links = self._options.output / _LINKS
        try:
            links.mkdir(parents=True, exist_ok=True)
            for each in sorted((self._state / "links").iterdir()):
                shutil.copytree(each, links / each.name)
        except OSError as error:
            raise RunError(f"{error.filename}: {error.strerror}") from None
        output = self._options.output
        self._say(f"all files: {output}")
        traced = output / _RUNS / jobs.TRIGGERED / "client" / "stdout"
        self._options.say(
            f"  skyhop report {links / plan.TRIGGERED.name} -o link.html   what its link carried\n"
            f"  skyhop dissect {traced}   which segment the latency is of"
        )


def _time_of(run: RunDocument, state: State) -> int:
    """Return the time in ns at which a run changed to a state; 0 if it did not."""
    return next((e.at_ns for e in run.events if e.state is state), 0)


def _end(run: RunDocument) -> str:
    return f"{run.state}" + (f" ({run.reason})" if run.reason else "")


def _directory(run: RunDocument) -> str:
    name = str(run.job_name).partition("~")[0]
    return f"{name}-again" if run.after else name


def _row(run: RunDocument) -> dict[str, Any]:
    begun_ns, planned_ns = _time_of(run, State.EXECUTING), run.start_ns
    return {
        "job": run.job_name,
        "node": run.client,
        "server": run.server or "",
        "state": run.state.value,
        "reason": run.reason.value if run.reason else "",
        "start_to_program_(s)": round((begun_ns - planned_ns) / _S, 2) if begun_ns else None,
        "files": len(run.files),
        "kB": round(sum(file.size for file in run.files) / 1000),
    }
