"""Kernel service: authentication of clients, and execution of their requests.

The agent opens a run and registers its token. The executor attaches the run; when that connection
ends, for whatever reason, the service undoes all changes of the run.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import logging
import os
import secrets
import select
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed.clock import Clock
from skyhop_testbed.kernel import programs, queues, uplinks
from skyhop_testbed.kernel.congestion import Congestion, undo_load
from skyhop_testbed.kernel.journal import ChangeJournal, KernelChange
from skyhop_testbed.kernel.leoscope import Listener
from skyhop_testbed.kernel.network import DEVICE, Namespace, remove_device
from skyhop_testbed.kernel.queues import Queue
from skyhop_testbed.kernel.requests import LONGEST_BYTES, Answer, Grant, Request, read_request
from skyhop_testbed.kernel.settings import set_sysctl
from skyhop_testbed.kernel.uplinks import SERVICE, Uplink

_LOG = logging.getLogger(__name__)
_MOST_RUNS = 64
_MOST_CONNECTIONS = 128
_UNATTACHED_S = 120.0
"""Time in s after which an open run is closed if no executor has attached it."""
_CREDENTIALS = struct.Struct("3i")
_MOST_FDS = 1
_ROUND_S = 1.0
_LAST_PROGRAM_S, _POLL_S = 5.0, 0.02


class _Run:
    """Run that the agent has opened."""

    def __init__(self, run: str, token: str, grants: frozenset[Grant], opened_s: float) -> None:
        self.id = run
        self._token = _digest(token)
        self.grants = grants
        self.opened_s = opened_s
        self.lock = threading.Lock()
        self.is_closed = False
        self.namespace: Namespace | None = None
        self.congestion: Congestion | None = None
        self.queue: Queue | None = None
        self.listener: Listener | None = None

    def has_token(self, token: str) -> bool:
        return hmac.compare_digest(self._token, _digest(token))

    def close_if_unattached(self) -> bool:
        """Close the run if no executor has attached it; return whether it was closed."""
        if self.namespace is not None:
            return False
        with self.lock:
            self.is_closed |= self.namespace is None
            return self.namespace is None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class KernelService:
    """Server of the kernel service's requests, with a thread per connection.

    Args:
        path: the service's socket.
        directory: the service's directory, for journal and sources.
        uids: users who may send requests, in addition to root.
        uplink: how devices of runs are connected to the network.
        clock: time and waiting.
        log: called with a log line per request.

    Raises:
        InputError: the machine does not have what the uplink needs.
        RunError: another service uses the directory.
    """

    def __init__(
        self,
        path: Path,
        directory: Path,
        uids: Iterable[int],
        uplink: Uplink,
        *,
        clock: Clock,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._path, self._directory, self._uplink, self._clock = path, directory, uplink, clock
        self._uids = {0, *uids}
        self._log = log or _LOG.info
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._stopped = threading.Event()
        self._stop_reader, self._stop_writer = os.pipe()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cc").mkdir(exist_ok=True)
        directory.chmod(0o700)
        self._only = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._take_lock()
        self._changes = ChangeJournal(directory, _undo)
        for line in self._changes.undo_leftovers():
            self._log(f"at the start: {line}")
        lacking = uplink.unavailable_reason()
        if lacking:
            programs.drop_lock(self._only)
            os.close(self._only)
            raise InputError(f"uplink {uplink.kind.value}: {lacking}")

    def _take_lock(self) -> None:
        """Lock the directory; wait for programs that a killed service has left running."""
        until_s = self._clock.monotonic_s() + _LAST_PROGRAM_S
        while True:
            try:
                fcntl.flock(self._only, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._clock.monotonic_s() < until_s:
                    self._clock.sleep(_POLL_S)
                    continue
                message = f"{self._directory}: another kernel service uses this directory"
                raise RunError(message) from None
            programs.inherit_lock(self._only)
            return

    def serve(self) -> None:
        """Serve until `stop` is called; then undo all changes."""
        listener = self._listen()
        try:
            self._uplink.begin(self._changes)
            while not self._stopped.is_set():
                self._close_forgotten()
                waited = [listener.fileno(), self._stop_reader]
                if waited[0] not in select.select(waited, [], [], _ROUND_S)[0]:
                    continue
                connection, _ = listener.accept()
                if not self._connections.acquire(blocking=False):
                    connection.close()
                    continue
                threading.Thread(target=self._serve_client, args=(connection,), daemon=True).start()
        finally:
            listener.close()
            self._path.unlink(missing_ok=True)
            for run in list(self._runs.values()):
                self._close(run, "the service ends")
            for failed in self._changes.undo_all(SERVICE):
                self._log(f"not undone: {failed}")
            programs.drop_lock(self._only)
            os.close(self._only)

    def stop(self) -> None:
        """Make `serve` return, from a signal handler or another thread."""
        self._stopped.set()
        os.write(self._stop_writer, b"!")

    def _listen(self) -> socket.socket:
        listener = bind_socket(self._path)
        listener.listen(_MOST_CONNECTIONS)
        self._log(f"serves on {self._path}, uplink {self._uplink.kind.value}")
        return listener

    def _close_forgotten(self) -> None:
        opened_since_s = self._clock.monotonic_s() - _UNATTACHED_S
        for run in list(self._runs.values()):
            if run.namespace is None and run.opened_s < opened_since_s:
                self._close(run, "no executor came")

    def _serve_client(self, connection: socket.socket) -> None:
        """Answer a client's requests; when the connection ends, close the run attached by it."""
        attached: list[_Run] = []
        try:
            with connection:
                connection.setblocking(True)
                uid = _uid(connection)
                if uid not in self._uids:
                    self._log(f"refused: uid {uid} may not send requests")
                    message = f"uid {uid} may not send requests: see --allow-uid"
                    _send(connection, _error(message))
                    return
                for line, descriptors in _lines(connection):
                    _send(connection, self._answer(line, descriptors, attached))
        except OSError:
            pass  # The client has gone.
        finally:
            for run in attached:
                self._close(run, "its executor ended")
            self._connections.release()

    def _answer(self, line: bytes, descriptors: list[int], attached: list[_Run]) -> Answer:
        try:
            request = read_request(line)
        except InputError as error:
            _close_all(descriptors)
            self._log(f"refused: {error}")
            return _error(str(error))
        try:
            answer = self._execute(request, descriptors, attached)
        except (SkyhopError, OSError) as error:
            said = str(error) if isinstance(error, SkyhopError) else str(error.strerror)
            self._log(f"{request.run}: {request.name}: refused: {said}")
            return _error(said)
        finally:
            _close_all(descriptors)
        if request.name != "counters":
            self._log(f"{request.run}: {request.name} {_shown(request.values)}: done")
        return {"ok": True, **answer}

    def _execute(self, request: Request, descriptors: list[int], attached: list[_Run]) -> Answer:
        if request.name == "run.open":
            self._open(request)
            return {}
        run = self._runs.get(request.run)
        if run is None or not run.has_token(request.token):
            # Both cases have the same message, so that guesses do not reveal which runs exist.
            raise InputError("unknown run, or wrong token")
        if request.grant is not None and request.grant not in run.grants:
            raise InputError(f"{request.name}: this run has no grant {request.grant.value}")
        if request.name == "run.close":
            self._close(run, "asked for")
            return {}
        if request.name == "link.cut":
            # This does not take the run's lock, which a compilation of a congestion control may
            # hold.
            _namespace_of(run).call("ip", "link", "set", DEVICE, "down")
            return {}
        if request.name == "counters":
            rx, tx = _namespace_of(run).counters()
            return {"rx_bytes": rx, "tx_bytes": tx}
        with run.lock:
            if run.is_closed:
                raise InputError("the run is closed")
            if request.name == "run.attach":
                return self._attach(run, request, descriptors, attached)
            return self._change(run, request)

    def _open(self, request: Request) -> None:
        """Open a run; open it once more if no executor has attached it.

        An agent that was killed after its first request has lost the token.
        """
        with self._lock:
            before = self._runs.get(request.run)
            if before is not None and not before.close_if_unattached():
                raise InputError("the run is open already")
            if before is None and len(self._runs) >= _MOST_RUNS:
                raise InputError(f"{_MOST_RUNS} runs are open: close some")
            now_s = self._clock.monotonic_s()
            run = _Run(request.run, request.token, request.values["grants"], now_s)
            self._runs[request.run] = run

    def _attach(
        self, run: _Run, request: Request, descriptors: list[int], attached: list[_Run]
    ) -> Answer:
        if run.namespace is not None:
            raise InputError("the run has its namespace already")
        if not descriptors:
            raise InputError("run.attach: the descriptor of a network namespace is missing")
        namespace = Namespace(descriptors.pop())
        run.namespace = namespace
        attached.append(run)
        name = f"shk{secrets.token_hex(4)}"
        given = self._uplink.attach(run.id, name, namespace, self._changes)
        run.congestion = Congestion(run.id, namespace, self._directory / "cc", self._changes)
        run.queue = Queue(namespace)
        if request.values.get("leoscope"):
            if Grant.CC not in run.grants:
                raise InputError("leoscope: this run has no grant cc")
            run.listener = Listener(namespace, run.congestion, run.lock, self._log)
        return {"device": DEVICE, "address": given.address, "gateway": given.gateway}

    def _change(self, run: _Run, request: Request) -> Answer:
        namespace, values = _namespace_of(run), request.values
        assert run.congestion is not None
        assert run.queue is not None
        if request.grant is not None:
            # The change vanishes with the namespace; the journal entry only documents it.
            self._changes.record(
                run.id, {"kind": "inside", "name": request.name, "values": _plain(values)}
            )
        match request.name:
            case "cc.list":
                return run.congestion.choice()
            case "cc.set":
                return {"name": run.congestion.set(values["name"])}
            case "cc.load":
                parameters = values.get("parameters", {})
                return {"name": run.congestion.load(values["name"], parameters)}
            case "qdisc.list":
                return {"kinds": queues.offered()}
            case "qdisc.set":
                run.queue.set(values["kind"], values.get("parameters", {}))
            case "link.shape":
                run.queue.shape(
                    values["rate_bps"], values.get("burst_bytes"), values.get("latency_ms")
                )
            case "sysctl.set":
                set_sysctl(namespace, values["name"], values["value"])
        return {}

    def _close(self, run: _Run, why: str) -> None:
        """Close a run, and undo all of its changes."""
        with run.lock:
            if run.is_closed:
                return
            run.is_closed = True
            if run.listener is not None:
                run.listener.close()
            for failed in self._changes.undo_all(run.id):
                self._log(f"{run.id}: not undone: {failed}")
            if run.namespace is not None:
                run.namespace.close()
            self._uplink.release(run.id)
        with self._lock:
            if self._runs.get(run.id) is run:
                del self._runs[run.id]
        self._log(f"{run.id}: closed: {why}")


def _namespace_of(run: _Run) -> Namespace:
    if run.namespace is None or run.is_closed:
        raise InputError("the run has no namespace yet: run.attach comes first")
    return run.namespace


def _undo(change: KernelChange) -> None:
    if change["kind"] == "device":
        remove_device(change["name"], change["inode"])
    elif change["kind"] == "cc":
        undo_load(change)
    elif change["kind"] == "proxy":
        uplinks.undo_proxy(change)
    elif change["kind"] == "forwarding":
        uplinks.undo_forwarding(change)
    elif change["kind"] == "nft":
        uplinks.undo_nft(change)


def bind_socket(path: Path) -> socket.socket:
    """Return a Unix socket bound to a path; replace the socket of a killed service.

    Raises:
        InputError: the path is no socket, or another program listens on it.
        RunError: the socket cannot be created.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # All users may connect, as the peer's uid decides on requests. This uses umask, because a later
    # chmod could change another user's file that has replaced the socket.
    usual = os.umask(0o111)
    try:
        _remove_stale_socket(path)
        listener.bind(str(path))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from None
    finally:
        os.umask(usual)
    return listener


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket of a killed service, unless a program listens on it.

    Raises:
        InputError: the path is no socket, or another program listens on it.
        OSError: the socket cannot be removed.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # Other faults of the path show in bind().
    if not stat.S_ISSOCK(mode):
        raise InputError(f"{path}: exists and is no socket; give another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.setblocking(False)
        try:
            trying.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # A listener with a full backlog, or a socket of another type.
    raise InputError(f"{path}: another program listens there; end it, or give another --socket")


def _uid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def _lines(connection: socket.socket) -> Iterable[tuple[bytes, list[int]]]:
    """Yield the lines that a client sends, each with the descriptors that came with it."""
    pending = b""
    descriptors: list[int] = []
    try:
        while True:
            data, came, _, _ = socket.recv_fds(connection, LONGEST_BYTES, _MOST_FDS)
            descriptors += came
            if not data:
                return
            pending += data
            while b"\n" in pending:
                line, _, pending = pending.partition(b"\n")
                handed, descriptors = descriptors, []
                yield line, handed
            if len(pending) > LONGEST_BYTES or len(descriptors) > _MOST_FDS:
                _send(connection, _error(f"a request has more than {LONGEST_BYTES:,} bytes"))
                return
    finally:
        _close_all(descriptors)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _send(connection: socket.socket, answer: Answer) -> None:
    connection.sendall((json.dumps(answer) + "\n").encode())


def _error(message: str) -> Answer:
    return {"ok": False, "error": message}


def _plain(values: Mapping[str, object]) -> Mapping[str, object]:
    return {
        name: value if isinstance(value, int | dict) else str(value)
        for name, value in values.items()
    }


def _shown(values: Mapping[str, object]) -> str:
    return json.dumps(
        {name: str(value)[:200] for name, value in values.items() if name != "grants"}
    )
