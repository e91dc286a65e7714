"""LEOScope's text protocol for experiment images, mapped onto requests of the kernel service.

    cca.check                      return the congestion control of the run's namespace
    cca.change NAME                set it: cc.set NAME
    bbr2.param.set PATH VALUE      set a parameter of skyhop:bbr2, for later connections

The service listens on port 9000 of the loopback in the run's own namespace, where only the run can
connect. PATH only supplies the parameter's name; no file is written.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from skyhop.errors import InputError, SkyhopError
from skyhop_testbed.kernel.congestion import Congestion
from skyhop_testbed.kernel.network import Namespace

PORT = 9000
_LONGEST_BYTES = 512
_PATIENCE_S = 10.0
_WAITING = 8
_NAME = re.compile(r"[a-z][a-z0-9_]{0,14}")
_PARAMETER = re.compile(r"/sys/module/tcp_bbr2/parameters/([a-z0-9_]{1,32})")
_UNIT = 256
_PARTS = {"loss_thresh": "loss_thresh", "beta": "beta", "inflight_headroom": "headroom"}
"""Parameters that Linux's tcp_bbr2 has in units of 1/256 and skyhop has as fractions of 1; names in
tcp_bbr2 and in skyhop.
"""
_SAME = {
    "full_loss_cnt": "full_loss_events",
    "full_bw_cnt": "full_bw_rounds",
    "bw_probe_max_rounds": "probe_rounds",
    "bw_probe_rand_rounds": "probe_rounds_random",
    "extra_acked_win_rtts": "extra_acked_rounds",
    "min_rtt_win_sec": "min_rtt_window",
    "probe_rtt_win_ms": "probe_rtt_win",
    "probe_rtt_mode_ms": "probe_rtt_time",
    "cwnd_min_target": "min_cwnd",
}
_SECONDS = frozenset({"min_rtt_win_sec"})
"""Parameters that are in seconds in tcp_bbr2 and in milliseconds in skyhop."""


def answer(line: str, congestion: Congestion) -> str:
    """Execute a line of the protocol; return the answer.

    Raises:
        InputError: the command, its congestion control or its parameter is unknown.
    """
    match line.split():
        case ["cca.check"]:
            return str(congestion.choice()["default"])
        case ["cca.change", name] if _NAME.fullmatch(name):
            # Few kernels have BBRv2, so skyhop's is used for a name that the kernel does not have.
            known = congestion.choice()["kernel"]
            return congestion.set(name if name in known else f"skyhop:{name}")
        case ["bbr2.param.set", path, value]:
            return congestion.change_parameter("bbr2", *parameter_of(path, value))
    raise InputError("expected cca.check, cca.change NAME or bbr2.param.set PATH VALUE")


def parameter_of(path: str, value: str) -> tuple[str, str]:
    """Convert a parameter of Linux's tcp_bbr2 and its value to those of skyhop:bbr2.

    Raises:
        InputError: the parameter is unknown, or the value is no whole number.
    """
    found = _PARAMETER.fullmatch(path)
    name = found[1] if found else ""
    if name not in _PARTS and name not in _SAME:
        known = ", ".join(sorted({*_PARTS, *_SAME}))
        raise InputError(f"bbr2.param.set: unknown parameter of tcp_bbr2; expected one of {known}")
    if not re.fullmatch(r"\d{1,7}", value):
        raise InputError(f"bbr2.param.set: {name} takes a whole number")
    if name in _PARTS:
        return _PARTS[name], f"{int(value) / _UNIT:.6f}"
    return _SAME[name], str(int(value) * (1000 if name in _SECONDS else 1))


class Listener:
    """Server on port 9000 in a run's namespace.

    It reads one line per connection, one connection at a time.
    """

    def __init__(
        self,
        namespace: Namespace,
        congestion: Congestion,
        lock: threading.Lock,
        log: Callable[[str], None],
    ) -> None:
        self._congestion, self._lock, self._log = congestion, lock, log
        self._socket = namespace.inside(
            lambda: socket.create_server(("127.0.0.1", PORT), backlog=_WAITING)
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Close the port, and end the server's thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(_PATIENCE_S)
                try:
                    self._serve_client(connection)
                except OSError:
                    continue  # The client has gone, or sends nothing.

    def _serve_client(self, connection: socket.socket) -> None:
        line = connection.makefile("rb").readline(_LONGEST_BYTES)
        try:
            with self._lock:
                said = answer(line.decode("ascii", "replace"), self._congestion)
            self._log(f"leoscope: {line[:80]!r}: {said}")
        except SkyhopError as error:
            said = f"error: {error}"
            self._log(f"leoscope: refused {line[:80]!r}: {error}")
        connection.sendall(f"{said}\n".encode())
