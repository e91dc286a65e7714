"""One side of one run on this node: a row of the agent's database.

Each step of a run is written to the row before it is taken.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skyhop_testbed.words import JobKind, Reason, Side, State

_NS = 1_000_000_000
_RESERVE_SHARE, _LONGEST_RESERVE_S = 0.1, 30.0
"""Part of a run's length reserved for the upload: a share of the length, and its upper limit in s.
"""


@dataclass
class LocalRun:
    """One side of a run, as this node executes it; the JSON in the database has these fields."""

    run: str
    side: Side
    state: State
    job: str
    """Id of the job at the orchestrator."""
    spec: dict[str, Any]
    start_ns: int
    end_ns: int
    client: str = ""
    server: str = ""
    server_address: str = ""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: str | None = None
    is_made: bool = False
    """Whether a trigger on this node created the run, and the orchestrator's schedule does not list
    it yet.
    """
    fence: int = 0
    """Fencing token of the run's claim, larger than all earlier ones of this node; a repeated claim
    with the same token counts once.
    """
    is_granted: bool = False
    reason: Reason | None = None
    is_silent: bool = False
    """Whether changes of the run are not reported: the orchestrator ended it, or refused the claim.
    """
    stop: dict[str, Any] | None = None
    """Content of the executor's `stop.json`, once the run was told to stop."""
    boot: str = ""
    """Boot id of the machine when the program's executor was first started."""
    starts: int = 0
    """Number of times an executor was started."""
    port: int = 0
    task: str = ""
    """Id of the orchestrator's task that asks this node for the server's side."""
    answer: dict[str, Any] | None = None
    """Client's side: reply of the server's node. Server's side: body of its own reply to the task.
    """
    is_uploaded: bool = False
    settled_ns: int = 0
    """Time in ns since which nothing is left to do for the run; 0 before."""

    @property
    def key(self) -> str:
        """Key of the row in the database, and name of the run's directory."""
        return key_of(self.run, self.side)

    @property
    def is_overhead(self) -> bool:
        """Whether the run loads the link, and so excludes other such runs."""
        return bool(self.spec.get("overhead", True))

    @property
    def network(self) -> str:
        """Network of the program: `host`, `veth` or `none`."""
        return str(self.spec.get("run", {}).get("network", "host"))

    @property
    def deadline_ns(self) -> int:
        """Time in ns at which the program is stopped, so that its upload ends before `end_ns`."""
        reserve_s = min(_RESERVE_SHARE * length_s(self.spec), _LONGEST_RESERVE_S)
        return self.end_ns - round(reserve_s * _NS)

    @property
    def keep_until_ns(self) -> int:
        """Time in ns until which the upload is retried."""
        return self.end_ns + round(float(self.spec.get("retention", 300 * 86_400.0)) * _NS)

    def directory(self, runs: Path) -> Path:
        """Return the run's directory below `runs`, the directory of all runs."""
        return runs / self.key

    def dumps(self) -> str:
        """Return the JSON text of the row."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> LocalRun:
        """Parse the text of `dumps`.

        Raises:
            ValueError, TypeError, KeyError: the text is damaged.
        """
        values = json.loads(text)
        values["side"], values["state"] = Side(values["side"]), State(values["state"])
        values["reason"] = Reason(values["reason"]) if values["reason"] else None
        return cls(**values)


def key_of(run: str, side: Side) -> str:
    """Return the key of one side of a run, in the database and as a directory name."""
    return run if side is Side.CLIENT else f"{run}.server"


def length_s(spec: dict[str, Any]) -> float:
    """Return the length of a job's runs in s."""
    return float(spec["length"])


def kind_of(spec: dict[str, Any]) -> JobKind:
    """Return how a job's runs are started: the table (`at`, `trigger`, …) that its `when` holds."""
    when = spec["when"]
    return next(kind for kind in JobKind if when.get(kind.value) is not None)
