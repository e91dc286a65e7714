"""The connection to the orchestrator: orders come in, reports go out, whoever dials is the node.

Nobody answering is usual, and waited for: 1 to 30 s with chance between tries. A refusal (the
certificate is not known any more) is said once and tried again each minute.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from skyhop.errors import InputError, RunError
from skyhop.testbed.agent.book import Book
from skyhop.testbed.agent.identity import Identity
from skyhop.testbed.clock import Clock
from skyhop.testbed.protocol import testbed_pb2 as wire
from skyhop.testbed.protocol import testbed_pb2_grpc as services

_FINAL = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_FINAL_WAIT_S = 60.0
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_HEARD_S = 2.0
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


class Waits:
    """How long to wait after each failure."""

    def __init__(self, seed: int | None = None) -> None:
        self._chance = random.Random(seed)
        self._failures = 0

    def clear(self) -> None:
        """Begin anew, after a success."""
        self._failures = 0

    def next_s(self, code: object = None) -> float:
        """Return how long to wait after one more failure."""
        if code in _FINAL:
            return _FINAL_WAIT_S
        wait_s: float = min(_SHORTEST_WAIT_S * 2**self._failures, _LONGEST_WAIT_S)
        self._failures = min(self._failures + 1, 10)
        return wait_s * self._chance.uniform(0.5, 1.0)


class Link:
    """All calls to the orchestrator.

    Args:
        identity: this node's.
        book: what is reported.
        on_order: takes each order, in the thread that listens.
        revision: returns that of the schedule which is followed.
        heartbeat_s: returns how often to report at least.
        say: takes lines.
        clock: what time it is, and how to wait.
    """

    def __init__(
        self,
        identity: Identity,
        book: Book,
        *,
        on_order: Callable[[Any], None],
        revision: Callable[[], int],
        heartbeat_s: Callable[[], float],
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._book, self._on_order, self._clock = book, on_order, clock
        self._revision, self._heartbeat_s, self._say = revision, heartbeat_s, say
        self._stopped = threading.Event()
        self._again = threading.Event()
        """Set when reports arrive again: orders are to be had then, too."""
        self._troubles: set[str] = set()
        self._orders: Any = None
        self.is_connected = False
        self.connect(identity)
        self._threads = [
            threading.Thread(target=self._follow, name="follow", daemon=True),
            threading.Thread(target=self._report, name="report", daemon=True),
        ]

    def connect(self, identity: Identity) -> None:
        """Use an identity from now on."""
        old = getattr(self, "_channel", None)
        self._channel = grpc.secure_channel(identity.agents, identity.credentials(), _OPTIONS)
        self.stub = services.AgentStub(self._channel)
        if old is not None:
            old.close()

    def start(self) -> None:
        """Begin to listen and to report."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Leave, after one more report."""
        self._stopped.set()
        self._again.set()
        self._book.news.set()
        if self._orders is not None:
            self._orders.cancel()
        self._threads[1].join(3.0)
        self._channel.close()

    def claim(self, run: str, fence: int, at_ns: int, patience_s: float) -> tuple[bool | None, str]:
        """Ask for a run: whether it is granted and why not; `None` where nobody answers."""
        if not self.is_connected:
            return None, "nobody answers"
        asked = wire.ClaimRequest(run=run, fence=fence, at_ns=at_ns)
        try:
            reply = self.stub.Claim(asked, timeout=patience_s)
        except (grpc.RpcError, ValueError) as error:
            return None, short(error)
        return bool(reply.granted), str(reply.reason)

    def fetch(self, job: str, name: str, file: Path, most: int) -> None:
        """Fetch a file that a job brings.

        Raises:
            RunError: it cannot be had; the message says why.
        """
        offset = file.stat().st_size if file.exists() else 0
        asked = wire.InputRequest(job=job, name=name, offset=offset)
        try:
            with file.open("ab") as stream:
                for piece in self.stub.Input(asked, timeout=_PATIENCE_S):
                    stream.write(piece.data)
                    if stream.tell() > most:
                        raise RunError(f"{name}: is longer than was said")
        except (grpc.RpcError, ValueError) as error:
            raise RunError(f"{name}: {short(error)}") from None

    def offsets(self, run: str, side: str) -> dict[str, int]:
        """Return how much of each of a run's files is there already.

        Raises:
            RunError: the orchestrator does not say.
        """
        try:
            asked = wire.RunName(run=run, side=side)
            return dict(self.stub.UploadState(asked, timeout=_PATIENCE_S).offsets)
        except (grpc.RpcError, ValueError) as error:
            raise RunError(short(error)) from None

    def upload(self, chunks: Iterator[Any], patience_s: float) -> bool:
        """Send pieces of a run's files; return whether it is complete then.

        Raises:
            RunError: not all of them arrived.
        """
        try:
            return bool(self.stub.Upload(chunks, timeout=patience_s).complete)
        except (grpc.RpcError, ValueError) as error:
            raise RunError(short(error)) from None

    def _follow(self) -> None:
        waits = Waits()
        while not self._stopped.is_set():
            code: object = None
            began = self._clock.monotonic_s()
            try:
                self._orders = self.stub.Follow(wire.FollowRequest(revision=self._revision()))
                for order in self._orders:
                    self._note("orders", None)
                    self.is_connected = True
                    waits.clear()
                    self._take(order)
            except (grpc.RpcError, ValueError) as error:
                code = error.code() if isinstance(error, grpc.RpcError) else None
                if not self._stopped.is_set():
                    self._note("orders", error)
            # One to whom nothing was to be said was heard all the same.
            if self._clock.monotonic_s() - began > _HEARD_S:
                waits.clear()
            self._clock.wait(self._again, waits.next_s(code))
            self._again.clear()

    def _take(self, order: Any) -> None:
        try:
            self._on_order(order)
        except InputError as error:
            self._say(f"refused: {error}")
        except Exception as error:  # whatever came, the next order is taken.
            self._say(f"an order cannot be followed: {type(error).__name__}: {error}")

    def _report(self) -> None:
        waits = Waits()
        while True:
            is_last = self._stopped.is_set()
            code: object = None
            try:
                self._send_all()
                if not self.is_connected:
                    self._again.set()
                self.is_connected = True
                self._note("reports", None)
                waits.clear()
            except (grpc.RpcError, ValueError) as error:
                self.is_connected = False
                code = error.code() if isinstance(error, grpc.RpcError) else None
                self._note("reports", None if is_last else error)
            except Exception as error:  # it goes on, whatever it was.
                self._say(f"reports: {type(error).__name__}: {error}")
            if is_last:
                return
            if self.is_connected:
                self._clock.wait(self._book.news, self._heartbeat_s())
            else:
                self._clock.wait(self._stopped, waits.next_s(code))

    def _send_all(self) -> None:
        """Report until nothing is left; nothing at all is a heartbeat."""
        while True:
            self._book.news.clear()
            rows = self._book.unsent()
            events = [
                wire.Event(seq=seq, at_ns=at_ns, kind=kind, json=text)
                for seq, at_ns, kind, text in rows
            ]
            batch = wire.Batch(events=events, at_ns=self._clock.now_ns())
            ack = self.stub.Report(batch, timeout=_PATIENCE_S)
            if not rows:
                return
            self._book.sent(ack.seq)
            if ack.seq < rows[-1][0]:
                raise ValueError(f"the orchestrator took reports up to {ack.seq} only")
            if not self._book.unsent():
                return

    def _note(self, what: str, trouble: BaseException | None) -> None:
        """Say that a trouble has begun or is over; once each."""
        if trouble is not None and what not in self._troubles:
            self._troubles.add(what)
            self._say(f"{what}: {short(trouble)}")
        elif trouble is None and what in self._troubles:
            self._troubles.discard(what)
            self._say(f"{what}: the orchestrator answers again")


def short(error: BaseException) -> str:
    """Return what a call came to, in a line."""
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        code = error.code()
        words = " ".join(str(error.details()).split())[:200]
        return f"{code.name.lower().replace('_', ' ')}: {words}" if code else words
    return f"{type(error).__name__}: {error}"[:200]
