"""Predictors: their data, windows, measures and baselines, and models read with numpy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import Skyhop

import predictors
import skyhop
from damaged import Trial
from predictors import BEGIN_S, data_of, levels, write_model
from reference_files import reference
from skyhop import predict
from skyhop.cli.commands import complete_app
from skyhop.errors import InputError
from skyhop.predict.baselines import BASELINES
from skyhop.predict.cards import better_baselines, read_card
from skyhop.predict.frame import COLUMNS, read_frame, with_lags
from skyhop.predict.measures import errors_of
from skyhop.predict.model import evaluate
from skyhop.predict.models import kinds
from skyhop.predict.split import GAP_S, bounds_of, parts_of
from skyhop.predict.windows import (
    LONGEST_HORIZON_S,
    LOOK_BACK_S,
    SECOND_NS,
    USUAL,
    Windows,
    features_of,
    target_column,
    windows_of,
)
from skyhop.telemetry.store import Store
from skyhop_lab.predict.kinds import trainers
from skyhop_lab.predict.training import train

S = SECOND_NS


def windows(
    data: predict.Data, horizon_s: int = 1, groups: tuple[str, ...] = ("history",), **how: int
) -> Windows:
    column = target_column(data.frame, "latency", "down")
    return windows_of(
        data.frame, features_of(data.frame, "latency", column, groups), horizon_s, **how
    )


# --- data ---


def test_a_frame_of_round_trips_is_their_medians(tmp_path: Path) -> None:
    lines = [f"{BEGIN_S * S + 10**6 * ms},{20 + ms % 700}" for ms in range(0, 4000, 100)]
    (tmp_path / "Site.csv").write_text("\n".join(lines), "utf-8")
    frame = predict.read_data([tmp_path / "Site.csv"]).frame
    assert frame.columns == list(COLUMNS)
    assert frame["node"].unique().to_list() == ["site"]
    assert frame["time_ns"].to_list() == [(BEGIN_S + at) * S for at in range(1, 5)]
    expected = [np.median([20 + ms % 700 for ms in range(s, s + 1000, 100)])
                for s in range(0, 4000, 1000)]  # fmt: skip
    assert frame["latency_ms"].to_list() == expected
    firsts = predict.read_data([tmp_path / "Site.csv"], predict.Options(per_second="first"))
    assert firsts.frame["latency_ms"].to_list() == [20 + s % 700 for s in range(0, 4000, 1000)]
    # Midnight is 3 s after a moment of the grid.
    assert frame["grid_phase_s"].to_list() == [3.0, 4.0, 5.0, 6.0]
    assert frame["drop"].null_count() == 4, "the file does not tell losses"


def test_a_frame_is_written_with_its_lags_and_read_again(tmp_path: Path) -> None:
    data = data_of(tmp_path, levels(50), gaps=[20])
    predict.write_frame(data.frame, tmp_path / "frame.parquet")
    lagged = pl.read_parquet(tmp_path / "frame.parquet")
    assert {f"{name}_{lag}" for name in ("latency", "rx") for lag in range(1, 31)} <= set(
        lagged.columns
    )
    by_time = dict(zip(data.frame["time_ns"], data.frame["latency_ms"], strict=True))
    for row in with_lags(data.frame).iter_rows(named=True):
        for lag in (1, 7, 30):
            then = row["time_ns"] - lag * S
            # A gap shifts rows; a value whose time is not exactly `lag` seconds ago is null.
            is_whole = all(then + k * S in by_time for k in range(lag))
            assert row[f"latency_{lag}"] == (by_time.get(then) if is_whole else None)
    again = predict.read_data([tmp_path / "frame.parquet"])
    assert again.frame.equals(data.frame)
    assert again.sources[0].kind == "frame"


def test_telemetry_becomes_a_frame(tmp_path: Path) -> None:
    samples = [
        {"time_ns": (BEGIN_S + at) * S + 3, "pop_ping_latency_ms": 30.0 + at,
         "pop_ping_drop_rate": 0.1, "downlink_throughput_bps": 1e6 * at, "sat_count": 12,
         "direction_azimuth": 0.5, "serving_elevation": 61.0, "uplink_capacity_bps": 5e6}
        for at in range(40)
    ]  # fmt: skip
    Store(tmp_path / "kept").append("bcn-1", samples)
    up = predict.read_data([tmp_path / "kept"], predict.Options(direction="up"))
    row = up.frame.row(2, named=True)
    wanted = {"latency_ms": 32.0, "drop": 0.1, "rx_bps": 2e6, "sat_count": 12.0, "azimuth": 0.5,
              "serving_el": 61.0, "capacity_bps": 5e6, "time_ns": (BEGIN_S + 2) * S}  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert target_column(up.frame, "throughput", "up") == "capacity_bps"
    down = predict.read_data([tmp_path / "kept"]).frame
    assert target_column(down, "throughput", "down") == "rx_bps", "no capacity: what was used"


@pytest.fixture(scope="module")
def run_of_path(tmp_path_factory: pytest.TempPathFactory) -> skyhop.Run:
    place = tmp_path_factory.mktemp("run") / "site"
    scenario = {
        "path": {"from": "Madrid", "to": "London", "relay": "bent-pipe", "step": "1 s",
                 "handover": "max-elevation-grid"},
        "link": {"rate": "20 Mbit/s"},
        "flow": [{"kind": "tcp"}, {"kind": "probe", "interval": "100 ms"}],
        "run": {"duration": "40 s", "sample": "200 ms"},
    }  # fmt: skip
    return skyhop.sim(scenario, output=place)


def test_a_run_becomes_a_frame_with_the_satellites_of_its_path(run_of_path: skyhop.Run) -> None:
    frame = predict.read_data([run_of_path.directory]).frame
    assert frame.height == 40
    assert (frame["latency_ms"] > 5).all()
    goodput_bps = run_of_path.summary["flows"][0]["goodput_bps"]
    assert frame["rx_bps"].mean() == pytest.approx(goodput_bps, rel=0.02)
    path = run_of_path.path
    assert path is not None
    first = path.frames["nodes"].to_list()[0][1]
    serving = {round(el, 6) for el in frame["serving_el"].drop_nulls()[:5]}
    nearest = [frame[f"sat_{k}_dist"].to_list() for k in (1, 2)]
    assert all(a < b for a, b in zip(*nearest, strict=True) if b is not None)
    assert frame["sat_dist_min"].to_list() == nearest[0]
    assert first >= 0
    assert all(25 <= el <= 90 for el in serving), "the policy serves from 25 degrees on"
    squares = frame["sat_1_sin"] ** 2 + frame["sat_1_cos"] ** 2
    assert squares.to_list() == pytest.approx([1.0] * 40)
    # The grid's period is 15 s, and handovers are known until the path's last one.
    known = frame.filter(pl.col("serving_changes_in_s") == 1)
    assert known["grid_phase_s"].unique().to_list() == [14.0]


def test_a_path_file_has_the_same_satellites_as_its_constellation(
    run_of_path: skyhop.Run, tmp_path: Path
) -> None:
    path = run_of_path.path
    assert path is not None
    path.write(tmp_path / "site.parquet")
    of_path = predict.read_data([tmp_path / "site.parquet"]).frame
    assert of_path["latency_ms"].drop_nulls().min() > 5  # type: ignore[operator]
    where = path.header["from"]
    bare = of_path.with_columns(pl.lit(None).alias("sat_count"))
    predict.write_frame(bare, tmp_path / "bare.parquet")
    options = predict.Options(
        place=(where["latitude_deg"], where["longitude_deg"], 0.0),
        elements=path.header["constellation"],
    )
    of_fleet = predict.read_data([tmp_path / "bare.parquet"], options).frame
    for name in ("sat_count", "sat_1_dist", "sat_3_el", "sat_dist_mean"):
        assert of_fleet[name].to_list() == pytest.approx(of_path[name].to_list(), rel=1e-9)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda place: place.write_text("", "utf-8"), "is empty"),
        (lambda place: place.write_text("a,b\n1,2\n", "utf-8"), "no known format"),
        (lambda place: place.mkdir(), "neither a run directory nor one of telemetry"),
        (lambda _place: None, "there is no such file"),
    ],
)
def test_what_is_no_data_is_refused(
    tmp_path: Path, write: Callable[[Path], object], says: str
) -> None:
    place = tmp_path / "data"
    write(place)
    with pytest.raises(InputError, match=says):
        predict.read_data([place])


def test_the_same_seconds_twice_are_refused(tmp_path: Path) -> None:
    data_of(tmp_path, levels(50))
    with pytest.raises(InputError, match="have seconds of the same node in common"):
        predict.read_data([tmp_path / "site.csv", tmp_path / "site.csv"])


# --- windows and parts ---


def test_windows_hold_what_was_before_and_stop_at_gaps(tmp_path: Path) -> None:
    values = np.round(levels(120), 6)
    data = data_of(tmp_path, values, gaps=[70])
    for horizon_s in (1, 7, 30):
        found = windows(data, horizon_s)
        ends = [(int(end) // S) - BEGIN_S - 1 for end in found.end_ns]
        first = LOOK_BACK_S + horizon_s - 1
        wanted = [at for at in range(first, 120) if not at - first <= 70 <= at]
        assert ends == wanted, horizon_s
        for row, at in enumerate(ends):
            now = at - horizon_s
            assert (
                found.past[row, :, 0].tolist() == values[now - LOOK_BACK_S + 1 : now + 1].tolist()
            )
            assert found.truth[row] == values[at]
            assert found.has_grid[row] == ((BEGIN_S + at) % 15 == 12)


def test_no_window_of_one_part_holds_a_second_of_another(tmp_path: Path) -> None:
    data = data_of(tmp_path, levels(900))
    ends = data.frame["time_ns"].to_numpy()
    bounds = bounds_of(np.zeros(len(ends), dtype=np.int64), ends)
    for horizon_s in (1, LONGEST_HORIZON_S):
        found = windows(data, horizon_s)
        parts = [found.select(part) for part in parts_of(found, bounds)]
        seen = [
            {int(end) - S * k for end in part.end_ns for k in range(horizon_s + LOOK_BACK_S)}
            for part in parts
        ]
        assert all(seen), "none is empty"
        assert seen[0].isdisjoint(seen[1])
        assert seen[1].isdisjoint(seen[2])
        assert max(seen[0]) < min(seen[1]) < max(seen[1]) < min(seen[2])
        assert int(parts[2].end_ns[0]) - int(parts[1].end_ns[-1]) >= GAP_S * S


def test_the_hour_is_a_feature_only_of_several_days(tmp_path: Path) -> None:
    frame = data_of(tmp_path, levels(100)).frame
    assert features_of(frame, "latency", "latency_ms", USUAL).covariates == ("grid_phase_s",)
    later = frame.with_columns(pl.col("time_ns") + 3 * 86_400 * S)
    both = pl.concat([frame, later])
    features = features_of(both, "latency", "latency_ms", ("history", "hour"))
    assert features.covariates == ("hour_sin", "hour_cos")
    angle = np.arctan2(*windows_of(both, features, 1).covariates[0]) % (2 * np.pi)
    assert angle / (2 * np.pi) * 86_400 == pytest.approx(LOOK_BACK_S + 1)


def garbage_after(data: predict.Data, at: int) -> predict.Data:
    """Return data whose measured values differ from a row on."""
    row = pl.int_range(pl.len())
    wrong = pl.when(row >= at).then(999.0 + row).otherwise(pl.col("latency_ms"))
    return replace(data, frame=data.frame.with_columns(wrong.alias("latency_ms")))


def predictors_of(
    tmp_path: Path, horizons: tuple[int, ...]
) -> dict[str, Callable[[Windows], object]]:
    models = {kind: write_model(tmp_path / kind, kind, horizons).predict for kind in kinds()}
    return {**BASELINES, **models}


def test_no_prediction_changes_with_what_comes_later(tmp_path: Path) -> None:
    data = data_of(tmp_path, levels(200))
    horizons = (1, 5, 30)
    for name, asked in predictors_of(tmp_path, horizons).items():
        for horizon_s in horizons:
            whole = windows(data, horizon_s, with_unknown=True)
            for now in (60, 150):
                spoilt = windows(garbage_after(data, now + 1), horizon_s, with_unknown=True)
                made = [
                    w.end_ns - horizon_s * S <= (BEGIN_S + now + 1) * S for w in (whole, spoilt)
                ]
                before, after = (
                    np.asarray(asked(w))[is_made]
                    for w, is_made in zip((whole, spoilt), made, strict=True)
                )
                assert len(before) == now - LOOK_BACK_S + 2
                assert before.tolist() == after.tolist(), (name, horizon_s)
                assert np.asarray(asked(whole)).tolist() != np.asarray(asked(spoilt)).tolist()


# --- measures and baselines ---


def test_measures_are_what_arithmetic_gives() -> None:
    truth = np.array([100.0, 50.0, 0.0, 200.0])
    predicted = np.array([104.0, 45.0, 3.0, 150.0])
    found = errors_of(truth, predicted)
    assert (found.seconds, found.nonzero_seconds) == (4, 3)
    assert found.mape_pct == pytest.approx((4 + 10 + 25) / 3)
    assert found.weighted_ape_pct == pytest.approx(100 * (4 + 5 + 3 + 50) / 350)
    assert found.rmse == pytest.approx(np.sqrt((16 + 25 + 9 + 2500) / 4))
    assert found.mae == pytest.approx(62 / 4)
    assert (found.within_5_pct, found.within_10_pct) == pytest.approx((100 / 3, 200 / 3))
    assert found.ape_p50_pct == 10
    nothing = errors_of(np.zeros(2), np.ones(2))
    assert nothing.mape_pct is None
    assert nothing.weighted_ape_pct is None
    assert nothing.rmse == 1


def test_baselines_are_what_they_are_called(tmp_path: Path) -> None:
    values = np.round(levels(100), 6)
    data = data_of(tmp_path, values)
    for horizon_s in (1, 14, 15, 16, 30):
        found = windows(data, horizon_s)
        at = (found.end_ns // S - BEGIN_S - 1).astype(int)
        now = at - horizon_s
        few = np.array([values[n - 4 : n + 1] for n in now])
        wanted = {
            "last value": values[now], "mean of 5": few.mean(axis=1),
            "median of 5": np.median(few, axis=1),
            "harmonic mean of 5": 5 / (1 / few).sum(axis=1),
            "15 s ago": values[at - (15 if horizon_s <= 15 else 30)],
        }  # fmt: skip
        assert wanted.keys() == BASELINES.keys()
        for name, expected in wanted.items():
            assert BASELINES[name](found) == pytest.approx(expected, rel=1e-12), name


def measured(name: str, target: str, per_second: str = "median", direction: str = "down"):
    """Return errors of "last value" and "mean of 5" one second ahead over a reference file."""
    options = predict.Options(direction, per_second)  # type: ignore[arg-type]
    data = predict.read_data([reference(name)], options)
    column = target_column(data.frame, target, direction)  # type: ignore[arg-type]
    features = features_of(data.frame, target, column, ["history"])  # type: ignore[arg-type]
    found = []
    for baseline, look_back_s in (("last value", 1), ("mean of 5", 5)):
        each = windows_of(data.frame, features, 1, look_back_s=look_back_s)
        found.append(errors_of(each.truth, BASELINES[baseline](each)))
    return found


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        # MAPE, RMSE (ms or Mbit/s), within 5 %, within 10 %, MAPE of the mean of 5, as
        # published by skyhop's earlier measurement code.
        (("rtt/victoria_1.csv.gz", "latency"), (7.8, 4.24, 56, 71, None)),
        (("rtt/victoria_1.csv.gz", "latency", "first"), (46.7, 29.1, 16, 23, 40.0)),
        (("rtt/victoria_2.csv.gz", "latency", "first"), (44.7, 34.9, None, None, 41.7)),
        (("rtt/victoria_3.csv.gz", "latency", "first"), (47.1, 29.6, None, None, 38.6)),
        (("throughput/lagos_isl_100ms.csv.gz", "throughput", "mean", "up"),
         (17.3, 3.2, 32, 54, 22.4)),
    ],
)  # fmt: skip
def test_last_values_errors_are_those_that_were_measured_before(
    asked: tuple[str, ...], wanted: tuple[float | None, ...]
) -> None:
    last, mean = measured(*asked)
    scale = 1.0 if asked[1] == "latency" else 1e-6
    found = (last.mape_pct, last.rmse * scale, last.within_5_pct, last.within_10_pct, mean.mape_pct)
    for value, expected in zip(found, wanted, strict=True):
        # Results differ by the assignment of a ping to one of two adjacent seconds.
        assert expected is None or value == pytest.approx(expected, rel=0.04), (asked, found)


def test_errors_in_percent_of_throughput_hang_on_a_few_seconds_near_zero() -> None:
    """Seconds with other bounds change Lagos' MAPE from 142 %, measured before, to 92 %."""
    last, _ = measured("throughput/lagos_isl_100ms.csv.gz", "throughput", "mean", "down")
    assert last.rmse * 1e-6 == pytest.approx(25, rel=0.04)
    assert last.within_10_pct == pytest.approx(33, abs=1)
    assert 80 < last.mape_pct < 160
    assert last.weighted_ape_pct < 25 < last.mape_pct
    drive, _ = measured("throughput/drive_udp_down.csv.gz", "throughput", "mean", "down")
    # The file has two thirds of the rows of the earlier measurement.
    assert drive.rmse * 1e-6 == pytest.approx(43.7, rel=0.04)
    assert (drive.within_5_pct, drive.within_10_pct) == pytest.approx((22, 37), abs=1)


# --- models, read with numpy alone ---


def test_trees_go_where_their_nodes_say(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    data = data_of(tmp_path, levels(80))
    found = windows(data)
    newest = found.past[:, -1, 0].astype(np.float32)
    # Prediction: 10 times (the base score + a leaf of two + a tree that is a leaf).
    wanted = 10 * (1.0 + np.where(newest < np.float32(30), 1.0, 2.0) + 0.5)
    assert model.predict(found).tolist() == pytest.approx(wanted.tolist())
    assert {25.0, 35.0} == set(np.round(model.predict(found), 6))


def test_an_lstm_is_its_equations(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", "lstm")
    found = windows(data_of(tmp_path, levels(60)))
    with np.load(tmp_path / "m" / "lstm-1.npz") as file:
        weights = {name: file[name] for name in file.files}

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    for row in range(len(found)):
        hidden = cell = np.zeros(3)
        for value in found.past[row, -5:, 0]:
            gates = (value - 30) / 5 * weights["of_past"][0]
            enter, forget, leave, new = np.split(
                gates + hidden @ weights["of_state"] + weights["bias"], 4
            )
            cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(new)
            hidden = sigmoid(leave) * np.tanh(cell)
        wanted = 30 + 5 * float(hidden @ weights["out"][:, 0] + 0.1)
        assert model.predict(found)[row] == pytest.approx(wanted, rel=1e-5)


def test_an_arima_is_its_recursion(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", "arima", (1, 3))
    data = data_of(tmp_path, levels(60))
    for horizon_s in (1, 3):
        found = windows(data, horizon_s)
        for row in range(len(found)):
            values = found.past[row, :, 0]
            steps, error = np.diff(values), 0.0
            for at in range(1, len(steps)):
                error = steps[at] - (0.5 * steps[at - 1] - 0.25 * error)
            ahead = 0.5 * steps[-1] - 0.25 * error
            total = values[-1] + ahead
            for _ in range(horizon_s - 1):
                ahead *= 0.5
                total += ahead
            assert model.predict(found)[row] == pytest.approx(total, rel=1e-9)


def test_rates_ahead_know_no_rate_to_come(tmp_path: Path) -> None:
    throughput = {"target": "throughput", "column": "capacity_bps", "past": ["capacity_bps"]}
    model = write_model(tmp_path / "m", "arima", (1, 10), **throughput)
    series = 1e6 * levels(90)
    whole = predict.rates_ahead(model, series)
    assert whole.shape == (90, 30)
    for now in (0, 10, 29, 60):
        # A series cut after now gives the same predictions.
        assert predict.rates_ahead(model, series[: now + 1])[now].tolist() == whole[now].tolist()
    early = 5 / (1 / series[6:11]).sum()
    assert whole[10].tolist() == pytest.approx([early] * 30)
    assert (whole[40, :5] == whole[40, 0]).all(), "5 s is nearer to 1 s than to 10 s, 6 s is not"
    assert (whole[40, 5:] == whole[40, 9]).all()
    assert whole[40, 0] != whole[40, 9]
    gap = series.copy()
    gap[50] = np.nan
    assert np.isfinite(predict.rates_ahead(model, gap)).all()
    with pytest.raises(InputError, match="predicts latency: give a model of throughput"):
        predict.rates_ahead(write_model(tmp_path / "l"), series)
    clocked = {**throughput, "beside": ["grid_phase_s"], "features": ["history", "grid"]}
    knows = write_model(tmp_path / "k", "arima", **clocked)
    with pytest.raises(InputError, match="say when the series begins"):
        predict.rates_ahead(knows, series)
    assert predict.rates_ahead(knows, series, first_end_ns=BEGIN_S * S).shape == (90, 30)
    both = write_model(
        tmp_path / "b", "arima", **{**throughput, "past": ["capacity_bps", "rx_bps"]}
    )
    with pytest.raises(InputError, match="is given rx_bps too"):
        predict.rates_ahead(both, series)


def test_a_test_leaves_out_what_was_trained_on(tmp_path: Path) -> None:
    data = data_of(tmp_path, levels(400))
    ends = data.frame["time_ns"].to_list()
    part = {"node": "site", "first_ns": ends[0], "check_ns": ends[200], "test_ns": ends[250],
            "last_ns": ends[-1]}  # fmt: skip
    tested = write_model(tmp_path / "m", parts=[part]).test(data)[0]
    assert int(tested.end_ns[0]) == ends[250] + GAP_S * S
    assert int(tested.end_ns[-1]) == ends[-1]
    elsewhere = write_model(tmp_path / "n", parts=[{**part, "node": "another"}]).test(data)[0]
    assert len(elsewhere.truth) == 400 - LOOK_BACK_S
    inside = {**part, "test_ns": ends[-1]}
    with pytest.raises(InputError, match="no window that the model was not trained on"):
        write_model(tmp_path / "o", parts=[inside]).test(data)


def test_a_model_of_other_features_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", past=["latency_ms", "rx_bps"], beside=["sat_1_el"],
                        content=predictors.xgboost_file([predictors.tree()], 11))  # fmt: skip
    with pytest.raises(InputError, match=r"is given rx_bps, sat_1_el, which these data do not"):
        model.test(data_of(tmp_path, levels(100)))


def test_worse_names_the_best_baseline(tmp_path: Path) -> None:
    found = windows(data_of(tmp_path, levels(300)))
    perfect = evaluate(lambda w: w.truth, found).comparison()
    assert better_baselines(perfect) == []
    assert perfect.model.mape_pct == 0
    poor = evaluate(lambda w: w.past[:, -1, 0] * 3, found).comparison()
    worse = {each.measure: each for each in better_baselines(poor)}
    assert {"mape_pct", "rmse", "mae", "within_5_pct"} <= worse.keys()
    values = {name: each.mape_pct for name, each in poor.baselines.items()}
    assert worse["mape_pct"].baseline == min(values, key=lambda name: values[name] or 0)
    assert worse["mape_pct"].its < worse["mape_pct"].the_models


# --- commands and their errors ---


def test_a_library_that_lacks_is_one_line_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(tmp_path, levels(400))
    for kind, trainer in trainers().items():
        for name in trainer.libraries:
            # None in sys.modules makes the import fail.
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError, match=r"not installed: run .*skyhop-lab\[predict\]"):
            train(data, [kind], tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_test_and_show_need_no_library(skyhop: Skyhop, tmp_path: Path) -> None:
    data_of(tmp_path, levels(200))
    write_model(tmp_path / "m")
    done = skyhop("predict", "test", "m", "site.csv")
    assert done.returncode == 0, done.stderr
    assert "last value" in done.stdout
    assert "xgboost, 1 s ahead, is worse than: " in done.stdout
    shown = skyhop("predict", "show", "m", "site.csv", "-o", "figure.png")
    assert shown.returncode == 0, shown.stderr
    assert "is worse than: last value by MAE" in shown.stdout
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    as_json = json.loads(skyhop("predict", "test", "m", "site.csv", "--json").stdout)
    assert as_json[0]["all_seconds"]["model"]["seconds"] == 200 - LOOK_BACK_S


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "site.csv", "-o", "x", "--model", "oracle"), "expected arima, lstm, xgboost or"),
        (("train", "site.csv", "-o", "x", "--horizon", "31"), "expected seconds from 1 to 30"),
        (("train", "site.csv", "-o", "x", "--horizon", "soon"), "expected seconds such as"),
        (("train", "site.csv", "-o", "x", "--features", "luck"), "expected of history"),
        (("train", "site.csv", "-o", "x", "--target", "luck"), "expected latency or throughput"),
        (("train", "site.csv", "-o", "x", "--target", "throughput"), "have no throughput"),
        (("train", "site.csv", "-o", "x", "--elements", "starlink-shell1"), "give --place"),
        (("test", "nowhere", "site.csv"), "there is no such file: give a directory of a model"),
        (("show", "nowhere"), "there is no such file"),
        (("show", "nowhere", "-o", "x.png"), "give both, or neither"),
        (("frame", "site.csv", "-o", "x.csv"), "ends in .parquet"),
        (("frame", "site.csv", "-o", "x.parquet", "--direction", "sideways"), "down or up"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    data_of(tmp_path, levels(60))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        complete_app()(["predict", *arguments], standalone_mode=False)
    assert says in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_damaged_cards_are_refused(tmp_path: Path) -> None:
    card = predictors.card_of("lstm", b"", (1, 2))
    texts = [json.dumps(card).encode(), json.dumps({**card, "notes": []}, indent=1).encode()]

    def read(content: bytes) -> None:
        (tmp_path / "card.json").write_bytes(content)
        found = read_card(tmp_path / "card.json")
        (tmp_path / "card.json").write_bytes(found.text())
        assert read_card(tmp_path / "card.json") == found

    Trial("model card", texts).run(read)


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_damaged_models_are_refused(tmp_path: Path, kind: str) -> None:
    found = windows(data_of(tmp_path, levels(60)))

    def read(content: bytes) -> None:
        with np.errstate(all="ignore"):
            predicted = kinds()[kind].read(content, 1, 0)(found)
        assert predicted.shape == found.truth.shape

    is_text = kinds()[kind].suffix == ".json"
    Trial(f"model {kind}", [predictors.files()[kind]], is_text=is_text).run(read)


def test_a_file_that_is_not_its_cards_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", "arima")
    (tmp_path / "m" / "arima-1.json").write_bytes(predictors.arima_file(ar=[0.9]))
    with pytest.raises(InputError, match="does not match the digest in its card"):
        model.test(data_of(tmp_path, levels(100)))


def test_damaged_frames_are_refused(tmp_path: Path) -> None:
    predict.write_frame(data_of(tmp_path, levels(40)).frame, tmp_path / "frame.parquet")
    content = (tmp_path / "frame.parquet").read_bytes()

    def read(content: bytes) -> None:
        (tmp_path / "frame.parquet").write_bytes(content)
        frame = read_frame(tmp_path / "frame.parquet")
        predict.write_frame(frame, tmp_path / "again.parquet")
        assert read_frame(tmp_path / "again.parquet").equals(frame)

    Trial("prediction frame", [content], is_text=False, usual=30).run(read)
