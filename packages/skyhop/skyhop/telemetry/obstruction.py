"""Obstruction maps of terminals, and the directions of their pixels.

A map is an azimuthal equidistant projection of the sky. In the earth's frame, the middle is the
zenith, north is at the top and east on the right. In the terminal's frame, the middle is the
direction of the boresight, and the zenith is above the middle, at a distance equal to the tilt.
Shifting and rotating such a map so that its middle is in the boresight's direction gives the
earth's frame (as in LEOViz). 123 rows of 123 pixels up to 80 degrees from the middle have 80/62
degrees per pixel.

Positions are offsets from the zenith in degrees, to the east and to the north.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

SIDE = 123
"""Number of rows and columns in maps of current terminals."""
MAX_THETA_DEG = 80.0
MIN_ELEVATION_DEG = 10.0
_OBSTRUCTED_BELOW = 0.5
"""Largest value of an obstructed pixel (exclusive)."""


class Frame(StrEnum):
    """Frame of reference of a map."""

    EARTH = "earth"
    TERMINAL = "terminal"


@dataclass(frozen=True)
class Pointing:
    """Direction of a terminal's boresight in degrees: azimuth clockwise from north, and tilt.

    The tilt is the angle from the zenith.
    """

    azimuth_deg: float = 0.0
    tilt_deg: float = 0.0


def direction_deg(right_deg: float, up_deg: float) -> tuple[float, float]:
    """Return the azimuth (0 to 360) and elevation in degrees at an offset from the zenith."""
    return math.degrees(math.atan2(right_deg, up_deg)) % 360, 90 - math.hypot(right_deg, up_deg)


def point_deg(azimuth_deg: float, elevation_deg: float) -> tuple[float, float]:
    """Return the offset from the zenith, to the east and to the north, of a direction."""
    theta_deg, azimuth = 90 - elevation_deg, math.radians(azimuth_deg)
    return theta_deg * math.sin(azimuth), theta_deg * math.cos(azimuth)


@dataclass(frozen=True)
class Grid:
    """Pixels of a map, in rows from the top, and their directions."""

    rows: int = SIDE
    columns: int = SIDE
    max_theta_deg: float = MAX_THETA_DEG
    frame: Frame = Frame.EARTH
    pointing: Pointing = Pointing()

    @property
    def step_deg(self) -> float:
        """Angle between neighbouring pixels, in degrees."""
        return self.max_theta_deg / ((self.columns + 1) / 2)

    def offset_deg(self, row: float, column: float) -> tuple[float, float]:
        """Return the offset of a point of the map from the zenith, for `direction_deg`.

        Whole numbers of `row` and `column` are the centres of pixels.
        """
        right = (column - (self.columns - 1) / 2) * self.step_deg
        up = ((self.rows - 1) / 2 - row) * self.step_deg
        return (right, up) if self.frame == Frame.EARTH else self._to_earth(right, up)

    def pixel(self, azimuth_deg: float, elevation_deg: float) -> tuple[int, int] | None:
        """Return row and column of the pixel in a direction; None outside the map."""
        right, up = point_deg(azimuth_deg, elevation_deg)
        if self.frame == Frame.TERMINAL:
            right, up = self._to_terminal(right, up)
        column = round(right / self.step_deg + (self.columns - 1) / 2)
        row = round((self.rows - 1) / 2 - up / self.step_deg)
        inside = 0 <= row < self.rows and 0 <= column < self.columns
        return (row, column) if inside else None

    def _to_earth(self, right: float, up: float) -> tuple[float, float]:
        """Convert a point of the terminal's frame to an offset in the earth's frame."""
        up -= self.pointing.tilt_deg
        turn = math.radians(self.pointing.azimuth_deg + 180)
        return (
            right * math.cos(turn) + up * math.sin(turn),
            up * math.cos(turn) - right * math.sin(turn),
        )

    def _to_terminal(self, right: float, up: float) -> tuple[float, float]:
        turn = math.radians(self.pointing.azimuth_deg + 180)
        return (
            right * math.cos(turn) - up * math.sin(turn),
            up * math.cos(turn) + right * math.sin(turn) + self.pointing.tilt_deg,
        )


@dataclass(frozen=True)
class ObstructionMap:
    """Obstruction map of a terminal: the sky as the terminal has observed it."""

    grid: Grid
    snr: Sequence[float]
    """Pixels row by row from the top: 0 (obstructed) to 1 (clear), -1 if never observed."""
    min_elevation_deg: float

    @property
    def seen(self) -> int:
        """Number of pixels that were ever observed."""
        return sum(value >= 0 for value in self.snr)

    @property
    def obstructed(self) -> int:
        """Number of observed pixels with a value below one half."""
        return sum(0 <= value < _OBSTRUCTED_BELOW for value in self.snr)

    def rows(self) -> Iterator[Sequence[float]]:
        """Yield the rows of pixels, from the top."""
        for begin in range(0, len(self.snr), self.grid.columns):
            yield self.snr[begin : begin + self.grid.columns]
