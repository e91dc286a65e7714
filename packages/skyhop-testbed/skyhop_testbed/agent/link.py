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
from typing import Any

import grpc

from skyhop.errors import InputError, RunError
from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.agent.identity import Identity
from skyhop_testbed.clock import Clock
from skyhop_testbed.protocol import testbed_pb2 as wire
from skyhop_testbed.protocol import testbed_pb2_grpc as services

_FINAL = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_FINAL_WAIT_S = 60.0
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_CONTACT_S = 2.0
_PATIENCE_S = 20.0
_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 20_000),
    ("grpc.max_receive_message_length", 80_000_000),
]


class Backoff:
    """Exponential backoff with jitter, 1 s to 30 s; after a refusal the wait is a minute."""

    def __init__(self, seed: int | None = None) -> None:
        self._chance = random.Random(seed)
        self._failures = 0

    def clear(self) -> None:
        """Reset the backoff after a success."""
        self._failures = 0

    def next_s(self, code: object = None) -> float:
        """Return the wait in s after one more failure.

        `code` is the failure's gRPC status, if any.
        """
        if code in _FINAL:
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
        revision: returns the revision of the current schedule.
        heartbeat_s: returns the longest time between two reports in s.
        say: function for log lines.
        clock: time and waiting.
    """

    def __init__(
        self,
        identity: Identity,
        db: AgentDb,
        *,
        on_order: Callable[[Any], None],
        revision: Callable[[], int],
        heartbeat_s: Callable[[], float],
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._db, self._on_order, self._clock = db, on_order, clock
        self._revision, self._heartbeat_s, self._say = revision, heartbeat_s, say
        self._stopped = threading.Event()
        self._again = threading.Event()
        """Event that is set when reports succeed again after a failure: the call for orders is then
        retried at once.
        """
        self._troubles: set[str] = set()
        self._orders: Any = None
        self.is_connected = False
        self.connect(identity)
        self._threads = [
            threading.Thread(target=self._follow, name="follow", daemon=True),
            threading.Thread(target=self._report, name="report", daemon=True),
        ]

    def connect(self, identity: Identity) -> None:
        """Open a channel with an identity, and close the previous channel."""
        old = getattr(self, "_channel", None)
        self._channel = grpc.secure_channel(identity.agents, identity.credentials(), _OPTIONS)
        self.stub = services.AgentStub(self._channel)
        if old is not None:
            old.close()

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
        self._channel.close()

    def claim(self, run: str, fence: int, at_ns: int, patience_s: float) -> tuple[bool | None, str]:
        """Claim a run; return whether the orchestrator grants it, and why not.

        The first value is `None` if no answer came within `patience_s` seconds.
        """
        if not self.is_connected:
            return None, "the orchestrator does not answer"
        asked = wire.ClaimRequest(run=run, fence=fence, at_ns=at_ns)
        try:
            reply = self.stub.Claim(asked, timeout=patience_s)
        except (grpc.RpcError, ValueError) as error:
            return None, error_line(error)
        return bool(reply.granted), str(reply.reason)

    def fetch(self, job: str, name: str, file: Path, most: int) -> None:
        """Download a job's input file; a partial download in `file` is resumed.

        Raises:
            RunError: the download failed, or the file is longer than `most` bytes.
        """
        offset = file.stat().st_size if file.exists() else 0
        asked = wire.InputRequest(job=job, name=name, offset=offset)
        try:
            with file.open("ab") as stream:
                for piece in self.stub.Input(asked, timeout=_PATIENCE_S):
                    stream.write(piece.data)
                    if stream.tell() > most:
                        raise RunError(f"{name}: is longer than its announced size")
        except (grpc.RpcError, ValueError) as error:
            raise RunError(f"{name}: {error_line(error)}") from None

    def offsets(self, run: str, side: str) -> dict[str, int]:
        """Return the number of bytes that the orchestrator has received of each of a run's files.

        Raises:
            RunError: the orchestrator is unreachable, or refuses.
        """
        try:
            asked = wire.RunName(run=run, side=side)
            return dict(self.stub.UploadState(asked, timeout=_PATIENCE_S).offsets)
        except (grpc.RpcError, ValueError) as error:
            raise RunError(error_line(error)) from None

    def upload(self, chunks: Iterator[Any], patience_s: float) -> bool:
        """Send chunks of a run's files; return whether the orchestrator then has all files.

        Raises:
            RunError: not all chunks arrived within `patience_s` seconds.
        """
        try:
            return bool(self.stub.Upload(chunks, timeout=patience_s).complete)
        except (grpc.RpcError, ValueError) as error:
            raise RunError(error_line(error)) from None

    def _follow(self) -> None:
        backoff = Backoff()
        while not self._stopped.is_set():
            code: object = None
            began = self._clock.monotonic_s()
            try:
                self._orders = self.stub.Follow(wire.FollowRequest(revision=self._revision()))
                for order in self._orders:
                    self._log_trouble("orders", None)
                    self.is_connected = True
                    backoff.clear()
                    self._dispatch(order)
            except (grpc.RpcError, ValueError) as error:
                code = error.code() if isinstance(error, grpc.RpcError) else None
                if not self._stopped.is_set():
                    self._log_trouble("orders", error)
            # A call that stayed open this long had reached the orchestrator, even if no order came.
            if self._clock.monotonic_s() - began > _CONTACT_S:
                backoff.clear()
            self._clock.wait(self._again, backoff.next_s(code))
            self._again.clear()

    def _dispatch(self, order: Any) -> None:
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
            code: object = None
            try:
                self._send_all()
                if not self.is_connected:
                    self._again.set()
                self.is_connected = True
                self._log_trouble("reports", None)
                backoff.clear()
            except (grpc.RpcError, ValueError) as error:
                self.is_connected = False
                code = error.code() if isinstance(error, grpc.RpcError) else None
                self._log_trouble("reports", None if is_last else error)
            except Exception as error:  # reporting must go on after any failure.
                self._say(f"reports: {type(error).__name__}: {error}")
            if is_last:
                return
            if self.is_connected:
                self._clock.wait(self._db.has_reports, self._heartbeat_s())
            else:
                self._clock.wait(self._stopped, backoff.next_s(code))

    def _send_all(self) -> None:
        """Send reports until the outbox is empty.

        If it is empty already, the empty batch is a heartbeat.
        """
        while True:
            self._db.has_reports.clear()
            rows = self._db.next_batch()
            events = [
                wire.Event(seq=seq, at_ns=at_ns, kind=kind, json=text)
                for seq, at_ns, kind, text in rows
            ]
            batch = wire.Batch(events=events, at_ns=self._clock.now_ns())
            ack = self.stub.Report(batch, timeout=_PATIENCE_S)
            if not rows:
                return
            self._db.acknowledge(ack.seq)
            if ack.seq < rows[-1][0]:
                raise ValueError(f"the orchestrator accepted reports up to {ack.seq} only")
            if not self._db.next_batch():
                return

    def _log_trouble(self, what: str, trouble: BaseException | None) -> None:
        """Log a failure of `what` when it begins; with `trouble` `None`, log that it is over."""
        if trouble is not None and what not in self._troubles:
            self._troubles.add(what)
            self._say(f"{what}: {error_line(trouble)}")
        elif trouble is None and what in self._troubles:
            self._troubles.discard(what)
            self._say(f"{what}: the orchestrator answers again")


def error_line(error: BaseException) -> str:
    """Return the error of a failed call as one line of at most about 200 characters."""
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        code = error.code()
        words = " ".join(str(error.details()).split())[:200]
        return f"{code.name.lower().replace('_', ' ')}: {words}" if code else words
    return f"{type(error).__name__}: {error}"[:200]
