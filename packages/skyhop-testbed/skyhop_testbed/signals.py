"""Signals that a run may read on its socket: kinds, telemetry fields, and what no run is given.

A job asks for signals by name (`[run] signals`), and a node's owner permits them by name (the
policy's `signals`). A name is a kind (`telemetry`, `prediction`, `handover`, `trigger`) or a field
of telemetry; `telemetry` stands for all fields that a run may be given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from skyhop.data.near_names import did_you_mean
from skyhop.telemetry.fields import BY_NAME, FIELDS, Origin
from skyhop_testbed.privacy import OWNERS_TRAFFIC

DIRECTORY = "/run/skyhop-signal"
"""Mount point of the socket's directory inside a run."""
SOCKET = "signal.sock"
"""Name of the socket in its directory."""
VARIABLE = "SKYHOP_SIGNAL"
"""Environment variable with the socket's path."""
USUAL_PATH = "/run/skyhop-signal.sock"
"""Path at which `skyhop signal serve` creates its socket if root runs it."""
MOST_CONDITIONS = 8
"""Upper limit on the conditions of one run."""

PREDICTED_FIELDS = tuple(field.name for field in FIELDS if field.origin is Origin.MODEL)
OWNERS_FIELDS = OWNERS_TRAFFIC - {*PREDICTED_FIELDS}
"""Fields that contain the traffic of the node's owner, alone or together with that of runs. A
predicted throughput, to which programs adapt, is a signal of its own (`prediction`)."""
POSITION_FIELDS = frozenset({"sat_dist_min", "sat_dist_mean", "sat_dist_max", "serving_elevation"})
"""Fields that reveal an exact position, unless it is rounded before they are computed."""
FIELDS_OF_RUNS = tuple(
    field.name
    for field in FIELDS
    if field.name not in OWNERS_FIELDS and field.origin is not Origin.MODEL
)
"""Fields of telemetry that a run may be given, in the order of tables."""


class Kind(StrEnum):
    """Kind of a signal, which is also the type of its lines."""

    TELEMETRY = "telemetry"
    PREDICTION = "prediction"
    HANDOVER = "handover"
    TRIGGER = "trigger"


ALL = tuple(kind.value for kind in Kind)


@dataclass(frozen=True)
class Signals:
    """Set of signals: kinds other than `telemetry`, and fields of telemetry."""

    kinds: frozenset[Kind] = frozenset()
    fields: tuple[str, ...] = ()

    @classmethod
    def named(cls, names: Collection[str]) -> Signals:
        """Return the signals with these names.

        Raises:
            ValueError: a name is unknown, or no run is given that field.
        """
        for name in names:
            _check(name)
        whole = Kind.TELEMETRY.value in names
        fields = tuple(name for name in FIELDS_OF_RUNS if whole or name in names)
        kinds = frozenset(kind for kind in Kind if kind in names and kind is not Kind.TELEMETRY)
        return cls(kinds, fields)

    def both(self, other: Signals, hidden: Collection[str] = ()) -> Signals:
        """Return the signals that are in both sets, without the fields in `hidden`."""
        fields = (name for name in self.fields if name in other.fields and name not in hidden)
        return Signals(self.kinds & other.kinds, tuple(fields))


def first_forbidden(names: Iterable[str], allowed: Signals) -> str | None:
    """Return the first name of a job's list that is not allowed; `None` if all are.

    `telemetry` is allowed if any field is.
    """
    for name in names:
        if name == Kind.TELEMETRY:
            if not allowed.fields:
                return name
        elif name not in allowed.kinds and name not in allowed.fields:
            return name
    return None


def _check(name: str) -> None:
    if name in ALL or name in FIELDS_OF_RUNS:
        return
    if name in OWNERS_FIELDS:
        raise ValueError(f"signals: {name} contains the owner's own traffic: no run is given it")
    if name in PREDICTED_FIELDS:
        raise ValueError(f'signals: {name} is part of the signal "prediction": ask for that')
    hint = did_you_mean(name, [*ALL, *BY_NAME])
    raise ValueError(
        f'signals: "{name[:40]}" is unknown{hint}: expected {", ".join(ALL)}, or a telemetry field'
    )
