"""Map of a path at one moment, with satellites, gateways and links."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from skyhop.analysis.ground import NODE_KINDS, GroundNode, GroundView
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.map_axes import draw_land, frame_map, map_aspect
from skyhop.figures.style import (
    LAYOUTS,
    Sheet,
    add_legend,
    new_figure,
    pt,
    sheet_of,
    title_figure,
)

_SHARE, _SHARE_NARROW = 0.78, 0.85
"""Share of the figure's width for the map without its legend: on a wide and a narrow figure."""

_FLATTEST, _HIGHEST = 0.25, 0.8
"""Bounds of the ratio of a map's height to its width."""

_SATELLITE, _LINK = "#9DB4C8", "#D55E00"
_NODE_STYLES = {
    "chosen satellite": ("#0072B2", "o"),
    "gateway": ("#117733", "s"),
    "end": ("#882255", "^"),
}
"""Colour and marker of a node, by the node's kind."""


def draw_ground(view: GroundView, width: FigureWidth = "page") -> Sheet:
    """Draw a map of a path at a moment: links, satellites in view, and the path's satellite tracks.

    If there is no path at that moment, only satellites are drawn.
    """
    (south, north), (west, east) = view.latitudes_deg, view.longitudes_deg
    aspect = map_aspect(view.latitudes_deg)
    layout = LAYOUTS[width]
    map_in = layout.width_in * (_SHARE_NARROW if layout.is_narrow else _SHARE)
    map_in *= float(np.clip(aspect * (north - south) / (east - west), _FLATTEST, _HIGHEST))
    figure, (ax,) = new_figure((map_in + layout.scale) / layout.height, [1], width)
    title_figure(figure, view.title)
    draw_land(ax, view.land_deg)
    ax.scatter(view.satellites_deg[:, 1], view.satellites_deg[:, 0], s=pt(ax, 9), color=_SATELLITE,
               linewidths=0, label="satellite", gid="satellites")  # fmt: skip
    _draw_tracks(ax, view)
    _draw_route(ax, view)
    frame_map(ax, view.latitudes_deg, view.longitudes_deg)
    add_legend(ax)
    return figure


def _draw_tracks(ax: Axes, view: GroundView) -> None:
    """Draw the tracks of the path's satellites: thin before the moment, thick after it."""
    label = view.track_label
    for before, after in view.tracks_deg:
        for part, width in ((before, 0.7), (after, 1.6)):
            ax.plot(part[:, 1], part[:, 0], color=_SATELLITE, linewidth=width, zorder=2,
                    label=label, gid="track")  # fmt: skip
            label = "_"


def _draw_route(ax: Axes, view: GroundView) -> None:
    ax.plot(view.route_deg[:, 1], view.route_deg[:, 0], color=_LINK, linewidth=pt(ax, 1.6),
            label="link", gid="links", zorder=3)  # fmt: skip
    for kind in NODE_KINDS:
        places = np.array([node.at_deg for node in view.nodes if node.kind == kind])
        if len(places):
            colour, shape = _NODE_STYLES[kind]
            ax.scatter(places[:, 1], places[:, 0], s=pt(ax, 42), marker=shape, color=colour,
                       zorder=4, edgecolors="white", linewidths=0.8, label=kind)  # fmt: skip
    for node in view.nodes:
        _name(ax, node)


def _name(ax: Axes, node: GroundNode) -> None:
    """Write a node's name: of a satellite above it, of a gateway to its lower right.

    The name of an end is on the side away from the path; on a narrow figure without room there, it
    is below the end.
    """
    if node.kind == "chosen satellite":
        offset, side = (0, 7 + 11 * node.stacked), "center"
    elif node.kind == "gateway":
        offset, side = (4, -13), "left"
    elif sheet_of(ax).laid_out.is_narrow:
        offset, side = ((-4, -12), "left") if node.is_west else ((4, -12), "right")
    else:
        offset, side = ((-8, -4), "right") if node.is_west else ((8, -4), "left")
    latitude_deg, longitude_deg = node.at_deg
    ax.annotate(
        node.text,
        (longitude_deg, latitude_deg),
        xytext=offset,
        textcoords="offset points",
        ha=side,
        fontsize=pt(ax, 8),
        color=_NODE_STYLES[node.kind][0],
        zorder=5,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
        # A name that extends beyond the axes does not change the layout.
        in_layout=False,
        clip_on=node.kind == "chosen satellite",
    )
