"""Triggers of armed jobs: evaluated with every sample, and published on a socket.

A client of `STATE/triggers.sock` receives a JSON line per evaluation, such as `{"at_ns": 1, "job":
"01J...", "expression": "tilt > 3", "value": false, "fired": false}`. A client that does not read
its lines is disconnected.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.job import Job

if TYPE_CHECKING:
    from skyhop_testbed.triggers import Evaluation

FILE = "triggers.sock"
_MOST_LISTENERS = 32
_S = 1_000_000_000
_SAVED_EVERY_NS = 30 * _S
_REPORT_EVERY_NS = 10 * _S
"""Shortest time between two reports of a changed outcome; firings are reported at once."""


class ArmedTrigger:
    """Trigger of a job, with its state on this node."""

    def __init__(self, job: str, spec: Job) -> None:
        """Parse the trigger of a job.

        Raises:
            InputError: the expression is wrong.
        """
        # The import is local to spare nodes without triggers the parser's memory.
        from skyhop_testbed.triggers import Trigger

        when = spec.when
        self.job = job
        self.max_runs = when.max_runs
        self.runs = 0
        """Number of runs that the trigger has started."""
        self.has_fired = False
        self.trigger = Trigger(
            when.trigger or "",
            hold_s=when.hold_s,
            cooldown_s=spec.length_s if when.cooldown_s is None else when.cooldown_s,
            seed=when.seed,
            source=f"job {job}",
        )
        self.last_reported: tuple[int, str] = (0, "")
        self.saved_ns = 0

    def dumps(self) -> str:
        """Return the trigger's state as JSON text, for the database."""
        values = {"runs": self.runs, "fired": self.has_fired, "seen": self.trigger.as_json()}
        return json.dumps(values, allow_nan=False, separators=(",", ":"))

    def restore(self, text: str) -> None:
        """Restore the state that `dumps` wrote.

        Raises:
            InputError: the state is damaged, or belongs to another expression.
        """
        try:
            values = json.loads(text)
            self.runs, self.has_fired = int(values["runs"]), bool(values["fired"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"a trigger's stored state is damaged: {error}") from None
        self.trigger.restore(values.get("seen"))


class Triggers:
    """Triggers of all armed jobs of a node.

    Args:
        db: the database, which keeps the triggers' states.
        state: the agent's directory, for the socket.
        say: takes log lines.
    """

    def __init__(self, db: AgentDb, state: Path, say: Callable[[str], None]) -> None:
        self._db, self._say = db, say
        self._armed: dict[str, ArmedTrigger] = {}
        self._refused: set[str] = set()
        self._publisher = Publisher(state / FILE)

    def follow(self, jobs: Mapping[str, Job]) -> None:
        """Set the jobs whose triggers are evaluated.

        `jobs` maps a job's id to its specification.
        """
        for job in [*self._armed]:
            if job not in jobs:
                self.save(job)
                del self._armed[job]
        for job, spec in jobs.items():
            known = self._armed.get(job)
            is_same = known is not None and known.trigger.expression == spec.when.trigger
            if not is_same and job not in self._refused:
                self._arm(job, spec)

    def _arm(self, job: str, spec: Job) -> None:
        try:
            armed = ArmedTrigger(job, spec)
        except (InputError, ValueError) as error:
            self._refused.add(job)
            self._say(f"job {job}: {error}")
            return
        kept = self._db.get(f"trigger:{job}")
        if kept is not None:
            with suppress(InputError):
                armed.restore(kept)
        self._armed[job] = armed

    def has_fired(self, job: str) -> bool:
        """Return whether the trigger of an armed job has ever fired on this node."""
        armed = self._armed.get(job)
        return armed is not None and armed.has_fired

    def evaluate(self, sample: Sample) -> list[tuple[ArmedTrigger, Evaluation]]:
        """Evaluate all triggers on a sample; return the results and publish them."""
        now_ns = int(sample[TIME] or 0)
        evaluations = []
        lines = []
        for armed in self._armed.values():
            evaluation = armed.trigger.update(now_ns, sample)
            if evaluation is None:
                continue
            if evaluation.fired:
                armed.has_fired = True
                self.save(armed.job)
            elif now_ns - armed.saved_ns >= _SAVED_EVERY_NS:
                armed.saved_ns = now_ns
                self.save(armed.job)
            evaluations.append((armed, evaluation))
            line = {
                "at_ns": evaluation.at_ns,
                "job": armed.job,
                "expression": armed.trigger.expression,
                "value": evaluation.value,
                "fired": evaluation.fired,
            }
            lines.append(json.dumps(line))
        self._publisher.publish(lines)
        return evaluations

    def is_reportable(self, armed: ArmedTrigger, evaluation: Evaluation) -> bool:
        """Return whether to report an evaluation: a firing, or (rate-limited) a changed outcome."""
        at_ns, outcome = armed.last_reported
        is_same = outcome == evaluation.outcome or evaluation.at_ns - at_ns < _REPORT_EVERY_NS
        if is_same and not evaluation.fired:
            return False
        armed.last_reported = (evaluation.at_ns, evaluation.outcome)
        return True

    def save(self, job: str) -> None:
        """Save the state of a job's trigger in the database."""
        self._db.put(f"trigger:{job}", self._armed[job].dumps())

    def close(self) -> None:
        """Save the states of all triggers, and remove the socket."""
        for job in self._armed:
            self.save(job)
        self._publisher.close()


class Publisher:
    """Unix socket that sends lines to all connected clients, and never blocks."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._listeners: list[socket.socket] = []
        self._socket: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if file.is_socket():
                file.unlink()
            self._socket.bind(str(file))
            self._socket.listen(_MOST_LISTENERS)
            self._socket.setblocking(False)
        except OSError:
            # The path may be too long for a Unix socket; there are no clients then.
            self._socket.close()
            self._socket = None

    def publish(self, lines: list[str]) -> None:
        """Send lines to all clients; disconnect a client whose buffer is full."""
        if self._socket is None:
            return
        with suppress(BlockingIOError):
            while len(self._listeners) < _MOST_LISTENERS:
                listener, _ = self._socket.accept()
                listener.setblocking(False)
                self._listeners.append(listener)
        data = "".join(f"{line}\n" for line in lines).encode()
        for listener in [*self._listeners] if data else []:
            try:
                is_whole = listener.send(data, socket.MSG_NOSIGNAL) == len(data)
            except OSError:
                is_whole = False
            if not is_whole:
                listener.close()
                self._listeners.remove(listener)

    def close(self) -> None:
        """Disconnect all clients, and remove the socket."""
        for listener in self._listeners:
            listener.close()
        if self._socket is not None:
            self._socket.close()
            self._file.unlink(missing_ok=True)
