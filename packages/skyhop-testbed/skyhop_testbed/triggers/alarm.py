"""Command that runs when a condition over a terminal's samples becomes true.

The condition is a trigger's (docs/testbed/triggers.md). The module reads no clock: the samples have
the time.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Protocol

from skyhop.errors import InputError
from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, UNREACHABLE, Sample, Value, column_of
from skyhop.telemetry.gps import SECOND_NS
from skyhop_testbed.dish.readings import STATUS_FIELDS
from skyhop_testbed.triggers.evaluate import Trigger

_LONGEST_GAP_S = 60
"""Longest gap in s that counts as time without an answer; after more, the machine was suspended."""
_MOST_SAID = 200
"""Upper limit on the characters of a command's own message in a line."""


class Command(Protocol):
    """Command that an alarm has started."""

    def failure(self) -> str | None:
        """Return what failed, in one line; "" after a success, None while the command runs."""


class Alarm:
    """Runs a command when a condition becomes true, at most once per cooldown.

    If the condition becomes true during the cooldown, the command runs at its end, provided that
    the condition is still true then.

    Args:
        condition: the condition, an expression of triggers.
        cooldown_s: shortest time in s between the starts of two commands.
        start: starts the command with the environment variables that it gets in addition.
        say: receives a line when the command starts, fails, or takes too long.

    Raises:
        InputError: the condition is wrong, or uses a field that a terminal's status does not have.
    """

    def __init__(
        self,
        condition: str,
        cooldown_s: float,
        start: Callable[[Mapping[str, str]], Command],
        say: Callable[[str], None],
    ) -> None:
        self._trigger = Trigger(condition, source="--when")
        unknown = [f.name for f in self._trigger.fields if column_of(f) not in STATUS_FIELDS]
        if unknown:
            raise InputError(
                f"--when: {unknown[0]} is not in a terminal's status; "
                "skyhop dish status lists the fields"
            )
        self._cooldown_ns = round(cooldown_s * SECOND_NS)
        self._start, self._say = start, say
        self._is_due = self._has_said = False
        self._last_ns: int | None = None
        self._started_ns: int | None = None
        self._command: Command | None = None

    def add(self, sample: Sample) -> None:
        """Evaluate the condition for a sample, and start the command if it is due."""
        self.poll()
        self._last_ns = time_of(sample)
        evaluation = self._trigger.update(self._last_ns, sample)
        if evaluation is None:
            return
        self._is_due = evaluation.fired or (self._is_due and evaluation.value is True)
        if self._is_due and self._has_cooled_down(self._last_ns):
            self._run(sample)

    def add_unanswered(self, now_ns: int) -> None:
        """Evaluate the condition for the seconds until now, in which the terminal did not answer.

        Args:
            now_ns: time in ns since 1970 (UTC).
        """
        end_ns = now_ns // SECOND_NS * SECOND_NS
        begin_ns = end_ns if self._last_ns is None else self._last_ns + SECOND_NS
        if end_ns - begin_ns > _LONGEST_GAP_S * SECOND_NS:
            begin_ns = end_ns
        for each_ns in range(begin_ns, end_ns + 1, SECOND_NS):
            self.add({TIME: each_ns, "state": UNREACHABLE})

    def poll(self) -> None:
        """Report the failure of a command that has ended."""
        failure = None if self._command is None else self._command.failure()
        if failure is not None:
            self._command = None
        if failure:
            self._say(f"--run: {failure}")

    @property
    def is_running(self) -> bool:
        """Whether the command is running."""
        self.poll()
        return self._command is not None

    def _has_cooled_down(self, now_ns: int) -> bool:
        return self._started_ns is None or now_ns - self._started_ns >= self._cooldown_ns

    def _run(self, sample: Sample) -> None:
        if self._command is not None:
            if not self._has_said:
                self._say("--run: the command is due again, and starts when the previous one ends")
            self._has_said = True
            return
        self._is_due = self._has_said = False
        self._started_ns = time_of(sample)
        self._say(f"--when: {self._trigger.expression.strip()}: runs the command")
        try:
            self._command = self._start(variables(sample))
        except OSError as error:
            self._say(f"--run: cannot start the command: {error.strerror}")


def variables(sample: Sample) -> dict[str, str]:
    """Return a sample as environment variables: DISH_STATE, DISH_POP_PING_LATENCY_MS, ….

    Values that are not known are empty, and booleans are "true" or "false".
    """
    names = (TIME, *STATUS_FIELDS)
    return {f"DISH_{name.upper()}": _text(sample.get(name)) for name in names}


def _text(value: Value) -> str:
    if value is None:
        return ""
    # A null byte cannot be in an environment variable.
    return str(value).lower() if isinstance(value, bool) else str(value).replace("\0", "")


class ShellCommand:
    """Command that the shell runs, in a session of its own; its output goes to standard error.

    Args:
        command: the command, for `sh -c`.
        extra: environment variables in addition to this process's.
    """

    def __init__(self, command: str, extra: Mapping[str, str]) -> None:
        # A file, because no thread reads a pipe while the command runs.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `failure`
        self._process = subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=2,
            stderr=self._errors,
            env={**os.environ, **extra},
            start_new_session=True,
        )

    def failure(self) -> str | None:
        """Return what failed, in one line; "" after a success, None while the command runs."""
        code = self._process.poll()
        if code is None:
            return None
        with self._errors:
            said = _last_line(self._errors)
        if not code:
            return ""
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        return f"the command {how}" + (f": {said}" if said else "")


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 4096, 0))
    lines = file.read().decode("utf-8", "replace").split("\n")
    return next(
        (" ".join(line.split())[:_MOST_SAID] for line in reversed(lines) if line.strip()), ""
    )
