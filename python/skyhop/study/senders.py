"""Senders whose networks a study does not have: cards that the user gives, among the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skyhop import _core
from skyhop.errors import InputError
from skyhop.study.file import Axis, Setting, StudyFile


def with_policies(file: StudyFile, policies: Mapping[str, Path], origin: str) -> StudyFile:
    """Return a study in which cards are senders, too.

    An axis of senders is one whose points all set the same flows' `cc`; each card becomes a point
    of it, named as the study's claims name that policy.

    Args:
        file: the study.
        policies: what each is called, in whatever case, and its card.
        origin: what errors call the study.

    Raises:
        InputError: a card is not there, or the study has no such axis.
    """
    if not policies:
        return file
    named = {claim.policy.lower(): claim.policy for claim in file.claim if claim.policy}
    cards: dict[str, str] = {}
    for name, card in policies.items():
        cards[named.get(name.lower(), name)] = _found(name, card)
    axes = [_with(axis, cards, origin) for axis in file.axis]
    if axes == file.axis:
        raise InputError(
            f"{origin}: --policy: no axis of senders: expected one whose points set flow.N.cc"
        )
    return file.model_copy(update={"axis": axes})


def _found(name: str, card: Path) -> str:
    """Return what a flow's `cc` is where it has this card: a file, or one that skyhop brings."""
    if card.is_file():
        return str(card.resolve())
    if _core.policy_network(str(card)) is not None:
        return f"skyhop:{card}.toml"
    raise InputError(f"--policy {name}={card}: there is no such file")


def _with(axis: Axis, cards: Mapping[str, str], origin: str) -> Axis:
    keys = _senders(axis)
    if axis.points is None or not keys:
        return axis
    if there := sorted(axis.points.keys() & cards.keys()):
        raise InputError(f"{origin}: --policy {there[0]}: the study has a sender of that name")
    own: dict[str, dict[str, Setting]] = {
        name: dict.fromkeys(keys, card) for name, card in cards.items()
    }
    return axis.model_copy(update={"points": {**axis.points, **own}})


def _senders(axis: Axis) -> list[str]:
    """Return the keys of flows' congestion controls that every point sets."""
    points = list((axis.points or {}).values())
    keys = [key for key in (points[0] if points else ()) if key.endswith(".cc")]
    return [key for key in keys if all(key in point for point in points)]
