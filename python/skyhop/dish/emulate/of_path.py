"""A path file as what happens to a terminal: the path begins again when it is over.

The terminal is the path's end `from`. Fifteen times a second it pings the other end: the round
trip is that of the path's frame then; during a handover's outage, without a path, and where chance
so decides with the path's loss, nothing comes back.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skyhop.data.paths import Path
from skyhop.dish.device_pb2 import DishOutage
from skyhop.dish.emulate.source import Cut, Second
from skyhop.dish.gps import SECOND_NS

PINGS = 15
"""A second's; terminals report losses in fifteenths."""


@dataclass(frozen=True)
class Obstacle:
    """What hides the sky from one azimuth over east to another, up to an elevation, in degrees."""

    from_deg: float
    to_deg: float
    up_to_deg: float

    def hides(self, azimuth_deg: float, elevation_deg: float) -> bool:
        """Return whether it hides a direction."""
        width_deg = (self.to_deg - self.from_deg) % 360
        return elevation_deg < self.up_to_deg and (azimuth_deg - self.from_deg) % 360 <= width_deg


@dataclass(frozen=True)
class _Frame:
    t_ns: int
    rtt_ms: float | None
    loss: float
    first_hop: int | None
    """The satellite that serves the terminal, by its number."""


class PathFeed:
    """What a path does to the terminal at its end `from`.

    Args:
        path: a path file's.
        seed: of losses.
        obstacles: what stands around it: what they hide is not connected.

    Raises:
        InputError: the satellites that the path was computed over are not known any more.
    """

    lag_s = 0

    def __init__(self, path: Path, *, seed: int = 1, obstacles: Sequence[Obstacle] = ()) -> None:
        self._header = path.header
        self._seed = seed
        self._obstacles = obstacles
        has_satellites = bool(self._header.get("constellation") and self._header.get("start"))
        self._satellites = int(self._header.get("satellites") or 0) if has_satellites else 0
        self._frames = list(_frames(path))
        self._begins_ns = [frame.t_ns for frame in self._frames]
        self._cuts = [
            (event["t_ns"], event["t_ns"] + event["outage_ns"])
            for events in path.frames["events"].to_pylist()
            for event in events
            if event["outage_ns"]
        ]
        duration_ns = self._header.get("duration_ns") or self._begins_ns[-1] + SECOND_NS
        self.duration_s = max(-(-int(duration_ns) // SECOND_NS), 1)
        if self._satellites:
            self._direction(0)

    def is_known(self, _index: int) -> bool:
        """Every second is known as it ends."""
        return True

    def second(self, index: int) -> Second:
        """Return what happened in a second of the path, which goes round."""
        turn, place = divmod(index, self.duration_s)
        turn_ns, begin_ns = turn * self.duration_s * SECOND_NS, place * SECOND_NS
        serving_deg = self._direction(begin_ns + SECOND_NS // 2)
        if serving_deg is not None and any(one.hides(*serving_deg) for one in self._obstacles):
            whole = Cut(index * SECOND_NS, (index + 1) * SECOND_NS, DishOutage.OBSTRUCTED)
            return Second(1.0, None, cuts=(whole,), serving_deg=serving_deg, obstructed=True)
        cuts = tuple(self._cuts_of(begin_ns))
        answers_ms = list(self._answers_ms(begin_ns, cuts, random.Random(f"{self._seed} {index}")))
        return Second(
            drop_rate=(PINGS - len(answers_ms)) / PINGS,
            latency_ms=sum(answers_ms) / len(answers_ms) if answers_ms else None,
            cuts=tuple(Cut(c.begin_ns + turn_ns, c.end_ns + turn_ns, c.cause) for c in cuts),
            serving_deg=serving_deg,
        )

    def _answers_ms(
        self, begin_ns: int, cuts: Sequence[Cut], draw: random.Random
    ) -> Iterator[float]:
        for ping in range(PINGS):
            at_ns = begin_ns + ping * SECOND_NS // PINGS
            frame = self._frame(at_ns)
            lost = draw.random() < frame.loss
            cut = any(one.begin_ns <= at_ns < one.end_ns for one in cuts)
            if frame.rtt_ms is not None and not lost and not cut:
                yield frame.rtt_ms

    def _cuts_of(self, begin_ns: int) -> Iterator[Cut]:
        """Yield when nothing passes in a second: handovers, and times without a path."""
        end_ns = begin_ns + SECOND_NS
        found = [
            Cut(max(cut_ns, begin_ns), min(until_ns, end_ns), DishOutage.NO_PINGS)
            for cut_ns, until_ns in self._cuts
            if cut_ns < end_ns and until_ns > begin_ns
        ]
        first = max(bisect_right(self._begins_ns, begin_ns) - 1, 0)
        last = bisect_right(self._begins_ns, end_ns - 1)
        for place in range(first, last):
            until_ns = self._begins_ns[place + 1] if place + 1 < len(self._frames) else end_ns
            if self._frames[place].rtt_ms is None:
                from_ns = max(self._begins_ns[place], begin_ns)
                found.append(Cut(from_ns, min(until_ns, end_ns), DishOutage.NO_SATS))
        yield from sorted(found, key=lambda cut: cut.begin_ns)

    def _frame(self, at_ns: int) -> _Frame:
        return self._frames[max(bisect_right(self._begins_ns, at_ns) - 1, 0)]

    def _direction(self, at_ns: int) -> tuple[float, float] | None:
        """Return azimuth and elevation of the satellite that serves the terminal."""
        satellite = self._frame(at_ns).first_hop
        if satellite is None or not 0 <= satellite < self._satellites:
            return None
        from skyhop.data.geometry import seen_from
        from skyhop.data.positions import end_deg, satellites_at

        positions_m, _ = satellites_at(self._header, at_ns / SECOND_NS)
        elevation_deg, azimuth_deg = seen_from(
            *end_deg(self._header, "from"), positions_m[satellite : satellite + 1]
        )
        return float(azimuth_deg[0]), float(elevation_deg[0])


def _frames(path: Path) -> Iterator[_Frame]:
    columns = (path.frames[name].to_pylist() for name in ("t_ns", "delay_ns", "delay_back_ns"))
    rest = (path.frames[name].to_pylist() for name in ("loss", "nodes"))
    for t_ns, there_ns, back_ns, loss, nodes in zip(*columns, *rest, strict=True):
        known = there_ns is not None and back_ns is not None
        yield _Frame(
            t_ns,
            (there_ns + back_ns) / 1e6 if known else None,
            loss or 0.0,
            nodes[1] if len(nodes) > 1 else None,
        )
