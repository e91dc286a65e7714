"""Client of the kernel service, for executor and agent."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skyhop.errors import InputError, RunError

if TYPE_CHECKING:
    from skyhop_testbed.kernel.access import KernelAccess
    from skyhop_testbed.kernel.requests import Answer

_PATIENCE_S = 60.0
"""Timeout of a request in s; compiling a congestion control takes some seconds."""
_CUT_S = 2.0
_LONGEST_BYTES = 1 << 20


class KernelClient:
    """Connection to the kernel service; when it ends, the service closes the run attached by it.

    Args:
        path: the service's socket.

    Raises:
        RunError: no service listens there.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_PATIENCE_S)
        self._run = self._token = ""
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise RunError(f"kernel service at {path}: {error.strerror or error}") from None

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the service has ended."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection; the service then undoes the changes of the run attached by it."""
        self._socket.close()

    def open(self, run: str, token: str, grants: list[str]) -> None:
        """Open a run; only the agent sends this request.

        Args:
            run: the run's id.
            token: at least 32 random characters, which the run's executor presents.
            grants: permitted kinds of requests, of "cc", "qdisc", "sysctl" and "link".
        """
        self.request("run.open", run=run, token=token, grants=grants)

    def close_run(self, run: str, token: str) -> None:
        """Close a run, and undo all of its changes."""
        self.request("run.close", run=run, token=token)

    def attach(self, run: str, token: str, namespace: int, *, leoscope: bool = False) -> Answer:
        """Put a device into a run's network namespace; return its address and gateway."""
        self._run, self._token = run, token
        asked = {"request": "run.attach", "run": run, "token": token, "leoscope": leoscope}
        return self._exchange(asked, [namespace])

    def prepare(self, access: KernelAccess) -> str | None:
        """Apply a job's kernel settings before its program starts.

        Return its congestion control.
        """
        for name, value in access.sysctl.items():
            self.request_for_run("sysctl.set", name=name, value=value)
        if access.qdisc is not None:
            self.request_for_run("qdisc.set", kind=access.qdisc, parameters=access.qdisc_parameters)
        if access.cc is None:
            return None
        if access.cc.startswith("skyhop:"):
            answer = self.request_for_run("cc.load", name=access.cc, parameters=access.parameters)
        else:
            answer = self.request_for_run("cc.set", name=access.cc)
        return answer["name"]

    def counters(self) -> tuple[int, int]:
        """Return the bytes that the run's device received and sent."""
        answer = self.request_for_run("counters")
        return answer["rx_bytes"], answer["tx_bytes"]

    def cut(self) -> bool:
        """Take the run's device down immediately; return whether that succeeded."""
        try:
            self._socket.settimeout(_CUT_S)
            self.request_for_run("link.cut")
        except (InputError, RunError):
            return False
        return True

    def request_for_run(self, request: str, **values: object) -> Answer:
        """Send a request about the run that is attached by this connection."""
        return self.request(request, run=self._run, token=self._token, **values)

    def request(self, request: str, **values: object) -> Answer:
        """Send a request; return the answer.

        Raises:
            InputError: the service refuses; the message says why.
            RunError: the service has ended, or does not answer.
        """
        return self._exchange({"request": request, **values}, [])

    def _exchange(self, values: Mapping[str, object], descriptors: list[int]) -> Answer:
        try:
            socket.send_fds(self._socket, [(json.dumps(values) + "\n").encode()], descriptors)
            answer: Answer = json.loads(self._line())
        except OSError as error:
            raise RunError(f"kernel service at {self._path}: {error.strerror or error}") from None
        if not isinstance(answer, dict) or not answer.get("ok"):
            why = answer.get("error") if isinstance(answer, dict) else None
            raise InputError(f"the kernel service refuses: {why or 'without a reason'}")
        return answer

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            piece = self._socket.recv(65_536)
            line += piece
            if not piece or len(line) > _LONGEST_BYTES:
                raise ConnectionResetError(0, "the service has ended")
        return line
