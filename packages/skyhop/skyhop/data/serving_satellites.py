"""Satellites above a terminal, and forecast of its serving satellite, for agents and predictors.

The satellites come from element sets or a named constellation and are propagated by skyhop's core.
The serving satellite is the one that the handover policy chooses at the terminal, as in
`skyhop path` and the forecast of `skyhop signal`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.paths import Path
from skyhop.errors import InputError

_S = 1_000_000_000
GRID_PERIOD_S, GRID_OFFSET_S = 15, 12
"""Starlink reassigns satellites at seconds 12, 27, 42 and 57 of each minute of UTC."""
AHEAD_S = 300
"""Time in s after the last sample within which the next handover is searched for."""
_OWN_LINK_EVENTS = ("end", "lost", "restored")
"""Kinds of path events that change the link between the terminal and its satellite."""


def grid_before_s(at_s: int) -> int:
    """Return the latest moment of the handover grid that is not after `at_s` (seconds since 1970).

    >>> grid_before_s(12), grid_before_s(26), grid_before_s(27)
    (12, 12, 27)
    """
    return at_s - (at_s - GRID_OFFSET_S) % GRID_PERIOD_S


class Fleet:
    """Satellites of element sets or of a constellation, in the order of satellite ids.

    Args:
        name: file of element sets, or name of a constellation.
        start: earliest time (UTC) for which positions are needed.

    Attributes:
        names: names of the satellites.
        minimum_elevation_deg: lowest elevation at which a site uses a satellite.
    """

    def __init__(self, name: str, start: str) -> None:
        from skyhop.data.constellations import constellation

        self._constellation = constellation(name, start=start)
        self._name = name
        self.minimum_elevation_deg = self._constellation.minimum_elevation_deg
        satellites = self._constellation.satellites
        self.names = [
            name or f"satellite {number}"
            for number, name in enumerate(satellites["name"].to_list())
        ]

    def check_age(self, at_ns: int, old_after_days: float) -> None:
        """Check the median age of the element sets at a time; constellation patterns have no age.

        Raises:
            InputError: the median age is more than `old_after_days`.
        """
        epochs_ns = self._constellation.element_epochs_ns
        if not epochs_ns:
            return
        days = float(np.median(np.abs(np.array(epochs_ns) - at_ns))) / (86_400 * _S)
        if days > old_after_days:
            raise InputError(
                f"{self._name}: half of the element sets are {days:.1f} days off or more, and not "
                f"used after {old_after_days:g}; get newer ones"
            )

    def positions(self, at_ns: int) -> FloatArray:
        """Return earth-fixed positions (n, 3) in m at a whole second of UTC."""
        return self._constellation.positions(utc_text(at_ns))


def forecast(
    name: str,
    start: str,
    where: tuple[float, float, float],
    handover: str,
    duration_s: int,
) -> Path:
    """Return the bent-pipe path from a terminal to itself, as `skyhop signal` forecasts it.

    Args:
        name: the constellation, or a file of element sets.
        start: start of the path in UTC, preferably a moment of the handover grid.
        where: latitude and longitude in degrees, altitude in m.
        handover: the handover policy.
        duration_s: time that the path covers.

    Raises:
        InputError: no satellite is ever visible, or a name is wrong.
    """
    from skyhop import _core
    from skyhop.data.scenarios import load_scenario

    text = f"{where[0]:.6f},{where[1]:.6f},{where[2]:.1f}"
    found = (text, *where)
    keys = {
        "from": text, "to": text, "relay": "bent-pipe", "handover": handover,
        "constellation": name, "start": start, "step": "1 s",
    }  # fmt: skip
    content = {"path": keys, "run": {"duration": f"{duration_s} s"}}
    scenario = load_scenario(content, origin="the node's sky")
    return Path(_core.PathTrace.compute(scenario, lambda _name: found, lambda _done, _all: None))


def utc_text(at_ns: int) -> str:
    """Return a time (ns since 1970), truncated to a whole second, as ISO 8601 in UTC."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_ns // _S)
    return moment.isoformat().replace("+00:00", "Z")


class ServingTimeline:
    """Serving satellite and handover times of a terminal over time, derived from a path.

    Args:
        path: path whose end `from` is the terminal.
        begins_ns: start of the path, in ns since 1970.
        repeats: whether the path starts again at its end, as in `skyhop dish emulate --path`;
            otherwise nothing is known after its end.
    """

    def __init__(self, path: Path, begins_ns: int, *, repeats: bool) -> None:
        frames = path.frames
        self._begins_ns, self._repeats = begins_ns, repeats
        self._frames_ns = frames["t_ns"].to_list()
        self._first_hops = [
            nodes[1] if len(nodes) > 1 and nodes[1] >= 0 else None
            for nodes in frames["nodes"].to_list()
        ]
        duration_ns = path.header.get("duration_ns") or self._frames_ns[-1] + _S
        self._duration_ns = max(int(duration_ns), 1)
        self._changes_ns = sorted(set(_changes_ns(frames["events"].to_list())))
        if repeats and self._first_hops[0] != self._first_hops[-1]:
            self._changes_ns.append(self._duration_ns)

    def at(self, at_ns: int) -> tuple[int, int | None, float | None] | None:
        """Return the state at a time (ns since 1970).

        Returns:
            The time since the path's start (ns); the node id of the serving satellite, None if no
            satellite serves; and the time until the next handover (s), None if it is not known.
            None instead of all three for a time that the path does not cover.
        """
        since_ns = at_ns - self._begins_ns
        if since_ns < 0 or (since_ns >= self._duration_ns and not self._repeats):
            return None
        t_ns = since_ns % self._duration_ns
        frame = max(bisect_right(self._frames_ns, t_ns) - 1, 0)
        return t_ns, self._first_hops[frame], self._until_change_s(t_ns)

    def _until_change_s(self, t_ns: int) -> float | None:
        place = bisect_right(self._changes_ns, t_ns)
        if place < len(self._changes_ns):
            return (self._changes_ns[place] - t_ns) / _S
        if self._repeats and self._changes_ns:
            return (self._changes_ns[0] + self._duration_ns - t_ns) / _S
        return None


def _changes_ns(events: Sequence[Sequence[dict[str, Any]]]) -> Iterator[int]:
    """Yield the times (ns) at which the path's first hop, the terminal's link, changes."""
    for each in events:
        for event in each:
            if event["kind"] in _OWN_LINK_EVENTS and not event["hop"]:
                yield int(event["t_ns"])
