"""How a congestion control looks, on every page the same: colour, dash and marker follow its name.

Those that come with skyhop have the colours of Okabe and Ito, which stay apart for colour-blind
readers, and solid lines. Any other name chooses, by a hash of it, among other colours, markers and
dashes. Several flows of one congestion control are shades of its colour.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypeAlias

Marker: TypeAlias = Literal[
    "circle", "square", "triangle", "diamond", "down", "pentagon", "plus", "left", "right", "star",
    "cross", "hexagon",
]  # fmt: skip
Dash: TypeAlias = str | tuple[float, tuple[float, ...]]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
"""For whatever is told apart, in this order."""

DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":")
MARKERS: tuple[Marker, ...] = (
    "circle", "square", "triangle", "diamond", "down", "pentagon", "plus",
)  # fmt: skip

GLYPHS: dict[Marker, str] = {
    "circle": "\N{BLACK CIRCLE}",
    "square": "\N{BLACK SQUARE}",
    "triangle": "\N{BLACK UP-POINTING TRIANGLE}",
    "diamond": "\N{BLACK DIAMOND}",
    "down": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "pentagon": "\N{BLACK PENTAGON}",
    "plus": "\N{HEAVY PLUS SIGN}",
    "left": "\N{BLACK LEFT-POINTING TRIANGLE}",
    "right": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "star": "\N{BLACK STAR}",
    "cross": "\N{HEAVY MULTIPLICATION X}",
    "hexagon": "\N{BLACK HEXAGON}",
}
"""Markers as letters, for text."""

_OURS = ("cubic", "bbr", "satcp", "satpipe", "reno", "vegas", "hybla")
_OTHER_COLOURS = ("#332288", "#882255", "#7F7F00", "#7A3B10", "#9B30C8", "#D62756")
_OTHER_MARKERS: tuple[Marker, ...] = ("left", "right", "star", "cross", "hexagon")
_OTHER_DASHES: tuple[Dash, ...] = ("-", "--")
_SLOTS = len(_OTHER_COLOURS) * len(_OTHER_MARKERS) * len(_OTHER_DASHES)

_SHADES = (0.0, 0.45, -0.4, 0.7, -0.65, 0.25, -0.2)
"""How far towards white, or where negative to black, flows of one congestion control go."""


@dataclass(frozen=True)
class Look:
    """How something is drawn wherever it is drawn."""

    colour: str
    dash: Dash
    marker: Marker


def look_of_place(place: int) -> Look:
    """Return how the one in this place of a list looks, for what has no look by its name."""
    count = len(COLOURS)
    return Look(
        COLOURS[place % count],
        DASHES[place // count % len(DASHES)],
        MARKERS[place % count],
    )


def looks_of(ccs: Iterable[str]) -> list[Look]:
    """Return how congestion controls look, those that come again in shades of their colour.

    A name looks the same whatever stands beside it, unless two names of one hash meet: then the
    later one in the alphabet has the next look that is free.
    """
    names = [_name(cc) for cc in ccs]
    bases = _bases(sorted(set(names)))
    seen: dict[str, int] = {}
    looks = []
    for name in names:
        again = seen.get(name, 0)
        seen[name] = again + 1
        looks.append(_variant(bases[name], again))
    return looks


def look_of(cc: str) -> Look:
    """Return how a congestion control looks."""
    return looks_of([cc])[0]


def _name(cc: str) -> str:
    """Return the name alone: not where the module came from, nor whose it is."""
    return PurePath(cc).stem.lower().removeprefix("skyhop:").removeprefix("skyhop_")


def _bases(names: Iterable[str]) -> dict[str, Look]:
    bases: dict[str, Look] = {}
    for name in names:
        if name in _OURS:
            bases[name] = look_of_place(_OURS.index(name))
            continue
        slot = zlib.crc32(name.encode())
        free = (s for s in range(slot, slot + _SLOTS) if _slot(s) not in bases.values())
        bases[name] = _slot(next(free, slot))
    return bases


def _slot(number: int) -> Look:
    rest, colour = divmod(number % _SLOTS, len(_OTHER_COLOURS))
    dash, marker = divmod(rest, len(_OTHER_MARKERS))
    return Look(_OTHER_COLOURS[colour], _OTHER_DASHES[dash], _OTHER_MARKERS[marker])


def _variant(base: Look, again: int) -> Look:
    shade = _SHADES[again % len(_SHADES)]
    dash = DASHES[(DASHES.index(base.dash) + again) % len(DASHES)]
    return Look(_mixed(base.colour, shade), dash, base.marker)


def _mixed(colour: str, shade: float) -> str:
    """Return a colour that goes this share of the way to white, or to black where negative."""
    towards = 255 if shade > 0 else 0
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(p + abs(shade) * (towards - p)):02X}" for p in parts)
