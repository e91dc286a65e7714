"""Surroundings of a node: the satellites above it and its weather, if its owner switches them on.

Short-lived processes (`sky`, `weather`) compute both, so that the agent itself loads no library for
them and keeps only a small table: ten minutes of satellites, a row per second. Telemetry never
waits for these processes: fields without a value are null. The agent logs a failure when it begins
and when it is over. It retries after one minute, two, four, and so on up to an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from skyhop.errors import RunError
from skyhop.telemetry.fields import Sample, Value
from skyhop_testbed.agent.settings import Orbit, Settings

_S = 1_000_000_000
BATCH_S = 600
"""Number of rows, one per second, that one call of `sky` computes."""
_FIRST_S = 180
"""Number of rows of the first call, which computes fewer because they are needed at once."""
_EARLY_S = 120
"""Number of rows left at which the next call starts; a call takes a minute on a slow machine."""
GRID_PERIOD_S, GRID_OFFSET_S = 15, 12
"""Period and offset in s of Starlink's grid of handovers, in UTC."""
_WEATHER_EVERY_S = 1800
_SOONEST_S, _LATEST_S = 60, 3600
"""Shortest and longest wait in s before a failed call is retried."""
_CHECK_EVERY_S = 10
"""Interval in s at which the modification time of the orbit file is checked."""
_LONGEST_S = 300.0
_REQUEST_FILE = "weather.asked"

RunModule = Callable[[str, Mapping[str, object]], Any]
"""Function that runs a module of the agent with an order, and returns the JSON that the module
prints: a `SkyTable` or a `Sample`.
"""


class Place(TypedDict):
    """Position of the node, as its owner has set it (`position.position`)."""

    place: str | None
    dish: str | None
    precision_deg: float


class SkyOrder(Place):
    """Order to `sky`: the fields of `settings.Orbit`, and the seconds to compute."""

    elements: str | None
    handover: str
    old_after_days: float
    path: str | None
    begins_ns: int
    from_ns: int
    seconds: int


class SkyTable(TypedDict):
    """Answer of `sky`: a row per second with the values of `fields`, and notes for the log."""

    fields: Sequence[str]
    rows: Sequence[Sequence[Value]]
    notes: list[str]


class WeatherOrder(Place):
    """Order to `weather`: the server's URL, and the present time in s."""

    source: str
    at_s: int


class Surroundings:
    """Satellites and weather of a node, refreshed in the background.

    Args:
        settings: the owner's settings.
        dish: address of the terminal.
        state: the agent's directory.
        say: function for log lines.
        run_module: runs a module of the agent; by default in a separate process.
    """

    def __init__(
        self,
        settings: Settings,
        dish: str | None,
        state: Path,
        say: Callable[[str], None],
        run_module: RunModule | None = None,
    ) -> None:
        self._modules = ModuleRunner(state)
        runner = run_module or self._modules.run_module
        where: Place = {
            "place": settings.place,
            "dish": dish,
            "precision_deg": settings.precision_deg,
        }
        orbit, weather = settings.orbit, settings.weather
        self._is_grid = orbit is not None and orbit.is_grid
        self._sky = None if orbit is None or orbit.is_grid else _Sky(orbit, where, runner, say)
        self._weather = None if weather is None else _Weather(weather, where, runner, say, state)

    def refresh(self, now_ns: int) -> None:
        """Start the calls that are due; the caller calls this every second."""
        for each in (self._sky, self._weather):
            if each is not None:
                each.refresh(now_ns)

    def of_second(self, time_ns: int) -> Sample:
        """Return the satellite fields of a second at most ten minutes ago or ahead."""
        if self._sky is not None:
            return self._sky.of_second(time_ns)
        return {"handover_in_s": until_grid_s(time_ns)} if self._is_grid else {}

    def new_fields(self) -> Sample:
        """Return the weather fields, once after each refresh; otherwise an empty sample."""
        return {} if self._weather is None else self._weather.new_fields()

    def close(self) -> None:
        """Kill the processes of `sky` and `weather` that are running."""
        self._modules.close()


def until_grid_s(time_ns: int) -> float:
    """Return the time in s from `time_ns` (UTC) to the next handover of Starlink's 15 s grid.

    >>> until_grid_s(12 * 10**9), until_grid_s(26_500_000_000)
    (15.0, 0.5)
    """
    period_ns = GRID_PERIOD_S * _S
    return (period_ns - (time_ns - GRID_OFFSET_S * _S) % period_ns) / _S


class _BackgroundCall:
    """Repeated call in a background thread, with backoff after failures."""

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self._what, self._say = what, say
        self._thread: threading.Thread | None = None
        self._trouble: str | None = None
        self._wait_s = 0
        self._again_ns = 0

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def may_start(self, now_ns: int) -> bool:
        """Return whether no call is running, and the wait after the last failure is over."""
        # If the clock was set back, the retry time is far ahead; the call must not wait until then.
        waits = 0 < self._again_ns - now_ns <= _LATEST_S * _S
        return not self.is_busy and not waits

    def begin(self, now_ns: int, do: Callable[[], None]) -> None:
        """Call `do`, which may fail, in a thread."""
        self._thread = threading.Thread(
            target=self._guarded, args=(now_ns, do), name=self._what, daemon=True
        )
        self._thread.start()

    def retry(self) -> None:
        """End the wait after a failure, as its cause may be gone."""
        self._again_ns = 0

    def _guarded(self, now_ns: int, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # telemetry goes on without these fields.
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
    """Satellite fields, one sample per second."""

    def __init__(
        self,
        orbit: Orbit,
        where: Place,
        run_module: RunModule,
        say: Callable[[str], None],
    ) -> None:
        self._where, self._orbit = where, orbit
        self._file = orbit.path or orbit.elements or ""
        self._run_module, self._say = run_module, say
        self._call = _BackgroundCall("sky", say)
        self._notes: list[str] = []
        self._rows: dict[int, Sample] = {}
        """Fields by second of UTC. The dictionary is replaced as a whole, so that no thread sees a
        partial update.
        """
        self._until_s = 0
        """First second after the rows that follow each other without a gap."""
        self._written: int | None = None
        self._checked_ns = 0

    def refresh(self, now_ns: int) -> None:
        """Start a call for the next rows if few are left, or if the orbit file has changed."""
        if self._call.is_busy:
            return
        now_s = now_ns // _S
        if self._has_changed(now_ns):
            self._call.retry()
            # The present rows stay in use until the new ones arrive.
            self._until_s = 0
        has_enough = now_s in self._rows and self._until_s - now_s > _EARLY_S
        if not has_enough and self._call.may_start(now_ns):
            goes_on = now_s in self._rows and self._until_s > now_s
            begin_s, seconds = (self._until_s, BATCH_S) if goes_on else (now_s, _FIRST_S)
            self._call.begin(now_ns, lambda: self._fetch(begin_s, seconds, now_s))

    def of_second(self, time_ns: int) -> Sample:
        """Return the fields of a second; empty if unknown."""
        return self._rows.get(time_ns // _S, {})

    def _has_changed(self, now_ns: int) -> bool:
        if 0 <= now_ns - self._checked_ns < _CHECK_EVERY_S * _S:
            return False
        self._checked_ns = now_ns
        written = None
        with suppress(OSError, ValueError):
            written = Path(self._file).stat().st_mtime_ns
        has_changed = written is not None and written != self._written
        is_first = self._written is None
        self._written = written if written is not None else self._written
        return has_changed and not (is_first and self._until_s)

    def _fetch(self, begin_s: int, seconds: int, now_s: int) -> None:
        orbit = self._orbit
        order: SkyOrder = {
            **self._where,
            "elements": orbit.elements,
            "handover": orbit.handover,
            "old_after_days": orbit.old_after_days,
            "path": orbit.path,
            "begins_ns": orbit.begins_ns,
            "from_ns": begin_s * _S,
            "seconds": seconds,
        }
        table: SkyTable = self._run_module("sky", order)
        notes = table.get("notes", [])
        for note in notes if notes != self._notes else ():
            self._say(f"sky: {note}")
        self._notes = notes
        new: dict[int, Sample] = {
            begin_s + number: {
                name: value
                for name, value in zip(table["fields"], row, strict=True)
                if value is not None
            }
            for number, row in enumerate(table["rows"])
        }
        kept = {s: row for s, row in self._rows.items() if s >= now_s - BATCH_S}
        self._rows = {**kept, **new}
        self._until_s = begin_s + len(new)


class _Weather:
    """Weather fields, refreshed every half an hour."""

    def __init__(
        self,
        source: str,
        where: Place,
        run_module: RunModule,
        say: Callable[[str], None],
        state: Path,
    ) -> None:
        self._where, self._source = where, source
        self._run_module = run_module
        self._call = _BackgroundCall("weather", say)
        self._file = state / _REQUEST_FILE
        # The time of the last request is kept on disk, so that an agent that restarts often does
        # not ask the service each time.
        self._requested_s = 0
        with suppress(OSError, ValueError):
            self._requested_s = int(self._file.read_text("ascii"))
        self._new_fields: Sample = {}

    def refresh(self, now_ns: int) -> None:
        """Start a call if the last weather is half an hour old."""
        is_due = not 0 <= now_ns // _S - self._requested_s < _WEATHER_EVERY_S
        if is_due and self._call.may_start(now_ns):
            self._call.begin(now_ns, lambda: self._fetch(now_ns // _S))

    def new_fields(self) -> Sample:
        """Return the fields, once after each refresh; otherwise an empty sample."""
        new_fields, self._new_fields = self._new_fields, {}
        return new_fields

    def _fetch(self, now_s: int) -> None:
        order: WeatherOrder = {**self._where, "source": self._source, "at_s": now_s}
        self._new_fields, self._requested_s = self._run_module("weather", order), now_s
        self._file.write_text(str(now_s), "ascii")


class ModuleRunner:
    """Runner of the agent's modules in separate processes: `python -m … < ORDER`.

    Args:
        state: the agent's directory, which holds the download cache.
    """

    def __init__(self, state: Path) -> None:
        self._environment = {**os.environ, "XDG_CACHE_HOME": str(state / "cache")}
        self._processes: set[subprocess.Popen[str]] = set()
        self._is_closed = False

    def run_module(self, module: str, order: Mapping[str, object]) -> Any:
        """Run a module with an order; return the JSON that it prints.

        Raises:
            RunError: the module failed; the message is the last line of its standard error.
        """
        command = [sys.executable, "-m", f"skyhop_testbed.agent.{module}"]
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
            lines = errors.strip().splitlines() or [f"ended with status {process.returncode}"]
            raise RunError(lines[-1])
        return json.loads(out)

    def close(self) -> None:
        """Kill the running processes, and any that start later."""
        self._is_closed = True
        for process in [*self._processes]:
            process.kill()
