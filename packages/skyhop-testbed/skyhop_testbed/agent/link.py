"""Connection to the orchestrator, opened by the node: orders come in, reports go out.

It is usual that the orchestrator is unreachable: the agent retries after 1 to 30 s, with jitter. If
the orchestrator refuses the node (its certificate is no longer known), the agent logs that once and
retries every minute.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.agent.identity import Identity
from skyhop_testbed.api import ApiError, ErrorKind, Operation
from skyhop_testbed.clock import Clock
from skyhop_testbed.words import EventKind

if TYPE_CHECKING:
    from skyhop_testbed.wire import Lines

F = TypeVar("F", api.Input, api.FetchRelease)
_FINAL = (ErrorKind.UNAUTHENTICATED, ErrorKind.DENIED)
_FINAL_WAIT_S = 60.0
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_CONTACT_S = 2.0
_SLACK_SHARE, _MOST_SLACK_S = 0.2, 1.5
"""Delay of a heartbeat, as a share of its interval and at most in s: telemetry that comes meanwhile
makes it unnecessary."""
_PATIENCE_S, _UPLOAD_PATIENCE_S = 20.0, 60.0
"""Longest waits in s for a peer that neither sends nor takes bytes."""


class RefusedError(RunError):
    """The orchestrator refuses a run's files, and another attempt would not change that."""


class Backoff:
    """Exponential backoff with jitter, 1 s to 30 s; after a refusal the wait is a minute."""

    def __init__(self, seed: int | None = None) -> None:
        self._chance = random.Random(seed)
        self._failures = 0

    def clear(self) -> None:
        """Reset the backoff after a success."""
        self._failures = 0

    def next_s(self, kind: ErrorKind | None = None) -> float:
        """Return the wait in s after one more failure.

        `kind` is the kind of the error, if there was one.
        """
        if kind in _FINAL:
            return _FINAL_WAIT_S
        wait_s: float = min(_SHORTEST_WAIT_S * 2**self._failures, _LONGEST_WAIT_S)
        self._failures = min(self._failures + 1, 10)
        return wait_s * self._chance.uniform(0.5, 1.0)


class Link:
    """Connection for all calls to the orchestrator, with one thread for orders and one for reports.

    Args:
        identity: this node's identity.
        db: the database; the reports in its outbox are sent.
        on_order: called with each order, in the thread that receives orders.
        follows: returns the call that asks for orders after those that the node has.
        heartbeat_s: returns the longest time between two reports in s.
        say: function for log lines.
        clock: time and waiting.
    """

    def __init__(
        self,
        identity: Identity,
        db: AgentDb,
        *,
        on_order: Callable[[api.Order], None],
        follows: Callable[[], api.Follow],
        heartbeat_s: Callable[[], float],
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._db, self._on_order, self._clock = db, on_order, clock
        self._follows, self._heartbeat_s, self._say = follows, heartbeat_s, say
        self._stopped = threading.Event()
        self._again = threading.Event()
        """Event that is set when reports succeed again after a failure: the call for orders is then
        retried at once.
        """
        self._troubles: set[str] = set()
        self._orders: Lines[api.Order] | None = None
        self.is_connected = False
        self.has_reported_health = False
        """Whether the orchestrator has a report of this agent's health."""
        self._began_ns = clock.now_ns()
        self._is_following_again = False
        """Whether the agent itself has ended the last stream of orders."""
        self.wire = identity.open_wire()
        self._threads = [
            threading.Thread(target=self._follow, name="follow", daemon=True),
            threading.Thread(target=self._report, name="report", daemon=True),
        ]

    def connect(self, identity: Identity) -> None:
        """Open a connection with another identity; calls in progress end on the old one."""
        self.wire = identity.open_wire()
        if self._orders is not None:
            self._orders.cancel()

    def follow_again(self) -> None:
        """End the stream of orders, and ask for it again at once."""
        self._is_following_again = True
        self._again.set()
        if self._orders is not None:
            self._orders.cancel()

    def start(self) -> None:
        """Start the threads that receive orders and send reports."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Close the connection, after one last attempt to send the reports."""
        self._stopped.set()
        self._again.set()
        self._db.has_reports.set()
        if self._orders is not None:
            self._orders.cancel()
        self._threads[1].join(3.0)
        self.wire.close()

    def claim(self, run: str, fence: int, at_ns: int, patience_s: float) -> tuple[bool | None, str]:
        """Claim a run; return whether the orchestrator grants it, and why not.

        The first value is `None` if no answer came within `patience_s` seconds.
        """
        if not self.is_connected:
            return None, "the orchestrator does not answer"
        asked = api.Claim(run=run, fence=fence, at_ns=at_ns)
        try:
            reply = self.wire.call(api.CLAIM, asked, patience_s)
        except ApiError as error:
            return None, error_line(error)
        return reply.granted, reply.reason

    def fetch(self, job: str, name: str, file: Path, most: int) -> None:
        """Download a job's input file; a partial download in `file` is resumed.

        Raises:
            RunError: the download failed, or the file is longer than `most` bytes.
        """
        offset = file.stat().st_size if file.exists() else 0
        self._download(api.INPUT, api.Input(job=job, name=name, offset=offset), file, most)

    def fetch_release(
        self, version: str, name: str, file: Path, most: int, check: Callable[[], None]
    ) -> None:
        """Download a file of a release; a partial download in `file` is resumed.

        Args:
            version: the release.
            name: the file's name in it.
            file: the file to write.
            most: upper limit on its size.
            check: called before each piece; its exception ends the download.

        Raises:
            RunError: the download failed, or the file is longer than `most` bytes.
        """
        offset = file.stat().st_size if file.exists() else 0
        asked = api.FetchRelease(version=version, name=name, offset=offset)
        self._download(api.FETCH_RELEASE, asked, file, most, check)

    def _download(
        self,
        operation: Operation[F, bytes],
        asked: F,
        file: Path,
        most: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        name = asked.name
        try:
            with file.open("ab") as stream:
                for piece in self.wire.download(operation, asked, _PATIENCE_S):
                    check()
                    stream.write(piece)
                    if stream.tell() > most:
                        raise RunError(f"{name}: is longer than its announced size")
        except ApiError as error:
            raise RunError(f"{name}: {error_line(error)}") from None

    def offsets(self, run: str, side: str) -> dict[str, int]:
        """Return the number of bytes that the orchestrator has received of each of a run's files.

        Raises:
            RunError: the orchestrator is unreachable, or refuses.
        """
        try:
            asked = api.RunSide(run=run, side=side)
            return self.wire.call(api.UPLOAD_STATE, asked, _PATIENCE_S)
        except ApiError as error:
            raise RunError(error_line(error)) from None

    def progress(self, run: str, side: str) -> api.UploadProgress | None:
        """Return what the orchestrator has of a run's files; `None` if it is older than this call.

        Raises:
            RefusedError: the orchestrator refuses these files.
            RunError: the orchestrator is unreachable.
        """
        try:
            asked = api.RunSide(run=run, side=side)
            return self.wire.call(api.UPLOAD_PROGRESS, asked, _UPLOAD_PATIENCE_S)
        except ApiError as error:
            if error.kind is ErrorKind.NOT_FOUND:
                return None
            raise _upload_error(error) from None

    def upload(self, run: str, side: str, pieces: Iterator[bytes]) -> bool:
        """Send pieces of a run's files; return whether the orchestrator then has all files.

        Raises:
            RefusedError: the orchestrator refuses these files.
            RunError: the orchestrator is unreachable, or some files are damaged.
        """
        try:
            asked = api.RunSide(run=run, side=side)
            return self.wire.upload(api.UPLOAD, asked, pieces, _UPLOAD_PATIENCE_S)
        except ApiError as error:
            raise _upload_error(error) from None

    def _follow(self) -> None:
        backoff = Backoff()
        while not self._stopped.is_set():
            kind: ErrorKind | None = None
            began = self._clock.monotonic_s()
            try:
                self._is_following_again = False
                self._orders = self._open_orders()
                for order in self._orders:
                    self._log_trouble("orders", None)
                    self.is_connected = True
                    backoff.clear()
                    self._dispatch(order)
            except ApiError as error:
                kind = None if self._is_following_again else error.kind
                if not self._stopped.is_set() and not self._is_following_again:
                    self._log_trouble("orders", error)
            # A call that stayed open this long had reached the orchestrator, even if no order came.
            if self._clock.monotonic_s() - began > _CONTACT_S:
                backoff.clear()
            self._clock.wait(self._again, backoff.next_s(kind))
            self._again.clear()

    def _open_orders(self) -> Lines[api.Order]:
        if not self.wire.peer.version:
            # The answer says what the orchestrator speaks: whether it sends differences.
            self.wire.call(api.REPORT, api.Batch(at_ns=self._clock.now_ns()), _PATIENCE_S)
        return self.wire.stream(api.FOLLOW, self._follows())

    def _dispatch(self, order: api.Order) -> None:
        try:
            self._on_order(order)
        except InputError as error:
            self._say(f"refused: {error}")
        except Exception as error:  # a faulty order must not stop the thread.
            self._say(f"an order cannot be executed: {type(error).__name__}: {error}")

    def _report(self) -> None:
        backoff = Backoff()
        while True:
            is_last = self._stopped.is_set()
            kind: ErrorKind | None = None
            try:
                self._send_all()
                if not self.is_connected:
                    self._again.set()
                self.is_connected = True
                self._log_trouble("reports", None)
                backoff.clear()
            except ApiError as error:
                self.is_connected = False
                kind = error.kind
                self._log_trouble("reports", None if is_last else error)
            except Exception as error:  # reporting must go on after any failure.
                self._say(f"reports: {type(error).__name__}: {error}")
            if is_last:
                return
            if self.is_connected:
                every_s = self._heartbeat_s()
                slack_s = min(_SLACK_SHARE * every_s, _MOST_SLACK_S)
                self._clock.wait(self._db.has_reports, every_s + slack_s)
            else:
                self._clock.wait(self._stopped, backoff.next_s(kind))

    def _send_all(self) -> None:
        """Send reports until the outbox is empty.

        If it is empty already, the empty batch is a heartbeat.
        """
        while True:
            rows = self._db.next_batch()
            events = [
                api.Event(seq=seq, at_ns=at_ns, kind=kind, body=text)
                for seq, at_ns, kind, text in rows
            ]
            batch = api.Batch(events=events, at_ns=self._clock.now_ns())
            last = self.wire.call(api.REPORT, batch, _PATIENCE_S, is_packed=True)
            if not rows:
                return
            self._db.acknowledge(last)
            self.has_reported_health |= any(
                kind == EventKind.HEALTH and at_ns >= self._began_ns and seq <= last
                for seq, at_ns, kind, _ in rows
            )
            if last < rows[-1][0]:
                said = f"the orchestrator accepted reports up to {last} only"
                raise ApiError(ErrorKind.INTERNAL, said)
            if not self._db.has_more():
                return

    def _log_trouble(self, what: str, trouble: ApiError | None) -> None:
        """Log a failure of `what` when it begins; with `trouble` `None`, log that it is over."""
        if trouble is not None and what not in self._troubles:
            self._troubles.add(what)
            self._say(f"{what}: {error_line(trouble)}")
        elif trouble is None and what in self._troubles:
            self._troubles.discard(what)
            self._say(f"{what}: the orchestrator answers again")


def _upload_error(error: ApiError) -> RunError:
    kind = RefusedError if error.kind is ErrorKind.DENIED else RunError
    return kind(error_line(error))


def error_line(error: ApiError) -> str:
    """Return the error of a failed call as one line of at most about 200 characters."""
    return f"{error.kind.replace('-', ' ')}: {str(error)[:200]}"
