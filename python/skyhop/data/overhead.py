"""What stands over a place, and who is forecast to serve it: for agents and for predictors.

Element sets or a constellation by its name; the satellites are propagated by skyhop's core, and
which of them serves is what `skyhop path` and the forecast of `skyhop signal` say: the policy's
choice at the terminal.
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
"""Starlink chooses satellites anew at the seconds 12, 27, 42 and 57 of UTC's minutes."""
AHEAD_S = 300
"""How much later than the last second a handover is still looked for."""
_TERMINALS_OWN = ("end", "lost", "restored")


def grid_before_s(at_s: int) -> int:
    """Return the last moment of the grid that is not after a second of UTC.

    >>> grid_before_s(12), grid_before_s(26), grid_before_s(27)
    (12, 12, 27)
    """
    return at_s - (at_s - GRID_OFFSET_S) % GRID_PERIOD_S


class Fleet:
    """The satellites of element sets or of a constellation, by numbers.

    Args:
        name: a file, or a constellation's name.
        start: a moment of UTC from which on they are wanted.
    """

    def __init__(self, name: str, start: str) -> None:
        from skyhop.data.constellations import constellation

        self._constellation = constellation(name, start=start)
        self._name = name
        self.minimum_elevation_deg = self._constellation.minimum_elevation_deg
        satellites = self._constellation.satellites
        self.names = [
            name or f"satellite {number}"
            for number, name in enumerate(satellites["name"].to_pylist())
        ]

    def check_age(self, at_ns: int, old_after_days: float) -> None:
        """Refuse element sets half of which are older; patterns have no age.

        Raises:
            InputError: they are.
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
        """Return earth-fixed positions (n, 3) in m."""
        return self._constellation.positions(utc_text(at_ns))


def forecast(
    name: str,
    start: str,
    where: tuple[float, float, float],
    handover: str,
    lasts_s: int,
) -> Path:
    """Return the path from a terminal to itself, as the forecast of `skyhop signal` takes it.

    Args:
        name: of the constellation, or of a file of element sets.
        start: a moment of UTC, best one of the grid.
        where: latitude and longitude in degrees, altitude in m.
        handover: the policy.
        lasts_s: for how long.

    Raises:
        InputError: there is no path: no satellite is ever seen, or a name is wrong.
    """
    from skyhop import _core
    from skyhop.data.scenarios import load_scenario

    text = f"{where[0]:.6f},{where[1]:.6f},{where[2]:.1f}"
    found = (text, *where)
    keys = {
        "from": text, "to": text, "relay": "bent-pipe", "handover": handover,
        "constellation": name, "start": start, "step": "1 s",
    }  # fmt: skip
    content = {"path": keys, "run": {"duration": f"{lasts_s} s"}}
    scenario = load_scenario(content, origin="the node's sky")
    return Path(_core.PathTrace.compute(scenario, lambda _name: found, lambda _done, _all: None))


def utc_text(at_ns: int) -> str:
    """Return a whole second of UTC as the core reads it."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_ns // _S)
    return moment.isoformat().replace("+00:00", "Z")


class Source:
    """Who serves the terminal when, and when that changes: of a path.

    Args:
        path: its end `from` is the terminal.
        begins_ns: when it begins, in UTC.
        is_round: whether it begins again when it is over, as `skyhop dish emulate --path` has it;
            else nothing is known then.
    """

    def __init__(self, path: Path, begins_ns: int, *, is_round: bool) -> None:
        frames = path.frames
        self._begins_ns, self._is_round = begins_ns, is_round
        self._frames_ns = frames["t_ns"].to_pylist()
        self._first_hops = [
            nodes[1] if len(nodes) > 1 and nodes[1] >= 0 else None
            for nodes in frames["nodes"].to_pylist()
        ]
        lasts_ns = path.header.get("duration_ns") or self._frames_ns[-1] + _S
        self._lasts_ns = max(int(lasts_ns), 1)
        self._changes_ns = sorted(set(_changes_ns(frames["events"].to_pylist())))
        if is_round and self._first_hops[0] != self._first_hops[-1]:
            self._changes_ns.append(self._lasts_ns)

    def at(self, at_ns: int) -> tuple[int, int | None, float | None] | None:
        """Return the path's time (ns), who serves, and how long until that changes (s).

        Returns:
            None where the path is not.
        """
        since_ns = at_ns - self._begins_ns
        if since_ns < 0 or (since_ns >= self._lasts_ns and not self._is_round):
            return None
        t_ns = since_ns % self._lasts_ns
        frame = max(bisect_right(self._frames_ns, t_ns) - 1, 0)
        return t_ns, self._first_hops[frame], self._until_change_s(t_ns)

    def _until_change_s(self, t_ns: int) -> float | None:
        place = bisect_right(self._changes_ns, t_ns)
        if place < len(self._changes_ns):
            return (self._changes_ns[place] - t_ns) / _S
        if self._is_round and self._changes_ns:
            return (self._changes_ns[0] + self._lasts_ns - t_ns) / _S
        return None


def _changes_ns(events: Sequence[Sequence[dict[str, Any]]]) -> Iterator[int]:
    """Yield when the terminal's own link changes; what happens further on is not its handover."""
    for each in events:
        for event in each:
            if event["kind"] in _TERMINALS_OWN and not event["hop"]:
                yield int(event["t_ns"])
