"""Testbench of the demo: all processes except the command, and their namespaces.

The testbench is process 1 of the PID namespace that the guard created. It starts the orchestrator
in the machine's own network namespace, the links with a process at each end, terminals and agents.
It then executes the command's orders. It answers on the channel with a JSON object per line.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from skyhop.errors import RunError
from skyhop_lab.testbed_demo import network, plan, side_processes
from skyhop_lab.testbed_demo.guard import Order, map_user, send
from skyhop_testbed import linux
from skyhop_testbed.clock import Clock

_HERE = Path(__file__).parent
_SKYHOP = (sys.executable, "-c", "import sys; from skyhop.cli import main; sys.exit(main())")
_AGENT = (
    sys.executable,
    "-c",
    "import sys; from pathlib import Path; from skyhop_testbed.agent.service import *; "
    "words = sys.argv[1:]; options = Options(dish=words[1] or None, interface=words[2]); "
    "run_agent(Path(words[0]), options=options)",
)
_TERMINAL = (sys.executable, "-m", "skyhop_lab.testbed_demo.terminal")
_POLL_S = 0.1
_POLITE_S = 4.0
_LEAST_BYTES = 1_000_000
_LINKS_END_S = 20.0
_AGENTS_USER = 1000
_ORCHESTRATOR = "orchestrator"
_ENDS = "ends"
_LEAD_S = 0.055
"""Time in s from the moment the far end listens to the beginning of the link."""
_ALL_USERS = 0x7FFF_FFFF


@dataclass
class Testbench:
    """State of the demo's processes and namespaces."""

    channel: socket.socket
    state: Path
    lengths: plan.Lengths
    clock: Clock
    namespaces: dict[str, int] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    """Pids of running child processes, by name."""
    holders: list[socket.socket] = field(default_factory=list)
    """Connections to the processes at the links' ends; such a process exits when its connection
    closes.
    """
    listener: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_UNIX))
    begins_ns: dict[str, int] = field(default_factory=dict)
    """Start of each site's link, in ns since 1970."""
    packets: int = -1
    is_ending: bool = False

    def run(self) -> None:
        """Start all processes, then execute orders until the guard kills this process."""
        # A Unix socket's path is limited to 108 bytes, so this path is relative.
        os.chdir(self.state)
        (self.state / "logs").mkdir(exist_ok=True)
        self.listener.bind(_ENDS)
        self.listener.listen(8)
        self._start_orchestrator()
        self._start_links()
        rest = b""
        while True:
            waiting: list[socket.socket | int] = [self.channel, self.listener]
            waiting += [self.packets] if self.packets >= 0 else []
            ready = select.select(waiting, [], [], _POLL_S)[0]
            if self.listener in ready:
                self._accept_end()
            if self.packets in ready:
                self._report_packets()
            if self.channel in ready:
                data = self.channel.recv(1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._execute_order(json.loads(line))
            self._reap()

    # --- processes that start at once ---

    def _start_orchestrator(self) -> None:
        command = [*_SKYHOP, "testbed", "serve", "--state", str(self.state / _ORCHESTRATOR)]
        for port in ("--users", "--agents", "--web"):
            command += [port, "127.0.0.1:0"]
        self._start(_ORCHESTRATOR, [*command, "--name", "127.0.0.1"])

    def _start_links(self) -> None:
        (self.state / "links").mkdir(exist_ok=True)
        for site in plan.SITES:
            scenario = self.state / f"{site.name}.toml"
            scenario.write_text(plan.scenario(site, self.lengths))
            holder = [sys.executable, "-S", "-E", str(_HERE / "holder.py")]
            holder.append(_ENDS)
            phase = str(plan.LINKS_PHASE_S - _LEAD_S)
            command = [*_SKYHOP, "live", str(scenario), "-o", str(self.state / "links" / site.name)]
            command += ["--server-cmd", shlex.join([*holder, f"pop {site.name}", phase])]
            command += ["--", *holder, f"terminal {site.name}", ""]
            self._start(f"link {site.name}", command)

    def _accept_end(self) -> None:
        """Accept the namespace of one link end.

        Connect all namespaces once the last has arrived.
        """
        holder, _ = self.listener.accept()
        name, descriptors, _, _ = socket.recv_fds(holder, 256, 1)
        self.holders.append(holder)
        self.namespaces[name.decode()] = descriptors[0]
        what, _, site = name.decode().partition(" ")
        if what == "terminal":
            self.begins_ns[site] = self.clock.now_ns()
            send(self.channel, event="link", site=site, at_ns=self.begins_ns[site])
        if len(self.holders) == 2 * len(plan.SITES):
            self._join()

    def _join(self) -> None:
        others = ["operator 1", "operator 2", "wan", "server"]
        for name in [*(f"host {site.name}" for site in plan.SITES), *others]:
            self.namespaces[name] = network.make_namespace()
        network.join(self.namespaces)
        for site in plan.SITES:
            name = f"terminal {site.name}"
            self._start(name, _TERMINAL, inside=name)
        film = [sys.executable, "-B", str(_HERE / "far_end.py"), str(plan.OWNERS_PORT)]
        self._start("film", film, inside="wan")
        self._watch_packets()
        send(self.channel, event="joined", namespaces=len(self.namespaces))

    def _watch_packets(self) -> None:
        self.packets, pipe = os.pipe()
        watched = self.namespaces[f"host {plan.PREEMPTED.name}"]
        self.processes["packets"] = side_processes.fork_process(
            lambda: side_processes.watch_packets(watched, pipe)
        )
        os.close(pipe)

    def _report_packets(self) -> None:
        data = os.read(self.packets, side_processes.PACKET_TIMES.size)
        if len(data) == side_processes.PACKET_TIMES.size:
            owner_first, owner_last, run_first, run_last = side_processes.PACKET_TIMES.unpack(data)
            send(
                self.channel,
                event="packets",
                owner_first_ns=owner_first,
                owner_last_ns=owner_last,
                run_first_ns=run_first,
                run_last_ns=run_last,
            )
        else:
            os.close(self.packets)
            self.packets = -1

    # --- orders of the command ---

    def _execute_order(self, order: Order) -> None:
        what = order["do"]
        if what == "agents":
            self._start_agents(order["port"])
        elif what == "owner":
            self._start_owner(order["seconds"], order["bps"])
        elif what == "finish":
            self._finish()
            send(self.channel, event="finished")

    def _start_agents(self, port: int) -> None:
        """Start all agents, and the relay to the orchestrator's port for agents."""
        hosts = {site.name: f"host {site.name}" for site in plan.SITES}
        hosts[plan.SERVER_NODE] = "server"
        networks = [self.namespaces[name] for name in hosts.values()]
        self.processes["relay"] = side_processes.fork_process(
            lambda: side_processes.relay(port, networks)
        )
        for site in plan.SITES:
            self._write_settings(site.name)
        for node, host in hosts.items():
            command = [*_AGENT, str(self.state / "agents" / node)]
            if node == plan.SERVER_NODE:
                command += ["", plan.WAN_DEVICE]
            else:
                command += [f"{plan.DISH}:{plan.DISH_PORT}", plan.LAN]
            self._start(f"agent {node}", command, inside=host, as_user=True)

    def _write_settings(self, site: str) -> None:
        """Write a site's `agent.toml`, which names the satellites of its link."""
        text = plan.settings(self.state / f"{site}.toml", self.begins_ns[site])
        (self.state / "agents" / site / "agent.toml").write_text(text, "utf-8")

    def _start_owner(self, seconds: float, bps: float) -> None:
        command = [sys.executable, "-B", str(_HERE / "experiment.py"), "watch"]
        command += [plan.WAN, str(plan.OWNERS_PORT), str(seconds), str(bps)]
        host = f"host {plan.PREEMPTED.name}"
        self._start("owner", command, inside=host, as_user=True)

    def _finish(self) -> None:
        """End all processes in order: senders first, then the links, which write their records."""
        self.is_ending = True
        links = [name for name in self.processes if name.startswith("link ")]
        self._end([name for name in self.processes if name not in (*links, _ORCHESTRATOR)])
        for pid in _others(set(self.processes.values())):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for holder in self.holders:
            holder.close()
        self._await(links, _LINKS_END_S)
        self._end([_ORCHESTRATOR])

    def _end(self, names: Sequence[str]) -> None:
        for name in names:
            with suppress(ProcessLookupError, KeyError):
                os.kill(self.processes[name], signal.SIGTERM)
        self._await(names, _POLITE_S)
        for name in names:
            with suppress(ProcessLookupError, KeyError):
                os.kill(self.processes[name], signal.SIGKILL)
        self._await(names, _POLITE_S)

    def _await(self, names: Sequence[str], patience_s: float) -> None:
        limit = self.clock.monotonic_s() + patience_s
        while any(name in self.processes for name in names) and self.clock.monotonic_s() < limit:
            self._reap()
            self.clock.sleep(0.02)

    # --- processes ---

    def _start(
        self,
        name: str,
        command: Sequence[str],
        *,
        inside: str | None = None,
        as_user: bool = False,
    ) -> None:
        """Start a program as a child process.

        Args:
            name: its name in `processes`, and of its log.
            command: program and arguments.
            inside: name of its network namespace; by default the machine's own.
            as_user: whether to drop root's privileges, if they are those of a user namespace.
        """
        log = self.state / "logs" / f"{name.replace(' ', '-')}.log"

        def become() -> None:
            side_processes.restore_signals()
            os.setsid()
            if as_user and not _is_root():
                linux.unshare(linux.NEWUSER)
                map_user(_AGENTS_USER, 0, _AGENTS_USER, 0)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.closerange(3, 1 << 16)
            os.environ["PYTHONUNBUFFERED"] = "1"
            os.execvp(command[0], list(command))

        where = None if inside is None else self.namespaces[inside]
        self.processes[name] = network.inside(where, lambda: _fork(become, log))

    def _reap(self) -> None:
        """Reap child processes that have ended; raise an error if one ended unexpectedly."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = next((name for name, each in self.processes.items() if each == pid), None)
            if name is None:
                continue
            del self.processes[name]
            if not self.is_ending and not (name == "owner" and status == 0):
                raise RunError(f"the demo's {name} has ended: {self._last_words(name, status)}")

    def _last_words(self, name: str, status: int) -> str:
        log = self.state / "logs" / f"{name.replace(' ', '-')}.log"
        with suppress(OSError):
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1].removeprefix("skyhop: ")
        if shutil.disk_usage(self.state).free < _LEAST_BYTES:
            return f"the disk of {self.state} is full"
        return f"status {os.waitstatus_to_exitcode(status)}"


def _fork(become: Callable[[], None], log: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            become()
        except BaseException as error:
            with suppress(OSError), log.open("a") as file:
                print(error, file=file)
        finally:
            os._exit(127)
    return pid


def _is_root() -> bool:
    """Return whether this user namespace maps all uids, as root's executors need one per run."""
    with suppress(OSError):
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        return max(int(line.split()[2]) for line in lines) >= _ALL_USERS
    return True


def _others(own: set[int]) -> list[int]:
    """Return the pids of children other than `own`: executors that have outlived their agents."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError, IndexError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == 1 and int(place.name) not in own:
                    found.append(int(place.name))
    return found
