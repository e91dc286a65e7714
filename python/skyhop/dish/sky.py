"""Where in the sky the pixels of an obstruction map are.

The map is the sky projected with equal steps of angle from its middle. In the earth's frame the
middle is the zenith, north is on top and east on the right. In the terminal's frame the middle is
where its boresight points, and the zenith lies above it, by the tilt; turned so that the middle
comes to the boresight's azimuth it is the earth's again (LEOViz reads it so). 123 rows of 123 up
to 80 degrees make 80/62 degrees a pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

SIDE = 123
"""Rows and columns of the maps of terminals that are sold."""
MAX_THETA_DEG = 80.0
MIN_ELEVATION_DEG = 10.0


class Frame(StrEnum):
    """What a map is drawn in."""

    EARTH = "earth"
    TERMINAL = "terminal"


@dataclass(frozen=True)
class Pointing:
    """Where a terminal points, in degrees: azimuth from north over east, tilt from the zenith."""

    azimuth_deg: float = 0.0
    tilt_deg: float = 0.0


def direction_deg(right_deg: float, up_deg: float) -> tuple[float, float]:
    """Return azimuth (0 to 360) and elevation of a point beside the zenith, in degrees."""
    return math.degrees(math.atan2(right_deg, up_deg)) % 360, 90 - math.hypot(right_deg, up_deg)


def point_deg(azimuth_deg: float, elevation_deg: float) -> tuple[float, float]:
    """Return how far east and how far north of the zenith a direction is, in degrees."""
    theta_deg, azimuth = 90 - elevation_deg, math.radians(azimuth_deg)
    return theta_deg * math.sin(azimuth), theta_deg * math.cos(azimuth)


@dataclass(frozen=True)
class Grid:
    """A map's pixels, in rows from the top, and where they are."""

    rows: int = SIDE
    columns: int = SIDE
    max_theta_deg: float = MAX_THETA_DEG
    frame: Frame = Frame.EARTH
    pointing: Pointing = Pointing()

    @property
    def step_deg(self) -> float:
        """What a pixel covers."""
        return self.max_theta_deg / ((self.columns + 1) / 2)

    def of_corner(self, row: float, column: float) -> tuple[float, float]:
        """Return a place of the map, whole numbers being pixels' middles, beside the zenith.

        Degrees east and north, as `direction_deg` takes them.
        """
        right = (column - (self.columns - 1) / 2) * self.step_deg
        up = ((self.rows - 1) / 2 - row) * self.step_deg
        return (right, up) if self.frame == Frame.EARTH else self._turned(right, up)

    def pixel(self, azimuth_deg: float, elevation_deg: float) -> tuple[int, int] | None:
        """Return the row and column that a direction falls into; None outside the map."""
        right, up = point_deg(azimuth_deg, elevation_deg)
        if self.frame == Frame.TERMINAL:
            right, up = self._turned_back(right, up)
        column = round(right / self.step_deg + (self.columns - 1) / 2)
        row = round((self.rows - 1) / 2 - up / self.step_deg)
        inside = 0 <= row < self.rows and 0 <= column < self.columns
        return (row, column) if inside else None

    def _turned(self, right: float, up: float) -> tuple[float, float]:
        """Return the place of the earth's frame; the middle comes to the boresight's azimuth."""
        up -= self.pointing.tilt_deg
        turn = math.radians(self.pointing.azimuth_deg + 180)
        return (
            right * math.cos(turn) + up * math.sin(turn),
            up * math.cos(turn) - right * math.sin(turn),
        )

    def _turned_back(self, right: float, up: float) -> tuple[float, float]:
        turn = math.radians(self.pointing.azimuth_deg + 180)
        return (
            right * math.cos(turn) - up * math.sin(turn),
            up * math.cos(turn) + right * math.sin(turn) + self.pointing.tilt_deg,
        )
