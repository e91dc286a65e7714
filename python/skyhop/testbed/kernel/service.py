"""The service: who asks, for which run, and what becomes of it.

A run is opened by the agent, which thereby gives it a token; attached by its executor, whose
connection is from then on the run's life: when it ends, however it ends, everything is undone.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import select
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop.testbed.clock import Clock
from skyhop.testbed.kernel import programs, queues, uplinks
from skyhop.testbed.kernel.congestion import Congestion, undo_load
from skyhop.testbed.kernel.journal import Change, Changes
from skyhop.testbed.kernel.leoscope import Listener
from skyhop.testbed.kernel.network import DEVICE, Namespace, remove_device
from skyhop.testbed.kernel.queues import Queue
from skyhop.testbed.kernel.requests import LONGEST_BYTES, Grant, Request, read_request
from skyhop.testbed.kernel.settings import set_sysctl
from skyhop.testbed.kernel.uplinks import SERVICE, Uplink

_MOST_RUNS = 64
_MOST_CONNECTIONS = 128
_UNATTACHED_S = 120.0
"""How long a run may be open without an executor."""
_CREDENTIALS = struct.Struct("3i")
_MOST_FDS = 1
_ROUND_S = 1.0
_LAST_PROGRAM_S, _LOOK_S = 5.0, 0.02


class _Run:
    """A run that the agent has opened."""

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

    def give_up(self) -> bool:
        """Close it, if no executor has come; return whether none has."""
        if self.namespace is not None:
            return False
        with self.lock:
            self.is_closed |= self.namespace is None
            return self.namespace is None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class KernelService:
    """The service.

    Args:
        path: its socket.
        directory: its own, for journal and sources.
        uids: who may ask, beside root.
        uplink: what runs' devices lead to.
        clock: the measure of how long a run may be without an executor.
        log: told of every request, in a line.

    Raises:
        InputError: the machine lacks what the uplink needs.
        RunError: another service is at work in the directory.
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
        self._log = log or _print
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._stopped = threading.Event()
        self._told, self._tells = os.pipe()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cc").mkdir(exist_ok=True)
        directory.chmod(0o700)
        self._only = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._take_lock()
        self._changes = Changes(directory, _undo)
        for line in self._changes.undo_what_was_left():
            self._log(f"at the start: {line}")
        lacking = uplink.lacks()
        if lacking:
            programs.let_go(self._only)
            os.close(self._only)
            raise InputError(f"uplink {uplink.kind.value}: {lacking}")

    def _take_lock(self) -> None:
        """Be the only one here; a killed one's last program may take a moment to end."""
        until_s = self._clock.monotonic_s() + _LAST_PROGRAM_S
        while True:
            try:
                fcntl.flock(self._only, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._clock.monotonic_s() < until_s:
                    self._clock.sleep(_LOOK_S)
                    continue
                message = f"{self._directory}: another kernel service is at work here"
                raise RunError(message) from None
            programs.hold(self._only)
            return

    def serve(self) -> None:
        """Serve until `stop`; then undo everything."""
        listener = self._listen()
        try:
            self._uplink.begin(self._changes)
            while not self._stopped.is_set():
                self._close_forgotten()
                waited = [listener.fileno(), self._told]
                if waited[0] not in select.select(waited, [], [], _ROUND_S)[0]:
                    continue
                connection, _ = listener.accept()
                if not self._connections.acquire(blocking=False):
                    connection.close()
                    continue
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
        finally:
            listener.close()
            self._path.unlink(missing_ok=True)
            for run in list(self._runs.values()):
                self._close(run, "the service ends")
            for failed in self._changes.undo_all(SERVICE):
                self._log(f"not undone: {failed}")
            programs.let_go(self._only)
            os.close(self._only)

    def stop(self) -> None:
        """Have `serve` come back."""
        self._stopped.set()
        os.write(self._tells, b"!")

    def _listen(self) -> socket.socket:
        listener = bound(self._path)
        listener.listen(_MOST_CONNECTIONS)
        self._log(f"serves on {self._path}, uplink {self._uplink.kind.value}")
        return listener

    def _close_forgotten(self) -> None:
        opened_since_s = self._clock.monotonic_s() - _UNATTACHED_S
        for run in list(self._runs.values()):
            if run.namespace is None and run.opened_s < opened_since_s:
                self._close(run, "no executor came")

    def _converse(self, connection: socket.socket) -> None:
        """Answer one client's requests, and end the run that is attached here with it."""
        attached: list[_Run] = []
        try:
            with connection:
                connection.setblocking(True)
                uid = _uid(connection)
                if uid not in self._uids:
                    self._log(f"refused: uid {uid} may not ask")
                    _send(connection, _error(f"uid {uid} may not ask: see --allow-uid"))
                    return
                for line, descriptors in _lines(connection):
                    _send(connection, self._answer(line, descriptors, attached))
        except OSError:
            pass  # The client has gone.
        finally:
            for run in attached:
                self._close(run, "its executor ended")
            self._connections.release()

    def _answer(self, line: bytes, descriptors: list[int], attached: list[_Run]) -> dict[str, Any]:
        try:
            request = read_request(line)
        except InputError as error:
            _close_all(descriptors)
            self._log(f"refused: {error}")
            return _error(str(error))
        try:
            answer = self._do(request, descriptors, attached)
        except (SkyhopError, OSError) as error:
            said = str(error) if isinstance(error, SkyhopError) else str(error.strerror)
            self._log(f"{request.run}: {request.name}: refused: {said}")
            return _error(said)
        finally:
            _close_all(descriptors)
        if request.name != "counters":
            self._log(f"{request.run}: {request.name} {_shown(request.values)}: done")
        return {"ok": True, **answer}

    def _do(self, request: Request, descriptors: list[int], attached: list[_Run]) -> dict[str, Any]:
        if request.name == "run.open":
            self._open(request)
            return {}
        run = self._runs.get(request.run)
        if run is None or not run.has_token(request.token):
            # The same for both: who guesses learns nothing.
            raise InputError("there is no such run, or the token is not its own")
        if request.grant is not None and request.grant not in run.grants:
            raise InputError(f"{request.name}: this run was not given {request.grant.value}")
        if request.name == "run.close":
            self._close(run, "asked for")
            return {}
        if request.name == "link.cut":
            # Not behind a congestion control that is being compiled.
            _of(run).call("ip", "link", "set", DEVICE, "down")
            return {}
        if request.name == "counters":
            rx, tx = _of(run).counters()
            return {"rx_bytes": rx, "tx_bytes": tx}
        with run.lock:
            if run.is_closed:
                raise InputError("the run is closed")
            if request.name == "run.attach":
                return self._attach(run, request, descriptors, attached)
            return self._change(run, request)

    def _open(self, request: Request) -> None:
        """Take note of a run; one that no executor came for is opened anew.

        An agent that was killed after its request has forgotten the token.
        """
        with self._lock:
            before = self._runs.get(request.run)
            if before is not None and not before.give_up():
                raise InputError("the run is open already")
            if before is None and len(self._runs) >= _MOST_RUNS:
                raise InputError(f"{_MOST_RUNS} runs are open: close some")
            now_s = self._clock.monotonic_s()
            run = _Run(request.run, request.token, request.values["grants"], now_s)
            self._runs[request.run] = run

    def _attach(
        self, run: _Run, request: Request, descriptors: list[int], attached: list[_Run]
    ) -> dict[str, Any]:
        if run.namespace is not None:
            raise InputError("the run has its namespace already")
        if not descriptors:
            raise InputError("run.attach: no network namespace came with it")
        namespace = Namespace(descriptors.pop())
        run.namespace = namespace
        attached.append(run)
        name = f"shk{secrets.token_hex(4)}"
        given = self._uplink.give(run.id, name, namespace, self._changes)
        run.congestion = Congestion(run.id, namespace, self._directory / "cc", self._changes)
        run.queue = Queue(namespace)
        if request.values.get("leoscope"):
            if Grant.CC not in run.grants:
                raise InputError("leoscope: this run was not given cc")
            run.listener = Listener(namespace, run.congestion, run.lock, self._log)
        return {"device": DEVICE, "address": given.address, "gateway": given.gateway}

    def _change(self, run: _Run, request: Request) -> dict[str, Any]:
        namespace, values = _of(run), request.values
        assert run.congestion is not None
        assert run.queue is not None
        if request.grant is not None:
            # Of the namespace, and gone with it: written down for who looks later.
            change = {"kind": "inside", "name": request.name, "values": _plain(values)}
            self._changes.about_to(run.id, change)
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
        """Undo everything of a run."""
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
            self._uplink.take_back(run.id)
        with self._lock:
            if self._runs.get(run.id) is run:
                del self._runs[run.id]
        self._log(f"{run.id}: closed: {why}")


def _of(run: _Run) -> Namespace:
    if run.namespace is None or run.is_closed:
        raise InputError("the run has no namespace yet: run.attach comes first")
    return run.namespace


def _undo(change: Change) -> None:
    match change.get("kind"):
        case "device":
            remove_device(str(change["name"]), int(change["inode"]))
        case "cc":
            undo_load(change)
        case "proxy":
            uplinks.undo_proxy(change)
        case "forwarding":
            uplinks.undo_forwarding(change)
        case "nft":
            uplinks.undo_nft(change)


def bound(path: Path) -> socket.socket:
    """Return a socket that has its place, also that of a service that was killed.

    Raises:
        InputError: something else is there, or a program holds the socket.
        RunError: there cannot be one.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Who may ask is decided by who he is. Changed afterwards, the permissions could be those of
    # what somebody has put in its place.
    usual = os.umask(0o111)
    try:
        _make_room(path)
        listener.bind(str(path))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from None
    finally:
        os.umask(usual)
    return listener


def _make_room(path: Path) -> None:
    """Remove the socket that a killed service has left; what somebody uses stays.

    Raises:
        InputError: something else is there, or a program holds the socket.
        OSError: it cannot be removed.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # Whatever else is wrong with the place, taking it will tell.
    if not stat.S_ISSOCK(mode):
        raise InputError(f"{path}: is there and is not a socket; give another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.setblocking(False)
        try:
            trying.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # It is busy, or of another kind: somebody has it.
    raise InputError(f"{path}: another program holds it; end that, or give another --socket")


def _uid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def _lines(connection: socket.socket) -> Iterable[tuple[bytes, list[int]]]:
    """Go through what a client says, with the descriptors that came along."""
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
                _send(connection, _error(f"a request of more than {LONGEST_BYTES:,} bytes"))
                return
    finally:
        _close_all(descriptors)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _send(connection: socket.socket, values: dict[str, Any]) -> None:
    connection.sendall((json.dumps(values) + "\n").encode())


def _error(message: str) -> dict[str, Any]:
    return {"ok": False, "error": message}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, int | dict) else str(value)
        for name, value in values.items()
    }


def _shown(values: dict[str, Any]) -> str:
    return json.dumps(
        {name: str(value)[:200] for name, value in values.items() if name != "grants"}
    )


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
