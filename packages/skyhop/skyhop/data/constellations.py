"""Constellations: their satellites, and the satellites' positions at a given time."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from skyhop import _core, views
from skyhop.data.scenarios import load_scenario

if TYPE_CHECKING:
    import polars as pl

Frame = Literal["earth-fixed", "inertial"]


class Constellation:
    """Satellites of a constellation that a path can use.

    Attributes:
        name: the constellation's name.
        epoch: default start of a path over the constellation (UTC).
        minimum_elevation_deg: lowest elevation above a site's horizon at which it uses a satellite.
        account: one line with the numbers of used and unused records in a file of element sets;
            None for a constellation that is not read from a file.
    """

    def __init__(self, core: _core.Constellation) -> None:
        self._core = core
        self.name = core.name
        self.epoch = core.epoch
        self.minimum_elevation_deg = core.minimum_elevation_deg
        self.account = core.account

    @cached_property
    def satellites(self) -> pl.DataFrame:
        """Satellites, one row each: `id` (node id in paths), `name`, `shell`, `plane`, `slot`, ….

        Shells, planes and slots of element sets are recovered from the orbits; they are null for
        satellites that are moving to another orbit.
        """
        # Polars takes a tenth of a second to load.
        import polars as pl

        kinds = {
            "id": pl.Int32,
            "name": pl.String,
            "catalogue_number": pl.Int64,
            "shell": pl.Int32,
            "plane": pl.Int32,
            "slot": pl.Int32,
        }
        return pl.DataFrame(self._core.satellites(), kinds, orient="row")

    @cached_property
    def element_epochs_ns(self) -> list[int]:
        """Epochs of the element sets by satellite id, in ns since 1970; empty for a pattern."""
        return self._core.element_epochs_ns()

    @cached_property
    def skipped(self) -> pl.DataFrame:
        """Unused records of a file of element sets, one row each: `name`, `kind`, `reason`."""
        import polars as pl

        kinds = dict.fromkeys(("name", "kind", "reason"), pl.String)
        return pl.DataFrame(self._core.skipped(), kinds, orient="row")

    def positions(self, time: str, frame: Frame = "earth-fixed") -> npt.NDArray[np.float64]:
        """Return the satellites' positions in metres: an array of shape (satellites, 3).

        Args:
            time: time in UTC, such as "2026-05-19T12:00:00Z".
            frame: "earth-fixed" (WGS84), or "inertial": true equator and mean equinox of date
                (TEME), the frame of SGP4.

        The position of a satellite whose elements are not valid at that time is NaN.

        Raises:
            InputError: `time` cannot be read.
        """
        content = self._core.positions(time, frame == "inertial")
        return np.frombuffer(content, "<f8").astype(np.float64).reshape(-1, 3)

    def _repr_html_(self) -> str:
        return views.html(self)

    def __repr__(self) -> str:
        return f"<skyhop.Constellation {self.name}, {self.satellites.height} satellites>"


def constellation(name: str, **keys: str) -> Constellation:
    """Return a constellation, shipped with skyhop or read from a file or URL of element sets.

    Args:
        name: value of `[path] constellation`; see `skyhop list constellations`.
        keys: other keys of `[path]` that determine the usable satellites: satellites, start,
            stale_after, minimum_elevation.

    Raises:
        InputError: the name, a key or the file is wrong.
    """
    path = {"from": "0,0", "to": "0,0", "constellation": name, **keys}
    scenario = load_scenario({"path": path}, origin="the constellation")
    return Constellation(_core.Constellation.of(scenario))
