"""What a shell offers for names: those that come with skyhop, and files in the directory.

Where nothing is offered, the shell offers files itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

_OURS = "skyhop:"


def examples(incomplete: str) -> list[str]:
    """Offer the examples, and the scenario files that are here."""
    from skyhop.data.shipped import shipped_files

    return _with_files(shipped_files("examples"), incomplete, ".toml")


def studies(incomplete: str) -> list[str]:
    """Offer the studies, and the study files that are here."""
    from skyhop.data.shipped import shipped_files

    return _with_files(shipped_files("studies"), incomplete, ".toml")


def constellations(incomplete: str) -> list[str]:
    """Offer the constellations that come with skyhop."""
    from skyhop import _core

    return _beginning((entry.name for entry in _core.list_constellations()), incomplete)


def applications(incomplete: str) -> list[str]:
    """Offer the applications of flows."""
    from skyhop import _core

    return _beginning((entry.name for entry in _core.list_apps()), incomplete)


def congestion_controls(incomplete: str) -> list[str]:
    """Offer the kernel's congestion controls."""
    from skyhop import _core

    names = (entry.name for entry in _core.list_cc())
    return _beginning((name for name in names if not name.startswith(_OURS)), incomplete)


def modules(incomplete: str) -> list[str]:
    """Offer our congestion controls."""
    from skyhop import _core

    names = (entry.name for entry in _core.list_cc())
    ours = (name.removeprefix(_OURS) for name in names if name.startswith(_OURS))
    return _beginning(ours, incomplete)


def handovers(incomplete: str) -> list[str]:
    """Offer the handover policies."""
    from skyhop import _core

    return _beginning((entry.name for entry in _core.list_handovers()), incomplete)


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Return what offers these words."""

    def offer(incomplete: str) -> list[str]:
        return _beginning(words, incomplete)

    return offer


def _with_files(names: Iterable[str], incomplete: str, suffix: str) -> list[str]:
    found = _beginning(names, incomplete)
    # A directory is gone into by the shell alone.
    here = [file.name for file in Path().glob(f"*{suffix}")] if found else []
    return [*found, *sorted(_beginning(here, incomplete))]


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return list(dict.fromkeys(word for word in words if word.startswith(incomplete)))
