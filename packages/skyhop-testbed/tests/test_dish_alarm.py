"""`skyhop dish watch --when --run`: when the command runs, what it gets, and what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from conftest import Skyhop

from dish_sources import BEGIN_NS, S, recorded_status, served
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop_lab.dish.recorded import RecordedAnswers
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.readings import STATUS_FIELDS, sample_of
from skyhop_testbed.triggers.alarm import Alarm, variables


@dataclass
class Started:
    """Command that a test ends."""

    result: str | None = ""

    def failure(self) -> str | None:
        """Return the result that the test has set."""
        return self.result


@dataclass
class Watch:
    """Alarm over samples that a test gives, second by second."""

    condition: str = "pop_ping_latency_ms > 100"
    cooldown_s: float = 10
    result: str | None = ""
    runs: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    second: int = 0

    def __post_init__(self) -> None:
        self.commands: list[Started] = []
        self.alarm = Alarm(self.condition, self.cooldown_s, self._start, self.said.append)

    def _start(self, extra: Mapping[str, str]) -> Started:
        self.runs.append((self.second, extra))
        self.commands.append(Started(self.result))
        return self.commands[-1]

    def give(self, *latencies_ms: float | None) -> list[int]:
        """Give a sample per second; return the seconds in which the command was started."""
        for each in latencies_ms:
            sample: Sample = {TIME: BEGIN_NS + self.second * S, "pop_ping_latency_ms": each}
            self.alarm.add(sample)
            self.second += 1
        return [second for second, _ in self.runs]


def test_the_command_runs_when_the_condition_becomes_true() -> None:
    assert Watch().give(50, 150, 150, 50) == [1]


def test_a_rise_in_the_cooldown_runs_the_command_at_its_end_if_it_lasts() -> None:
    assert Watch(cooldown_s=5).give(150, 50, 150, 150, 150, 150, 150) == [0, 5]
    assert Watch(cooldown_s=5).give(150, 50, 150, 50, 50, 50, 50) == [0]
    assert Watch(cooldown_s=0).give(150, 50, 150, 50, 150) == [0, 2, 4]


def test_a_command_that_runs_is_not_started_again() -> None:
    watch = Watch(cooldown_s=1, result=None)
    assert watch.give(150, 50, 50, 150, 150, 150) == [0]
    assert sum("starts when the previous one ends" in line for line in watch.said) == 1
    watch.commands[0].result = ""
    assert watch.give(150) == [0, 6]


def test_a_failed_command_is_said_in_one_line() -> None:
    watch = Watch(result="the command ended with exit code 3: no route")
    watch.give(150, 50)
    assert watch.said[1:] == ["--run: the command ended with exit code 3: no route"]


def test_seconds_without_an_answer_count_as_unreachable() -> None:
    watch = Watch('state == "DISH_UNREACHABLE"', cooldown_s=1)
    watch.give(50)
    for late_s in (5, 6, 11, 12, 17):
        watch.alarm.add_unanswered(BEGIN_NS + late_s * S + S // 2)
    # A silent terminal is one rise, although each request takes seconds.
    assert len(watch.runs) == 1
    assert watch.runs[0][1]["DISH_STATE"] == "DISH_UNREACHABLE"
    watch.alarm.add_unanswered(BEGIN_NS + 3600 * S)
    assert len(watch.runs) == 2, "after an hour's sleep the machine starts afresh"


def test_the_command_gets_every_field_of_the_status() -> None:
    sample = sample_of(device_pb2.DishGetStatusResponse(pop_ping_latency_ms=26.5), BEGIN_NS)
    assert {*sample} == {TIME, *STATUS_FIELDS}
    got = variables({**sample, "currently_obstructed": True})
    assert got["DISH_TIME_NS"] == str(BEGIN_NS)
    assert got["DISH_POP_PING_LATENCY_MS"] == "26.5"
    assert got["DISH_CURRENTLY_OBSTRUCTED"] == "true"
    assert got["DISH_GPS_SATS"] == "", "not known"


@pytest.mark.parametrize("name", ["power_w", "probe_rtt_ms", "serving_satellite", "user_rx_bps"])
def test_a_field_that_a_status_never_has_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"--when: {name} is not in a terminal's status"):
        Alarm(f"changed({name})", 60, lambda _: Started(), print)


def test_alerts_are_fields_of_conditions() -> None:
    watch = Watch("alerts_roaming")
    watch.alarm.add({TIME: BEGIN_NS, "alerts": "roaming"})
    assert len(watch.runs) == 1


@pytest.mark.integration
def test_the_shell_runs_the_command_with_the_fields(skyhop: Skyhop) -> None:
    with served(RecordedAnswers(BEGIN_NS, recorded_status())) as address:
        done = skyhop(
            "dish", "watch", "--address", address, "--count", "2", "--json",
            "--when", "pop_ping_latency_ms > 0",
            "--run", "echo latency $DISH_POP_PING_LATENCY_MS; echo first >&2; nosuchprogram",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 2, "standard output has the samples alone"
    assert "latency 26.8" in done.stderr
    assert "the command ended with exit code 127: " in done.stderr
    assert "nosuchprogram" in done.stderr
    assert "first" not in done.stderr, "the last line says what failed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--when", "outage"), "give --run CMD too"),
        (("--run", "true"), "give --when EXPR too"),
        (("--when", "outage", "--run", " "), "--run: is empty"),
        (("--when", "outag", "--run", "true"), '"outag" is no field'),
        (("--when", "latency > 80 ms", "--run", "true"), "did you mean pop_ping_latency_ms, "),
        (("--cooldown", "5 s"), "--cooldown is for --when and --run"),
        (("--node", "home"), "give --record DIR too"),
        (("--when", "outage", "--run", "true", "--cooldown", "7"), 'such as "60 s"'),
        (("--when", "outage", "--run", "true", "--cooldown", "-1 s"), 'such as "60 s"'),
    ],
)
def test_wrong_options_are_refused_before_the_terminal_is_asked(
    skyhop: Skyhop, words: tuple[str, ...], said: str
) -> None:
    done = skyhop("dish", "watch", "--address", "127.0.0.1:1", *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr
