"""Styles of congestion controls: colour, dash and marker depend on the name only.

So a congestion control has the same style on every page. Those of skyhop have solid lines, in the
colours of Okabe and Ito, which colour-blind readers can distinguish. Any other name gets a colour,
marker and dash by its hash. Several flows of one congestion control have shades of its colour.
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
"""Colours of Okabe and Ito, in the order of their assignment."""

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
    "plus": "\N{HEAVY GREEK CROSS}",
    "left": "\N{BLACK LEFT-POINTING TRIANGLE}",
    "right": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "star": "\N{BLACK STAR}",
    "cross": "\N{HEAVY MULTIPLICATION X}",
    "hexagon": "\N{BLACK HEXAGON}",
}
"""Unicode symbol of each marker, for text on pages."""

_OURS = ("cubic", "bbr", "satcp", "reno", "hybla", "vegas", "satpipe")
"""Names with the colours of Okabe and Ito, in their order.

Reno is not blue, because it is compared with CUBIC. SatPipe is grey, because it is compared with
BBR, SatCP and others such as BBRv3: print shows a pink and a purple alike."""
_OTHER_COLOURS = ("#332288", "#882255", "#7F7F00", "#7A3B10", "#9B30C8", "#D62756")
_OTHER_MARKERS: tuple[Marker, ...] = ("left", "right", "star", "cross", "hexagon")
_OTHER_DASHES: tuple[Dash, ...] = ("-", "--")
_SLOTS = len(_OTHER_COLOURS) * len(_OTHER_MARKERS) * len(_OTHER_DASHES)

_SHADES = (0.0, 0.45, -0.4, 0.7, -0.65, 0.25, -0.2)
"""Shade of a congestion control's n-th flow: share of white to mix in; if negative, of black."""


@dataclass(frozen=True)
class Style:
    """Colour, dash and marker of a line, a bar or a set of points."""

    colour: str
    dash: Dash
    marker: Marker


def style_of_index(index: int) -> Style:
    """Return the style of the entry `index` (from 0) in a list of names that have no style."""
    count = len(COLOURS)
    return Style(
        COLOURS[index % count],
        DASHES[index // count % len(DASHES)],
        MARKERS[index % count],
    )


def styles_of(ccs: Iterable[str]) -> list[Style]:
    """Return the style of each congestion control; a repeated name gets shades of its colour.

    A name has the same style in every list, unless the hashes of two names in a list collide: then
    the name that is later in the alphabet gets the next free style.
    """
    names = [_bare_name(cc) for cc in ccs]
    bases = _bases(sorted(set(names)))
    seen: dict[str, int] = {}
    styles = []
    for name in names:
        repetition = seen.get(name, 0)
        seen[name] = repetition + 1
        styles.append(_variant(bases[name], repetition))
    return styles


def style_of(cc: str) -> Style:
    """Return the style of one congestion control."""
    return styles_of([cc])[0]


def _bare_name(cc: str) -> str:
    """Return a congestion control's name without directory, file suffix and prefix `skyhop`."""
    return PurePath(cc).stem.lower().removeprefix("skyhop:").removeprefix("skyhop_")


def _bases(names: Iterable[str]) -> dict[str, Style]:
    bases: dict[str, Style] = {}
    for name in names:
        if name in _OURS:
            bases[name] = style_of_index(_OURS.index(name))
            continue
        slot = zlib.crc32(name.encode())
        free = (s for s in range(slot, slot + _SLOTS) if _slot(s) not in bases.values())
        bases[name] = _slot(next(free, slot))
    return bases


def _slot(number: int) -> Style:
    rest, colour = divmod(number % _SLOTS, len(_OTHER_COLOURS))
    dash, marker = divmod(rest, len(_OTHER_MARKERS))
    return Style(_OTHER_COLOURS[colour], _OTHER_DASHES[dash], _OTHER_MARKERS[marker])


def _variant(base: Style, repetition: int) -> Style:
    shade = _SHADES[repetition % len(_SHADES)]
    dash = DASHES[(DASHES.index(base.dash) + repetition) % len(DASHES)]
    return Style(_mixed(base.colour, shade), dash, base.marker)


def _mixed(colour: str, shade: float) -> str:
    """Mix a colour (#RRGGBB) with this share of white or, if negative, of black."""
    towards = 255 if shade > 0 else 0
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(p + abs(shade) * (towards - p)):02X}" for p in parts)
