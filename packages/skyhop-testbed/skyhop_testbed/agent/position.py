"""Position of a node, rounded to the precision that its owner allows."""

from __future__ import annotations

from dataclasses import dataclass

from skyhop.errors import RunError
from skyhop_testbed.agent.settings import DISH

_ALTITUDE_STEP_M = 100.0
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Position:
    """Geodetic position: degrees, east positive, and metres above the ellipsoid."""

    latitude_deg: float
    longitude_deg: float
    altitude_m: float

    @property
    def text(self) -> str:
        """Text `LATITUDE,LONGITUDE,ALTITUDE`, the form in which command lines accept positions."""
        return f"{self.latitude_deg:.6f},{self.longitude_deg:.6f},{self.altitude_m:.1f}"


def position(place: str, dish: str | None, precision_deg: float) -> Position:
    """Return a node's position, rounded.

    Args:
        place: the owner's setting: coordinates, the name of a place, or `DISH`.
        dish: the terminal's address.
        precision_deg: step to which the position is rounded; 0 keeps it exact.

    Raises:
        InputError: no place has that name.
        RunError: the terminal does not report its position.
    """
    if place == DISH:
        return rounded(_of_dish(dish or ""), precision_deg)
    from skyhop.data.places import find_place

    found = find_place(place)
    exact = Position(found.latitude_deg, found.longitude_deg, found.altitude_m)
    return rounded(exact, precision_deg)


def rounded(exact: Position, precision_deg: float) -> Position:
    """Return a position rounded to multiples of `precision_deg`, and its altitude to 100 m.

    >>> rounded(Position(41.3874, 2.1686, 12.0), 0.1)
    Position(latitude_deg=41.4, longitude_deg=2.2, altitude_m=0.0)
    """
    if not precision_deg:
        return exact
    latitude_deg, longitude_deg = (
        round(round(value / precision_deg) * precision_deg, 6)
        for value in (exact.latitude_deg, exact.longitude_deg)
    )
    altitude_m = round(exact.altitude_m / _ALTITUDE_STEP_M) * _ALTITUDE_STEP_M
    return Position(max(-90.0, min(90.0, latitude_deg)), longitude_deg, altitude_m)


def _of_dish(address: str) -> Position:
    from skyhop_testbed.dish.client import Dish

    with Dish(address, _TIMEOUT_S) as dish:
        said = dish.location()
    if said is None:
        raise RunError(
            f"{address}: the terminal does not report its position: its owner has to allow that, "
            "or to set `place` in the agent's settings"
        )
    return Position(said.latitude_deg, said.longitude_deg, said.altitude_m)
