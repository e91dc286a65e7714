"""Training of predictors: numpy's results equal the libraries', and no data leak."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop

from needs import needs_predict
from predictors import data_of, levels
from skyhop import predict
from skyhop.data.arrays import FloatArray
from skyhop.predict.change import relative
from skyhop.predict.measures import errors_of
from skyhop.predict.models import kinds
from skyhop.predict.models.xgboost import matrix
from skyhop.predict.split import bounds_of, parts_of
from skyhop.predict.windows import Windows, features_of, windows_of
from skyhop_lab.predict.kinds import arima, lstm, trainers
from skyhop_lab.predict.kinds.trainer import library
from skyhop_lab.predict.training import Plan, train

pytestmark = pytest.mark.soak

KINDS = sorted(kinds())
SECONDS = 900


AVAILABLE = [
    name for name, one in trainers().items() if all(map(importlib.util.find_spec, one.libraries))
]


def needs_kind(kind: str) -> None:
    """Skip the test if a kind of model cannot be trained here."""
    needs_predict(*trainers()[kind].libraries)


def parts(values: FloatArray, place: Path, horizon_s: int = 1) -> list[Windows]:
    """Return the training, check and test parts of a made-up series."""
    frame = data_of(place, values).frame
    features = features_of(frame, "latency", "latency_ms", ("history", "grid"))
    windows = windows_of(frame, features, horizon_s)
    ends = frame["time_ns"].to_numpy()
    bounds = bounds_of(np.zeros(len(ends), dtype=np.int64), ends)
    return [windows.select(part) for part in parts_of(windows, bounds)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, predict.Model]:
    if not AVAILABLE:
        needs_predict()
    place = tmp_path_factory.mktemp("trained")
    data = data_of(place, levels(SECONDS))
    models = train(data, AVAILABLE, place / "models", Plan(horizons=(1, 4)))
    return {model.card.model: model for model in models}


def test_cards_say_what_the_models_were_made_of(trained: dict[str, predict.Model]) -> None:
    for name, model in trained.items():
        card = model.card
        assert card.model == name
        assert [each.horizon_s for each in card.horizons] == [1, 4]
        assert card.sources[0].name == "site.csv"
        assert card.sources[0].seconds == SECONDS
        assert set(card.libraries) == set(trainers()[name].libraries)
        assert card.past == ["latency_ms"]
        assert card.beside == ["grid_phase_s"]
        assert card.parts[0].node == "site"
        for each in card.horizons:
            # The card's figures equal those of a test on the same data.
            whole = each.all_seconds
            better = {n: b.rmse for n, b in whole.baselines.items() if b.rmse < whole.model.rmse}
            assert bool(better) == ("rmse" in {worse.measure for worse in each.worse})


def test_a_test_of_the_training_data_is_of_the_test_part_alone(
    trained: dict[str, predict.Model], tmp_path: Path
) -> None:
    data = data_of(tmp_path, levels(SECONDS))
    for model in trained.values():
        for outcome, card in zip(model.test(data), model.card.horizons, strict=True):
            assert outcome.comparison() == card.all_seconds
            assert outcome.comparison(grid_only=True) == card.grid_seconds


def test_trees_beat_every_baseline_where_the_grid_decides(tmp_path: Path) -> None:
    """Levels change with the grid: a model that knows its phase errs less at changes.

    The made-up levels have one distribution throughout, so that the trees predict the value itself.
    """
    needs_kind("xgboost")
    data = data_of(tmp_path, levels(SECONDS))
    (model,) = train(data, ["xgboost"], tmp_path / "models", Plan(predicts="value"))
    horizon = model.card.horizons[0]
    assert horizon.last_at_most is None
    assert horizon.worse == [] or {w.measure for w in horizon.worse} <= {
        "within_5_pct", "within_10_pct", "ape_p50_pct"
    }  # fmt: skip
    grid = horizon.grid_seconds
    assert grid.model.rmse < 0.85 * min(each.rmse for each in grid.baselines.values())


@pytest.mark.parametrize("kind", ["lstm", "xgboost"])
def test_a_level_above_all_training_data_is_predicted_by_its_change(
    kind: str, tmp_path: Path
) -> None:
    """The last quarter, which is tested, is 60 ms above the rest."""
    needs_kind(kind)
    values = levels(SECONDS)
    values[3 * SECONDS // 4 :] += 60.0
    data = data_of(tmp_path, values)
    errors = {}
    for predicts in ("value", "change"):
        plan = Plan(groups=("history",), predicts=predicts, train_share=0.75)
        (model,) = train(data, [kind], tmp_path / predicts, plan)
        errors[predicts] = model.card.horizons[0].all_seconds.model.mae
    assert errors["change"] < errors["value"] / 3


def test_little_data_get_small_batches() -> None:
    assert [lstm._batch(windows) for windows in (10, 514, 33_780)] == [1, 16, 256]


@pytest.mark.parametrize("kind", KINDS)
def test_trained_twice_from_one_seed_is_identical(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_kind(kind)
    # Few epochs suffice for this test.
    monkeypatch.setattr(lstm, "_EPOCHS", 3)
    fit, check, _ = parts(levels(600), tmp_path)

    first = trainers()[kind].train(fit, check, 7)
    arima._fit_series.cache_clear()
    again = trainers()[kind].train(fit, check, 7)
    assert first == again
    if kind != "arima":
        # ARIMA uses no random numbers.
        assert trainers()[kind].train(fit, check, 8).content != first.content


# --- numpy against the libraries ---


def limit_of(model: predict.Model) -> float:
    """Return the largest last value that counts, from the card of a model of changes."""
    limit = model.card.horizons[0].last_at_most
    assert limit is not None
    return limit


def test_trees_are_those_of_xgboost(trained: dict[str, predict.Model], tmp_path: Path) -> None:
    needs_kind("xgboost")
    xgboost = library("xgboost")
    model = trained["xgboost"]
    content = json.loads((model.directory / "xgboost-1.json").read_bytes())
    scale = content.pop("skyhop_scale")
    (tmp_path / "own.json").write_text(json.dumps(content), "utf-8")
    booster = xgboost.Booster(model_file=str(tmp_path / "own.json"))
    test = parts(levels(SECONDS), tmp_path)[2]
    # Missing values follow the default directions that the trees have learned.
    blind = replace(test, covariates=np.full_like(test.covariates, np.nan))
    limit = limit_of(model)
    for windows in (test, blind):
        rows = matrix(relative(windows, limit))
        its = booster.predict(xgboost.DMatrix(rows)).astype(np.float64) * scale
        its += np.minimum(windows.past[:, -1, 0], limit)
        assert model.predict(windows) == pytest.approx(its, rel=2e-6)


def test_the_lstm_is_that_of_jax(trained: dict[str, predict.Model], tmp_path: Path) -> None:
    needs_kind("lstm")
    jax = library("jax")
    jnp = jax.numpy
    model = trained["lstm"]
    with np.load(model.directory / "lstm-1.npz") as file:
        held = {name: file[name] for name in file.files}
    whole = parts(levels(SECONDS), tmp_path)[2]
    test = relative(whole, limit_of(model))
    past = (test.past[:, -int(held["length_s"]) :] - held["past_mean"]) / held["past_sd"]
    covariates = (test.covariates - held["beside_mean"]) / held["beside_sd"]

    def step(carried, now):
        hidden, cell = carried
        gates = now @ held["of_past"] + hidden @ held["of_state"] + held["bias"]
        enter, forget, leave, new = jnp.split(gates, 4, axis=1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        return (jax.nn.sigmoid(leave) * jnp.tanh(cell), cell), None

    zeros = jnp.zeros((len(past), held["of_state"].shape[0]))
    (hidden, _), _ = jax.lax.scan(step, (zeros, zeros), jnp.swapaxes(jnp.asarray(past), 0, 1))
    found = jnp.hstack([hidden, covariates]) @ held["out"] + held["out_bias"]
    its = np.asarray(found)[:, 0] * held["truth_sd"] + held["truth_mean"]
    its += np.minimum(whole.past[:, -1, 0], limit_of(model))
    assert model.predict(whole) == pytest.approx(its, rel=1e-4)


@pytest.mark.parametrize("order", [(1, 0, 1), (2, 1, 1), (0, 1, 2)])
def test_forecasts_are_those_of_statsmodels(order: tuple[int, int, int], tmp_path: Path) -> None:
    needs_kind("arima")
    model = library("statsmodels.tsa.arima.model").ARIMA
    test = parts(levels(SECONDS), tmp_path, horizon_s=5)[2]
    test = test.select(np.arange(len(test)) < 20)
    ar, ma, mean = [0.4, 0.2][: order[0]], [0.3, -0.2][: order[2]], 30.0
    saved = {"differences": order[1], "mean": 0.0 if order[1] else mean, "ar": ar, "ma": ma}
    own = kinds()["arima"].read(json.dumps(saved).encode(), 1, 0)(test)
    for row, found in enumerate(own):
        trend = "n" if order[1] else "c"
        fixed = model(test.past[row, :, 0], order=order, trend=trend)
        parameters = [*([] if order[1] else [mean]), *ar, *ma, 1.0]
        its = fixed.filter(parameters).forecast(5)[-1]
        # The models start differently before the window; after 30 s the difference is small.
        assert found == pytest.approx(its, rel=2e-3), (order, row)


# --- leaks ---


@pytest.mark.parametrize("kind", KINDS)
def test_a_future_that_is_permuted_is_not_foretold(kind: str, tmp_path: Path) -> None:
    """A model that had seen the predicted second would beat the constant median."""
    needs_kind(kind)
    draw = np.random.default_rng(5)
    fit, check, test = parts(draw.permutation(levels(SECONDS)), tmp_path)
    made = trainers()[kind].train(fit, check, 1)
    predicted = kinds()[kind].read(made.content, 1, 1)(test)
    constant = errors_of(test.truth, np.full(len(test), np.median(test.truth)))
    assert errors_of(test.truth, predicted).mae > 0.97 * constant.mae


@pytest.mark.parametrize("kind", KINDS)
def test_older_knowledge_does_not_improve(
    kind: str, trained: dict[str, predict.Model], tmp_path: Path
) -> None:
    """Targets further ahead have larger errors, unless the errors were small due to a leak."""
    needs_kind(kind)
    values = levels(SECONDS)
    now, later = (parts(values, tmp_path, horizon_s)[2] for horizon_s in (1, 3))
    own = errors_of(now.truth, trained[kind].predict(now))
    shifted = errors_of(later.truth, trained[kind].predict(replace(later, horizon_s=1)))
    assert shifted.mae > 1.02 * own.mae


def test_the_command_trains_and_says_where_a_baseline_is_better(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    needs_kind("xgboost")
    data_of(tmp_path, levels(SECONDS))
    done = skyhop("predict", "train", "site.csv", "--model", "xgboost", "--horizon", "1,2",
                  "--features", "history", "-o", "models")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("xgboost, ") >= 2
    for horizon_s in (1, 2):
        assert f"xgboost, {horizon_s} s ahead, is " in done.stdout
    card = json.loads((tmp_path / "models" / "xgboost" / "card.json").read_text("utf-8"))
    assert card["features"] == ["history"]
    refused = skyhop("predict", "train", "site.csv", "--horizon", "1", "-o", ".")
    assert refused.returncode == 0, "a directory of models may hold other files"
    (tmp_path / "full" / "xgboost").mkdir(parents=True)
    (tmp_path / "full" / "xgboost" / "mine.txt").write_text("mine", "utf-8")
    kept = skyhop("predict", "train", "site.csv", "-o", "full")
    assert kept.returncode == 2
    assert "exists and is no model" in kept.stderr
    assert (tmp_path / "full" / "xgboost" / "mine.txt").is_file()
