"""Predictions in an agent's telemetry: equal to the offline ones, and soon enough to act on."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Skyhop
from manual_clock import ManualClock
from test_testbed_agent import job
from testbed_fake_orchestrator import AgentProcess, FakeOrchestrator

import predictors
from damaged import Trial
from dish_sources import served
from needs import needs_namespaces
from predictors import write_model
from skyhop.errors import InputError, RunError
from skyhop.predict import Live, load_model, read_data
from skyhop.predict.live import SKY
from skyhop.predict.windows import CLOCK_FEATURES, LOOK_BACK_S, windows_of
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.store import Store
from skyhop_lab.dish.feed import Second
from skyhop_lab.dish.terminal import Terminal
from skyhop_testbed.agent import predicting, prediction
from skyhop_testbed.agent.predicting import PredictionClient
from skyhop_testbed.agent.settings import Orbit, Predict, Settings
from skyhop_testbed.clock import SYSTEM_CLOCK
from skyhop_testbed.executor.journal import JournalEntry, read_journal
from waiting import wait_for

S = 10**9
BEGIN_S = predictors.BEGIN_S


def step_model(place: Path, **others: Any) -> Path:
    """Write a model that predicts 80 ms if the last second's latency exceeded 50 ms, else 30 ms."""
    step = predictors.tree(left_children=[1, -1, -1], right_children=[2, -1, -1],
                           split_indices=[4, 0, 0], split_conditions=[50.0, 3.0, 8.0],
                           default_left=[1, 0, 0])  # fmt: skip
    content = predictors.xgboost_file([step], 5, base=0.0)
    write_model(place, "xgboost", content=content, **others)
    return place


# --- the same window as offline ---

BESIDE = [*CLOCK_FEATURES, "azimuth", "elevation", "obstruction", *SKY.values()]
PAST = ["latency_ms", "drop", "rx_bps", "tx_bps"]


def telemetry(seconds: int, gaps: Sequence[int]) -> list[Sample]:
    """Return samples of a terminal and its host, with repeated and missing ones."""
    draw = random.Random(5)
    samples: list[Sample] = []
    for at in range(seconds):
        if at in gaps:
            continue
        end_ns = (BEGIN_S + at) * S
        sample: Sample = {
            TIME: end_ns, "pop_ping_latency_ms": draw.uniform(20, 60), "state": "CONNECTED",
            "pop_ping_drop_rate": draw.choice([0.0, 0.25]), "sat_count": draw.randrange(20),
            "downlink_throughput_bps": draw.uniform(0, 1e7), "direction_azimuth": draw.random(),
            "uplink_throughput_bps": draw.uniform(0, 1e6), "direction_elevation": draw.random(),
            "fraction_obstructed": draw.random(), "sat_dist_min": draw.random(),
            "sat_dist_mean": draw.random(), "sat_dist_max": draw.random(),
            "serving_elevation": draw.uniform(25, 90), "handover_in_s": draw.uniform(0, 15),
        }  # fmt: skip
        for name in draw.sample([*sample], 2):
            if name not in (TIME, "pop_ping_latency_ms"):
                del sample[name]
        samples.append(sample)
        if at % 7 == 3:
            # The probe's result arrives as a separate sample, and precedes the terminal's.
            samples.append({TIME: end_ns, "probe_rtt_ms": draw.uniform(20, 60), "probe_loss": 0.0})
    return samples


@pytest.mark.parametrize("horizon_s", [1, pytest.param(7, marks=pytest.mark.soak)])
def test_live_windows_are_those_of_the_offline_frame(tmp_path: Path, horizon_s: int) -> None:
    samples = telemetry(120, gaps=[40, 41, 90])
    Store(tmp_path / "kept").append("a", samples)
    model = write_model(tmp_path / "m", "lstm", (horizon_s,), past=PAST, beside=BESIDE,
                        content=predictors.lstm_file(len(PAST), len(BESIDE)))  # fmt: skip
    offline = windows_of(read_data([tmp_path / "kept"]).frame, model.features, horizon_s)
    predicted = model.predict(offline)
    assert np.isnan(offline.covariates).any()
    live = Live(model, sky=SKY)
    seen = 0
    for end_ns in sorted({int(s[TIME] or 0) for s in samples}):
        live.add([s for s in samples if s[TIME] == end_ns])
        target_ns = end_ns + horizon_s * S
        ahead = [s for s in samples if end_ns < int(s[TIME] or 0) <= target_ns]
        window = live.window(ahead)
        same = np.flatnonzero(offline.end_ns == target_ns)
        if not len(same):
            # Offline there is no truth across a gap to train or test with.
            continue
        seen += 1
        np.testing.assert_array_equal(window.past, offline.past[same])
        np.testing.assert_array_equal(window.covariates, offline.covariates[same])
        assert window.has_grid.tolist() == offline.has_grid[same].tolist()
        assert live.predict(ahead) == predicted[same][0]
    assert seen == len(offline) > 10


def test_nothing_is_predicted_until_the_seconds_before_are_known(tmp_path: Path) -> None:
    live = Live(load_model(step_model(tmp_path / "m")))
    assert live.predict() is None
    for at in range(LOOK_BACK_S + 2):
        live.add([{TIME: (BEGIN_S + at) * S, "pop_ping_latency_ms": 30.0 + at}])
        expected = None if at < LOOK_BACK_S - 1 else 80.0
        assert live.predict() == expected
    live.add([{TIME: (BEGIN_S + LOOK_BACK_S + 2) * S, "state": "SEARCHING"}])
    assert live.predict() is None


# --- models that cannot run ---


@pytest.mark.parametrize(
    ("card", "how", "why"),
    [
        ({"beside": ["sat_1_sin", "lat"]}, {}, "is given sat_1_sin, lat, which telemetry does not"),
        ({"beside": ["serving_el"]}, {}, "is given serving_el: say with [orbit]"),
        ({"beside": ["sat_count"]}, {"sky": ["handover_in_s"]}, "is given sat_count: say with"),
        ({"past": ["latency_ms", "x"]}, {}, "is given x, which telemetry does not tell"),
        ({}, {"horizon_s": 3}, "the model has no horizon of 3 s; it has 1"),
        ({"past": ["latency_ms", "drop"]}, {}, "it has 5 features, its card 10"),
    ],
)
def test_a_model_that_telemetry_does_not_suit_is_refused(
    tmp_path: Path, card: dict[str, Any], how: dict[str, Any], why: str
) -> None:
    model = load_model(step_model(tmp_path / "m", **card))
    with pytest.raises(InputError) as refused:
        Live(model, **how)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = step_model(tmp_path / "m")
    monkeypatch.setattr("skyhop.predict.model._LARGEST_FILE", 100)
    with pytest.raises(InputError, match=r"xgboost-1.json: is larger than 0 MB"):
        Live(load_model(place))
    monkeypatch.setattr("skyhop.predict.cards._LARGEST_FILE", 100)
    with pytest.raises(InputError, match=r"card.json: is larger than 0 MB"):
        load_model(place)


def test_damaged_cards_are_refused_before_the_agent_begins(tmp_path: Path) -> None:
    place = step_model(tmp_path / "m", beside=[], features=["history", "grid"])
    minute: list[Sample] = [{TIME: at * S, "pop_ping_latency_ms": 30.0} for at in range(1, 40)]

    def read(content: bytes) -> None:
        (place / "card.json").write_bytes(content)
        live = Live(load_model(place))
        live.add(minute)
        assert live.predict() in (None, 30.0)

    Trial("live model", [(place / "card.json").read_bytes()], usual=60).run(read)


# --- the separate process ---


def sample(at: int, latency_ms: float) -> Sample:
    return {TIME: (BEGIN_S + at) * S, "pop_ping_latency_ms": latency_ms}


def settings(*models: Path, orbit: Orbit | None = None, horizon_s: int | None = None) -> Settings:
    return Settings(orbit=orbit, predict=Predict(tuple(map(str, models)), horizon_s))


@contextmanager
def begun(
    chosen: Settings, said: list[str], orbit_fields: Callable[[int], Sample] = lambda _ns: {}
) -> Iterator[PredictionClient]:
    asked = PredictionClient(chosen, orbit_fields, said.append, clock=SYSTEM_CLOCK)
    asked.start()
    try:
        yield asked
    finally:
        asked.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeouts of answers and of loading, for a busy machine."""
    monkeypatch.setattr(predicting, "_PATIENCE_S", 120.0)
    monkeypatch.setattr(predicting, "_LOADING_S", 200.0)


@pytest.mark.integration
@pytest.mark.usefixtures("patient")
def test_both_fields_are_predicted_by_models_with_the_sky_ahead(tmp_path: Path) -> None:
    # The throughput is 10 or 20 Mbit/s, depending on the next satellite's elevation (50 degrees).
    split = predictors.tree(left_children=[1, -1, -1], right_children=[2, -1, -1],
                            split_indices=[5, 0, 0], split_conditions=[50.0, 1e6, 2e6],
                            default_left=[1, 0, 0])  # fmt: skip
    write_model(tmp_path / "rates", "xgboost", (2,), target="throughput", column="rx_bps",
                past=["rx_bps"], beside=["serving_el"], unit="bit/s",
                content=predictors.xgboost_file([split], 6, base=0.0))  # fmt: skip
    latency = step_model(tmp_path / "m")
    end_ns = sample(40, 0.0)[TIME]
    assert isinstance(end_ns, int)

    def orbit_fields(time_ns: int) -> Sample:
        return {"serving_elevation": 70.0 if time_ns == end_ns + 2 * S else 40.0}

    said: list[str] = []
    chosen = settings(latency, tmp_path / "rates", orbit=Orbit(elements="a.tle"))
    with begun(chosen, said, orbit_fields) as asked:
        minute = [{**sample(at, 60.0), "downlink_throughput_bps": 1e6} for at in range(1, 41)]
        newest = asked.with_predictions(minute)[-1]
        assert newest["predicted_latency_ms"] == 80.0
        assert newest["predicted_throughput_bps"] == pytest.approx(2e7)
    assert said == []


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("patient")
def test_an_answer_takes_some_milliseconds(tmp_path: Path) -> None:
    took_s = []
    with begun(settings(step_model(tmp_path / "m")), []) as asked:
        for at in range(1, 61):
            begin = time.monotonic()
            asked.with_predictions([sample(at, 60.0)])
            took_s.append(time.monotonic() - begin)
    assert sorted(took_s)[30] < 0.1


@pytest.mark.soak
@pytest.mark.usefixtures("patient")
def test_a_process_that_is_killed_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "_SOONEST_S", 0.1)
    said: list[str] = []
    minute = [sample(at, 60.0) for at in range(1, 41)]
    with begun(settings(step_model(tmp_path / "m")), said) as asked:
        assert asked.with_predictions(minute)[-1]["predicted_latency_ms"] == 80.0
        assert asked._process is not None
        os.kill(asked._process._process.pid, signal.SIGKILL)
        asked._process._process.wait()
        assert asked.with_predictions(minute)[-1] == minute[-1]
        assert said == ["predict: the process has ended: it starts again in 0 s"]
        wait_for(lambda: "predicted_latency_ms" in asked.with_predictions(minute)[-1])
    assert len(said) == 1


@pytest.mark.soak
def test_a_process_that_says_nothing_does_not_hold_up_telemetry(tmp_path: Path) -> None:
    silent = (
        "import sys, time; sys.stdin.readline(); print('{\"ahead_s\": 1}', flush=True); "
        "time.sleep(60)"
    )
    said: list[str] = []
    chosen = settings(step_model(tmp_path / "m"))
    command = (sys.executable, "-c", silent)
    asked = PredictionClient(chosen, lambda _ns: {}, said.append, command, clock=SYSTEM_CLOCK)
    asked.start()
    for at in range(20):
        assert asked.with_predictions([sample(at, 60.0)]) == [sample(at, 60.0)]
    assert said == ["predict: the process does not answer: it starts again in 60 s"]


class Answers:
    """Fake of the prediction process, on a clock that the test advances.

    Attributes:
        after_s: delay of an answer; `None` is never.
        begun_s: start times of the processes.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.after_s: float | None = 0.1
        self.has_ended = False
        self.begun_s: list[float] = []
        self._at_ns: list[int] = []

    def begin(self, _command: object, _order: object, _clock: object) -> Answers:
        """Record a start of the process; return the same fake."""
        self.begun_s.append(self._clock.monotonic_s())
        self.has_ended = False
        return self

    def send(self, content: dict[str, Any]) -> None:
        """Record the time of a request's newest sample."""
        self._at_ns.append(content["samples"][-1][TIME])

    def line(self, patience_s: float) -> dict[str, Any] | None:
        """Return an answer; `None` if it comes too late."""
        if self.has_ended:
            raise EOFError
        if not self._at_ns:
            return {"ahead_s": 1}
        after_s = patience_s + 1 if self.after_s is None else self.after_s
        self._clock.sleep(min(after_s, max(0.0, patience_s)))
        if after_s > patience_s:
            return None
        return {"at_ns": self._at_ns[-1], "predicted": {"predicted_latency_ms": 80.0}}

    def close(self) -> None:
        """Do nothing, as there is no process."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> tuple[Answers, PredictionClient, list[str]]:
    clock, said = ManualClock(), []
    made = Answers(clock)
    monkeypatch.setattr(predicting, "_Process", made.begin)
    chosen = Settings(predict=Predict(("m",), None))
    asked = PredictionClient(chosen, lambda _ns: {}, said.append, clock=clock)
    asked.start()
    return made, asked, said


def test_an_answer_that_is_late_is_null_and_waited_for_a_quarter_of_a_second(
    answers: tuple[Answers, PredictionClient, list[str]],
) -> None:
    made, asked, said = answers
    clock = made._clock
    assert asked.with_predictions([sample(1, 60.0)])[0]["predicted_latency_ms"] == 80.0
    assert clock.monotonic_s() == pytest.approx(0.1)
    made.after_s = 0.3
    assert asked.with_predictions([sample(2, 60.0)]) == [sample(2, 60.0)]
    assert clock.monotonic_s() == pytest.approx(0.35)
    assert said == []


def test_one_that_answers_nothing_is_begun_anew_later_and_later(
    answers: tuple[Answers, PredictionClient, list[str]],
) -> None:
    made, asked, said = answers
    made.after_s = None
    for at in range(600):
        asked.with_predictions([sample(at, 60.0)])
        made._clock.advance(1)
    assert [line.partition(" again in ")[2] for line in said] == ["60 s", "120 s", "240 s", "480 s"]
    waits_s = np.diff(made.begun_s)
    # 15 s until the process counts as dead, plus the backoff after that.
    assert waits_s == pytest.approx([60 + 15 * 1.25, 120 + 15 * 1.25, 240 + 15 * 1.25], abs=2.5)


def test_one_that_has_ended_is_begun_anew_after_a_minute(
    answers: tuple[Answers, PredictionClient, list[str]],
) -> None:
    made, asked, said = answers
    asked.with_predictions([sample(0, 60.0)])
    made.has_ended = True
    predicted = []
    for at in range(1, 100):
        predicted.append("predicted_latency_ms" in asked.with_predictions([sample(at, 60.0)])[0])
        made._clock.advance(1)
    assert said == ["predict: the process has ended: it starts again in 60 s"]
    assert predicted.index(True) == pytest.approx(60, abs=1)
    assert all(predicted[predicted.index(True) :])


@pytest.mark.integration
def test_models_that_are_wrong_are_said_at_the_start(tmp_path: Path) -> None:
    model = step_model(tmp_path / "m")
    with pytest.raises(InputError, match=r"two models of predicted_latency_ms: give one"):
        prediction.load_models({"models": [model, model], "horizon_s": None, "sky": "nothing"})
    crash = (sys.executable, "-c", "import sys; sys.exit(3)")
    with pytest.raises(RunError, match="the models could not be loaded"):
        PredictionClient(settings(model), lambda _ns: {}, print, crash, clock=SYSTEM_CLOCK).start()


# --- the whole agent ---


class Told:
    """Feed of an emulated terminal, whose latency a test sets."""

    lag_s = 0
    latency_ms = 30.0

    def is_known(self, _index: int) -> bool:
        """Return that the terminal is connected."""
        return True

    def second(self, _index: int) -> Second:
        """Return a second with the set latency."""
        return Second(drop_rate=0.0, latency_ms=self.latency_ms)


@pytest.mark.soak
@pytest.mark.alone
def test_a_trigger_on_what_an_emulated_terminal_will_do_starts_a_run(tmp_path: Path) -> None:
    needs_namespaces()
    feed = Told()
    # The terminal is two minutes old, so its history precedes the agent.
    terminal = Terminal(feed, time.time_ns() - 120 * S)
    orchestrator = FakeOrchestrator(tmp_path / "orchestrator")
    with served(terminal, clock=time.time_ns) as address:  # type: ignore[arg-type]
        agent = AgentProcess(tmp_path / "state", orchestrator, dish=address)
        step_model(agent.state / "models" / "xgboost")
        (agent.state / "agent.toml").write_text('[predict]\nmodel = "models/xgboost"\n')
        try:
            agent.start()
            when = {"trigger": "predicted_latency_ms > 60", "end": 1, "cooldown": 60.0}
            run = orchestrator.plan(job("true", when={**when, "max_runs": 1}))
            orchestrator.runs[0]["end_ns"] += 60 * S
            orchestrator.publish()
            wait_for(lambda: orchestrator.states(run) == ["armed"], why=agent.log)
            wait_for(lambda: 30.0 in predicted(orchestrator), why=agent.log)
            jumps_ns, feed.latency_ms = time.time_ns(), 70.0
            wait_for(lambda: 80.0 in predicted(orchestrator), why=agent.log)
            wait_for(lambda: started(agent, run), why=agent.log)
            # Up to a second until the terminal's second is over, and another until the agent polls.
            assert started(agent, run)[0].at_ns - jumps_ns < 3.2 * S
        finally:
            agent.clear()
            orchestrator.stop()


def predicted(orchestrator: FakeOrchestrator) -> list[object]:
    told = [b for _, kind, b in orchestrator.events if kind == "telemetry"]
    return [s["predicted_latency_ms"] for b in told for s in b["samples"]
            if "predicted_latency_ms" in s]  # fmt: skip


def started(agent: AgentProcess, run: str) -> list[JournalEntry]:
    place = agent.state / "runs" / run
    return [s for s in read_journal(place) if s.step == "started"] if place.is_dir() else []


@pytest.mark.soak
def test_an_agent_with_a_wrong_model_does_not_begin(tmp_path: Path, skyhop: Skyhop) -> None:
    orchestrator = FakeOrchestrator(tmp_path / "orchestrator")
    agent = AgentProcess(tmp_path / "state", orchestrator)
    model = step_model(agent.state / "m", beside=["sat_1_sin"])
    try:
        for damage, why in (
            (lambda: None, "m: the model is given sat_1_sin, which telemetry does not tell"),
            (lambda: (model / "card.json").write_text("{"), "card.json: is no model card"),
            ((model / "card.json").unlink, "card.json: there is no such file"),
        ):
            damage()
            (agent.state / "agent.toml").write_text('[predict]\nmodel = "m"\n')
            done = skyhop("testbed", "agent", "--state", str(agent.state))
            assert done.returncode == 2
            assert why in done.stderr
            assert done.stderr.count("\n") == 1, done.stderr
    finally:
        agent.clear()
        orchestrator.stop()


def test_answers_are_lines_of_json(tmp_path: Path) -> None:
    order = {"models": [str(step_model(tmp_path / "m"))], "horizon_s": None, "sky": "grid"}
    minute = {"samples": [sample(at, 60.0) for at in range(1, 41)], "ahead": []}
    lines = iter([json.dumps(order), json.dumps(minute), ""])
    said: list[str] = []
    prediction.main(lambda: next(lines), said.append)
    assert [json.loads(line) for line in said] == [
        {"ahead_s": 1},
        {"at_ns": (BEGIN_S + 40) * S, "predicted": {"predicted_latency_ms": 80.0}},
    ]
