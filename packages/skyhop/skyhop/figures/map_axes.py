"""Axes of maps: land, latitudes and longitudes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from skyhop.analysis.timeline import LIGHT_GREY
from skyhop.data.arrays import FloatArray
from skyhop.figures.style import label_x, pt

_LAND, _COAST, _COAST_ABOVE = "#EFEBE3", "#C9C1B2", "#333333"


def map_aspect(latitudes_deg: tuple[float, float]) -> float:
    """Return the height of a degree of latitude over the width of one of longitude.

    The scale of longitudes is correct in the middle of the map.
    """
    return 1 / float(np.cos(np.radians(sum(latitudes_deg) / 2)))


def draw_land(ax: Axes, land_deg: Sequence[FloatArray], *, outline: bool = False) -> None:
    """Fill the land as a single shape, so that lakes are holes in it, and draw a light grid.

    With `outline`, only its coasts are drawn, above what is on the map already.
    """
    ax.grid(visible=True, color=LIGHT_GREY, linewidth=0.3)
    if not land_deg:
        return
    rings = [Path(np.vstack((ring, ring[:1]))[:, ::-1], closed=True) for ring in land_deg]
    face, edge = ("none", _COAST_ABOVE) if outline else (_LAND, _COAST)
    ax.add_patch(PathPatch(Path.make_compound_path(*rings), facecolor=face, edgecolor=edge,
                           linewidth=0.4, zorder=0.5, gid="land"))  # fmt: skip


def frame_map(
    ax: Axes, latitudes_deg: tuple[float, float], longitudes_deg: tuple[float, float]
) -> None:
    """Set the ranges of a map's axes, and label them; longitudes are written from -180 to 180."""
    ax.set_xlim(*longitudes_deg)
    ax.set_ylim(*latitudes_deg)
    ax.set_aspect(map_aspect(latitudes_deg))
    label_x(ax, "longitude (\N{DEGREE SIGN}, east positive)")
    ax.set_ylabel("latitude (\N{DEGREE SIGN})", fontsize=pt(ax, 9))
    ax.xaxis.set_major_formatter(lambda value, _: f"{(value + 180) % 360 - 180:g}")
