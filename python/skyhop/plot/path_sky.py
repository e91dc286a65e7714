"""The figure of the sky over one end of a path at one moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes

from skyhop.geometry import FloatArray, seen_from
from skyhop.moment import TRACK_S, Moment
from skyhop.plot.style import FIGURE_STYLE, GREY, LIGHT_GREY, side_legend
from skyhop.plot.writing import save

_BELOW, _USABLE, _CHOSEN = "#C9C9C9", "#56B4E9", "#0072B2"

_NAMES_AT_MOST = 40
"""With more usable satellites than this only the chosen one is named."""


def sky_figure(
    moment: Moment,
    place: str,
    place_deg: tuple[float, float],
    serving: int | None,
    output: Path | str | None = None,
) -> Figure:
    """Draw what stands above a place: the zenith in the middle, the horizon around, north on top.

    Args:
        moment: the path at the moment.
        place: the name of the place.
        place_deg: its latitude and longitude.
        serving: the satellite that serves it, if one does.
        output: a PNG file to write the figure to, where one is wanted.

    Raises:
        ReportError: `output` cannot be a PNG file.
        OSError: `output` cannot be written.
    """
    elevation_deg, azimuth_deg = seen_from(*place_deg, moment.satellites_m)
    usable = elevation_deg >= moment.minimum_elevation_deg
    figure, ax = _new_sky()
    figure.suptitle(_title(moment, place, serving, elevation_deg), x=0.01, ha="left", fontsize=11)
    low = (elevation_deg > 0) & ~usable
    usable_label = f"above {moment.minimum_elevation_deg:g}\N{DEGREE SIGN} ({usable.sum()})"
    groups = {
        f"too low ({low.sum()})": (low, _BELOW, 14),
        usable_label: (usable, _USABLE, 30),
    }
    for label, (which, colour, size) in groups.items():
        ax.scatter(np.radians(azimuth_deg[which]), 90 - elevation_deg[which], s=size, color=colour,
                   linewidths=0, zorder=3, label=label)  # fmt: skip
    around = np.linspace(0, 2 * np.pi, 181)
    ax.plot(around, np.full_like(around, 90 - moment.minimum_elevation_deg), color=GREY,
            linewidth=0.9, linestyle=(0, (4, 3)), label="minimum elevation")  # fmt: skip
    if serving is not None:
        _draw_track(ax, moment, place_deg, serving)
        ax.scatter([np.radians(azimuth_deg[serving])], [90 - elevation_deg[serving]], s=90,
                   color=_CHOSEN, edgecolors="white", linewidths=1.0, zorder=4,
                   label="serving")  # fmt: skip
    if usable.sum() <= _NAMES_AT_MOST:
        named = np.flatnonzero(usable).tolist()
    else:
        named = [] if serving is None else [serving]
    _name(ax, named, elevation_deg, azimuth_deg)
    side_legend(ax)
    if output is not None:
        save(figure, output)
    return figure


def _new_sky() -> tuple[Figure, PolarAxes]:
    with rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(8.6, 6.2), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot(projection="polar")
    assert isinstance(ax, PolarAxes), "what the projection says"
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    ax.set_rlim(0, 90)
    ax.set_rgrids([0, 30, 60, 90], ["90\N{DEGREE SIGN}", "60\N{DEGREE SIGN}",
                                    "30\N{DEGREE SIGN}", ""], angle=112, fontsize=8,
                  color=GREY)  # fmt: skip
    ax.set_thetagrids(range(0, 360, 45), ["N", "NE", "E", "SE", "S", "SW", "W", "NW"], fontsize=9)
    ax.grid(visible=True, color=LIGHT_GREY, linewidth=0.5)
    ax.spines["polar"].set_color(LIGHT_GREY)
    return figure, ax


def _draw_track(
    ax: PolarAxes, moment: Moment, place_deg: tuple[float, float], serving: int
) -> None:
    """Draw where the serving satellite comes from (thin) and goes to (thick)."""
    elevation_deg, azimuth_deg = seen_from(*place_deg, moment.tracks_m[serving])
    now = len(elevation_deg) // 2
    label = f"its track, \N{PLUS-MINUS SIGN}{TRACK_S // 60} min"
    for part, width in ((slice(None, now + 1), 0.7), (slice(now, None), 1.8)):
        shown = elevation_deg[part] > 0
        ax.plot(np.radians(azimuth_deg[part][shown]), 90 - elevation_deg[part][shown],
                color=_CHOSEN, linewidth=width, alpha=0.7, zorder=2.5, label=label)  # fmt: skip
        label = "_"


def _name(
    ax: PolarAxes, satellites: list[int], elevation_deg: FloatArray, azimuth_deg: FloatArray
) -> None:
    for satellite in satellites:
        ax.annotate(
            str(satellite),
            (np.radians(azimuth_deg[satellite]), 90 - elevation_deg[satellite]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color="#333333",
            zorder=5,
        )


def _title(moment: Moment, place: str, serving: int | None, elevation_deg: FloatArray) -> str:
    when = moment.utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    what = (
        "no path"
        if serving is None
        else f"served by {serving} at {elevation_deg[serving]:.0f}\N{DEGREE SIGN}"
    )
    return f"the sky over {place}   ({when}, {moment.at_s:g} s): {what}"
