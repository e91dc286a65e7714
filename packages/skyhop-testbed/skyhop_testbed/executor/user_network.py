"""User-mode network of a run: slirp4netns, which needs no privilege and no change of the host.

slirp4netns opens a device in the run's network namespace, and passes what the program sends to
sockets of its own, in the host's namespace and of the agent's user. It ends when the executor does:
it watches a pipe whose other end the executor holds.

Others reach a port of the program only if the run's fence allows it, and only while the program
listens there: the executor then has slirp4netns listen on the same port of the host.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from skyhop.errors import RunError
from skyhop_testbed import linux
from skyhop_testbed.clock import Clock
from skyhop_testbed.executor.devices import (
    MTU_BYTES,
    OWN,
    RESOLVER,
    TAP,
    DeviceSetup,
    add_filter,
)
from skyhop_testbed.executor.traffic import Traffic, parse_counters
from skyhop_testbed.fence import Fence

PROGRAM = "slirp4netns"
RESOLVER_FILE = f"nameserver {RESOLVER}\n"
"""Content of /etc/resolv.conf for runs; the resolver asks those of this machine."""
_READY_S = 20.0
_LOOKED_UP_S = 300.0
_ANSWER_S = 5.0
_SOCKET = "slirp"
_LARGEST_ANSWER = 65_536
_TUN = Path("/dev/net/tun")
_TCP_LISTEN, _UDP_UNCONNECTED = "0A", "07"
_HARDENING, _ROOT_HARDENING = ("--enable-seccomp",), ("--enable-seccomp", "--enable-sandbox")
"""Options that confine slirp4netns. Its sandbox needs the user 0, whom the user namespace of an
unprivileged run does not have."""
_IPV6_ROUTES = Path("/proc/net/ipv6_route")
_NO_PREFIX = "0" * 32


@dataclass(frozen=True)
class Namespaces:
    """Descriptors of a run's network namespace, and of the user namespace that owns it.

    `user` is `None` if that is this process's own.
    """

    network: int
    user: int | None = None

    def kinds(self) -> list[tuple[int, int]]:
        """Return the descriptors with their kinds (setns(2)), in the order of entering them."""
        users = [] if self.user is None else [(self.user, linux.NEWUSER)]
        return [*users, (self.network, linux.NEWNET)]


class UserNetwork:
    """Running slirp4netns of one run.

    Args:
        directory: the run's directory, for the socket of slirp4netns.
        namespaces: the run's namespaces; copies of the descriptors stay open until `close`.
        fence: the run's fence, whose `listen` names the ports that may be opened.

    Raises:
        RunError: slirp4netns does not start.
    """

    def __init__(self, directory: Path, namespaces: Namespaces, fence: Fence) -> None:
        self._fence, self._open = fence, set[tuple[str, int]]()
        self._namespaces = Namespaces(
            os.dup(namespaces.network), None if namespaces.user is None else os.dup(namespaces.user)
        )
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(FileNotFoundError):
            os.unlink(_SOCKET, dir_fd=self._directory)
        # slirp4netns ends when the write end of `lives` is closed, also by this process's death.
        lives, self._lives = os.pipe()
        ready, is_ready = os.pipe()
        inherited = [lives, is_ready, self._directory, self._namespaces.network]
        inherited += [] if self._namespaces.user is None else [self._namespaces.user]
        try:
            self._process = subprocess.Popen(
                self._command(lives, is_ready),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"{PROGRAM}: {error.strerror}") from None
        finally:
            os.close(lives)
            os.close(is_ready)
        self._pidfd = os.pidfd_open(self._process.pid)
        with os.fdopen(ready, "rb") as stream:
            is_there = bool(select.select([stream], [], [], _READY_S)[0]) and bool(stream.read(1))
        if not is_there:
            self.cut()
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
            raise RunError(f"{PROGRAM} does not start: {said[-1] if said else 'it says nothing'}")

    def _command(self, lives: int, is_ready: int) -> list[str]:
        user = self._namespaces.user
        hardening = _ROOT_HARDENING if user is None else _HARDENING
        return [
            PROGRAM, "--disable-host-loopback", f"--mtu={MTU_BYTES}",
            *(option for option in hardening if option in _help()),
            *(["--enable-ipv6"] if has_ipv6() else []),
            f"--exit-fd={lives}", f"--ready-fd={is_ready}",
            *([f"--api-socket={self._socket()}"] if self._fence.listen else []),
            *([] if user is None else [f"--userns-path=/proc/self/fd/{user}"]),
            "--netns-type=path", f"/proc/self/fd/{self._namespaces.network}", TAP,
        ]  # fmt: skip

    def _socket(self) -> str:
        # A Unix socket's path is limited to 108 bytes, and that of a run's directory is not.
        return f"/proc/self/fd/{self._directory}/{_SOCKET}"

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when slirp4netns has ended."""
        return self._pidfd

    def open_ports(self, pid: int | None) -> None:
        """Open the ports on which the program listens, and which the fence allows.

        Args:
            pid: a process in the program's network namespace.
        """
        if pid is None or not self._fence.listen:
            return
        for protocol, port in listening(pid):
            if (protocol, port) not in self._open and self._fence.may_listen(port):
                self._open_port(protocol, port)
                self._open.add((protocol, port))

    def _open_port(self, protocol: str, port: int) -> None:
        arguments = {
            "proto": protocol, "host_addr": "0.0.0.0", "host_port": port,
            "guest_addr": OWN, "guest_port": port,
        }  # fmt: skip
        request = {"execute": "add_hostfwd", "arguments": arguments}
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
                stream.settimeout(_ANSWER_S)
                stream.connect(self._socket())
                stream.sendall(json.dumps(request).encode())
                stream.shutdown(socket.SHUT_WR)
                answer = json.loads(stream.recv(_LARGEST_ANSWER))
        except (OSError, ValueError) as error:
            raise RunError(f"{PROGRAM} does not open port {port}: {error}") from None
        if "error" in answer:
            why = answer["error"].get("desc", "")
            raise RunError(f"{PROGRAM} does not open {protocol} port {port}: {why}")

    def counters(self) -> Traffic | None:
        """Return the bytes of the run's devices; `None` if they cannot be read.

        The namespace can be read after its last process has ended.
        """
        try:
            text = linux.call_inside(
                self._namespaces.kinds(), lambda: Path("/proc/thread-self/net/dev").read_text()
            )
        except RunError:
            return None
        return parse_counters(text)

    def cut(self) -> None:
        """Kill slirp4netns: the program sends and receives nothing from now on."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Kill slirp4netns, and close all descriptors."""
        self.cut()
        if self._process.stderr is not None:
            self._process.stderr.close()
        descriptors = [self._pidfd, self._lives, self._directory, self._namespaces.network]
        for each in (*descriptors, self._namespaces.user):
            if each is not None:
                os.close(each)


def listening(pid: int) -> Iterable[tuple[str, int]]:
    """Return the ports on which sockets of a process's network namespace listen, with protocol.

    A UDP socket listens if it is bound and not connected.
    """
    found = set()
    for protocol, state in (("tcp", _TCP_LISTEN), ("udp", _UDP_UNCONNECTED)):
        for name in (protocol, f"{protocol}6"):
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/net/{name}").read_text("ascii").splitlines()[1:]:
                    words = line.split()
                    if words[3] == state:
                        found.add((protocol, int(words[1].rpartition(":")[2], 16)))
    return sorted(found)


def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 default route."""
    try:
        lines = _IPV6_ROUTES.read_text("ascii").splitlines()
    except OSError:
        return False
    routes = [line.split() for line in lines]
    return any(
        words[0] == _NO_PREFIX and words[1] == "00" and words[9] != "lo"
        for words in routes
        if len(words) > 9  # noqa: PLR2004
    )


@lru_cache(maxsize=1)
def _help() -> str:
    try:
        done = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


class Availability:
    """Whether this machine has what the network `internet` needs, looked up every five minutes.

    Args:
        clock: time.
        look_up: returns what is missing, as one line.
    """

    def __init__(self, clock: Clock, look_up: Callable[[], str | None] | None = None) -> None:
        self._clock, self._look_up = clock, look_up or unavailable_reason
        self._until_s = -math.inf
        self._lacking: str | None = None

    def unavailable_reason(self) -> str | None:
        """Return, as one line, what is missing, and what to do; `None` if nothing is."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._until_s:
            self._lacking, self._until_s = self._look_up(), now_s + _LOOKED_UP_S
        return self._lacking


def unavailable_reason() -> str | None:
    """Return, as one line, what this machine lacks for the network `internet`, and what to do.

    The function tries a filter in a network namespace of its own.
    """
    if shutil.which(PROGRAM) is None:
        return (
            f'network = "internet" needs {PROGRAM}: install the package {PROGRAM} on this node, '
            'or allow "host" in the policy\'s networks'
        )
    if not os.access(_TUN, os.R_OK | os.W_OK):
        return f'network = "internet" needs {_TUN}, which this user may not open'
    lacking = _fence_fault()
    if lacking is None:
        return None
    return f'network = "internet" needs what this machine does not allow: {lacking}'


def _fence_fault() -> str | None:
    """Return why this process cannot make a namespace with a filter; `None` if it can."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.set_wakeup_fd(-1)
            is_root = os.geteuid() == 0
            linux.unshare(linux.NEWNET if is_root else linux.NEWNET | linux.NEWUSER)
            add_filter(socket.if_nametoindex("lo"), Fence())
            os.write(writer, b"\0")
        except BaseException as error:
            os.write(writer, f"the kernel's clsact and cls_bpf: {error}".encode()[:300])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return None if said == b"\0" else said.decode(errors="replace")


def setup_of(fence: Fence) -> DeviceSetup:
    """Return the setup of the device that slirp4netns opens."""
    return DeviceSetup(fence, TAP, has_address=True, has_ipv6=has_ipv6())
