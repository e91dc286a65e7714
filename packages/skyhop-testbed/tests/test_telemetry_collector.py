"""A collector survives all failures of its terminal, and history fills gaps of the status."""

from __future__ import annotations

from collections.abc import Sequence

from skyhop.errors import RunError
from skyhop.telemetry.fields import TIME, UNREACHABLE, Sample
from skyhop_testbed.dish.collector import Collector

S = 10**9
START_S = 1_700_000_000


class Dish:
    """Terminal with its own clock: latency is the second's number, history the last 900."""

    def __init__(self) -> None:
        self.now_ns = START_S * S
        self.booted_s = START_S - 5
        self.is_silent = False
        self.asked: list[str] = []

    def _ask(self, what: str) -> int:
        self.asked.append(what)
        if self.is_silent:
            raise RunError("192.0.2.1:9200: does not answer")
        return self.now_ns // S

    def status(self) -> Sample:
        """Return the second's number as latency."""
        second = self._ask("status")
        return {"pop_ping_latency_ms": float(second), "state": "CONNECTED",
                "uptime_s": float(second - self.booted_s)}  # fmt: skip

    def history(self) -> Sequence[Sample]:
        """Return the last 900 seconds, including those before the boot."""
        second = self._ask("history")
        return [{TIME: n * S + 300_000_000, "pop_ping_latency_ms": float(n), "power_w": 50.0}
                for n in range(second - 899, second + 1)]  # fmt: skip

    def map(self) -> object:
        """Return a number as the map."""
        return self._ask("map")


class Kept:
    """Delivered samples, by second since the start, and reported lines."""

    def __init__(self) -> None:
        self.rows: dict[int, Sample] = {}
        self.lines: list[str] = []
        self.is_full = False

    def __call__(self, samples: Sequence[Sample]) -> None:
        """Store samples, as `deliver` of a collector."""
        if self.is_full:
            raise RunError("telemetry: no space left")
        for sample in samples:
            second = int(sample[TIME] or 0) // S - START_S
            assert int(sample[TIME] or 0) % S == 0
            self.rows.setdefault(second, {}).update(sample)


def collected(dish: Dish, kept: Kept) -> Collector:
    return Collector(dish, kept, say=kept.lines.append)


def run(collector: Collector, dish: Dish, seconds: int) -> None:
    end_ns = dish.now_ns + seconds * S

    def sleep(for_s: float) -> None:
        # Wake three milliseconds late.
        dish.now_ns += round(for_s * S) + 3_000_000

    collector.run(lambda: dish.now_ns, sleep, lambda: dish.now_ns >= end_ns)


def test_status_comes_each_second_and_history_every_five_minutes() -> None:
    dish, kept = Dish(), Kept()
    run(collected(dish, kept), dish, 700)
    assert set(range(700)) <= set(kept.rows)
    assert all(kept.rows[n]["pop_ping_latency_ms"] == START_S + n for n in range(700))
    assert dish.asked.count("history") == 3
    assert dish.asked.count("map") == 0
    assert kept.lines == []
    assert kept.rows[100]["power_w"] == 50.0, "what only history knows"
    assert min(kept.rows) == -5, "from before the collector, but not from before the terminal"


def test_a_silent_terminal_gives_rows_without_values_and_history_fills_them() -> None:
    dish, kept = Dish(), Kept()
    collector = collected(dish, kept)
    run(collector, dish, 20)
    dish.is_silent = True
    run(collector, dish, 30)
    assert kept.rows[40] == {TIME: (START_S + 40) * S, "state": UNREACHABLE}
    dish.is_silent = False
    run(collector, dish, 5)
    assert kept.rows[40]["pop_ping_latency_ms"] == START_S + 40
    assert kept.rows[40]["state"] == UNREACHABLE
    assert kept.lines == ["status: 192.0.2.1:9200: does not answer", "status: works again"]


def test_waiting_for_an_answer_in_vain_is_silence_too() -> None:
    dish, kept = Dish(), Kept()
    collector = collected(dish, kept)
    run(collector, dish, 10)
    dish.is_silent, ask = True, dish.status

    def slow() -> Sample:
        dish.now_ns += 4 * S
        return ask()

    dish.status = slow  # type: ignore[method-assign]
    run(collector, dish, 20)
    assert all(kept.rows[n]["state"] == UNREACHABLE for n in range(11, 25))


def test_seconds_in_which_nobody_asked_are_filled() -> None:
    dish, kept = Dish(), Kept()
    collector = collected(dish, kept)
    run(collector, dish, 20)
    dish.now_ns += 15 * S
    run(collector, dish, 2)
    assert kept.rows[30]["pop_ping_latency_ms"] == START_S + 30


def test_after_a_reboot_rings_of_another_life_do_not_count() -> None:
    dish, kept = Dish(), Kept()
    collector = collected(dish, kept)
    run(collector, dish, 20)
    dish.is_silent = True
    run(collector, dish, 60)
    dish.is_silent, dish.booted_s = False, START_S + 70
    run(collector, dish, 5)
    assert "pop_ping_latency_ms" not in kept.rows[60]
    assert kept.rows[75]["pop_ping_latency_ms"] == START_S + 75
    assert kept.rows[81]["state"] == "CONNECTED"


def test_what_is_no_error_of_ours_does_not_stop_it_either() -> None:
    dish, kept = Dish(), Kept()
    dish.status = lambda: {}["no such field"]  # type: ignore[method-assign]
    run(collected(dish, kept), dish, 3)
    assert [kept.rows[n]["state"] for n in range(3)] == [UNREACHABLE] * 3
    assert kept.lines == ["status: KeyError: 'no such field'"]


def test_samples_wait_for_whoever_keeps_them() -> None:
    dish, kept = Dish(), Kept()
    collector = collected(dish, kept)
    kept.is_full = True
    run(collector, dish, 10)
    assert kept.rows == {}
    kept.is_full = False
    run(collector, dish, 1)
    assert set(range(11)) <= set(kept.rows)
    assert kept.lines == ["keeping: telemetry: no space left", "keeping: works again"]


def test_the_map_is_asked_for_as_often_as_is_wanted() -> None:
    dish, kept = Dish(), Kept()
    maps: list[int] = []
    collector = Collector(dish, kept, on_map=lambda time_ns, _map: maps.append(time_ns))
    run(collector, dish, 5)
    assert maps == []
    collector.map_every_s = 15
    run(collector, dish, 31)
    assert len(maps) == 3
    collector.map_every_s = 1
    run(collector, dish, 10)
    assert len(maps) == 13
