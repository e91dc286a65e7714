"""Triggers of jobs that wait here: looked at with every sample, and shown to who listens.

Whoever connects to `STATE/triggers.sock` is sent a JSON line per look, such as
`{"at_ns": 1, "job": "01J...", "expression": "tilt > 3", "value": false, "fired": false}`, and is
dropped where it does not read them.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.testbed.agent.book import Book
from skyhop.testbed.agent.life import length_s

if TYPE_CHECKING:
    from skyhop.testbed.triggers import Evaluation

FILE = "triggers.sock"
_MOST_LISTENERS = 32
_S = 1_000_000_000
_SAVED_EVERY_NS = 30 * _S
_TOLD_EVERY_NS = 10 * _S
"""A change of outcome that is no firing is reported no more often."""


class Armed:
    """A job's trigger here."""

    def __init__(self, job: str, spec: dict[str, Any]) -> None:
        """Read it.

        Raises:
            InputError: it is none.
        """
        # The language's parser takes memory that nodes without triggers need not have.
        from skyhop.testbed.triggers import Trigger

        when = spec["when"]
        cooldown = when.get("cooldown")
        self.job = job
        self.max_runs: int | None = when.get("max_runs")
        self.runs = 0
        """How many it has begun."""
        self.has_fired = False
        self.trigger = Trigger(
            when["trigger"],
            hold_s=float(when.get("for", 0.0)),
            cooldown_s=length_s(spec) if cooldown is None else float(cooldown),
            seed=int(when.get("seed", 1)),
            source=f"job {job}",
        )
        self.told: tuple[int, str] = (0, "")
        self.saved_ns = 0

    def dumps(self) -> str:
        """Return what it has seen, for the book."""
        values = {"runs": self.runs, "fired": self.has_fired, "seen": self.trigger.as_json()}
        return json.dumps(values, allow_nan=False, separators=(",", ":"))

    def restore(self, text: str) -> None:
        """Go on where `dumps` was written, as far as that is the same trigger.

        Raises:
            InputError: what it saw is another trigger's, or damaged.
        """
        try:
            values = json.loads(text)
            self.runs, self.has_fired = int(values["runs"]), bool(values["fired"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"a trigger's state is damaged ({error}): begin anew") from None
        self.trigger.restore(values.get("seen"))


class Triggers:
    """All of a node.

    Args:
        book: what they have seen is kept there.
        state: the agent's directory, for the socket.
        say: takes lines.
    """

    def __init__(self, book: Book, state: Path, say: Any) -> None:
        self._book, self._say = book, say
        self._armed: dict[str, Armed] = {}
        self._refused: set[str] = set()
        self._publisher = Publisher(state / FILE)

    def follow(self, jobs: dict[str, dict[str, Any]]) -> None:
        """Look at these jobs' triggers from now on, by their ids."""
        for job in [*self._armed]:
            if job not in jobs:
                self.save(job)
                del self._armed[job]
        for job, spec in jobs.items():
            known = self._armed.get(job)
            is_same = known is not None and known.trigger.expression == spec["when"]["trigger"]
            if not is_same and job not in self._refused:
                self._arm(job, spec)

    def _arm(self, job: str, spec: dict[str, Any]) -> None:
        try:
            armed = Armed(job, spec)
        except (InputError, KeyError, ValueError, TypeError) as error:
            self._refused.add(job)
            self._say(f"job {job}: {error}")
            return
        kept = self._book.get(f"trigger:{job}")
        if kept is not None:
            with suppress(InputError):
                armed.restore(kept)
        self._armed[job] = armed

    def get(self, job: str) -> Armed | None:
        """Return a job's."""
        return self._armed.get(job)

    def has_fired(self, job: str) -> bool:
        """Return whether it ever did, here."""
        armed = self._armed.get(job)
        return armed is not None and armed.has_fired

    def evaluate(self, sample: Sample) -> list[tuple[Armed, Evaluation]]:
        """Look at all of them with a sample; return what they came to."""
        now_ns = int(sample[TIME] or 0)
        looks = []
        lines = []
        for armed in self._armed.values():
            look = armed.trigger.update(now_ns, sample)
            if look is None:
                continue
            if look.fired:
                armed.has_fired = True
                self.save(armed.job)
            elif now_ns - armed.saved_ns >= _SAVED_EVERY_NS:
                armed.saved_ns = now_ns
                self.save(armed.job)
            looks.append((armed, look))
            line = {
                "at_ns": look.at_ns,
                "job": armed.job,
                "expression": armed.trigger.expression,
                "value": look.value,
                "fired": look.fired,
            }
            lines.append(json.dumps(line))
        self._publisher.publish(lines)
        return looks

    def is_news(self, armed: Armed, look: Evaluation) -> bool:
        """Return whether a look is reported: a firing, or another outcome than the last one."""
        at_ns, outcome = armed.told
        is_same = outcome == look.outcome or look.at_ns - at_ns < _TOLD_EVERY_NS
        if is_same and not look.fired:
            return False
        armed.told = (look.at_ns, look.outcome)
        return True

    def save(self, job: str) -> None:
        """Keep what a trigger has seen."""
        self._book.put(f"trigger:{job}", self._armed[job].dumps())

    def close(self) -> None:
        """Keep what all have seen, and take the socket away."""
        for job in self._armed:
            self.save(job)
        self._publisher.close()


class Publisher:
    """A Unix socket that sends lines to whoever listens; nobody is waited for."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._listeners: list[socket.socket] = []
        self._socket: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            file.unlink(missing_ok=True)
            self._socket.bind(str(file))
            self._socket.listen(_MOST_LISTENERS)
            self._socket.setblocking(False)
        except OSError:
            # The name may be too long for a socket: then nobody listens.
            self._socket.close()
            self._socket = None

    def publish(self, lines: list[str]) -> None:
        """Send lines to all who listen; who does not read is dropped."""
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
        """Leave."""
        for listener in self._listeners:
            listener.close()
        if self._socket is not None:
            self._socket.close()
            self._file.unlink(missing_ok=True)
