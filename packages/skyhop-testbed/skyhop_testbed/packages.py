"""Places of skyhop's packages, for processes that a run or a service starts."""

from __future__ import annotations

from pathlib import Path

from skyhop import _core

_TESTBED = Path(__file__).parent
_SKYHOP = Path(_core.__file__).parent
_CHECKOUT = _SKYHOP.parents[2]
"""Directory of the checkout, if skyhop runs from one."""


def import_path() -> str:
    """Return the value of PYTHONPATH with which a process imports the same packages."""
    return ":".join(dict.fromkeys(str(package.parent) for package in (_SKYHOP, _TESTBED)))


def package_directories() -> list[str]:
    """Return the directories of the packages, and of a checkout's data."""
    data = [_CHECKOUT / name for name in ("data", "examples", "studies", "cc")]
    return [str(place) for place in (_SKYHOP, _TESTBED, *data)]
