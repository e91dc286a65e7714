"""Maps of a network's loads: lasers as lines, satellites and sites as marks, coloured by load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from skyhop.analysis.map_window import Window
from skyhop.analysis.network_map import LOAD_COLOURS, NetworkMap
from skyhop.analysis.tables import short_number
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.map_axes import draw_land, frame_map, map_aspect
from skyhop.figures.style import Sheet, new_figure, pt, sheet_of, title_figure

_COLOURS = LinearSegmentedColormap.from_list("load", LOAD_COLOURS)

_IDLE = "#FFFFFF"
"""Colour of sites that did not send."""

_WIDE_DEG = 200.0
"""Range of longitudes above which a narrow figure has two maps, one below the other."""

_OVERLAP_DEG = 6.0
"""Range of longitudes that both maps of a narrow figure show."""

_NAMES, _NAMES_NARROW = 40, 12
"""Largest number of names of sites on a map: on a wide and a narrow figure."""

_MARKERS = {"satellite": ("o", 16.0), "site": ("^", 46.0)}
"""Marker and size (square points) of a node, by its kind."""


def draw_network_map(view: NetworkMap, width: FigureWidth = "page") -> Sheet:
    """Draw the map of a network's loads with a colour bar.

    A narrow figure of the whole Earth has two maps, one below the other.
    """
    halves = list(_halves(view, is_narrow=width == "one-column"))
    (south, north), (west, east) = view.latitudes_deg, halves[0]
    ratio = map_aspect(view.latitudes_deg) * (north - south) / (east - west)
    wide_in = 2.85 if width == "one-column" else 9.2
    height_in = wide_in * float(np.clip(ratio, 0.2, 0.7)) * len(halves)
    scale = {"page": 1.0, "two-column": 0.65 / 0.75, "one-column": 1 / 0.62}[width]
    # A narrow figure has its colour bar below the maps.
    around_in = 2.2 if width == "one-column" else 1.0
    figure, axes = new_figure(height_in * scale + around_in, [1] * len(halves), width, shared=0)
    title_figure(figure, view.title)
    for ax, longitudes_deg in zip(axes, halves, strict=True):
        draw_land(ax, view.land_deg)
        _draw_links(ax, view)
        _draw_nodes(ax, view)
        frame_map(ax, view.latitudes_deg, longitudes_deg)
        if ax is not axes[-1]:
            ax.set_xlabel("")
        _name_sites(ax, view, longitudes_deg)
    _add_key(figure, axes, view)
    return figure


def _halves(view: NetworkMap, *, is_narrow: bool) -> Iterator[tuple[float, float]]:
    """Yield the range of longitudes of each map of the figure, from the top."""
    west, east = view.longitudes_deg
    if not is_narrow or east - west < _WIDE_DEG:
        yield west, east
        return
    middle = (west + east) / 2
    yield west, middle + _OVERLAP_DEG / 2
    yield middle - _OVERLAP_DEG / 2, east


def _draw_links(ax: Axes, view: NetworkMap) -> None:
    lines = [(line[:, ::-1], link.load) for link in view.links for line in link.lines_deg]
    if not lines:
        return
    loads = np.array([load for _, load in lines])
    drawn = LineCollection(
        [line for line, _ in lines],
        cmap=_COLOURS,
        norm=Normalize(0.0, view.most),
        linewidths=pt(ax, 0.7) + pt(ax, 2.0) * loads / view.most,
        capstyle="round",
        zorder=2,
        gid="links",
    )
    drawn.set_array(loads)
    ax.add_collection(drawn, autolim=False)


def _draw_nodes(ax: Axes, view: NetworkMap) -> None:
    for kind, (marker, size) in _MARKERS.items():
        for sent in (False, True):
            nodes = [n for n in view.nodes if n.kind == kind and (n.load is not None) == sent]
            if not nodes:
                continue
            at = np.array([node.at_deg for node in nodes])
            colours = (
                {
                    "c": [node.load for node in nodes],
                    "cmap": _COLOURS,
                    "norm": Normalize(0.0, view.most),
                }
                if sent
                else {"color": _IDLE}
            )
            ax.scatter(at[:, 1], at[:, 0], s=pt(ax, size), marker=marker,
                       zorder=3 + (kind == "site"), edgecolors="#333333",
                       linewidths=pt(ax, 0.5), gid=f"{kind}s",
                       **colours)  # fmt: skip


def _name_sites(ax: Axes, view: NetworkMap, longitudes_deg: tuple[float, float]) -> None:
    """Write the names of sites, of the busiest first, where they cover no other name or site."""
    west, east = longitudes_deg
    # The axes take about five sixths of the figure's width.
    letter = 1.2 * (east - west) / sheet_of(ax).laid_out.letters(_NAME_POINTS)
    line = 2.2 * letter / map_aspect(view.latitudes_deg)
    sites = [n for n in view.nodes if n.kind == "site" and west <= n.at_deg[1] <= east]
    taken = [_box(site.at_deg, 1.4 * letter, 0.9 * line) for site in sites]
    room = _Room(letter, line, (view.latitudes_deg, longitudes_deg), taken)
    left = _NAMES_NARROW if sheet_of(ax).laid_out.is_narrow else _NAMES
    for node in reversed(sites):
        text = node.name.rpartition(", ")[0] or node.name
        middle = room.take(node.at_deg, len(text) + 1) if left else None
        if middle is None:
            continue
        left -= 1
        ax.text(middle[1], middle[0], text, fontsize=pt(ax, _NAME_POINTS), va="center", ha="center",
                zorder=3.5, color="#222222", clip_on=True,
                path_effects=[withStroke(linewidth=pt(ax, 2), foreground="white")])  # fmt: skip


_NAME_POINTS = 7.5
"""Font size of the names of sites on a page."""

_Box: TypeAlias = tuple[float, float, float, float]
"""Ranges in degrees: least and greatest latitude, least and greatest longitude."""


@dataclass(frozen=True)
class _Room:
    """Room on a map that names may take."""

    letter_deg: float
    """Width of a letter in degrees of longitude."""
    line_deg: float
    """Height of a line in degrees of latitude."""
    window: Window
    taken: list[_Box]
    """Places of names and sites."""

    def take(self, site_deg: tuple[float, float], letters: int) -> tuple[float, float] | None:
        """Take room for a name right, left, above or below a site; return its middle if free."""
        latitude, longitude = site_deg
        width = letters * self.letter_deg
        aside = width / 2 + self.letter_deg
        for up, right in ((0.0, aside), (0.0, -aside), (self.line_deg, 0.0), (-self.line_deg, 0.0)):
            middle = (latitude + up, longitude + right)
            box = _box(middle, width, self.line_deg)
            if self._is_inside(box) and not any(_overlap(box, other) for other in self.taken):
                self.taken.append(box)
                return middle
        return None

    def _is_inside(self, box: _Box) -> bool:
        (south, north), (west, east) = self.window
        return south < box[0] and box[1] < north and west < box[2] and box[3] < east


def _box(middle_deg: tuple[float, float], width_deg: float, height_deg: float) -> _Box:
    latitude, longitude = middle_deg
    half, aside = height_deg / 2, width_deg / 2
    return latitude - half, latitude + half, longitude - aside, longitude + aside


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def _add_key(figure: Sheet, axes: Sequence[Axes], view: NetworkMap) -> None:
    """Add the colour bar, and the meanings of the marks."""
    narrow, first = figure.laid_out.is_narrow, axes[0]
    shown = ScalarMappable(Normalize(0.0, view.most), _COLOURS)
    bar = figure.colorbar(
        shown, ax=list(axes), orientation="horizontal" if narrow else "vertical",
        pad=0.02, aspect=40 if narrow else 25, fraction=0.05,
    )  # fmt: skip
    ticks: list[float] = np.linspace(0.0, view.most, 5).tolist()
    bar.set_ticks(ticks, labels=[f"{short_number(100 * tick)} %" for tick in ticks])
    bar.ax.tick_params(labelsize=pt(first, 8.5))
    bar.set_label("utilisation", fontsize=pt(first, 9))
    marks = [
        Line2D([], [], color=_COLOURS(0.6), linewidth=pt(first, 2), label="laser"),
        _mark("satellite: downlink", "satellite", first),
        _mark("site: own links", "site", first),
    ]
    first.legend(handles=marks, frameon=False, fontsize=pt(first, 8.5), loc="lower left",
                 bbox_to_anchor=(-0.01, 1.0), ncols=3, columnspacing=1.0, handletextpad=0.4,
                 borderpad=0.1)  # fmt: skip


def _mark(label: str, kind: str, ax: Axes) -> Line2D:
    marker, size = _MARKERS[kind]
    return Line2D([], [], marker=marker, linestyle="", markersize=pt(ax, size) ** 0.5,
                  color=_COLOURS(0.6), markeredgecolor="#333333", label=label)  # fmt: skip
