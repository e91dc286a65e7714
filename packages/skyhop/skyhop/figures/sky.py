"""Sky plot: satellites above one end of a path at one moment."""

from __future__ import annotations

import numpy as np
from matplotlib import rc_context
from matplotlib.projections.polar import PolarAxes

from skyhop.analysis.sky import SkyView
from skyhop.analysis.timeline import GREY, LIGHT_GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import FIGURE_STYLE, Sheet, add_legend, pt, title_figure

_BELOW, _USABLE, _CHOSEN = "#C9C9C9", "#56B4E9", "#0072B2"


def draw_sky(view: SkyView, width: FigureWidth = "page") -> Sheet:
    """Draw the satellites above a place: zenith in the middle, horizon at the rim, north on top."""
    figure, ax = _new_sky(width)
    title_figure(figure, view.title)
    groups = (
        (view.low_label, view.low, _BELOW, 14),
        (view.usable_label, view.usable, _USABLE, 30),
    )
    azimuth, height = np.radians(view.azimuth_deg), 90 - view.elevation_deg
    for label, which, colour, size in groups:
        ax.scatter(azimuth[which], height[which], s=pt(ax, size), color=colour, linewidths=0,
                   zorder=3, label=label)  # fmt: skip
    around = np.linspace(0, 2 * np.pi, 181)
    ax.plot(around, np.full_like(around, 90 - view.minimum_elevation_deg), color=GREY,
            linewidth=0.9, linestyle=(0, (4, 3)), label="minimum elevation")  # fmt: skip
    if view.serving is not None:
        _draw_track(ax, view)
        ax.scatter([azimuth[view.serving]], [height[view.serving]], s=pt(ax, 90), color=_CHOSEN,
                   edgecolors="white", linewidths=1.0, zorder=4, label="serving")  # fmt: skip
    for satellite, name in view.named.items():
        at = (azimuth[satellite], height[satellite])
        ax.annotate(name, at, xytext=(0, 6), textcoords="offset points", ha="center",
                    fontsize=pt(ax, 7.5), color="#333333", zorder=5)  # fmt: skip
    add_legend(ax)
    return figure


def _new_sky(width: FigureWidth) -> tuple[Sheet, PolarAxes]:
    with rc_context(FIGURE_STYLE):
        figure = Sheet(6.2, width, share=0.78)
        ax = figure.add_subplot(projection="polar")
    assert isinstance(ax, PolarAxes), "what the projection says"
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    ax.set_rlim(0, 90)
    ax.set_rgrids([0, 30, 60, 90], ["90\N{DEGREE SIGN}", "60\N{DEGREE SIGN}",
                                    "30\N{DEGREE SIGN}", ""], angle=112, fontsize=pt(ax, 8),
                  color=GREY)  # fmt: skip
    ax.set_thetagrids(range(0, 360, 45), ["N", "NE", "E", "SE", "S", "SW", "W", "NW"],
                     fontsize=pt(ax, 9))  # fmt: skip
    ax.grid(visible=True, color=LIGHT_GREY, linewidth=0.5)
    ax.spines["polar"].set_color(LIGHT_GREY)
    return figure, ax


def _draw_track(ax: PolarAxes, view: SkyView) -> None:
    """Draw the track of the serving satellite: thin before the moment, thick after it."""
    label = view.track_label
    for (elevation_deg, azimuth_deg), width in zip(view.track_deg, (0.7, 1.8), strict=True):
        ax.plot(np.radians(azimuth_deg), 90 - elevation_deg, color=_CHOSEN, linewidth=width,
                alpha=0.7, zorder=2.5, label=label)  # fmt: skip
        label = "_"
