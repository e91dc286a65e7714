"""Online retraining: training times, kept candidates, and no use of future data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop

from predictors import BEGIN_S, card_of, data_of
from skyhop import predict
from skyhop.errors import InputError
from skyhop.predict.models import ModelKind, Predictor, kinds
from skyhop.predict.windows import Windows
from skyhop_lab.predict.kinds import Trainer, trainers
from skyhop_lab.predict.kinds.trainer import Trained
from skyhop_lab.predict.retraining import walk_forward

S = 10**9
EVERY_S, SLIDING_S = 300, 1500


class Taught:
    """Kind of model that predicts the mean of its training part, and records its parts."""

    def __init__(self) -> None:
        self.parts: list[tuple[Windows, Windows]] = []

    def train(self, fit: Windows, check: Windows, _seed: int) -> Trained:
        """Return the mean of the training part."""
        self.parts.append((fit, check))
        return Trained(json.dumps(float(fit.truth.mean())).encode())

    @staticmethod
    def read(content: bytes, _columns: int, _beside: int) -> Predictor:
        """Return a predictor of that constant."""
        level = float(json.loads(content))
        return lambda windows: np.full(len(windows), level)


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> Taught:
    kind = Taught()
    made = ModelKind("taught", "for this test", ".json", kind.read)
    monkeypatch.setitem(kinds(), "taught", made)
    monkeypatch.setitem(trainers(), "taught", Trainer("taught", (), kind.train))
    return kind


def model_of(place: Path, level: float, horizons: tuple[int, ...] = (2,)) -> predict.Model:
    """Write a model that predicts a constant and was trained on the first 1,000 s."""
    content = json.dumps(level).encode()
    parts = [{"node": "site", "first_ns": (BEGIN_S + 1) * S, "check_ns": (BEGIN_S + 800) * S,
              "test_ns": (BEGIN_S + 1000) * S, "last_ns": (BEGIN_S + 1300) * S}]  # fmt: skip
    card = card_of("taught", content, horizons, parts=parts, libraries={})
    place.mkdir()
    (place / "card.json").write_text(json.dumps(card), "utf-8")
    for horizon_s in horizons:
        (place / f"taught-{horizon_s}.json").write_bytes(content)
    return predict.load_model(place)


STEP = np.concatenate((np.full(1500, 20.0), np.full(2100, 60.0)))


def test_a_level_that_changes_is_learned_and_one_that_does_not_is_not(
    tmp_path: Path, taught: Taught
) -> None:
    model = model_of(tmp_path / "m", 20.0)
    (found,) = walk_forward(model, data_of(tmp_path, STEP), EVERY_S, SLIDING_S)
    # From second 1,060 on there are nine periods, and a candidate after each but the last.
    assert (found.periods, found.trained, len(taught.parts)) == (9, 8, 8)
    assert found.retrained.end_ns.tolist() == found.once.end_ns.tolist()
    at_s = found.retrained.end_ns // S - BEGIN_S
    assert set(found.retrained.predicted[at_s < 1600]) == {20.0}
    # Once all of the 1,500 s have the new level, candidates predict it.
    assert set(found.retrained.predicted[at_s >= 3300]) == {60.0}
    assert 0 < found.kept < found.trained
    errors = [each.comparison().model.mae for each in (found.retrained, found.once)]
    assert errors[0] is not None
    assert errors[1] is not None
    assert errors[0] < errors[1]
    (same,) = walk_forward(model, data_of(tmp_path, np.full(3600, 20.0)), EVERY_S, SLIDING_S)
    assert same.kept == 0
    assert same.trained == 8


def test_parts_keep_apart_from_each_other_and_from_what_judges(
    tmp_path: Path, taught: Taught
) -> None:
    model = model_of(tmp_path / "m", 20.0)
    (found,) = walk_forward(model, data_of(tmp_path, STEP), EVERY_S, SLIDING_S)
    first_made_ns = int(found.once.end_ns.min()) - 2 * S
    for number, (fit, check) in enumerate(taught.parts, start=1):
        now_ns = first_made_ns + number * EVERY_S * S
        judge_ns = now_ns - EVERY_S * S
        assert fit.end_ns.min() >= now_ns - SLIDING_S * S
        assert fit.end_ns.max() + 60 * S <= check.end_ns.min()
        assert check.end_ns.max() + 60 * S < judge_ns


@pytest.mark.parametrize("cut_s", [1300, 1777, 2400])
def test_what_is_predicted_does_not_depend_on_what_comes_later(
    tmp_path: Path, taught: Taught, cut_s: int
) -> None:
    draw = np.random.default_rng(cut_s)
    values = STEP + draw.normal(0, 2, len(STEP))
    later = values.copy()
    later[cut_s:] = draw.uniform(1, 500, len(later) - cut_s)
    model = model_of(tmp_path / "m", 20.0, (1, 7))
    whole = walk_forward(model, data_of(tmp_path, values), EVERY_S, SLIDING_S)
    other = walk_forward(model, data_of(tmp_path, later), EVERY_S, SLIDING_S)
    assert taught.parts
    for one, another in zip(whole, other, strict=True):
        made_s = one.retrained.end_ns // S - BEGIN_S - one.retrained.horizon_s
        is_before = made_s <= cut_s
        assert is_before.any()
        same = one.retrained.predicted[is_before] == another.retrained.predicted[is_before]
        assert same.all()
        assert (one.retrained.predicted != another.retrained.predicted).any() == (one.kept > 0)


def test_data_that_are_short_leave_the_model_as_it_is(tmp_path: Path, taught: Taught) -> None:
    model = model_of(tmp_path / "m", 20.0)
    data = data_of(tmp_path, STEP[:400])
    other = replace(data, frame=data.frame.with_columns(node=predict_literal("elsewhere")))
    (found,) = walk_forward(model, other, 120, 300)
    assert (found.trained, found.kept) == (0, 0)
    assert found.retrained.predicted.tolist() == found.once.predicted.tolist()
    for every_s, sliding_s, why in ((59, 900, "--retrain"), (300, 599, "--sliding")):
        with pytest.raises(InputError, match=why):
            walk_forward(model, data, every_s, sliding_s)
    assert taught.parts == []


def predict_literal(text: str) -> object:
    import polars as pl

    return pl.lit(text)


def test_the_command_refuses_times_that_are_none(skyhop: Skyhop, tmp_path: Path) -> None:
    from predictors import write_model, write_rtt

    write_model(tmp_path / "m", "arima")
    write_rtt(tmp_path / "site.csv", STEP[:400])
    for every, why in (("soon", "--retrain"), ("5 s", "--retrain: expected 60 s at least")):
        done = skyhop("predict", "test", "m", "site.csv", "--retrain", every)
        assert done.returncode == 2
        assert why in done.stderr
        assert done.stderr.count("\n") == 1
