"""What executor and agent use of the kernel service."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from skyhop.errors import InputError, RunError

if TYPE_CHECKING:
    from skyhop.testbed.executor.assignment import KernelAccess

_PATIENCE_S = 60.0
"""Compiling a congestion control takes some seconds."""
_CUT_S = 2.0
_LONGEST_BYTES = 1 << 20


class KernelClient:
    """A connection to the service; of the executor that attached a run, the run's life.

    Args:
        path: the service's socket.

    Raises:
        RunError: nobody serves there.
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
        """Return a descriptor that can be read when the service has ended."""
        return self._socket.fileno()

    def close(self) -> None:
        """Leave: what was attached here is undone."""
        self._socket.close()

    def open(self, run: str, token: str, grants: list[str]) -> None:
        """Open a run: for the agent.

        Args:
            run: its id.
            token: at least 32 letters of chance, which the run's executor is given.
            grants: what it may ask for, of "cc", "qdisc", "sysctl" and "link".
        """
        self.ask("run.open", run=run, token=token, grants=grants)

    def close_run(self, run: str, token: str) -> None:
        """Undo everything of a run."""
        self.ask("run.close", run=run, token=token)

    def attach(
        self, run: str, token: str, namespace: int, *, leoscope: bool = False
    ) -> dict[str, Any]:
        """Have a run's network namespace given its device; return its address and gateway."""
        self._run, self._token = run, token
        asked = {"request": "run.attach", "run": run, "token": token, "leoscope": leoscope}
        return self._exchange(asked, [namespace])

    def prepare(self, access: KernelAccess) -> str | None:
        """Ask for what a job wants before its program starts; return its congestion control."""
        for name, value in access.sysctl.items():
            self.of_run("sysctl.set", name=name, value=value)
        if access.qdisc is not None:
            self.of_run("qdisc.set", kind=access.qdisc, parameters=access.qdisc_parameters)
        if access.cc is None:
            return None
        if access.cc.startswith("skyhop:"):
            answer = self.of_run("cc.load", name=access.cc, parameters=access.parameters)
        else:
            answer = self.of_run("cc.set", name=access.cc)
        return str(answer["name"])

    def counters(self) -> tuple[int, int]:
        """Return the bytes that the run's device received and sent."""
        answer = self.of_run("counters")
        return int(answer["rx_bytes"]), int(answer["tx_bytes"])

    def cut(self) -> bool:
        """Take the run's device down at once; return whether it is."""
        try:
            self._socket.settimeout(_CUT_S)
            self.of_run("link.cut")
        except (InputError, RunError):
            return False
        return True

    def of_run(self, request: str, **values: Any) -> dict[str, Any]:
        """Ask for something for the run that was attached here."""
        return self.ask(request, run=self._run, token=self._token, **values)

    def ask(self, request: str, **values: Any) -> dict[str, Any]:
        """Ask, and return the answer.

        Raises:
            InputError: the service refuses; the message says why.
            RunError: it has ended, or does not answer.
        """
        return self._exchange({"request": request, **values}, [])

    def _exchange(self, values: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            socket.send_fds(self._socket, [(json.dumps(values) + "\n").encode()], descriptors)
            answer = json.loads(self._line())
        except OSError as error:
            raise RunError(f"kernel service at {self._path}: {error.strerror or error}") from None
        if not isinstance(answer, dict) or not answer.get("ok"):
            why = answer.get("error") if isinstance(answer, dict) else None
            raise InputError(f"the kernel service refuses: {why or 'no word why'}")
        return answer

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            piece = self._socket.recv(65_536)
            line += piece
            if not piece or len(line) > _LONGEST_BYTES:
                raise ConnectionResetError(0, "it has ended")
        return line
