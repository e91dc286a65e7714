"""Script of the demo on a clock that the test advances: its waits and its output."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from testbed_harness import S, StandingClock

from skyhop.errors import RunError
from skyhop_lab.testbed_demo import jobs, plan
from skyhop_lab.testbed_demo.story import Options, _Story
from skyhop_testbed.api import RunDocument, RunInfo, SubmittedJob
from skyhop_testbed.words import Reason, State


@dataclass
class FakeTestbench:
    """Guard of a testbench without processes; each poll takes some time of the clock."""

    clock: StandingClock
    messages_at: dict[float, dict[str, Any]] = field(default_factory=dict)
    """Messages by the time in s at which they are due."""
    orders: list[dict[str, Any]] = field(default_factory=list)
    ordered_s: float | None = None

    def send_order(self, **order: Any) -> None:
        """Record an order of the command."""
        self.orders.append(order)
        self.ordered_s = self.clock.monotonic_s()

    def messages(self, patience_s: float) -> list[dict[str, Any]]:
        """Return the messages that are due."""
        self.clock.sleep(patience_s)
        now_s = self.clock.monotonic_s()
        due = [after_s for after_s in self.messages_at if after_s <= now_s]
        return [{**self.messages_at.pop(after_s)} for after_s in sorted(due)]


@dataclass
class Testbed:
    """Testbed with one job, whose run gives way some time after its host's owner begins."""

    __test__ = False
    testbench: FakeTestbench
    again: list[RunInfo] = field(default_factory=list)
    asked: int = 0

    def submit(self, _file: Path) -> SubmittedJob:
        """Accept a job; return it."""
        return SubmittedJob.model_construct(id="j")

    def run(self, name: str) -> RunDocument:
        """Return a run in its present state."""
        self.asked += 1
        began_s, now_s = self.testbench.ordered_s, self.testbench.clock.monotonic_s()
        is_over = began_s is not None and now_s > began_s + 3
        return RunDocument.model_construct(
            id=name,
            job="j",
            job_name="upload",
            client="edh-1",
            state=State.RESCHEDULED if is_over else State.EXECUTING,
            reason=Reason.SCAVENGER if is_over else None,
            after=None,
            files=[],
            events=[],
        )

    def runs(self, **_: Any) -> list[RunInfo]:
        """Return all runs of the job."""
        return [self.run("r1"), *self.again]


@dataclass
class Told:
    """Running script of the demo, and its output."""

    story: _Story
    testbench: FakeTestbench
    clock: StandingClock
    directory: Path
    said: list[str]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    clock, said = StandingClock(0), list[str]()
    (tmp_path / "state" / "logs").mkdir(parents=True)
    options = Options(tmp_path / "out", say=said.append)
    testbench = FakeTestbench(clock)
    story = _Story(
        options,
        testbench,  # type: ignore[arg-type]
        tmp_path / "state",
        plan.QUICK,
        jobs.Programs("python3", has_iperf3=False),
        clock=clock,
    )
    return Told(story, testbench, clock, tmp_path, said)


def test_a_stage_that_does_not_come_up_is_given_up_after_a_minute(told: Told) -> None:
    told.testbench.messages_at = {5.0: {"event": "joined", "namespaces": 13}}
    with pytest.raises(RunError, match="after 60 s the demo's processes are not ready"):
        told.story._await_testbench()
    assert told.clock.monotonic_s() == pytest.approx(60, abs=0.5)
    assert told.said == []


def test_a_stage_that_is_up_is_told_of_with_its_time(told: Told) -> None:
    told.testbench.messages_at = {5.0: {"event": "joined", "namespaces": 13}}
    (told.directory / "state" / "logs" / "orchestrator.log").write_text("serving users at x\n")
    told.story._await_testbench()
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
    testbed = Testbed(
        told.testbench, [RunInfo.model_construct(id="r2", after="r1", start_ns=40 * S)]
    )
    told.testbench.messages_at = {
        2.0: packets(0, 2.0),
        9.0: packets(8.0, 9.0),
        10.0: packets(8.0, 9.75),
    }
    told.story._preempted(testbed, Path("upload.toml"))  # type: ignore[arg-type]
    assert told.testbench.orders == [{"do": "owner", "seconds": plan.QUICK.owner_s, "bps": 4e6}]
    loading, owner, last, end, again = told.said
    assert loading.endswith("loading: upload on edh-1")
    assert owner == "   8.0 s    the owner of edh-1 begins to watch a film"
    assert last == "   9.8 s    the run's last packet, 1.75 s after the owner's first"
    assert end.endswith("rescheduled (scavenger)")
    assert again.endswith("the run is planned again in 29 s")


def test_an_owner_who_does_not_begin_is_given_up(told: Told) -> None:
    told.testbench.messages_at = {2.0: packets(0, 2.0)}
    with pytest.raises(RunError, match="after 30 s the owner has not begun"):
        told.story._preempted(Testbed(told.testbench), Path("upload.toml"))  # type: ignore[arg-type]
    # The waits: the upload's first packet, four undisturbed seconds, half a minute.
    assert told.clock.monotonic_s() == pytest.approx(2 + 4 + 30, abs=1)


def test_a_run_that_does_not_end_is_given_up_after_its_length_and_a_while(told: Told) -> None:
    testbed = Testbed(told.testbench)
    with pytest.raises(RunError, match="after 270 s run r1 has not ended"):
        told.story._ended(testbed, "r1")  # type: ignore[arg-type]
    assert testbed.asked == pytest.approx(270 / 0.15, abs=2)


def test_links_that_do_not_end_are_given_up_and_those_that_do_are_kept(told: Told) -> None:
    with pytest.raises(RunError, match="after 40 s the links have not ended"):
        told.story._finish()
    assert told.testbench.orders == [{"do": "finish"}]
    (told.directory / "state" / "links" / "bcn-1").mkdir(parents=True)
    told.testbench.messages_at = {told.clock.monotonic_s() + 3: {"event": "finished"}}
    told.story._finish()
    assert [each.name for each in (told.directory / "out" / "links").iterdir()] == ["bcn-1"]
