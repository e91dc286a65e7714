"""Learned senders that the user adds to a study, each given by its policy card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skyhop import _core
from skyhop.errors import InputError
from skyhop.study.file import Axis, StudyFile
from skyhop.study.keys import Setting


def with_policies(file: StudyFile, policies: Mapping[str, Path], origin: str) -> StudyFile:
    """Return the study with a further sender for each given card.

    An axis of senders is an axis whose points all set the `cc` of the same flows. Each card becomes
    a point of this axis, with the name that the study's claims use for that policy.

    Args:
        file: the study without these senders.
        policies: name, in upper or lower case, and card of each sender.
        origin: name of the study in error messages.

    Raises:
        InputError: a card does not exist, or the study has no axis of senders.
    """
    if not policies:
        return file
    named = {claim.policy.lower(): claim.policy for claim in file.claim if claim.policy}
    cards: dict[str, str] = {}
    for name, card in policies.items():
        cards[named.get(name.lower(), name)] = _cc_value(name, card)
    axes = [_axis_with(axis, cards, origin) for axis in file.axis]
    if axes == file.axis:
        raise InputError(
            f"{origin}: --policy: no axis of senders: expected one whose points set flow.N.cc"
        )
    return file.model_copy(update={"axis": axes})


def _cc_value(name: str, card: Path) -> str:
    """Return the value of a flow's `cc` for a card: absolute path, or name of a shipped card."""
    if card.is_file():
        return str(card.resolve())
    if _core.policy_network(str(card)) is not None:
        return f"skyhop:{card}.toml"
    raise InputError(f"--policy {name}={card}: there is no such file")


def _axis_with(axis: Axis, cards: Mapping[str, str], origin: str) -> Axis:
    keys = _cc_keys(axis)
    if axis.points is None or not keys:
        return axis
    if taken := sorted(axis.points.keys() & cards.keys()):
        raise InputError(f"{origin}: --policy {taken[0]}: the study has a sender of that name")
    own: dict[str, dict[str, Setting]] = {
        name: dict.fromkeys(keys, card) for name, card in cards.items()
    }
    return axis.model_copy(update={"points": {**axis.points, **own}})


def _cc_keys(axis: Axis) -> list[str]:
    """Return the keys of congestion controls (`flow.N.cc`) that every point of an axis sets."""
    points = list((axis.points or {}).values())
    keys = [key for key in (points[0] if points else ()) if key.endswith(".cc")]
    return [key for key in keys if all(key in point for point in points)]
