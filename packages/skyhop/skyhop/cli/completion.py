"""Shell completion of names that come with skyhop, and of files in the current directory.

If a function returns an empty list, the shell completes file names itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

_OURS = "skyhop:"

RELAYS = ("isl", "bent-pipe", "access", "starlink", "geo")
"""Relays of computed paths."""


def examples(incomplete: str) -> list[str]:
    """Complete examples, and scenario files in the current directory."""
    from skyhop.data.shipped import shipped_files

    return _with_files(shipped_files("examples"), incomplete, ".toml")


def studies(incomplete: str) -> list[str]:
    """Complete studies, and study files in the current directory."""
    from skyhop.data.shipped import shipped_files

    return _with_files(shipped_files("studies"), incomplete, ".toml")


def constellations(incomplete: str) -> list[str]:
    """Complete constellations that come with skyhop."""
    from skyhop import _core

    return _beginning((entry.name for entry in _core.list_constellations()), incomplete)


def access_profiles(incomplete: str) -> list[str]:
    """Complete access profiles that come with skyhop, and files in the current directory."""
    from skyhop import _core

    return _with_files([entry.name for entry in _core.list_access()], incomplete, ".toml")


def applications(incomplete: str) -> list[str]:
    """Complete the names of flows' applications."""
    from skyhop import _core

    return _beginning((entry.name for entry in _core.list_apps()), incomplete)


def congestion_controls(incomplete: str) -> list[str]:
    """Complete congestion controls of the kernel."""
    from skyhop import _core

    names = (entry.name for entry in _core.list_cc())
    return _beginning((name for name in names if not name.startswith(_OURS)), incomplete)


def modules(incomplete: str) -> list[str]:
    """Complete skyhop's own congestion controls."""
    from skyhop import _core

    names = (entry.name for entry in _core.list_cc())
    ours = (name.removeprefix(_OURS) for name in names if name.startswith(_OURS))
    return _beginning(ours, incomplete)


def handovers(incomplete: str) -> list[str]:
    """Complete the names of handover policies."""
    from skyhop import _core

    return _beginning((entry.name for entry in _core.list_handovers()), incomplete)


def pages(incomplete: str) -> list[str]:
    """Complete pages of the documentation, if it is built."""
    from skyhop.data.shipped import page_names, site_directory
    from skyhop.errors import InputError

    try:
        return _beginning(page_names(site_directory()), incomplete)
    except InputError:
        return []


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Return a completion function for a fixed set of words."""

    def offer(incomplete: str) -> list[str]:
        return _beginning(words, incomplete)

    return offer


def _with_files(names: Iterable[str], incomplete: str, suffix: str) -> list[str]:
    found = _beginning(names, incomplete)
    # Only the shell can complete paths through directories: if no name matches, return no files.
    here = [file.name for file in Path().glob(f"*{suffix}")] if found else []
    return [*found, *sorted(_beginning(here, incomplete))]


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return list(dict.fromkeys(word for word in words if word.startswith(incomplete)))
