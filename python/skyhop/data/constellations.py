"""Constellations: which satellites there are, and where they are at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import skyhop
from skyhop import _core
from skyhop.data.scenarios import load_scenario

Frame = Literal["earth-fixed", "inertial"]

_SATELLITES = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("catalogue_number", pa.int64()),
        ("shell", pa.int32()),
        ("plane", pa.int32()),
        ("slot", pa.int32()),
    ]
)
_SKIPPED = pa.schema([("name", pa.string()), ("kind", pa.string()), ("reason", pa.string())])


class Constellation:
    """The satellites that a path would use.

    Attributes:
        name: the constellation's name.
        epoch: when a path begins that says nothing else (UTC).
        minimum_elevation_deg: the lowest elevation at which sites use the satellites.
        account: what became of the records of a file of element sets, in a line; None without one.
    """

    def __init__(self, core: _core.Constellation) -> None:
        self._core = core
        self.name = core.name
        self.epoch = core.epoch
        self.minimum_elevation_deg = core.minimum_elevation_deg
        self.account = core.account

    @cached_property
    def satellites(self) -> pa.Table:
        """One row per satellite: `id` (the node of paths), `name`, `shell`, `plane`, `slot`, ….

        Of element sets, shells, planes and slots are recovered from the orbits; null for satellites
        on their way to another orbit.
        """
        return _table(self._core.satellites(), _SATELLITES)

    @cached_property
    def element_epochs_ns(self) -> list[int]:
        """When each element set holds, in ns since 1970; of a file of element sets by id."""
        return self._core.element_epochs_ns()

    @cached_property
    def skipped(self) -> pa.Table:
        """One row per record that is not used: `name`, `kind`, `reason`."""
        return _table(self._core.skipped(), _SKIPPED)

    def positions(self, time: str, frame: Frame = "earth-fixed") -> npt.NDArray[np.float64]:
        """Return where the satellites are, in metres: an array of shape (satellites, 3).

        Args:
            time: a moment of UTC such as "2026-05-19T12:00:00Z".
            frame: "earth-fixed" (WGS84), or "inertial": true equator and mean equinox of date, in
                which SGP4 computes.

        Satellites whose elements do not hold at that time have not-a-number.

        Raises:
            InputError: `time` cannot be read.
        """
        content = self._core.positions(time, frame == "inertial")
        return np.frombuffer(content, "<f8").astype(np.float64).reshape(-1, 3)

    def _repr_html_(self) -> str:
        return skyhop.report.constellation_html(self)

    def __repr__(self) -> str:
        return f"<skyhop.Constellation {self.name}, {self.satellites.num_rows} satellites>"


def constellation(name: str, **keys: str) -> Constellation:
    """Return a constellation: one that comes with skyhop, or a file or address of element sets.

    Args:
        name: as in `[path] constellation`: see `skyhop list constellations`.
        keys: other keys of `[path]` that choose satellites: satellites, start, stale_after,
            minimum_elevation.

    Raises:
        InputError: the name, a key or the file is wrong.
    """
    path = {"from": "0,0", "to": "0,0", "constellation": name, **keys}
    scenario = load_scenario({"path": path}, origin="the constellation")
    return Constellation(_core.Constellation.of(scenario))


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    return pa.table(columns, schema=schema)
