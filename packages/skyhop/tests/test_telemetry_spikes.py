"""Planted spikes are found with their length and height; and paths from telemetry."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from conftest import Skyhop

from reference_files import reference
from skyhop.analysis.spikes import Series, find_spikes
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers import probes
from skyhop.telemetry.paths import path_from_telemetry
from skyhop.telemetry.store import Store, TelemetryFile
from skyhop_testbed.agent.samples import write_samples

S = 10**9
START_NS = 1_700_000_007 * S
"""Begin on the grid: 22:13:27 UTC."""

Floats = npt.NDArray[np.float64]


def series(latency_ms: Floats, each_s: float, loss: Floats | None = None) -> Series:
    """Return latency at 1 Hz, or probes at 10 Hz."""
    step_ns = S if each_s else S // 10
    times = START_NS + step_ns * np.arange(1, len(latency_ms) + 1)
    return Series(
        times, latency_ms, np.full(len(times), np.nan) if loss is None else loss, each_s, "x"
    )


def noise(count: int) -> Floats:
    return np.asarray(np.random.default_rng(1).normal(30, 2, count))


@pytest.mark.parametrize(("rate", "each_s"), [(1, 1.0), (10, 0.0)])
def test_a_planted_spike_is_found_where_it_is(rate: int, each_s: float) -> None:
    latency_ms = noise(600 * rate)
    latency_ms[60 * rate : 75 * rate] += 50
    # One second above the threshold is no spike, nor is less than twice the median.
    latency_ms[200 * rate : 201 * rate] += 50
    latency_ms[300 * rate : 330 * rate] += 20
    latency_ms[400 * rate : 410 * rate] += 90
    found = find_spikes(series(latency_ms, each_s))
    first, second = found.spikes
    assert first.start_ns == pytest.approx(START_NS + 60 * S, abs=0.2 * S)
    assert first.length_s == pytest.approx(15, abs=0.2)
    assert (first.starts_on_grid, first.ends_on_grid) == (True, True)
    assert first.peak_ms == pytest.approx(83, abs=4)
    assert first.times_median == pytest.approx(first.peak_ms / 30, rel=0.02)
    # 6:40 and 6:50 after a moment of the grid.
    assert (second.starts_on_grid, second.ends_on_grid) == (False, False)
    assert found.share_above == pytest.approx(26 / 600, abs=0.004)
    assert first.loss_at_edges is None


def test_losses_at_the_edges_are_counted_and_do_not_end_a_spike() -> None:
    latency_ms, loss = noise(300), np.zeros(300)
    latency_ms[100:120] += 50
    latency_ms[[110, 111]] = np.nan
    loss[[99, 100, 110, 111]] = [0.5, 0.5, 1, 1]
    (spike,) = find_spikes(series(latency_ms, 1.0, loss)).spikes
    assert spike.length_s == 20
    # Four seconds around either edge.
    assert spike.loss_at_edges == pytest.approx(1.0 / 8)


def test_a_gap_ends_a_spike() -> None:
    latency_ms = noise(300)
    latency_ms[100:140] += 50
    whole = series(latency_ms, 1.0)
    keep = np.ones(300, bool)
    keep[110:125] = False
    holed = Series(whole.time_ns[keep], latency_ms[keep], whole.loss[keep], 1.0, "x")
    assert [spike.length_s for spike in find_spikes(holed).spikes] == [10, 15]


def test_each_window_has_its_own_median() -> None:
    latency_ms = np.concatenate([noise(900), noise(900) + 40])
    assert find_spikes(series(latency_ms, 1.0)).spikes == []
    assert find_spikes(series(latency_ms[:1000], 1.0), 1000).spikes[0].length_s == 100
    with pytest.raises(InputError, match="--window"):
        find_spikes(series(latency_ms, 1.0), 2)
    with pytest.raises(InputError, match="10 values"):
        find_spikes(series(latency_ms[:5], 1.0))


def test_the_spike_of_a_real_terminal_lasts_two_slots() -> None:
    found = probes(reference("rtt/victoria_1.csv.gz"))
    times = np.array([probe.time_ns for probe in found], np.int64)
    rtt_ms = np.array([probe.rtt_ms for probe in found], float)
    (spike,) = find_spikes(Series(times, rtt_ms, np.full(len(times), np.nan), 0.0, "x")).spikes
    assert spike.length_s == pytest.approx(30, abs=0.5)
    assert (spike.starts_on_grid, spike.ends_on_grid) == (True, True)


def kept(directory: Path, latency_ms: Floats, loss: Floats) -> Store:
    store = Store(directory)
    samples: list[Sample] = [
        {TIME: START_NS + S * (n + 1), "pop_ping_drop_rate": float(loss[n]),
         "pop_ping_latency_ms": None if loss[n] == 1 else float(latency_ms[n])}
        for n in range(len(latency_ms))
    ]  # fmt: skip
    store.append("bcn-1", samples)
    return store


def test_the_command_takes_a_directory_or_a_file(skyhop: Skyhop, tmp_path: Path) -> None:
    latency_ms, loss = noise(900), np.zeros(900)
    latency_ms[523:553] += 45
    kept(tmp_path / "kept", latency_ms, loss)
    printed = skyhop("telemetry", "spikes", "kept", "--node", "bcn-1", "-o", "spikes.png")
    assert printed.returncode == 0, printed.stderr
    assert "1 spike above 2 x the median of 30." in printed.stdout
    assert (tmp_path / "spikes.png").stat().st_size > 10_000
    lines = [f"{START_NS + n * S // 10},{30 + 60 * (100 <= n < 150)}" for n in range(600)]
    (tmp_path / "rtt.csv").write_text("\n".join(lines))
    found = json.loads(skyhop("telemetry", "spikes", "rtt.csv", "--json").stdout)
    assert [spike["length_s"] for spike in found["spikes"]] == [pytest.approx(5, abs=0.2)]
    assert skyhop("telemetry", "spikes", "missing.csv").returncode == 2


def test_a_path_holds_the_latency_and_the_losses_that_were_measured(tmp_path: Path) -> None:
    latency_ms, loss = noise(600), np.zeros(600)
    loss[100:110] = 1.0
    loss[200:300] = 0.1
    latency_ms[400:] = 60.0
    frame = kept(tmp_path / "kept", latency_ms, loss).read(["bcn-1"])
    trace, field, unknown = path_from_telemetry(frame, from_="47.61,-122.33", to="48.43,-123.37")
    assert (field, unknown) == ("pop_ping_latency_ms", 0)
    assert trace.header["duration_ns"] == pytest.approx(600 * S, abs=S)
    table = trace.frames.to_dict(as_series=False)
    starts = np.array(table["t_ns"]) / S
    ways = zip(table["delay_ns"], table["delay_back_ns"], strict=True)
    rtt_ms = np.array([np.nan if there is None else (there + back) / 1e6 for there, back in ways])

    def at(second: float) -> int:
        return int(np.searchsorted(starts, second, side="right")) - 1

    for second in (50, 150, 350, 500, 599):
        assert rtt_ms[at(second - 0.5)] == pytest.approx(latency_ms[second - 1], abs=0.1)
    assert np.isnan(rtt_ms[at(105)]), "all lost: an outage"
    losses = [table["loss"][at(second)] or 0.0 for second in (50.5, 250.5, 350.5)]
    assert losses == [0, pytest.approx(0.1, abs=0.03), 0]


def test_what_cannot_be_a_path_is_refused(tmp_path: Path) -> None:
    store = kept(tmp_path / "kept", noise(100), np.zeros(100))
    frame = store.read(["bcn-1"])
    with pytest.raises(InputError, match="--field"):
        path_from_telemetry(frame, "tilt")
    with pytest.raises(InputError, match="there is no probe_rtt_ms in these times"):
        path_from_telemetry(frame, "probe_rtt_ms")
    store.append("bcn-1", [{TIME: START_NS + 500 * S, "pop_ping_latency_ms": 30.0}])
    with pytest.raises(InputError, match="399 of 500 s are not known"):
        path_from_telemetry(store.read(["bcn-1"]))
    store.append("bcn-1", [{TIME: START_NS + 10**7 * S, "pop_ping_latency_ms": 30.0}])
    with pytest.raises(InputError, match="give fewer with"):
        path_from_telemetry(store.read(["bcn-1"]))


def test_the_command_writes_a_path_that_runs(skyhop: Skyhop, tmp_path: Path) -> None:
    kept(tmp_path / "kept", noise(60), np.zeros(60))
    made = skyhop("telemetry", "path", "kept", "--node", "bcn-1", "-o", "path.parquet")
    assert made.returncode == 0, made.stderr
    (tmp_path / "run.toml").write_text(
        '[path]\nkind = "trace"\nfile = "path.parquet"\n[link]\nrate = "20 Mbit/s"\n'
        '[[flow]]\n[run]\nduration = "5 s"\n'
    )
    ran = skyhop("sim", "run.toml", "-o", "run")
    assert ran.returncode == 0, ran.stderr


def test_what_a_run_kept_is_read_by_every_command_and_replayed(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    latency_ms = noise(60)
    latency_ms[30:40] += 70
    kept(tmp_path / "kept", latency_ms, np.zeros(60))
    file = tmp_path / "telemetry.parquet"
    write_samples(tmp_path / "kept", "bcn-1", START_NS, START_NS + 61 * S, file)
    frame = Store(tmp_path / "kept").read(["bcn-1"])
    assert TelemetryFile(file).read(["bcn-1"]).equals(frame)
    assert TelemetryFile(file).read(from_ns=START_NS + 31 * S)["node"].unique().to_list() == [
        "telemetry"
    ]

    for words in (
        ("telemetry", "show", file.name),
        ("telemetry", "spikes", file.name),
        ("telemetry", "path", file.name, "-o", "path.parquet"),
        ("telemetry", "import", file.name, "--node", "bcn-2", "-o", "kept"),
        ("testbed", "trigger", "test", "pop_ping_latency_ms > 80", "--history", file.name),
    ):
        done = skyhop(*words)
        assert done.returncode == 0, (words, done.stderr)
        if words[1] == "spikes":
            assert "1 spike above" in done.stdout
        if words[1] == "trigger":
            assert "a run starts" in done.stdout
    again = Store(tmp_path / "kept").read(["bcn-2"])
    assert again.drop("node").equals(frame.drop("node"))
    (tmp_path / "replay.toml").write_text(
        '[path]\nkind = "trace"\nfile = "path.parquet"\n[link]\nrate = "20 Mbit/s"\n'
        '[[flow]]\n[run]\nduration = "50 s"\n'
    )
    ran = skyhop("sim", "replay.toml", "-o", "run")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"PAR1 and nothing else", "is damaged"), (b"x", "neither a directory"), (None, "no such")],
)
def test_a_file_that_is_no_telemetry_is_refused_in_one_line(
    skyhop: Skyhop, tmp_path: Path, content: bytes | None, what: str
) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    done = skyhop("telemetry", "show", "file")
    assert done.returncode == 2
    assert what in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_table_without_times_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"pop_ping_latency_ms": [1.0]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="no column time_ns"):
        TelemetryFile(tmp_path / "x.parquet").read()
