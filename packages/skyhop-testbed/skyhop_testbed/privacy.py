"""Owner's traffic: what telemetry tells about it, and who may read it.

The terminal's throughput minus the traffic of runs is the owner's own traffic. Therefore the fields
below are for the node's owner and for administrators alone, unless the owner's policy says
`"share": ["traffic"]`. Other users see whether the scavenger is active, and no rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from skyhop.errors import InputError
from skyhop.telemetry.fields import FIELDS

Value = TypeVar("Value")

OWNERS_TRAFFIC = frozenset(
    {
        "user_rx_bps",
        "user_tx_bps",
        "host_rx_bps",
        "host_tx_bps",
        "downlink_throughput_bps",
        "uplink_throughput_bps",
        "predicted_throughput_bps",
    }
)
"""Fields that contain the owner's traffic. A predicted throughput is computed from past ones."""


class Share(StrEnum):
    """Kind of data that an owner's policy shares with all users."""

    TRAFFIC = "traffic"


def check_share(values: object) -> frozenset[Share]:
    """Return the policy's `share`.

    Raises:
        InputError: it is no list of known words.
    """
    words = [] if values is None else values
    if not isinstance(words, list | tuple) or not all(word in set(Share) for word in words):
        raise InputError(f"share: expected a list of these words: {', '.join(Share)}")
    return frozenset(Share(word) for word in words)


def shares_traffic(policy: Mapping[str, object]) -> bool:
    """Return whether a policy shares the owner's traffic with all users."""
    try:
        return Share.TRAFFIC in check_share(policy.get("share"))
    except InputError:
        return False


def without_owners_traffic(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return a sample or its columns without the fields that contain the owner's traffic."""
    return {name: value for name, value in values.items() if name not in OWNERS_TRAFFIC}


def readable_fields(node: str, asked: Sequence[str]) -> list[str]:
    """Return the fields that a caller gets who may not read the owner's traffic.

    Args:
        node: name of the node, for the message.
        asked: the fields that the caller names; empty for all.

    Raises:
        InputError: the caller names a field of the owner's traffic.
    """
    check_readable(node, asked)
    return list(asked) or [each.name for each in FIELDS if each.name not in OWNERS_TRAFFIC]


def check_readable(node: str, fields: Iterable[str]) -> None:
    """Check that no field contains the owner's traffic.

    Raises:
        InputError: a field contains it.
    """
    hidden = sorted(OWNERS_TRAFFIC.intersection(fields))
    if hidden:
        raise InputError(
            f"{hidden[0]}: tells the traffic of {node}'s owner, who does not share it: use "
            'another field, or ask the owner to set "share": ["traffic"] in the policy'
        )
