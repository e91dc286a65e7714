"""The clock of tests: time passes when a test says so, and threads take turns in one order."""

from __future__ import annotations

import os
import selectors
import threading

import pytest
from manual_clock import BEGIN_NS, S_NS, KilledError, ManualClock


def test_time_passes_when_it_is_told_to() -> None:
    clock = ManualClock()
    assert (clock.now_ns(), clock.monotonic_s()) == (BEGIN_NS, 0.0)
    clock.advance(1.5)
    clock.sleep(0.5)
    assert (clock.now_ns(), clock.monotonic_s()) == (BEGIN_NS + 2 * S_NS, 2.0)
    clock.set_wall(7 * S_NS)
    clock.advance(1)
    assert (clock.now_ns(), clock.monotonic_s()) == (8 * S_NS, 3.0)


def test_a_wait_ends_with_its_event_or_its_time() -> None:
    clock, event = ManualClock(), threading.Event()
    assert not clock.wait(event, 3.0)
    clock.at(2.0, event.set)
    assert clock.wait(event, 3.0)
    assert clock.monotonic_s() == 5.0
    assert clock.wait(event, 3.0)
    assert clock.monotonic_s() == 5.0


def test_files_are_waited_for() -> None:
    clock, (reads, writes) = ManualClock(), os.pipe()
    with selectors.DefaultSelector() as selector:
        selector.register(reads, selectors.EVENT_READ)
        assert clock.select(selector, 1.0) == []
        clock.at(0.25, lambda: os.write(writes, b"x"))
        assert [key.fd for key, _ in clock.select(selector, 1.0)] == [reads]
    assert clock.monotonic_s() == 1.25
    os.close(reads)
    os.close(writes)


def test_threads_take_turns_in_the_order_of_their_moments() -> None:
    clock, told, done = ManualClock(), [], threading.Event()

    def tick(name: str, every_s: float) -> None:
        while not clock.wait(done, every_s):
            told.append((name, clock.monotonic_s()))

    make = clock.thread_class()
    threads = [make(target=tick, args=each) for each in (("slow", 2.0), ("quick", 0.75))]
    for thread in threads:
        thread.start()
    clock.advance(2.5)
    assert told == [("quick", 0.75), ("quick", 1.5), ("slow", 2.0), ("quick", 2.25)]
    done.set()
    for thread in threads:
        thread.join()
    assert not any(thread.is_alive() for thread in threads)
    assert clock.monotonic_s() == 2.5


def test_a_thread_is_killed_where_it_waits() -> None:
    clock, ends = ManualClock(), []

    def work() -> None:
        try:
            clock.sleep(100)
        except KilledError:
            ends.append(clock.monotonic_s())
            raise

    thread = clock.thread_class()(target=work)
    thread.start()
    clock.advance(3)
    clock.kill(thread)
    thread.join()
    assert ends == [3.0]


def test_what_does_not_come_to_be_fails() -> None:
    clock = ManualClock()
    message = "the condition does not hold within 5 s of the clock: never"
    with pytest.raises(pytest.fail.Exception, match=message):
        clock.until(lambda: False, 5.0, lambda: "never")
    assert clock.monotonic_s() == 5.0
