"""The demo's story on a clock that a test sets on: what it waits for, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from testbed_office import S, StandingClock

from skyhop.errors import RunError
from skyhop.testbed.demo import jobs, plan
from skyhop.testbed.demo.story import Options, _Story


@dataclass
class Stage:
    """A stage without processes, as the guard tells of it: each look at it takes a while."""

    clock: StandingClock
    news_of: dict[float, dict[str, Any]] = field(default_factory=dict)
    """What it says, by the seconds after which it does."""
    orders: list[dict[str, Any]] = field(default_factory=list)
    ordered_s: float | None = None

    def tell(self, **order: Any) -> None:
        """Take an order."""
        self.orders.append(order)
        self.ordered_s = self.clock.monotonic_s()

    def news(self, patience_s: float) -> list[dict[str, Any]]:
        """Return what has become due."""
        self.clock.sleep(patience_s)
        now_s = self.clock.monotonic_s()
        due = [after_s for after_s in self.news_of if after_s <= now_s]
        return [{**self.news_of.pop(after_s)} for after_s in sorted(due)]


@dataclass
class Testbed:
    """A testbed with one job, whose run makes room some time after its host's owner began."""

    __test__ = False
    stage: Stage
    again: dict[str, Any] = field(default_factory=dict)
    asked: int = 0

    def submit(self, _file: Path) -> dict[str, Any]:
        """Take a job."""
        return {"id": "j"}

    def run(self, name: str) -> dict[str, Any]:
        """Return a run."""
        self.asked += 1
        began_s, now_s = self.stage.ordered_s, self.stage.clock.monotonic_s()
        is_over = began_s is not None and now_s > began_s + 3
        state, reason = ("rescheduled", "scavenger") if is_over else ("executing", None)
        return {"id": name, "job": "j", "job_name": "upload", "client": "edh-1", "state": state,
                "reason": reason, "after": None, "files": [], "events": []}  # fmt: skip

    def runs(self, **_: Any) -> list[dict[str, Any]]:
        """Return the job's runs."""
        return [self.run("r1"), *([self.again] if self.again else [])]


@dataclass
class Told:
    """A story that is told, and what it has said."""

    story: _Story
    stage: Stage
    clock: StandingClock
    directory: Path
    said: list[str]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    clock, said = StandingClock(0), list[str]()
    (tmp_path / "state" / "logs").mkdir(parents=True)
    options = Options(tmp_path / "out", say=said.append)
    stage = Stage(clock)
    story = _Story(
        options,
        stage,  # type: ignore[arg-type]
        tmp_path / "state",
        plan.QUICK,
        jobs.Programs("python3", has_iperf3=False),
        clock=clock,
    )
    return Told(story, stage, clock, tmp_path, said)


def test_a_stage_that_does_not_come_up_is_given_up_after_a_minute(told: Told) -> None:
    told.stage.news_of = {5.0: {"event": "joined", "namespaces": 13}}
    with pytest.raises(RunError, match="after 60 s the demo's machines are not up"):
        told.story._await_stage()
    assert told.clock.monotonic_s() == pytest.approx(60, abs=0.5)
    assert told.said == []


def test_a_stage_that_is_up_is_told_of_with_its_time(told: Told) -> None:
    told.stage.news_of = {5.0: {"event": "joined", "namespaces": 13}}
    (told.directory / "state" / "logs" / "orchestrator.log").write_text("serving users at x\n")
    told.story._await_stage()
    (line,) = told.said
    assert line.startswith("   5.")
    assert "3 emulated links, 13 network namespaces" in line


def packets(owner_first_s: float, run_last_s: float) -> dict[str, Any]:
    return {
        "event": "packets",
        "run_first_ns": 1 * S,
        "owner_first_ns": round(owner_first_s * S),
        "run_last_ns": round(run_last_s * S),
    }


def test_a_run_makes_room_and_when_it_is_tried_again_is_said(told: Told) -> None:
    testbed = Testbed(told.stage, {"id": "r2", "after": "r1", "start_ns": 40 * S})
    told.stage.news_of = {
        2.0: packets(0, 2.0),
        9.0: packets(8.0, 9.0),
        10.0: packets(8.0, 9.75),
    }
    told.story._preempted(testbed, Path("upload.toml"))  # type: ignore[arg-type]
    assert told.stage.orders == [{"do": "owner", "seconds": plan.QUICK.owner_s, "bps": 4e6}]
    loading, owner, last, end, again = told.said
    assert loading.endswith("loading: upload on edh-1")
    assert owner == "   8.0 s    the owner of edh-1 begins to watch a film"
    assert last == "   9.8 s    the run's last packet, 1.75 s after the owner's first"
    assert end.endswith("rescheduled (scavenger)")
    assert again.endswith("it is to be tried again in 29 s")


def test_an_owner_who_does_not_begin_is_given_up(told: Told) -> None:
    told.stage.news_of = {2.0: packets(0, 2.0)}
    with pytest.raises(RunError, match="after 30 s the owner has not begun"):
        told.story._preempted(Testbed(told.stage), Path("upload.toml"))  # type: ignore[arg-type]
    # What was waited: the upload's first packet, four quiet seconds, half a minute.
    assert told.clock.monotonic_s() == pytest.approx(2 + 4 + 30, abs=1)


def test_a_run_that_does_not_end_is_given_up_after_its_length_and_a_while(told: Told) -> None:
    testbed = Testbed(told.stage)
    with pytest.raises(RunError, match="after 40 s run r1 has not ended"):
        told.story._ended(testbed, "r1", plan.QUICK.scheduled_s)  # type: ignore[arg-type]
    assert testbed.asked == pytest.approx(40 / 0.15, abs=2)


def test_links_that_do_not_end_are_given_up_and_those_that_do_are_kept(told: Told) -> None:
    with pytest.raises(RunError, match="after 40 s the links have not ended"):
        told.story._finish()
    assert told.stage.orders == [{"do": "finish"}]
    (told.directory / "state" / "links" / "bcn-1").mkdir(parents=True)
    told.stage.news_of = {told.clock.monotonic_s() + 3: {"event": "finished"}}
    told.story._finish()
    assert [each.name for each in (told.directory / "out" / "links").iterdir()] == ["bcn-1"]
