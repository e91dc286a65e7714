"""Boresight direction of an emulated terminal: a slow swing with rare excursions, as measured.

T3P's terminal in Barcelona was at azimuths of 0.2 to 1.8 and elevations of 64.5 to 65.4 degrees for
90 % of the time, and moved by 0.0001 degrees per second (median) on both axes. The emulated
direction is a function of the second and the seed, so it can be computed for any second.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from skyhop.telemetry.obstruction import Pointing

_AZIMUTH_DEG, _ELEVATION_DEG = 1.0, 64.95
_SWING_DEG = (0.55, 0.3)
"""Amplitudes in degrees of the swing of azimuth and elevation."""
_PERIODS_S = (21_600.0, 11_700.0)
_BLOCK_S = 900
"""Length in s of a block of time; a block has at most one excursion."""
_EXCURSION_SHARE = 0.15
_EXCURSION_S = (20, 180)
_EXCURSION_DEG = 3.0
_UPRIGHT_DEG = 90.0


@dataclass(frozen=True)
class Boresight:
    """Direction of a terminal over time, determined by a seed."""

    seed: int

    def at(self, second: int) -> Pointing:
        """Return the direction in a second, counted from the start."""
        azimuth_deg, elevation_deg = (
            middle + swing * self._swing(axis, second)
            for axis, (middle, swing) in enumerate(
                zip((_AZIMUTH_DEG, _ELEVATION_DEG), _SWING_DEG, strict=True)
            )
        )
        away = self._excursion(second)
        return Pointing(azimuth_deg + away[0], _UPRIGHT_DEG - elevation_deg - away[1])

    def _swing(self, axis: int, second: int) -> float:
        draw = random.Random(f"{self.seed} swing {axis}")
        turns = [second / period + draw.random() for period in _PERIODS_S]
        return sum(math.sin(2 * math.pi * turn) for turn in turns) / len(turns)

    def _excursion(self, second: int) -> tuple[float, float]:
        """Return the offset of an excursion in azimuth and elevation (degrees); 0 without one."""
        block, within = divmod(second, _BLOCK_S)
        draw = random.Random(f"{self.seed} excursion {block}")
        if draw.random() >= _EXCURSION_SHARE:
            return 0.0, 0.0
        length = draw.randint(*_EXCURSION_S)
        begin = draw.randint(0, _BLOCK_S - length)
        away = (draw.gauss(0, _EXCURSION_DEG), draw.gauss(0, _EXCURSION_DEG))
        return away if begin <= within < begin + length else (0.0, 0.0)
