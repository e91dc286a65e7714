"""Paths that are rebuilt from pings, and the table that compares senders over them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import skyhop
from skyhop.data.arrays import FloatArray
from validation import pings, rebuilt_paths
from validation.pings import Case, Result
from validation.rebuilt_paths import IMPORTER, WAYS, Pings

MS = 1_000_000
INTERVAL_NS = 40 * MS
RTT_MS = np.array([30.0, 36, 28, 28, 61, 33, 20, 44, 41, 39, 30, 30])
"""Round trips; each falls by less than the interval, so that no ping overtakes another."""
SEEN = Pings(np.arange(len(RTT_MS)) * float(INTERVAL_NS), RTT_MS * MS)
END_NS = len(RTT_MS) * INTERVAL_NS
ALL = [IMPORTER, *WAYS]


def rebuilt(way: str, seen: Pings, place: Path, end_ns: int = END_NS) -> skyhop.Path:
    file = place / "rebuilt.parquet"
    if way == IMPORTER:
        rebuilt_paths.import_pings(seen, file)
    else:
        rebuilt_paths.write_path(WAYS[way](seen), end_ns, file, seen.outages_ns())
    return skyhop.read_path(file)


def delays(path: skyhop.Path, column: str, times_ns: FloatArray) -> FloatArray:
    """Return the delays of packets that enter the path at times, in ns."""
    at_ns, values = (path.frames[name].to_numpy() for name in ("t_ns", column))
    if path.header["between_frames"] == "linear":
        return np.interp(times_ns, at_ns, values)
    found: FloatArray = values[np.searchsorted(at_ns, times_ns, "right") - 1] * 1.0
    return found


def round_trips(path: skyhop.Path, sent_ns: FloatArray) -> FloatArray:
    turns_ns = sent_ns + delays(path, "delay_ns", sent_ns)
    return turns_ns + delays(path, "delay_back_ns", turns_ns) - sent_ns


@pytest.mark.parametrize("way", ALL)
def test_pings_at_the_same_times_measure_the_same(way: str, tmp_path: Path) -> None:
    again_ns = round_trips(rebuilt(way, SEEN, tmp_path), SEEN.sent_ns)
    assert again_ns == pytest.approx(SEEN.rtt_ns, abs=rebuilt_paths.ROUNDING_NS)


@pytest.mark.parametrize("way", ["linear", "linear, all there", "hold"])
def test_packets_between_two_pings_arrive_between_them(way: str, tmp_path: Path) -> None:
    path = rebuilt(way, SEEN, tmp_path)
    sent_ns = np.arange(0, SEEN.sent_ns[-1], MS / 4)
    arrive_ns = sent_ns + round_trips(path, sent_ns)
    assert np.diff(arrive_ns).min() > -100, "the order is kept"
    answered_ns = SEEN.sent_ns + SEEN.rtt_ns
    following = np.searchsorted(SEEN.sent_ns, sent_ns)
    assert (arrive_ns <= answered_ns[following] + 100).all()
    inside = following > 0
    assert (arrive_ns[inside] >= answered_ns[following[inside] - 1] - 100).all()


def test_a_trace_thinned_to_its_own_steps_is_the_same_path(tmp_path: Path) -> None:
    delay_ns = np.array([12.0, 12, 15, 11, 11, 13, 12, 14]) * MS
    curves, end_ns = pings.with_holes(np.tile(delay_ns, 40), np.zeros(320, dtype=bool))
    seen = pings.probed(curves, end_ns, pings.DELAY_STEP_NS)
    assert seen.rtt_ns[:2] == pytest.approx([24 * MS, 24 * MS + 3 * MS], abs=3 * MS)
    path = rebuilt("at sending", seen, tmp_path, end_ns)
    sent_ns = np.arange(0, seen.sent_ns[-1], MS / 2)
    assert round_trips(path, seen.sent_ns) == pytest.approx(seen.rtt_ns, abs=2)
    steps = np.searchsorted(seen.sent_ns, sent_ns, "right") - 1
    assert delays(path, "delay_ns", sent_ns) == pytest.approx(seen.rtt_ns[steps] / 2, abs=2)


def test_no_time_and_no_delay_is_lost(tmp_path: Path) -> None:
    # The trapezoids of the pings, and half of the last interval's.
    expected_ns = np.trapezoid(SEEN.rtt_ns, SEEN.sent_ns) / SEEN.sent_ns[-1]
    for way in ("linear", "linear, all there", IMPORTER, "at sending"):
        path = rebuilt(way, SEEN, tmp_path)
        assert path.header["duration_ns"] == END_NS
        mean_ns = rebuilt_paths.mean_rtt_ns(path, int(SEEN.sent_ns[-1]))
        assert mean_ns == pytest.approx(expected_ns, abs=1.5 * MS), way
    held = rebuilt_paths.mean_rtt_ns(rebuilt("hold", SEEN, tmp_path), int(SEEN.sent_ns[-1]))
    assert held == pytest.approx(expected_ns + INTERVAL_NS, rel=0.1), "half an interval each way"


@pytest.mark.parametrize("way", ALL)
def test_pings_lost_in_a_row_are_an_outage(way: str, tmp_path: Path) -> None:
    kept = np.r_[0:3, 7:12]
    path = rebuilt(way, Pings(SEEN.sent_ns[kept], SEEN.rtt_ns[kept]), tmp_path)
    down = path.frames.filter(pl.col("delay_ns").is_null())
    # The third ping takes 28 ms, and the next one would have been 14 ms under way.
    assert down["t_ns"].min() == pytest.approx(3 * INTERVAL_NS + 14 * MS, abs=1)
    back = path.frames.filter(pl.col("t_ns") > down["t_ns"].max())
    assert back["t_ns"].min() == 7 * INTERVAL_NS


def test_packets_of_a_hole_arrive_when_it_ends() -> None:
    holes = np.array([False, True, True, False])
    (there, back), end_ns = pings.with_holes(np.array([10.0, 10, 10, 12]) * MS, holes)
    assert end_ns == 40 * MS
    sent_ns = np.array([5.0, 10, 15, 29.5, 30]) * MS
    arrive_ms = (sent_ns + np.interp(sent_ns, *there)) / MS
    assert arrive_ms == pytest.approx([15, 42, 42, 42, 42])
    assert np.interp(sent_ns, *back) / MS == pytest.approx([10, 10, 10, 10, 12])


def test_the_table_has_errors_against_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    def case(interval: str, way: str) -> Case:
        return Case("trace", interval, way, {}, None, 0)

    cases = [case("", "original"), case("1 s", "linear"), case("1 s", "linear")]
    monkeypatch.setattr(pings, "leocc_cases", lambda _place: iter(cases))
    monkeypatch.setattr(pings, "victoria_cases", lambda _place: iter(()))

    def run(wanted: tuple[Case, str]) -> Result:
        is_copa = wanted[1] == "copa"
        return Result(50.0, 2.0) if not wanted[0].pings else Result(75.0 if is_copa else 50.0, 1.5)

    monkeypatch.setattr(pings, "simulate", run)
    with ThreadPoolExecutor(1) as executor:
        original, row = pings.table(executor).split("\n")
    assert original.startswith("| trace | | original | 50.0 Mbit/s, 2.00 |")
    assert row == (
        "| trace | 1 s | linear | +0 %, -25 % | +0 %, -25 % | +0 %, -25 % | +50 %, -25 %"
        " | +0 %, -25 % | 10 %, 25 % |"
    )
