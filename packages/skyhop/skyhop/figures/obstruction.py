"""Obstruction map of a terminal: the sky with north on top and east on the right."""

from __future__ import annotations

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Circle

from skyhop.analysis.timeline import GREY, LIGHT_GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import FIGURE_STYLE, Sheet, note_figure, pt, title_figure
from skyhop.telemetry.obstruction import Frame, ObstructionMap

_DEGREE = "\N{DEGREE SIGN}"
_UNSEEN = "#EFEFEF"
_COLOURS = LinearSegmentedColormap.from_list("seen", ["#D55E00", "#F0E442", "#0072B2"])
_COMPASS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")
_RING_STEP_DEG = 20
_HORIZON_DEG = 90.0
_ROOM = 1.1
"""Ratio of the axes' width to the map's width, which leaves room for the compass."""


def draw_obstruction(seen: ObstructionMap, title: str, width: FigureWidth = "page") -> Sheet:
    """Draw an obstruction map in the earth's frame; maps in the terminal's frame are rotated."""
    with rc_context(FIGURE_STYLE):
        figure = Sheet(6.2, width, share=0.66)
        ax = figure.add_subplot()
    title_figure(figure, title)
    grid = seen.grid
    corners = np.array(
        [
            [grid.offset_deg(row - 0.5, column - 0.5) for column in range(grid.columns + 1)]
            for row in range(grid.rows + 1)
        ]
    )
    values = np.array(list(seen.rows()))
    # The frames have different horizons: cells below the earth's horizon are not part of the sky.
    middles = (corners[1:, 1:] + corners[:-1, :-1]) / 2
    in_sky = np.hypot(middles[..., 0], middles[..., 1]) <= _HORIZON_DEG
    reach_deg = float(np.abs(corners).max()) if grid.frame == Frame.TERMINAL else grid.max_theta_deg
    reach_deg = min(reach_deg, _HORIZON_DEG)
    ax.add_patch(Circle((0, 0), reach_deg, facecolor=_UNSEEN, edgecolor="none", zorder=0))
    mesh = ax.pcolormesh(
        corners[..., 0], corners[..., 1], np.ma.masked_array(values, (values < 0) | ~in_sky),
        cmap=_COLOURS, vmin=0, vmax=1, zorder=1, rasterized=True,
    )  # fmt: skip
    _add_compass(ax, reach_deg)
    bar = figure.colorbar(mesh, ax=ax, shrink=0.6, ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["0: nothing comes through", "0.5", "1: clear"], fontsize=pt(ax, 8.5))
    bar.outline.set_visible(False)
    note_figure(figure, _note(seen))
    return figure


def _add_compass(ax: Axes, reach_deg: float) -> None:
    """Draw rings of elevation and directions around a map that is centred on the zenith."""
    for theta_deg in range(_RING_STEP_DEG, round(reach_deg), _RING_STEP_DEG):
        ax.add_patch(Circle((0, 0), theta_deg, fill=False, edgecolor=LIGHT_GREY, linewidth=0.6))
        ax.annotate(f"{90 - theta_deg}{_DEGREE}", (0, theta_deg), xytext=(2, 1),
                    textcoords="offset points", fontsize=pt(ax, 7.5), color=GREY)  # fmt: skip
    ax.add_patch(Circle((0, 0), reach_deg, fill=False, edgecolor=GREY, linewidth=0.9))
    for place, name in enumerate(_COMPASS):
        azimuth = np.radians(place * 360 / len(_COMPASS))
        x, y = np.sin(azimuth), np.cos(azimuth)
        ax.plot([0, reach_deg * x], [0, reach_deg * y], color=LIGHT_GREY, linewidth=0.5)
        ax.annotate(name, (x * reach_deg * 1.055, y * reach_deg * 1.055), ha="center", va="center",
                    fontsize=pt(ax, 9))  # fmt: skip
    ax.set_xlim(-reach_deg * _ROOM, reach_deg * _ROOM)
    ax.set_ylim(-reach_deg * _ROOM, reach_deg * _ROOM)
    ax.set_aspect("equal")
    ax.set_axis_off()


def _note(seen: ObstructionMap) -> str:
    pointing = seen.grid.pointing
    frame = (
        ""
        if seen.grid.frame == Frame.EARTH
        else f"; turned from the terminal's frame: boresight at azimuth {pointing.azimuth_deg:.1f}"
        f"{_DEGREE}, tilt {pointing.tilt_deg:.1f}{_DEGREE}"
    )
    return f"rings: elevation; grey: never seen{frame}"
