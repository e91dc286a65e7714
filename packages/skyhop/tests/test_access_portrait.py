"""Portraits of access links: each row has its known value for a synthetic link."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import ROOT, Skyhop

import skyhop
from damaged import Trial
from reference_files import reference
from skyhop import sim
from skyhop.analysis.portrait import Portrait, Verdict, judge, portrait_of
from skyhop.analysis.portrait_grid import Grid
from skyhop.analysis.portrait_rows import MEMORY_MS, ROWS, STEP_LAGS_MS, Row
from skyhop.analysis.portrait_tables import portrait_tables
from skyhop.errors import InputError
from skyhop.telemetry.measured_link import MeasuredLink, RoundTrips, Series

Floats = npt.NDArray[np.float64]

MARK_NS = 1_699_999_992 * 10**9
"""A mark of UTC: the seconds of 1,699,999,992 are 12."""
PING_S, SLOT_S, SAW = 0.012, 15.0, 10
SLOTS = 16


def sent_s(slots: int = SLOTS) -> Floats:
    return np.arange(round(slots * SLOT_S / PING_S)) * PING_S


def sawtooth(hole_s: float = 0.0) -> tuple[Floats, Floats]:
    """Return answers (s) and round trips (ms) of pings.

    The floor is 20 ms and 30 ms by turns; the excess is 0 to 9 ms in a sawtooth of 10 pings. Pings
    that are sent in the last `hole_s` before a mark are lost.
    """
    at_s = sent_s()
    floor_ms = np.where((at_s + 0.03) // SLOT_S % 2 == 0, 20.0, 30.0)
    rtt_ms = floor_ms + np.arange(len(at_s)) % SAW
    kept = at_s % SLOT_S < SLOT_S - hole_s
    return (at_s + rtt_ms / 1e3)[kept], rtt_ms[kept]


def pings(answered_s: Floats, rtt_ms: Floats, mark: float | str | None = 0.0) -> Portrait:
    link = MeasuredLink("pings", "round trips", MARK_NS, is_utc=True, duration_s=SLOTS * SLOT_S,
                        round_trips=RoundTrips(answered_s, rtt_ms))  # fmt: skip
    return portrait_of(link, 12.0 if mark == 0.0 else mark)


def test_quantiles_floor_and_excess_of_a_sawtooth() -> None:
    values = pings(*sawtooth()).values
    assert values["rtt_p1_ms"] == pytest.approx(20, abs=0.01)
    assert values["rtt_p25_ms"] == pytest.approx(25, abs=0.5)
    assert values["rtt_p75_ms"] == pytest.approx(34, abs=1)
    assert values["rtt_p99_9_ms"] == pytest.approx(39, abs=0.01)
    assert values["floor_step_p50_ms"] == pytest.approx(10, abs=0.01)
    assert values["floor_step_p90_ms"] == pytest.approx(10, abs=0.01)
    for share, excess_ms in ((25, 2), (50, 4.5), (75, 7), (90, 8.5), (99, 9)):
        assert values[f"excess_p{share}_ms"] == pytest.approx(excess_ms, abs=0.5)


@pytest.mark.parametrize("interval_s", [PING_S, 0.0113, 0.004])
def test_memory_is_that_of_the_excess_by_probes_or_by_time(interval_s: float) -> None:
    # A sawtooth of n values has the autocorrelation 1 - 6 j (n - j) / (n^2 - 1) at lag j.
    at_s = np.arange(round(SLOTS * SLOT_S / interval_s)) * interval_s
    by_number = interval_s > 0.01
    size = SAW if by_number else 30
    rtt_ms = 20.0 + np.arange(len(at_s)) % size
    values = pings(at_s + rtt_ms / 1e3, rtt_ms).values
    for lag_ms in MEMORY_MS:
        lag = round(lag_ms / 12 if by_number else lag_ms / (interval_s * 1e3)) % size
        expected = 1 - 6 * lag * (size - lag) / (size**2 - 1)
        assert values[f"excess_correlation_{lag_ms}ms"] == pytest.approx(expected, abs=0.02)


def test_sparse_probes_have_only_lags_close_to_theirs() -> None:
    at_s = np.arange(SLOTS * 150) * 0.1
    rtt_ms = 20.0 + np.arange(len(at_s)) % SAW
    values = pings(at_s + rtt_ms / 1e3, rtt_ms).values
    assert "excess_correlation_12ms" not in values
    assert "excess_correlation_60ms" not in values
    assert values["excess_correlation_600ms"] == pytest.approx(1 - 6 * 6 * 4 / 99, abs=0.02)
    assert "hole_percent" not in values, "a hole of 60 ms cannot show"


def test_holes_at_the_marks_and_gaps_elsewhere() -> None:
    answered_s, rtt_ms = sawtooth(hole_s=0.15)
    elsewhere = (answered_s > 7 * SLOT_S + 5) & (answered_s < 7 * SLOT_S + 5.4)
    values = pings(answered_s[~elsewhere], rtt_ms[~elsewhere]).values
    gaps_ms = np.diff(answered_s) * 1e3
    at_marks = np.sort(gaps_ms)[-(SLOTS - 1) :]
    assert values["marks"] == SLOTS - 1
    assert values["hole_percent"] == 100
    assert values["hole_p50_ms"] == pytest.approx(np.median(at_marks))
    assert values["hole_longest_ms"] == pytest.approx(at_marks.max())
    assert 130 < at_marks.min() < at_marks.max() < 170
    assert values["gap_longest_ms"] == pytest.approx(410, abs=20)
    assert "hole_p50_ms" not in pings(*sawtooth()).values, "without holes"
    assert pings(*sawtooth()).values["hole_percent"] == 0


def test_round_trips_after_a_mark() -> None:
    answered_s, rtt_ms = np.array(sent_s()), np.full(len(sent_s()), 20.0)
    phases_s = answered_s % SLOT_S
    rtt_ms[phases_s < 0.5] += 10
    rtt_ms[phases_s < 0.25] += 30
    values = pings(answered_s, rtt_ms).values
    assert [values[f"rtt_{part}_ms"] for part in ("first", "second", "rest")] == pytest.approx(
        [60, 30, 20], abs=0.2
    )


def test_marks_of_utc_are_found_or_the_log_has_no_grid() -> None:
    answered_s, rtt_ms = sawtooth(hole_s=0.15)
    found = pings(answered_s, rtt_ms, None)
    assert found.grid == Grid(15.0, 12.0, "utc")
    assert found.values["hole_percent"] == 100
    noise = np.random.default_rng(1).exponential(5, len(sent_s())) + 30
    none = pings(sent_s() + 0.04, noise, None)
    assert none.grid == Grid(15.0, None, "none")
    assert "no grid" in none.text
    assert not none.values.keys() & {"marks", "hole_percent", "rtt_first_ms"}


def test_marks_of_another_clock_are_estimated() -> None:
    answered_s, rtt_ms = sawtooth(hole_s=0.15)
    link = MeasuredLink("own", "round trips", 4_200_000_000, is_utc=False, duration_s=SLOTS * 15.0,
                        round_trips=RoundTrips(answered_s, rtt_ms))  # fmt: skip
    grid = portrait_of(link).grid
    assert grid.origin == "estimated"
    # The holes begin there, at the last answer before 150 ms without any.
    assert grid.mark_s == pytest.approx(4.2, abs=0.15)
    assert portrait_of(link).values["hole_percent"] == 100
    assert portrait_of(link, 34.2).grid == Grid(15.0, pytest.approx(4.2), "given")


def test_short_logs_have_the_marks_of_utc_or_none() -> None:
    at_s = np.arange(1000) * PING_S
    trips = RoundTrips(at_s + 0.02, np.full(1000, 20.0))
    utc = MeasuredLink("utc", "round trips", MARK_NS, is_utc=True, duration_s=12, round_trips=trips)
    assert portrait_of(utc).grid == Grid(15.0, 12.0, "assumed")
    own = MeasuredLink("own", "round trips", 0, is_utc=False, duration_s=12, round_trips=trips)
    assert portrait_of(own).grid == Grid(15.0, None, "short")
    assert "too short" in portrait_of(own).text


STEP_S = 0.1
PER_SLOT = 150


def series(
    rate_mbps: Floats | None = None,
    loss: Floats | None = None,
    delay_ms: Floats | None = None,
    mark: float | None = 0.0,
) -> dict[str, float]:
    """Return the values of a direction's rows, without the prefix of its direction."""
    one = Series(0.0, STEP_S, rate_mbps, delay_ms, loss)
    link = MeasuredLink("series", "series", 0, is_utc=False, duration_s=600, series={"up": one})
    return {key.removeprefix("up_"): value for key, value in portrait_of(link, mark).values.items()}


def slots_of(slot: Floats, count: int = 40) -> Floats:
    return np.tile(slot, count)


def test_rates_of_two_levels_by_turns() -> None:
    # Slots of 10 and 20 Mbit/s by turns, with steps a fifth above and below by turns.
    level = np.repeat(np.tile([10.0, 20.0], 20), PER_SLOT)
    values = series(level * np.tile([0.8, 1.2], len(level) // 2))
    assert [values[f"rate_p{share}_mbps"] for share in (5, 50, 95)] == pytest.approx([8, 14, 24])
    assert [values[f"slot_p{share}_mbps"] for share in (5, 50, 95)] == pytest.approx([10, 15, 20])
    assert [values[f"slot_correlation_{lag}"] for lag in (1, 2, 4, 8)] == pytest.approx(
        [-1, 1, 1, 1]
    )
    assert values["within_spread"] == pytest.approx(0.2)
    lags = [values[f"within_correlation_{lag}ms"] for lag in STEP_LAGS_MS]
    assert lags == pytest.approx([-1, 1, -1, 1])


def test_rate_before_a_mark_and_mid_slot() -> None:
    slot = np.full(PER_SLOT, 10.0)
    slot[135:140] = 4.0
    slot[:30] = slot[130:135] = slot[140:] = 7.0
    values = series(slots_of(slot))
    assert values["rate_before_mbps"] == pytest.approx(4)
    assert values["rate_middle_mbps"] == pytest.approx(10)


def test_losses_of_two_levels_by_phase_and_their_runs() -> None:
    slot = np.zeros(PER_SLOT)
    slot[:5], slot[145:], slot[70] = 0.2, 0.05, 0.14
    values = series(loss=slots_of(slot))
    assert values["loss_first_percent"] == pytest.approx(20)
    assert values["loss_last_percent"] == pytest.approx(5)
    assert values["loss_elsewhere_percent"] == pytest.approx(0.1)
    assert values["loss_percent"] == pytest.approx(100 * slot.mean())
    assert values["loss_steps_percent"] == pytest.approx(100 * 11 / 150)
    # 40 runs of one step, 39 of ten, and those of five at the two ends.
    assert [values[f"loss_run_p{share}"] for share in (50, 90, 99)] == [5, 10, 10]
    assert not {key for key in series(loss=np.zeros(1500)) if "run" in key}


def test_one_way_delays_by_phase() -> None:
    slot = np.full(PER_SLOT, 40.0)
    slot[:5], slot[145:] = 90, 60
    values = series(delay_ms=slots_of(slot))
    assert [values[f"delay_{part}_ms"] for part in ("first", "last", "middle")] == pytest.approx(
        [90, 60, 40]
    )


def test_marks_between_two_steps() -> None:
    # A mark at 11.87 s: the step that contains it belongs to the slot before.
    slot = np.zeros(PER_SLOT)
    slot[119:124] = 0.5
    values = series(loss=slots_of(slot), mark=11.87)
    assert values["loss_first_percent"] == pytest.approx(50)
    assert values["loss_last_percent"] == 0


@pytest.mark.parametrize("first", [0, 73, 148])
def test_marks_of_series_are_estimated(first: int) -> None:
    draw = np.random.default_rng(first)
    slot = np.zeros(PER_SLOT)
    slot[(first - 1) % PER_SLOT] = 0.2
    slot[first] = 0.45
    slot[(first + 1) % PER_SLOT] = 0.5
    loss = slots_of(slot) * draw.uniform(0.5, 1, 40 * PER_SLOT)
    loss += (draw.random(len(loss)) < 0.03) * 0.1
    one = Series(0.0, STEP_S, loss=loss)
    link = MeasuredLink("series", "series", 0, is_utc=False, duration_s=600, series={"up": one})
    grid = portrait_of(link).grid
    assert (grid.mark_s, grid.origin) == (pytest.approx(first * STEP_S), "estimated")
    shuffled = Series(0.0, STEP_S, loss=draw.permutation(loss))
    link = MeasuredLink("none", "series", 0, is_utc=False, duration_s=600, series={"up": shuffled})
    assert portrait_of(link).grid.origin == "none"


def test_missing_steps_do_not_count() -> None:
    level = np.repeat(np.tile([10.0, 20.0], 20), PER_SLOT)
    level[:60] = np.nan
    level[1000:1003] = np.nan
    values = series(level)
    assert values["slot_p5_mbps"] == 10
    assert values["within_spread"] == 0
    assert values["slot_correlation_1"] == pytest.approx(-1)


def trace(tmp_path: Path, per_ms: list[int], seconds: int) -> Path:
    """Write a trace in mahimahi's format whose milliseconds repeat `per_ms`."""
    counts = np.resize(per_ms, seconds * 1000)
    counts[5000:5100] = 0
    file = tmp_path / "down.trace"
    file.write_text("".join(f"{ms}\n" * int(n) for ms, n in enumerate(counts.tolist())), "utf-8")
    return file


def test_frames_of_on_off_service(tmp_path: Path) -> None:
    (found,) = skyhop.portrait(trace(tmp_path, [0, 8, 0, 0], 20)).portraits
    values = found.values
    assert values["ms_empty_percent"] == pytest.approx(75, abs=0.2)
    assert values["ms_spread_1ms"] == pytest.approx(np.sqrt(3), rel=0.01)
    assert values["ms_spread_2ms"] == pytest.approx(1, rel=0.01)
    assert values["ms_spread_4ms"] < 0.08, "a frame has the same packets as another"
    assert 102 <= values["ms_hole_longest_ms"] <= 103
    assert found.lines_hz == (250, 500)
    assert values["down_rate_p50_mbps"] == pytest.approx(2 * 1514 * 8 / 1e3)
    assert found.what == "packet times, down"


def test_packets_at_random_have_no_lines(tmp_path: Path) -> None:
    file = tmp_path / "up.trace"
    at_ms = np.sort(np.random.default_rng(3).integers(0, 30_000, 30_000))
    file.write_text("\n".join(map(str, at_ms.tolist())), "utf-8")
    (found,) = skyhop.portrait(file).portraits
    assert found.lines_hz == ()
    assert found.values["ms_empty_percent"] == pytest.approx(100 / np.e, abs=1)
    assert found.values["ms_spread_1ms"] == pytest.approx(1, abs=0.03)
    assert found.what == "packet times, up"


def write_pings(file: Path, answered_s: Floats, rtt_ms: Floats, start_ns: int = MARK_NS) -> Path:
    rows = zip((answered_s * 1e9).astype(np.int64).tolist(), rtt_ms.tolist(), strict=True)
    file.write_text("".join(f"{start_ns + at},{rtt:g}\n" for at, rtt in rows), "utf-8")
    return file


def test_a_log_has_the_times_of_answers(tmp_path: Path) -> None:
    file = write_pings(tmp_path / "pings.csv", *sawtooth(hole_s=0.15))
    (found,) = skyhop.portrait(file).portraits
    expected = pings(*sawtooth(hole_s=0.15))
    assert found.grid == Grid(15.0, 12.0, "utc")
    assert found.values == pytest.approx(dict(expected.values), rel=1e-3, abs=1e-3)


def rows_of_series(slots: int = 20) -> str:
    lines = ["ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms"]
    for step in range(slots * PER_SLOT):
        phase = (step - 73) % PER_SLOT
        loss = 0.25 if phase < 3 else 0.0
        lines.append(
            f"{10 + step % 2},100,{30 + 20 * (phase < 5)},40,{loss},{loss / 5},{step * 100}"
        )
    return "\n".join(lines) + "\n"


def test_series_of_both_directions(tmp_path: Path) -> None:
    file = tmp_path / "lagos.csv"
    file.write_text(rows_of_series(), "utf-8")
    (found,) = skyhop.portrait(file).portraits
    assert found.grid == Grid(15.0, pytest.approx(7.3), "estimated")
    values = found.values
    assert values["up_loss_first_percent"] == pytest.approx(15)
    assert values["down_loss_first_percent"] == pytest.approx(3)
    assert values["up_delay_first_ms"] == pytest.approx(50)
    assert values["up_delay_middle_ms"] == pytest.approx(30)
    assert values["down_rate_p50_mbps"] == 100
    (given,) = skyhop.portrait(file, mark={"lagos": "7.4 s"}).portraits
    assert given.values["up_loss_first_percent"] == pytest.approx(10)
    (none,) = skyhop.portrait(file, mark="none").portraits
    assert "up_loss_first_percent" not in none.values


def irtt(tmp_path: Path) -> Path:
    """Write a log of irtt whose way up takes 30 ms, and 12 ms down; 50 ms up after marks."""
    trips = []
    for number in range(2400):
        at_ns = MARK_NS + number * 100_000_000
        up_ms = 50 if number % PER_SLOT < 5 else 30
        trips.append({
            "seqno": number, "lost": "false",
            "timestamps": {
                "client": {"send": {"wall": at_ns}, "receive": {"wall": at_ns + 10**6}},
                "server": {"receive": {"wall": at_ns + up_ms * 10**6},
                           "send": {"wall": at_ns + up_ms * 10**6}},
            },
            "delay": {"rtt": (up_ms + 12) * 10**6, "send": up_ms * 10**6, "receive": 12 * 10**6},
        })  # fmt: skip
    file = tmp_path / "irtt.json"
    file.write_text(json.dumps({"round_trips": trips}), "utf-8")
    return file


def test_irtt_has_one_way_delays(tmp_path: Path) -> None:
    (found,) = skyhop.portrait(irtt(tmp_path), mark="12 s").portraits
    values = found.values
    assert values["rtt_p50_ms"] == pytest.approx(42)
    # The importer takes the offset of the two clocks such that the least delays are equal.
    assert values["up_delay_middle_ms"] == pytest.approx(21, abs=0.1)
    assert values["up_delay_first_ms"] == pytest.approx(41, abs=4)
    assert values["down_delay_first_ms"] == pytest.approx(21, abs=4)


SCENARIO: dict[str, Any] = {
    "path": {"kind": "fixed", "rtt": "30 ms"},
    "link": {"rate": "10 Mbit/s", "queue": "20 ms"},
    "flow": [{"kind": "probe", "interval": "12 ms"}, {"cc": "cubic"}],
    "run": {"duration": "32 s"},
}


def test_a_run_is_probed_as_a_link_is(tmp_path: Path) -> None:
    run = skyhop.sim(SCENARIO, tmp_path / "run")
    (found,) = skyhop.portrait(tmp_path / "run").portraits
    assert skyhop.portrait(run).document() == skyhop.portrait(tmp_path / "run").document()
    values = found.values
    assert found.what == "run"
    assert 30 <= values["rtt_p1_ms"] <= values["rtt_p99_ms"] <= 51
    assert values["up_rate_p50_mbps"] == pytest.approx(10, rel=0.02)
    assert values["up_loss_percent"] < 1
    assert not any(key.startswith("down") for key in values), "only ACKs go back"
    (down,) = skyhop.portrait(tmp_path / "run", direction="down").portraits
    assert down.values["down_rate_p50_mbps"] == values["up_rate_p50_mbps"]


def test_a_run_of_probes_alone_has_no_rates(tmp_path: Path) -> None:
    run = skyhop.sim({**SCENARIO, "flow": SCENARIO["flow"][:1]}, tmp_path / "run",
                     sets=["run.duration=4 s"])  # fmt: skip
    values = skyhop.portrait(run).portraits[0].values
    assert values["rtt_p50_ms"] == pytest.approx(30, abs=0.2)
    assert not any(key.startswith(("up", "down")) for key in values)


def test_a_run_without_probe_and_traffic_is_an_error(tmp_path: Path) -> None:
    skyhop.sim({**SCENARIO, "flow": [{"cc": "cubic", "start": "31 s"}]}, tmp_path / "run",
               sets=["run.duration=1 s", "flow.0.start=0.999 s"])  # fmt: skip
    with pytest.raises(InputError, match='add a flow with kind = "probe"'):
        skyhop.portrait(tmp_path / "run")


def test_a_path_file_is_sampled_as_by_pings(tmp_path: Path) -> None:
    log = write_pings(tmp_path / "pings.csv", *sawtooth(hole_s=0.15))
    skyhop.import_path(log).write(tmp_path / "path.parquet")
    path, measured = skyhop.portrait(tmp_path / "path.parquet", log).portraits
    assert path.what == "path"
    read = skyhop.portrait(skyhop.read_path(tmp_path / "path.parquet")).portraits[0]
    assert (read.name, read.values) == ("from - to", path.values)
    for share in (5, 25, 50, 75, 95):
        key = f"rtt_p{share}_ms"
        assert path.values[key] == pytest.approx(measured.values[key], abs=1)
    assert path.values["floor_step_p50_ms"] == pytest.approx(10, abs=0.5)


def test_a_log_of_rates_alone(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    rows = "".join(f"{second},{10 + 10 * (second // 15 % 2)}\n" for second in range(600))
    file.write_text(f"time_s,rate_mbps\n{rows}", "utf-8")
    (found,) = skyhop.portrait(file, direction="up", mark="0 s").portraits
    assert found.values["up_slot_correlation_1"] == pytest.approx(-1)
    assert not any(key.startswith("rtt") for key in found.values)


def test_a_directory_of_runs_stands_for_its_runs(tmp_path: Path) -> None:
    for seed in (1, 2):
        skyhop.sim(SCENARIO, tmp_path / "runs" / f"seed-{seed}", sets=["run.duration=2 s"])
    found = skyhop.portrait(tmp_path / "runs").portraits
    assert [one.name for one in found] == ["seed-1", "seed-2"]


def test_a_trace_of_leocc_without_its_delays(tmp_path: Path) -> None:
    file = trace(tmp_path, [0, 8, 0, 0], 20).rename(tmp_path / "bw_down.txt")
    (alone,) = skyhop.portrait(file, mark="0 s").portraits
    assert "down_delay_middle_ms" not in alone.values
    (tmp_path / "delay_down.txt").write_text("30\n" * 2000, "utf-8")
    (found,) = skyhop.portrait(file, mark="0 s").portraits
    assert found.values["down_delay_middle_ms"] == pytest.approx(30)


def test_round_trips_of_seconds_with_a_rate(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    rows = "".join(
        f"{MARK_NS // 10**9 + second},{30 + second % 2},{10 + 10 * (second // 15 % 2)}\n"
        for second in range(600)
    )
    file.write_text(f"unix_s,latency_ms,rate_mbps\n{rows}", "utf-8")
    values = skyhop.portrait(file, mark="12 s").portraits[0].values
    assert values["rtt_p5_ms"] == 30
    # The first answer comes 30 ms after the mark, and the importer's time begins before it.
    assert values["down_slot_p95_mbps"] == pytest.approx(20, rel=0.02)
    assert values["down_within_spread"] < 0.2
    assert "down_within_correlation_100ms" not in values, "a second is not ten steps"
    assert not any("delay" in key for key in values), "halves of round trips were not measured"


def test_capacities_of_a_format_of_telemetry(tmp_path: Path) -> None:
    file = tmp_path / "drive_up.csv"
    # The second drive stands before the first.
    seconds = [*range(900, 1200), *range(300)]
    rows = "".join(f"0,{MARK_NS // 10**9 + s},{10 + s // 900},30\n" for s in seconds)
    file.write_text(f"segment,unix_s,mbps,speed\n{rows}", "utf-8")
    (found,) = skyhop.portrait(file).portraits
    assert found.what == "capacities, drive"
    assert found.values["up_rate_p5_mbps"] == 10
    assert found.values["up_rate_p95_mbps"] == 11
    assert found.values["up_slot_correlation_8"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("up.trace", "1\n20000000\n", "more than four hours"),
        ("up.trace", "1\n2\n", "lasts less than two steps"),
        ("lagos.csv", "1,2,3,4,0,0,0\n1,2,3,4,0,0,99\n1,2,3,4,0,0,198\n1,2,3,4,0,0,900000000000\n",
         "has gaps that are too long"),
        ("lagos.csv", "1,2,3,4,0,0,100\n1,2,3,4,0,0,0\n", "its times do not ascend"),
        ("lagos.csv", "1,2,3,4,0,0,100\n", "fewer than two steps"),
        ("pings.csv", "1734546419040668928,17.8\n", "fewer than two answered probes"),
        ("notes.txt", "hello\n", "notes.txt"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_errors(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        skyhop.portrait(tmp_path / name)


def test_damaged_logs(tmp_path: Path) -> None:
    file = tmp_path / "damaged.txt"
    pinged = write_pings(file, *(part[::40] for part in sawtooth())).read_bytes()
    packets = trace(tmp_path, [0, 1, 0, 0], 6).read_bytes()
    samples = [
        pinged,
        rows_of_series(slots=2).encode(),
        packets,
        b"segment,unix_s,mbps,speed\n0,1681314020,147.000,63.0\n0,1681314021,260.000,62.3\n",
        b"time_s,rtt_ms,down_mbps\n" + b"".join(b"%d,%d,5\n" % (s, 30 + s % 7) for s in range(60)),
    ]

    def read(content: bytes) -> None:
        file.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = skyhop.portrait(file)
        json.dumps(found.document(), allow_nan=False)
        list(portrait_tables(found))

    Trial("access portrait", samples, usual=60).run(read)


def made(name: str, **values: float) -> Portrait:
    return Portrait(name, "made", 60, Grid(15, None, "none"), values, (), {})


@pytest.mark.parametrize(
    ("value", "matches"), [(18.01, True), (17.99, False), (32.99, True), (33.01, False)]
)
def test_quantiles_of_round_trips_match_within_a_tenth(value: float, matches: bool) -> None:
    references = [made("a", rtt_p50_ms=20.0), made("b", rtt_p50_ms=30.0)]
    (verdict,) = judge(made("c", rtt_p50_ms=value), references).verdicts
    assert verdict.matches is matches


@pytest.mark.parametrize(
    ("value", "matches"), [(8.51, True), (8.49, False), (11.49, True), (11.51, False)]
)
def test_other_rows_match_within_15_per_cent(value: float, matches: bool) -> None:
    judgement = judge(made("c", excess_p50_ms=value), [made("a", excess_p50_ms=10.0, marks=3.0)])
    assert [verdict.matches for verdict in judgement.verdicts] == [matches]
    assert judgement.missing == (), "the number of marks is not judged"


def test_negative_values_have_a_range_that_is_wider_on_both_sides() -> None:
    row = Row("any", "", "", "")
    assert Verdict(row, -0.115, -0.1, -0.1).matches
    assert Verdict(row, -0.085, -0.1, -0.1).matches
    assert not Verdict(row, -0.12, -0.1, -0.1).matches
    assert not Verdict(row, 0.1, -0.1, -0.1).matches


def test_rows_that_a_portrait_lacks_are_named() -> None:
    judgement = judge(made("c", rtt_p5_ms=1), [made("a", rtt_p5_ms=1, up_loss_percent=2)])
    assert [row.key for row in judgement.missing] == ["up_loss_percent"]
    assert judgement.text == "c: 1 of 1 rows within the range, 1 rows missing"


def test_keys_of_rows_are_unique() -> None:
    keys = [row.key for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_command_prints_tables_of_80_columns(skyhop: Skyhop, tmp_path: Path) -> None:
    log = write_pings(tmp_path / "monday.csv", *sawtooth(hole_s=0.15))
    other = write_pings(tmp_path / "tuesday.csv", *sawtooth(hole_s=0.1))
    (tmp_path / "lagos.csv").write_text(rows_of_series(), "utf-8")
    done = skyhop("access", "portrait", log, tmp_path / "lagos.csv", "--against", other,
                  "-o", tmp_path / "figure.png")  # fmt: skip
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "monday" in done.stdout
    assert "marks every 15 s at 12 s (UTC's, found in the log)" in " ".join(done.stdout.split())
    assert "within" in done.stdout
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_command_prints_json(skyhop: Skyhop, tmp_path: Path) -> None:
    log = write_pings(tmp_path / "monday.csv", *sawtooth(hole_s=0.15))
    document = json.loads(skyhop("access", "portrait", log, "--json", "--against", log).stdout)
    (one,) = document["portraits"]
    assert one["grid"] == {"period_s": 15.0, "mark_s": 12.0, "origin": "utc"}
    assert one["values"]["hole_percent"] == 100
    assert {row["key"] for row in document["rows"]} == one["values"].keys()
    (judged,) = document["judgements"]
    assert all(row["matches"] for row in judged["rows"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mark", "monday=x"], "--mark"),
        (["--mark", "sunday=1 s"], 'no input is called "sunday"; there are monday'),
        (["--direction", "left"], "--direction: expected down or up"),
        (["--period", "1 ms"], "--period: expected at least 1 s"),
        (["--panel", "x", "-o", "x.png"], 'the figure has no panel "x"'),
        (["-o", "x.gif"], "x.gif"),
    ],
)
def test_wrong_options_are_one_line(
    skyhop: Skyhop, tmp_path: Path, options: list[str], message: str
) -> None:
    log = write_pings(tmp_path / "monday.csv", *sawtooth())
    done = skyhop("access", "portrait", log, *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


PAGE = (ROOT / "docs" / "how-to" / "access-link.md").read_text("utf-8")


def test_commands_of_the_page(skyhop: Skyhop, tmp_path: Path) -> None:
    answered_s, rtt_ms = sawtooth(hole_s=0.15)
    begin_s = MARK_NS // 10**9
    lines = (
        f"[{begin_s + at:.6f}] 64 bytes from 1.1.1.1: icmp_seq={number} ttl=57 time={rtt:g} ms"
        for number, (at, rtt) in enumerate(zip(answered_s, rtt_ms, strict=True))
    )
    (tmp_path / "ping.txt").write_text("\n".join(lines), "utf-8")
    (tmp_path / "lagos.csv").write_text(rows_of_series(), "utf-8")
    for day in ("monday", "tuesday"):
        log = write_pings(tmp_path / f"{day}.csv", answered_s, rtt_ms)
        (tmp_path / f"{day}.csv.gz").write_bytes(gzip.compress(log.read_bytes()))
    sim(SCENARIO, tmp_path / "runs" / "dish")
    commands = re.findall(r"^    skyhop (.+)$", PAGE, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        done = skyhop(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "lagos.png").read_bytes().startswith(b"\x89PNG")


def test_notebook_shows_a_table(tmp_path: Path) -> None:
    log = write_pings(tmp_path / "monday.csv", *sawtooth(hole_s=0.15))
    found = skyhop.portrait(log)
    shown = found._repr_html_()
    assert "marks with a hole" in shown
    assert len(found.plot().axes) == 4


VICTORIA = {
    "victoria_1": (
        [15.7, 17.0, 21.3, 25.6, 31.7, 58, 76, 149], [3.7, 6.2, 11.9, 21.1, 45.5, 129],
        [0.71, 0.57, 0.40, 0.24, 0.00], [1.0, 4.4], (51, 53, 205, 376), [52, 30, 28],
    ),
    "victoria_2": (
        [15.8, 17.3, 21.4, 26.4, 34.9, 78, 97, 159], [4.3, 6.9, 12.4, 21.2, 47.9, 135],
        [0.70, 0.56, 0.40, 0.22, 0.03], [1.8, 19], (48, 53, 205, 255), [64, 36, 32],
    ),
    "victoria_3": (
        [15.8, 17.0, 21.0, 24.6, 30.4, 45, 63, 144], [3.6, 6.2, 11.6, 19.5, 43.4, 125],
        [0.69, 0.55, 0.39, 0.21, 0.04], [1.3, 4.9], (50, 55, 158, 2876), [49, 29, 27],
    ),
}  # fmt: skip
"""Quantiles, excess, its memory, steps of the floor, holes (marks with one, marks, longest at a
mark and anywhere in ms), and means after a mark."""


@pytest.mark.parametrize("name", VICTORIA)
def test_figures_of_victoria(name: str) -> None:
    (found,) = skyhop.portrait(reference(f"rtt/{name}.csv.gz")).portraits
    values = found.values
    rtt, excess, memory, steps, (holes, marks, at_mark, anywhere), means = VICTORIA[name]

    def of(*keys: str) -> list[float]:
        return [values[key] for key in keys]

    assert found.grid == Grid(15.0, 12.0, "utc")
    keys = [row.key for row in ROWS]
    assert of(*keys[:8]) == pytest.approx(rtt, rel=0.008)
    assert of(*(key for key in keys if key.startswith("excess_p"))) == pytest.approx(
        excess, rel=0.015
    )
    assert of(*(f"excess_correlation_{lag}ms" for lag in MEMORY_MS)) == pytest.approx(
        memory, abs=0.01
    )
    assert of("floor_step_p50_ms", "floor_step_p90_ms") == pytest.approx(steps, rel=0.03)
    assert values["marks"] == marks
    assert values["hole_percent"] * marks / 100 == pytest.approx(holes)
    assert of("hole_longest_ms", "gap_longest_ms") == pytest.approx([at_mark, anywhere], abs=0.6)
    assert of("rtt_first_ms", "rtt_second_ms", "rtt_rest_ms") == pytest.approx(means, abs=0.6)


def test_oneweb_has_no_grid() -> None:
    (found,) = skyhop.portrait(reference("rtt/oneweb_iowa.csv.gz")).portraits
    assert found.grid.origin == "none"
    assert found.values["rtt_p50_ms"] == pytest.approx(50.9, abs=0.1)
    assert "hole_percent" not in found.values


LAGOS = {
    "up": {
        "rate": [2.8, 4.4, 6.4, 13, 26], "slot": [3.2, 6.5, 21.5],
        "slots": [0.85, 0.75, 0.72, 0.66], "spread": 0.23, "within": [0.56, 0.33, 0.09, 0.04],
        "loss": [1.1, 5.15, 1, 2, 5], "loss by phase": [14.9, 3.5, 0.52], "dip": [7.8, 9.8],
        "delay": [106, 95, 86],
    },
    "down": {
        "rate": [4.4, 44, 91, 132, 211], "slot": [43, 91, 150],
        "slots": [0.51, 0.46, 0.27, 0.16], "spread": 0.54, "within": [-0.01, 0.08, 0.06, 0.02],
        "loss": [0.78, 2.7, 1, 3, 14], "loss by phase": [1.65, 7.5, 0.51], "dip": [66, 97],
        "delay": [94, 102, 89],
    },
}  # fmt: skip
"""Figures by marks at 12 s of the trace's clock."""


@pytest.mark.parametrize("way", ["up", "down"])
def test_figures_of_lagos(way: str) -> None:
    file = reference("throughput/lagos_isl_100ms.csv.gz")
    (found,) = skyhop.portrait(file, mark="12 s").portraits
    of = {key.removeprefix(f"{way}_"): value for key, value in found.values.items()}
    expected = LAGOS[way]
    rate = [of[f"rate_p{share}_mbps"] for share in (5, 25, 50, 75, 95)]
    assert rate == pytest.approx(expected["rate"], rel=0.015)
    slot = [of[f"slot_p{share}_mbps"] for share in (5, 50, 95)]
    assert slot == pytest.approx(expected["slot"], rel=0.015)
    slots = [of[f"slot_correlation_{lag}"] for lag in (1, 2, 4, 8)]
    assert slots == pytest.approx(expected["slots"], abs=0.01)
    assert of["within_spread"] == pytest.approx(expected["spread"], abs=0.005)
    within = [of[f"within_correlation_{lag}ms"] for lag in STEP_LAGS_MS]
    assert within == pytest.approx(expected["within"], abs=0.01)
    loss = [of["loss_percent"], of["loss_steps_percent"]]
    loss += [of[f"loss_run_p{share}"] for share in (50, 90, 99)]
    assert loss == pytest.approx(expected["loss"], rel=0.015)
    phases = [of[f"loss_{part}_percent"] for part in ("first", "last", "elsewhere")]
    assert phases == pytest.approx(expected["loss by phase"], rel=0.015)
    dip = [of["rate_before_mbps"], of["rate_middle_mbps"]]
    assert dip == pytest.approx(expected["dip"], rel=0.01)
    delay = [of[f"delay_{part}_ms"] for part in ("first", "last", "middle")]
    assert delay == pytest.approx(expected["delay"], abs=0.5)


def test_marks_of_lagos_are_estimated() -> None:
    (found,) = skyhop.portrait(reference("throughput/lagos_isl_100ms.csv.gz")).portraits
    assert found.grid == Grid(15.0, pytest.approx(11.8), "estimated")
    by_phase = [
        found.values[f"{way}_loss_{part}_percent"]
        for way in ("up", "down")
        for part in ("first", "last")
    ]
    assert by_phase == pytest.approx([16.5, 1.6, 6.3, 2.6], abs=0.1)


def test_parts_of_lagos_have_the_marks_of_the_whole(tmp_path: Path) -> None:
    rows = gzip.decompress(reference("throughput/lagos_isl_100ms.csv.gz").read_bytes()).splitlines()
    for name, part in (("hour", slice(36_000)), ("rest", slice(36_000, None))):
        (tmp_path / f"{name}.csv").write_bytes(b"\n".join(rows[part]))
    hour, rest = skyhop.portrait(tmp_path / "hour.csv", tmp_path / "rest.csv").portraits
    assert [one.grid.mark_s for one in (hour, rest)] == pytest.approx([11.8, 11.8])


def test_figures_of_leocc() -> None:
    (found,) = skyhop.portrait(reference("throughput/leocc_bw_example.txt.gz")).portraits
    values = found.values
    assert values["ms_empty_percent"] == pytest.approx(70, abs=0.5)
    spreads = [value for key, value in values.items() if key.startswith("ms_spread")]
    assert spreads == pytest.approx([1.84, 1.14, 0.71, 0.38, 0.22, 0.18, 0.16], abs=0.006)
    assert values["ms_hole_longest_ms"] == 134
    assert {250, 375, 500, 118, 132} <= set(found.lines_hz)
