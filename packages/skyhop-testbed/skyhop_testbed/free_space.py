"""Floor of free space on a disk: below it, what would fill the disk is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Space(NamedTuple):
    """Size and free space of a disk, in bytes."""

    total: int
    free: int


SpaceOf = Callable[[Path], Space]
"""Function that returns the space of the disk with a path; tests pass their own."""


def space_of(path: Path) -> Space:
    """Return the space of the disk with a path.

    Raises:
        OSError: the path does not exist.
    """
    usage = shutil.disk_usage(path)
    return Space(usage.total, usage.free)


def floor_bytes(space: Space, least_bytes: float, least_percent: float = 0.0) -> int:
    """Return the floor of a disk: a number of bytes or a share of its size, the larger of both."""
    return round(max(least_bytes, space.total * least_percent / 100))


def shortage(space: Space, floor: int, where: str, needed: int = 0) -> str | None:
    """Return, as one line, how far free space is below its floor; None if it is not.

    Args:
        space: the disk's space.
        floor: the floor in bytes.
        where: name of the disk in the line.
        needed: bytes that are about to be written.
    """
    if space.free - needed >= floor:
        return None
    more = f" after {needed:,} more" if needed else ""
    return (
        f"{where} has {space.free:,} bytes free, less than its floor of {floor:,}{more}: "
        "it takes nothing new until there is room"
    )
