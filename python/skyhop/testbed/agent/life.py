"""What a node knows of one side of one run: a row of its book, written before the step is made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skyhop.testbed.words import JobKind, Reason, Side, State

_NS = 1_000_000_000
_RESERVE_SHARE, _LONGEST_RESERVE_S = 0.1, 30.0
"""What of a run's length is left for uploading."""


@dataclass
class Life:
    """One side of a run here."""

    run: str
    side: Side
    state: State
    job: str
    """The job's id at the orchestrator."""
    spec: dict[str, Any]
    start_ns: int
    end_ns: int
    client: str = ""
    server: str = ""
    server_address: str = ""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: str | None = None
    is_made: bool = False
    """Made here, by a trigger, and not seen in a schedule yet."""
    fence: int = 0
    is_granted: bool = False
    reason: Reason | None = None
    is_silent: bool = False
    """The orchestrator decided its end itself, or will never hear of it."""
    stop: dict[str, Any] | None = None
    """What its executor was told, or is to be told, in `stop.json`."""
    boot: str = ""
    """Of the machine, when its executor was started."""
    starts: int = 0
    port: int = 0
    task: str = ""
    """The order that a server's side follows."""
    answer: dict[str, Any] | None = None
    """What the server's node said."""
    is_uploaded: bool = False
    settled_ns: int = 0
    """When nothing was left to do."""

    @property
    def key(self) -> str:
        """How the book and the runs' directory call it."""
        return key_of(self.run, self.side)

    @property
    def is_overhead(self) -> bool:
        """Whether it loads the link."""
        return bool(self.spec.get("overhead", True))

    @property
    def network(self) -> str:
        """What its program sees of the network."""
        return str(self.spec.get("run", {}).get("network", "host"))

    @property
    def deadline_ns(self) -> int:
        """When its program is stopped, so that there is time to upload."""
        reserve_s = min(_RESERVE_SHARE * length_s(self.spec), _LONGEST_RESERVE_S)
        return self.end_ns - round(reserve_s * _NS)

    @property
    def keep_until_ns(self) -> int:
        """How long it is tried to upload its files."""
        return self.end_ns + round(float(self.spec.get("retention", 300 * 86_400.0)) * _NS)

    def directory(self, runs: Path) -> Path:
        """Return where its executor works."""
        return runs / self.key

    def dumps(self) -> str:
        """Return it as it stands in the book."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Life:
        """Return what `dumps` wrote.

        Raises:
            ValueError, TypeError, KeyError: it is none.
        """
        values = json.loads(text)
        values["side"], values["state"] = Side(values["side"]), State(values["state"])
        values["reason"] = Reason(values["reason"]) if values["reason"] else None
        return cls(**values)


def key_of(run: str, side: Side) -> str:
    """Return how book and directories call one side of a run."""
    return run if side is Side.CLIENT else f"{run}.server"


def length_s(spec: dict[str, Any]) -> float:
    """Return how long a job's run lasts."""
    return float(spec["length"])


def kind_of(spec: dict[str, Any]) -> JobKind:
    """Return when a job runs."""
    when = spec["when"]
    return next(kind for kind in JobKind if when.get(kind.value) is not None)
