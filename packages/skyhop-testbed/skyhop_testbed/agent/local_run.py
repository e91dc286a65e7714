"""One side of one run on this node: a row of the agent's database.

Each step of a run is noted in the row before it is taken.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from skyhop_testbed.agent.reports import TaskReport
from skyhop_testbed.executor.result import Outcome
from skyhop_testbed.schedule import InputFile, JobSpec, ServerAnswer
from skyhop_testbed.words import Reason, Side, State, key_of

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
    spec: JobSpec
    start_ns: int
    end_ns: int
    client: str = ""
    server: str = ""
    server_address: str = ""
    files: dict[str, InputFile] = field(default_factory=dict)
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
    stop: Outcome | None = None
    """Content of the executor's `stop.json`, once the run was told to stop."""
    boot: str = ""
    """Boot id of the machine when the program's executor was first started."""
    starts: int = 0
    """Number of times an executor was started."""
    port: int = 0
    task: str = ""
    """Id of the orchestrator's task that asks this node for the server's side."""
    answer: ServerAnswer | TaskReport | None = None
    """Client's side: reply of the server's node. Server's side: its own reply to the task."""
    is_uploaded: bool = False
    is_given_up: bool = False
    """Whether the orchestrator has refused the files for good, so that they are not sent again."""
    settled_ns: int = 0
    """Time in ns since which nothing is left to do for the run; 0 before."""
    fault: str = ""
    """Reason why this version of skyhop cannot read the job (`ScheduledJob.fault`)."""

    @property
    def key(self) -> str:
        """Key of the row in the database, and name of the run's directory."""
        return key_of(self.run, self.side)

    @property
    def deadline_ns(self) -> int:
        """Time in ns at which the program is stopped, so that its upload ends before `end_ns`."""
        reserve_s = min(_RESERVE_SHARE * self.spec.length_s, _LONGEST_RESERVE_S)
        return self.end_ns - round(reserve_s * _NS)

    @property
    def keep_until_ns(self) -> int:
        """Time in ns until which the upload is retried."""
        return self.end_ns + round(self.spec.retention_s * _NS)

    def directory(self, runs: Path) -> Path:
        """Return the run's directory below `runs`, the directory of all runs."""
        return runs / self.key

    def dumps(self) -> str:
        """Return the JSON text of the row."""
        return _ROW.dump_json(self).decode()

    @classmethod
    def loads(cls, text: str) -> LocalRun:
        """Parse the text of `dumps`.

        Raises:
            ValueError: the text is damaged, or this version cannot read the job.
        """
        return _ROW.validate_json(text)


_ROW = TypeAdapter(LocalRun)
