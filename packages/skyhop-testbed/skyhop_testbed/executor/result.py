"""Result of a run (`RUNDIR/result.json`), and the agent's request to end it (`stop.json`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from skyhop_testbed.executor.assignment import RESULT_FILE, STOP_FILE, write_durably
from skyhop_testbed.words import Reason, Side, State

_LONGEST_STOP_BYTES = 100_000
_ALWAYS = frozenset({"reason"})
_OF_PROGRAM = frozenset({"exit", "signal"})


@dataclass(frozen=True)
class Outcome:
    """State in which a run ends, and why."""

    state: State
    reason: Reason | None = None
    message: str | None = None

    def write_stop(self, directory: Path) -> None:
        """Write `stop.json`: the running program is to be ended with this outcome."""
        write_durably(directory / STOP_FILE, json.dumps(vars(self)).encode())

    @classmethod
    def read_stop(cls, directory: Path) -> Outcome:
        """Read `stop.json`; without a readable file, the outcome is that of a SIGTERM."""
        try:
            values = json.loads((directory / STOP_FILE).read_bytes()[:_LONGEST_STOP_BYTES])
            reason = Reason(values["reason"]) if values.get("reason") else None
            state = State(values.get("state", State.ABORTED))
            return cls(state, reason, str(values.get("message", "")))
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return cls(State.ABORTED, Reason.OWNER, "told to stop")


@dataclass(frozen=True)
class CountedTraffic:
    """Bytes that a run received and sent, and how they were counted."""

    rx_bytes: int = 0
    tx_bytes: int = 0
    counted: str = ""


@dataclass(frozen=True)
class OutputSize:
    """Number of bytes that a program wrote to an output stream, and number kept in the file."""

    bytes: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one side of a run; its program's values are `None` if it was not supervised."""

    run: str = ""
    node: str = ""
    side: Side = Side.CLIENT
    partial: bool | None = None
    """Whether the run is not complete."""
    files: int = 0
    """Number of files to keep."""
    state: State
    reason: Reason | None = None
    message: str | None = None
    began_ns: int | None = None
    ended_ns: int | None = None
    exit: int | None = None
    signal: int | None = None
    traffic: CountedTraffic | None = None
    stdout: OutputSize | None = None
    stderr: OutputSize | None = None

    def write(self, directory: Path) -> None:
        """Write `result.json` into a run's directory, and sync it."""
        always = _ALWAYS | (_OF_PROGRAM if self.began_ns is not None else frozenset())
        values = {k: v for k, v in vars(self).items() if v is not None or k in always}
        write_durably(directory / RESULT_FILE, json.dumps(values, indent=1, default=vars).encode())

    @classmethod
    def read(cls, directory: Path) -> Result:
        """Read the part of `result.json` that the agent reports.

        A missing or damaged file is the result of an executor that was killed.
        """
        try:
            values = json.loads((directory / RESULT_FILE).read_bytes())
            state, traffic = State(values["state"]), values.get("traffic") or {}
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return cls(state=State.FAILED, reason=Reason.KILLED)
        return cls(
            partial=values.get("partial"),
            state=state,
            reason=_reason(values.get("reason")),
            message=values.get("message"),
            began_ns=values.get("began_ns"),
            ended_ns=values.get("ended_ns"),
            exit=values.get("exit"),
            signal=values.get("signal"),
            traffic=CountedTraffic(**traffic) if traffic else None,
        )


def _reason(word: str | None) -> Reason | None:
    try:
        return None if word is None else Reason(word)
    except ValueError:
        return Reason.KILLED
