"""What is around a node: the satellites above it, and its weather, where its owner wants that.

Both are asked of short-lived processes (`sky`, `weather`), so that an agent which wants neither
loads nothing, and one which does keeps a small table: ten minutes of the sky, a row per second.
Nothing waits for them: what is not there yet, or not any more, is null. Trouble is said when it
begins and when it is over, and tried again after a minute, two, four, up to an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from skyhop.errors import RunError
from skyhop.telemetry.fields import Sample
from skyhop.testbed.agent.settings import Orbit, Settings

_S = 1_000_000_000
BATCH_S = 600
"""So many rows are asked for at a time."""
_FIRST_S = 180
"""Of the first, which are waited for, fewer."""
_EARLY_S = 120
"""A slow machine takes a minute for them."""
_GRID_PERIOD_S, _GRID_OFFSET_S = 15, 12
_WEATHER_EVERY_S = 1800
_SOONEST_S, _LATEST_S = 60, 3600
"""Until what failed is tried again."""
_LOOKED_AT_EVERY_S = 10
"""How often it is seen whether the owner's file has changed."""
_LONGEST_S = 300.0
_ASKED = "weather.asked"

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Gives an order to a module of the agent's, and returns what it prints."""


class Surroundings:
    """A node's.

    Args:
        settings: what its owner wants.
        dish: its terminal's address.
        state: the agent's directory.
        say: takes lines.
        ask: how modules are asked; in a process of their own where not given.
    """

    def __init__(
        self,
        settings: Settings,
        dish: str | None,
        state: Path,
        say: Callable[[str], None],
        ask: Ask | None = None,
    ) -> None:
        self._apart = Apart(state)
        asked = ask or self._apart.ask
        where = {
            "place": settings.place,
            "dish": dish,
            "precision_deg": settings.precision_deg,
        }
        orbit, weather = settings.orbit, settings.weather
        self._is_grid = orbit is not None and orbit.is_grid
        self._sky = None if orbit is None or orbit.is_grid else _Sky(orbit, where, asked, say)
        self._weather = None if weather is None else _Weather(weather, where, asked, say, state)

    def look(self, now_ns: int) -> None:
        """Begin what is due; to be called every second."""
        for each in (self._sky, self._weather):
            if each is not None:
                each.look(now_ns)

    def of_second(self, time_ns: int) -> Sample:
        """Return what is known of a second of the last and the next minutes."""
        if self._sky is not None:
            return self._sky.of_second(time_ns)
        return {"handover_in_s": until_grid_s(time_ns)} if self._is_grid else {}

    def news(self) -> Sample:
        """Return what has come since this was called last: it is told once."""
        return {} if self._weather is None else self._weather.news()

    def close(self) -> None:
        """End what is under way."""
        self._apart.close()


def until_grid_s(time_ns: int) -> float:
    """Return how long it is until the next moment of Starlink's grid after a time.

    >>> until_grid_s(12 * 10**9), until_grid_s(26_500_000_000)
    (15.0, 0.5)
    """
    period_ns = _GRID_PERIOD_S * _S
    return (period_ns - (time_ns - _GRID_OFFSET_S * _S) % period_ns) / _S


class _Asked:
    """What is asked beside, again and again."""

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self._what, self._say = what, say
        self._thread: threading.Thread | None = None
        self._trouble: str | None = None
        self._wait_s = 0
        self._again_ns = 0

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def may_ask(self, now_ns: int) -> bool:
        """Return whether nothing is under way, and nothing has just failed."""
        # A clock that was set back must not silence it.
        waits = 0 < self._again_ns - now_ns <= _LATEST_S * _S
        return not self.is_busy and not waits

    def begin(self, now_ns: int, do: Callable[[], None]) -> None:
        """Do something beside that may fail."""
        self._thread = threading.Thread(
            target=self._guarded, args=(now_ns, do), name=self._what, daemon=True
        )
        self._thread.start()

    def retry(self) -> None:
        """Do not wait any more: what was wrong may be right now."""
        self._again_ns = 0

    def _guarded(self, now_ns: int, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # whatever it was, telemetry goes on without it.
            self._wait_s = min(max(2 * self._wait_s, _SOONEST_S), _LATEST_S)
            self._again_ns = now_ns + self._wait_s * _S
            if self._trouble is None:
                kind = "" if isinstance(error, RunError) else f"{type(error).__name__}: "
                self._say(f"{self._what}: {kind}{error}")
            self._trouble = str(error)
        else:
            if self._trouble is not None:
                self._say(f"{self._what}: works again")
            self._trouble, self._wait_s, self._again_ns = None, 0, 0


class _Sky:
    """Satellites, by the second."""

    def __init__(
        self, orbit: Orbit, where: Mapping[str, Any], ask: Ask, say: Callable[[str], None]
    ) -> None:
        self._order = {**where, **vars(orbit)}
        self._file = orbit.path or orbit.elements or ""
        self._ask, self._say = ask, say
        self._asked = _Asked("sky", say)
        self._notes: list[str] = []
        self._rows: dict[int, Sample] = {}
        """By the second of UTC. Replaced as a whole, so that no thread sees half of it."""
        self._until_s = 0
        """So far they go without a gap."""
        self._written: int | None = None
        self._looked_ns = 0

    def look(self, now_ns: int) -> None:
        """Ask for the next rows where there are not many left, or the file has changed."""
        if self._asked.is_busy:
            return
        now_s = now_ns // _S
        if self._has_changed(now_ns):
            self._asked.retry()
            # What was known stays until there is better.
            self._until_s = 0
        has_enough = now_s in self._rows and self._until_s - now_s > _EARLY_S
        if not has_enough and self._asked.may_ask(now_ns):
            goes_on = now_s in self._rows and self._until_s > now_s
            begin_s, seconds = (self._until_s, BATCH_S) if goes_on else (now_s, _FIRST_S)
            self._asked.begin(now_ns, lambda: self._fetch(begin_s, seconds, now_s))

    def of_second(self, time_ns: int) -> Sample:
        """Return what is known of a second."""
        return self._rows.get(time_ns // _S, {})

    def _has_changed(self, now_ns: int) -> bool:
        if 0 <= now_ns - self._looked_ns < _LOOKED_AT_EVERY_S * _S:
            return False
        self._looked_ns = now_ns
        written = None
        with suppress(OSError, ValueError):
            written = Path(self._file).stat().st_mtime_ns
        has_changed = written is not None and written != self._written
        is_first = self._written is None
        self._written = written if written is not None else self._written
        return has_changed and not (is_first and self._until_s)

    def _fetch(self, begin_s: int, seconds: int, now_s: int) -> None:
        said = self._ask("sky", {**self._order, "from_ns": begin_s * _S, "seconds": seconds})
        notes: list[str] = said.get("notes") or []
        for note in notes if notes != self._notes else ():
            self._say(f"sky: {note}")
        self._notes = notes
        new = {
            begin_s + number: {
                name: value
                for name, value in zip(said["fields"], row, strict=True)
                if value is not None
            }
            for number, row in enumerate(said["rows"])
        }
        kept = {s: row for s, row in self._rows.items() if s >= now_s - BATCH_S}
        self._rows = {**kept, **new}
        self._until_s = begin_s + len(new)


class _Weather:
    """The weather, every half an hour."""

    def __init__(
        self,
        source: str,
        where: Mapping[str, Any],
        ask: Ask,
        say: Callable[[str], None],
        state: Path,
    ) -> None:
        self._order = {**where, "source": source}
        self._ask = ask
        self._asked = _Asked("weather", say)
        self._file = state / _ASKED
        # An agent that is started again and again must not ask each time.
        self._asked_s = 0
        with suppress(OSError, ValueError):
            self._asked_s = int(self._file.read_text("ascii"))
        self._news: Sample = {}

    def look(self, now_ns: int) -> None:
        """Ask where it is time."""
        is_due = not 0 <= now_ns // _S - self._asked_s < _WEATHER_EVERY_S
        if is_due and self._asked.may_ask(now_ns):
            self._asked.begin(now_ns, lambda: self._fetch(now_ns // _S))

    def news(self) -> Sample:
        """Return what has come since this was called last."""
        news, self._news = self._news, {}
        return news

    def _fetch(self, now_s: int) -> None:
        said = self._ask("weather", {**self._order, "at_s": now_s})
        self._news, self._asked_s = said, now_s
        self._file.write_text(str(now_s), "ascii")


class Apart:
    """Asks modules of the agent's in processes of their own: `python -m … < ORDER`.

    Args:
        state: the agent's directory; what is downloaded is kept there.
    """

    def __init__(self, state: Path) -> None:
        self._environment = {**os.environ, "XDG_CACHE_HOME": str(state / "cache")}
        self._processes: set[subprocess.Popen[str]] = set()
        self._is_closed = False

    def ask(self, module: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a module prints.

        Raises:
            RunError: it failed: what it said last, in a line.
        """
        command = [sys.executable, "-m", f"skyhop.testbed.agent.{module}"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self._environment
        )
        self._processes.add(process)
        try:
            if self._is_closed:
                process.kill()
            out, errors = process.communicate(json.dumps(order), _LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise RunError(f"has not answered within {_LONGEST_S:.0f} s") from None
        finally:
            self._processes.discard(process)
        if process.returncode != 0:
            said = errors.strip().splitlines() or [f"ended with status {process.returncode}"]
            raise RunError(said[-1])
        values: dict[str, Any] = json.loads(out)
        return values

    def close(self) -> None:
        """End what is under way."""
        self._is_closed = True
        for process in [*self._processes]:
            process.kill()
