"""Feed of an emulated terminal from a path file; at its end, the path starts again.

The terminal is the path's end `from`. It pings the other end fifteen times a second. The RTT is
that of the path's current frame. A ping is not answered during the outage of a handover, without a
path, or at random with the path's loss.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skyhop.data.paths import Path
from skyhop.telemetry.gps import SECOND_NS
from skyhop_lab.dish.feed import Interruption, Second
from skyhop_testbed.dish.device_pb2 import DishOutage

PINGS = 15
"""Number of pings per second; terminals report losses in fifteenths."""


@dataclass(frozen=True)
class Obstacle:
    """Obstacle that hides the sky between two azimuths (clockwise), up to an elevation (deg)."""

    from_deg: float
    to_deg: float
    up_to_deg: float

    def hides(self, azimuth_deg: float, elevation_deg: float) -> bool:
        """Return whether the obstacle hides a direction."""
        width_deg = (self.to_deg - self.from_deg) % 360
        return elevation_deg < self.up_to_deg and (azimuth_deg - self.from_deg) % 360 <= width_deg


@dataclass(frozen=True)
class _Frame:
    t_ns: int
    rtt_ms: float | None
    loss: float
    first_hop: int | None
    """Node id of the satellite that serves the terminal; None without a path."""


class PathFeed:
    """Feed of the terminal of a path, at the end that the path states or else at `from`.

    Args:
        path: the path.
        seed: seed of the random losses.
        obstacles: obstacles around the terminal; satellites behind them cannot serve it.

    Raises:
        InputError: the file of the satellites that the path was computed over is missing or has
            changed.
    """

    lag_s = 0

    def __init__(self, path: Path, *, seed: int = 1, obstacles: Sequence[Obstacle] = ()) -> None:
        self._header = path.header
        self._seed = seed
        self._obstacles = obstacles
        has_satellites = bool(self._header.get("constellation") and self._header.get("start"))
        self._satellites = int(self._header.get("satellites") or 0) if has_satellites else 0
        self._end = self._header.get("dish") or "from"
        self._frames = list(_frames(path, self._end))
        self._begins_ns = [frame.t_ns for frame in self._frames]
        self._outages = [
            (event["t_ns"], event["t_ns"] + event["outage_ns"])
            for events in path.frames["events"].to_list()
            for event in events
            if event["outage_ns"]
        ]
        duration_ns = self._header.get("duration_ns") or self._begins_ns[-1] + SECOND_NS
        self.duration_s = max(-(-int(duration_ns) // SECOND_NS), 1)
        if self._satellites:
            self._direction(0)

    def is_known(self, _index: int) -> bool:
        """Return True: every second is known at its end."""
        return True

    def second(self, index: int) -> Second:
        """Return the measurements of a second of the repeated path."""
        turn, place = divmod(index, self.duration_s)
        turn_ns, begin_ns = turn * self.duration_s * SECOND_NS, place * SECOND_NS
        serving_deg = self._direction(begin_ns + SECOND_NS // 2)
        if serving_deg is not None and any(one.hides(*serving_deg) for one in self._obstacles):
            whole = Interruption(index * SECOND_NS, (index + 1) * SECOND_NS, DishOutage.OBSTRUCTED)
            return Second(
                1.0, None, interruptions=(whole,), serving_deg=serving_deg, obstructed=True
            )
        within = tuple(self._interruptions(begin_ns))
        draw = random.Random(f"{self._seed} {index}")
        answers_ms = list(self._answers_ms(begin_ns, within, draw))
        return Second(
            drop_rate=(PINGS - len(answers_ms)) / PINGS,
            latency_ms=sum(answers_ms) / len(answers_ms) if answers_ms else None,
            interruptions=tuple(
                Interruption(each.begin_ns + turn_ns, each.end_ns + turn_ns, each.cause)
                for each in within
            ),
            serving_deg=serving_deg,
        )

    def _answers_ms(
        self, begin_ns: int, within: Sequence[Interruption], draw: random.Random
    ) -> Iterator[float]:
        for ping in range(PINGS):
            at_ns = begin_ns + ping * SECOND_NS // PINGS
            frame = self._frame(at_ns)
            lost = draw.random() < frame.loss
            is_down = any(each.begin_ns <= at_ns < each.end_ns for each in within)
            if frame.rtt_ms is not None and not lost and not is_down:
                yield frame.rtt_ms

    def _interruptions(self, begin_ns: int) -> Iterator[Interruption]:
        """Yield the interruptions of a second: outages of handovers, and times without a path."""
        end_ns = begin_ns + SECOND_NS
        found = [
            Interruption(max(down_ns, begin_ns), min(until_ns, end_ns), DishOutage.NO_PINGS)
            for down_ns, until_ns in self._outages
            if down_ns < end_ns and until_ns > begin_ns
        ]
        first = max(bisect_right(self._begins_ns, begin_ns) - 1, 0)
        last = bisect_right(self._begins_ns, end_ns - 1)
        for place in range(first, last):
            until_ns = self._begins_ns[place + 1] if place + 1 < len(self._frames) else end_ns
            if self._frames[place].rtt_ms is None:
                from_ns = max(self._begins_ns[place], begin_ns)
                found.append(Interruption(from_ns, min(until_ns, end_ns), DishOutage.NO_SATS))
        yield from sorted(found, key=lambda each: each.begin_ns)

    def _frame(self, at_ns: int) -> _Frame:
        return self._frames[max(bisect_right(self._begins_ns, at_ns) - 1, 0)]

    def _direction(self, at_ns: int) -> tuple[float, float] | None:
        """Return azimuth and elevation in degrees of the serving satellite; None if unknown."""
        satellite = self._frame(at_ns).first_hop
        if satellite is None or not 0 <= satellite < self._satellites:
            return None
        from skyhop.data.geometry import seen_from
        from skyhop.data.positions import end_deg, satellites_at

        positions_m, _ = satellites_at(self._header, at_ns / SECOND_NS)
        elevation_deg, azimuth_deg = seen_from(
            *end_deg(self._header, self._end), positions_m[satellite : satellite + 1]
        )
        return float(azimuth_deg[0]), float(elevation_deg[0])


def _frames(path: Path, end: str) -> Iterator[_Frame]:
    first = 1 if end == "from" else -2
    columns = (path.frames[name].to_list() for name in ("t_ns", "delay_ns", "delay_back_ns"))
    rest = (path.frames[name].to_list() for name in ("loss", "nodes"))
    for t_ns, there_ns, back_ns, loss, nodes in zip(*columns, *rest, strict=True):
        known = there_ns is not None and back_ns is not None
        yield _Frame(
            t_ns,
            (there_ns + back_ns) / 1e6 if known else None,
            loss or 0.0,
            nodes[first] if len(nodes) > 1 else None,
        )
