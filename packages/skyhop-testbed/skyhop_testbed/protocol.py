"""Versions of the protocol between agents and orchestrator: what is said, refused and left out.

Each side states its version of skyhop and the range of protocols that it speaks, in headers of all
requests and answers; a side without these headers speaks protocol 1. Two sides understand each
other if their ranges overlap. Otherwise the orchestrator refuses, and names the side to upgrade.

A change that an older side would misunderstand gets a new number, `PROTOCOL`:

- a field of a request, which an older orchestrator refuses: mark it with `since`; `wire` leaves it
  out for an older peer;
- a key of a job, which an older agent refuses: mark it with `since`; the orchestrator then refuses
  the job on nodes whose agent is older. No key of a job may be ignored: one that is unknown to the
  agent may restrict what the program can do;
- a new value of a job's key: its line in `VALUES_SINCE`;
- a kind of order: send it only to agents that speak the number (`Caller.agent`).

Both sides ignore unknown fields of answers and of orders, and the orchestrator refuses a report of
an unknown kind by itself; these need no new number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from skyhop.version import __version__
from skyhop_testbed.words import Network

OLDEST, PROTOCOL = 1, 2
"""Range of protocols that this version speaks."""
VERSION_HEADER, PROTOCOL_HEADER, TRUST_HEADER = "skyhop-version", "skyhop-protocol", "skyhop-trust"
PACKING_SINCE = 2
"""Protocol that has brought compressed bodies of requests."""
VALUES_SINCE: Mapping[object, int] = {Network.INTERNET: 2}
"""Values of a job's keys that a protocol above 1 has brought."""
_LONGEST = 40
_NUMBER = re.compile("[1-9][0-9]{0,5}")
_SINCE = "since"


def own_headers() -> dict[str, str]:
    """Return the headers by which this side states its version and range."""
    return {VERSION_HEADER: __version__, PROTOCOL_HEADER: f"{OLDEST}-{PROTOCOL}"}


@dataclass(frozen=True)
class Peer:
    """Other side of a connection, as its headers describe it."""

    version: str = ""
    """Version of skyhop; "" if it is not known."""
    lowest: int = 1
    highest: int = 1
    trust: str = ""
    """Digest of the authorities that the orchestrator wants clients to trust."""

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> Peer:
        """Return the peer that headers describe; they may be absent or damaged."""
        lowest, _, highest = headers.get(PROTOCOL_HEADER, "").partition("-")
        numbers = [int(each) if _NUMBER.fullmatch(each) else 1 for each in (lowest, highest)]
        version, trust = (headers.get(key, "") for key in (VERSION_HEADER, TRUST_HEADER))
        return cls(version[:_LONGEST], min(numbers), max(numbers), trust[:_LONGEST])

    @property
    def side_to_upgrade(self) -> str:
        """Side that must be upgraded: "agent", "orchestrator", or "" if both understand each other.

        The peer is the agent.
        """
        if self.highest < OLDEST:
            return "agent"
        return "orchestrator" if self.lowest > PROTOCOL else ""

    @property
    def why_not_understood(self) -> str:
        """Sentence that says which side to upgrade to what; "" if both understand each other."""
        side = self.side_to_upgrade
        if not side:
            return ""
        to = __version__ if side == "agent" else f"{self.version or 'of the agent'} or newer"
        return (
            f"the agent (skyhop {self.version or 'without a version'}) speaks protocol "
            f"{_range(self.lowest, self.highest)} and the orchestrator (skyhop {__version__}) "
            f"{_range(OLDEST, PROTOCOL)}: upgrade the {side} to skyhop {to}"
        )


def _range(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def since(protocol: int) -> dict[str, Any]:
    """Return `json_schema_extra` of a field that a protocol has brought."""
    return {_SINCE: protocol}


def fields_since(model: type[BaseModel]) -> dict[str, int]:
    """Return, for the marked fields of a model, the protocol that has brought each."""
    return {
        name: int(str(info.json_schema_extra[_SINCE]))
        for name, info in model.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and _SINCE in info.json_schema_extra
    }


def needed_protocol(part: BaseModel) -> tuple[int, str]:
    """Return the protocol that a job needs, and the key that needs it ("" for protocol 1).

    Only keys that differ from their default count: others are not sent.
    """
    needed, cause = 1, ""
    marked = fields_since(type(part))
    for name, info in type(part).model_fields.items():
        value = getattr(part, name)
        if value == info.get_default(call_default_factory=True):
            continue
        found = (marked.get(name, 1), info.alias or name)
        if isinstance(value, BaseModel):
            inner, key = needed_protocol(value)
            found = max(found, (inner, f"{found[1]}.{key}"))
        elif isinstance(value, str | int | float):
            found = max(found, (VALUES_SINCE.get(value, 1), found[1]))
        if found[0] > needed:
            needed, cause = found
    return needed, cause
