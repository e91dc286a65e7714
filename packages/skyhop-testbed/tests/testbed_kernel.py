"""Kernel service in the test's process: real socket and journal, a kernel that records calls."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from testbed_harness import StandingClock

from skyhop_testbed.kernel import queues, service
from skyhop_testbed.kernel.client import KernelClient
from skyhop_testbed.kernel.journal import ChangeJournal, KernelChange
from skyhop_testbed.kernel.requests import Grant
from skyhop_testbed.kernel.service import KernelService
from skyhop_testbed.kernel.uplinks import DeviceAddress, Kind

T = TypeVar("T")
ALL = [grant.value for grant in Grant]


class NotedNamespace:
    """Fake namespace of a run, with its own sysctls, which records programs."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.inode = descriptor, os.fstat(descriptor).st_ino
        self.sysctls = {
            "tcp_congestion_control": "cubic",
            "tcp_available_congestion_control": "reno cubic",
        }
        self.called: list[str] = []

    def inside(self, work: Callable[[], T]) -> T:
        """Call the function directly; return its result."""
        return work()

    def call(self, *command: str, text: str | None = None) -> str:
        """Record a program's command line and input."""
        self.called.append(" ".join([*command, *([] if text is None else [text])]))
        return ""

    def read(self, name: str) -> str:
        """Return the value of a sysctl below net.ipv4."""
        return self.sysctls[name]

    def write(self, name: str, value: str) -> None:
        """Set a sysctl below net.ipv4."""
        self.sysctls[name] = value

    def counters(self) -> tuple[int, int]:
        """Return the bytes that the run's device received and sent."""
        return 1, 2

    def close(self) -> None:
        """Close the namespace's descriptor."""
        os.close(self.descriptor)


class NotedUplink:
    """Fake uplink, which records devices in the journal and creates none."""

    kind = Kind.NONE

    def unavailable_reason(self) -> None:
        """Return `None`: the machine lacks nothing."""

    def begin(self, _changes: ChangeJournal) -> None:
        """Make no change to the machine."""

    def attach(self, run: str, name: str, namespace: Any, changes: ChangeJournal) -> DeviceAddress:
        """Record a device in the journal; return a fixed address."""
        changes.record(run, {"kind": "device", "name": name, "inode": namespace.inode})
        return DeviceAddress("10.213.0.1", None)

    def release(self, _run: str) -> None:
        """Do nothing, as no address was taken."""


@dataclass
class KernelHere:
    """Service in a thread, with a record of its actions."""

    directory: Path
    clock: StandingClock
    log: list[str] = field(default_factory=list)
    undone: list[KernelChange] = field(default_factory=list)
    namespaces: list[NotedNamespace] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    """Command lines of programs that were called outside the namespaces."""
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def socket(self) -> str:
        """Path of the service's socket."""
        return str(self.directory / "kernel.sock")

    def make(self, state: str = "state") -> KernelService:
        """Return a new service; a second one of the same state directory fails."""
        return KernelService(
            Path(self.socket),
            self.directory / state,
            [os.getuid()],
            NotedUplink(),  # type: ignore[arg-type]
            clock=self.clock,
            log=self._note,
        )

    def attached(self, run: str = "r1", grants: list[str] | None = None) -> KernelClient:
        """Open and attach a run; return its client."""
        token = secrets.token_hex(32)
        agent = KernelClient(self.socket)
        agent.open(run, token, ALL if grants is None else grants)
        agent.close()
        client = KernelClient(self.socket)
        self.attach(client, run, token)
        return client

    def attach(self, client: KernelClient, run: str, token: str) -> None:
        """Attach a run with a fake namespace."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            client.attach(run, token, descriptor)
        finally:
            os.close(descriptor)

    def _note(self, line: str) -> None:
        with self._news:
            self.log.append(line)
            self._news.notify_all()

    def await_line(self, what: str) -> None:
        """Wait until a line of the log contains a text."""
        with self._news:
            assert self._news.wait_for(lambda: self.said(what), 60), self.log

    def said(self, what: str) -> list[str]:
        """Return the lines of the log that contain a text."""
        return [line for line in self.log if what in line]


@contextlib.contextmanager
def kernel_here(directory: Path) -> Iterator[tuple[KernelHere, KernelService]]:
    """Run the service in a thread of this process."""
    made = KernelHere(directory, StandingClock())

    def namespace(descriptor: int) -> NotedNamespace:
        made.namespaces.append(NotedNamespace(descriptor))
        return made.namespaces[-1]

    def call(*command: str, **_: Any) -> str:
        made.programs.append(" ".join(command))
        return ""

    with (
        mock.patch.object(service, "Namespace", namespace),
        mock.patch.object(service, "_undo", made.undone.append),
        mock.patch.object(queues, "call", call),
    ):
        served = made.make()
        thread = threading.Thread(target=served.serve)
        thread.start()
        try:
            made.await_line("serves on")
            yield made, served
        finally:
            served.stop()
            thread.join(60)
