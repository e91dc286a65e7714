"""Schedules in parts, and differences between them, which both sides compute alike.

The schedule of a node is a map from names of parts (`run:ID`, `job:ID`, `policy`, `scavenger_mode`,
`settings`) to JSON values. A difference has the parts that are new or have changed, and the names
of those that are gone. Digests tell both sides that they mean the same schedule: one per part, and
one over all parts. The state of a run is not in its digest: its node reports the state itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pydantic import JsonValue

RUN, JOB = "run:", "job:"
"""First characters of the names of parts that are runs and jobs; the id follows."""
POLICY, MODE, SETTINGS = "policy", "scavenger_mode", "settings"
Parts = Mapping[str, JsonValue]
Digests = Mapping[str, bytes]
"""Digest of each part, by its name."""
_PART_BYTES = 8
_STATE = "state"


def digest_of_part(name: str, value: JsonValue) -> bytes:
    """Return the digest of one part; a run's state does not count."""
    if name.startswith(RUN) and isinstance(value, dict):
        value = {key: each for key, each in value.items() if key != _STATE}
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(f"{name} {text}".encode()).digest()[:_PART_BYTES]


def digests_of(parts: Parts) -> dict[str, bytes]:
    """Return the digest of each part."""
    return {name: digest_of_part(name, value) for name, value in parts.items()}


def digest(digests: Digests) -> str:
    """Return the digest of a schedule, as hexadecimal digits."""
    whole = hashlib.sha256()
    for name in sorted(digests):
        whole.update(f"{name} ".encode() + digests[name])
    return whole.hexdigest()[:32]


def difference(before: Digests, parts: Parts, digests: Digests) -> tuple[Parts, list[str]]:
    """Return the difference between two schedules: new or changed parts, names of gone parts.

    Args:
        before: digests of the earlier schedule.
        parts: parts of the later schedule.
        digests: their digests.
    """
    changed = {name: parts[name] for name in parts if before.get(name) != digests[name]}
    return changed, sorted(before.keys() - digests.keys())
