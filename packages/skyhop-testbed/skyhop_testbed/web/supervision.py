"""Supervision of the process of the web pages: started, restarted with a back-off, ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from skyhop_testbed.clock import Clock
from skyhop_testbed.orchestrator.page_port import PagePort, Report
from skyhop_testbed.orchestrator.waiting import Wait

_LOG = logging.getLogger(__name__)
SILENT_S = 90.0
"""Time in s without a report after which the process counts as stuck."""
_STABLE_S = 60.0
"""Time in s that a process has to live so that the next one starts at once."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
_LOOK_EVERY_S = 5.0
_END_S = 10.0


class Process(Protocol):
    """Part of `asyncio.subprocess.Process` that the supervision uses."""

    @property
    def pid(self) -> int:
        """Number of the process."""

    @property
    def returncode(self) -> int | None:
        """Status of the ended process; `None` while it runs."""

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""

    async def wait(self) -> int:
        """Wait for the end; return the status."""


Start = Callable[[], Awaitable[Process]]
"""Function that starts the process."""


class PageProcess:
    """Process of the web pages, which is started again whenever it ends.

    Args:
        start: starts the process.
        port: receives the process's reports.
        clock: source of the time.
        wait: function with which the supervision waits.
    """

    def __init__(self, start: Start, port: PagePort, clock: Clock, wait: Wait) -> None:
        self._start, self._port, self._clock, self._wait = start, port, clock, wait
        self.failures = 0
        """Number of processes in a row that ended soon after their start."""
        self.starts = 0

    @property
    def report(self) -> Report | None:
        """Latest report of the process."""
        return self._port.report

    async def supervise(self, stopping: asyncio.Event) -> None:
        """Keep the process running until the service stops; then end it."""
        while not stopping.is_set():
            begun_s = self._clock.monotonic_s()
            try:
                process = await self._start()
            except OSError as error:
                _LOG.error("the pages cannot be started: %s", error.strerror)
            else:
                self.starts += 1
                await self._watch(process, stopping)
                if stopping.is_set():
                    return
                _LOG.error("the process of the pages ended: status=%s", process.returncode)
            is_stable = self._clock.monotonic_s() - begun_s >= _STABLE_S
            self.failures = 0 if is_stable else self.failures + 1
            # A process that lived long is started again at once, others later and later.
            delay_s = _FIRST_WAIT_S * 2 ** max(0, self.failures - 1)
            await self._wait(stopping, min(delay_s, _LONGEST_WAIT_S))

    async def _watch(self, process: Process, stopping: asyncio.Event) -> None:
        """Return once the process has ended; end it if it reports no more, or the service stops."""
        ended = asyncio.ensure_future(process.wait())
        changed = asyncio.Event()
        ended.add_done_callback(lambda _: changed.set())
        stop = asyncio.ensure_future(stopping.wait())
        stop.add_done_callback(lambda _: changed.set())
        begun_s = self._clock.monotonic_s()
        heard, heard_s = self._port.reports, begun_s
        while not changed.is_set():
            await self._wait(changed, _LOOK_EVERY_S)
            if self._port.reports != heard:
                heard, heard_s = self._port.reports, self._clock.monotonic_s()
                if heard_s - begun_s >= _STABLE_S:
                    self.failures = 0
            elif self._clock.monotonic_s() - heard_s >= SILENT_S:
                _LOG.error("the process of the pages is stuck, and is killed")
                process.kill()
                await ended
        stop.cancel()
        if not ended.done():
            await _end(process)
        await ended


async def _end(process: Process) -> None:
    """End the process with SIGTERM, and after a while with SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def starter(state: Path, listener: socket.socket, orders: Path) -> Start:
    """Return the function that starts the process of the pages.

    Args:
        state: the orchestrator's state directory.
        listener: bound socket of the pages' port, which every such process inherits.
        orders: the orchestrator's Unix socket.
    """

    async def start() -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "skyhop_testbed.web.process",
            *(str(state), str(listener.fileno()), str(orders), str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            # A signal to the terminal's processes goes to the orchestrator, which ends this one.
            start_new_session=True,
        )

    return start
