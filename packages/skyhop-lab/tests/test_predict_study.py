"""Studies of predictors: their runs, the metrics of claims, errors in their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from needs import needs_predict
from predictors import levels, write_rtt
from skyhop.errors import InputError
from skyhop.predict.baselines import BASELINES
from skyhop.study import load_study, run_study
from skyhop.study.claims import judge


def content(place: Path, **others: Any) -> dict[str, Any]:
    data = str(write_rtt(place / "site.csv", levels(900)))
    return {
        "title": "Baselines", "question": "Which?", "engine": "predict", "repeats": 2,
        "prediction": {"data": [data], "features": ["history"]},
        "axis": [{"name": "model", "key": "model", "values": list(BASELINES)},
                 {"name": "ahead", "key": "horizon", "values": [1, 5]}],
        "metric": [{"name": "per_ms", "kind": "expression", "value": "rmse / mae"}],
        "claim": [
            {"text": "later is worse",
             "check": 'mape(model="last value", ahead=1) < mape(model="last value", ahead=5)'},
            {"text": "none beats the best", "check": "mape() >= best_mape()",
             "each": {"model": list(BASELINES)}},
            {"text": "the grid is harder", "check": "grid_rmse() < rmse()"},
        ],
        "panel": [{"kind": "table", "title": "All", "metrics": ["mape", "per_ms", "seconds"],
                   "by": ["model", "ahead"]}],
        **others,
    }  # fmt: skip


def test_a_study_of_baselines_runs_and_its_claims_are_judged(tmp_path: Path) -> None:
    study = load_study(content(tmp_path))
    assert study.run_count == 2 * 2 * len(BASELINES)
    done = run_study(study, tmp_path / "study", jobs=1)
    assert not done.failures
    frame = done.results.frame
    assert frame.height == study.run_count
    assert (frame["seconds"] == 120).all(), "the test part of 900 s, less the gap"
    assert frame["per_ms"].to_list() == pytest.approx((frame["rmse"] / frame["mae"]).to_list())
    # Baselines use no random numbers: all seeds agree.
    one, two = (frame.filter(frame["seed"] == seed)["mape"].to_list() for seed in (1, 2))
    assert one == two
    assert [v.verdict for v in judge(study.claims, done.results)] == [
        "holds", "holds", "does not hold",
    ]  # fmt: skip
    again = run_study(load_study(content(tmp_path)), tmp_path / "study", jobs=1)
    assert again.results.frame.equals(frame)


def test_seeds_test_blocks_of_time(tmp_path: Path) -> None:
    axes = [{"name": "model", "key": "model", "values": ["last value", "15 s ago"]}]
    whole, blocks = (
        run_study(load_study(made), tmp_path / f"{made['repeats']}", jobs=1).results.frame
        for others in ({"repeats": 1}, {"repeats": 6})
        for made in [content(tmp_path, axis=axes, claim=[], panel=[], **others)]
        for _ in [made["prediction"].update(blocks=6 if made["repeats"] > 1 else None)]
    )
    for model in ("last value", "15 s ago"):
        of_blocks, of_whole = (f.filter(f["model"] == model) for f in (blocks, whole))
        assert (of_blocks["seconds"] == 20).all(), "120 s in six blocks"
        assert of_blocks["mape"].n_unique() == 6
        for measure in ("mape", "mae", "within_5", "best_mape"):
            assert of_blocks[measure].mean() == pytest.approx(of_whole[measure][0]), measure


def test_more_seeds_than_blocks_are_an_error(tmp_path: Path) -> None:
    axes = [{"name": "model", "key": "model", "values": ["last value"]}]
    made = content(tmp_path, axis=axes, claim=[], panel=[], repeats=3)
    made["prediction"]["blocks"] = 2
    done = run_study(load_study(made), tmp_path / "study", jobs=1)
    assert [failure.error for failure in done.failures] == [
        "prediction.blocks: 2 blocks have no block 3: lower `repeats`"
    ]


def test_other_data_are_another_run(tmp_path: Path) -> None:
    before = [run.run_id for run in load_study(content(tmp_path)).runs()]
    study = load_study(content(tmp_path))
    write_rtt(tmp_path / "site.csv", levels(900, seed=8))
    assert not set(before) & {run.run_id for run in study.runs()}


@pytest.mark.soak
def test_a_study_trains_what_it_names(tmp_path: Path) -> None:
    needs_predict("xgboost")
    axes = [{"name": "model", "key": "model", "values": ["xgboost", "last value"]}]
    made = content(tmp_path, axis=axes, claim=[], panel=[], repeats=1)
    done = run_study(load_study(made), tmp_path / "study", jobs=1)
    assert not done.failures
    rows = {row["model"]: row for row in done.results.frame.to_dicts()}
    assert rows["xgboost"]["seconds"] == rows["last value"]["seconds"]
    assert rows["xgboost"]["best_rmse"] == rows["last value"]["best_rmse"]
    assert rows["xgboost"]["rmse"] != rows["last value"]["rmse"]


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ({"prediction": None}, "[prediction] goes with engine"),
        ({"engine": "sim", "scenario": {}}, "[prediction] goes with engine"),
        ({"base": "x.toml"}, 'engine = "predict" takes no scenario'),
        (
            {"metric": [{"name": "x", "kind": "samples"}]},
            'takes metrics of kind "expression" or "relative" only',
        ),
        ({"claim": [{"text": "", "check": "goodput() > 1"}]}, "no metric `goodput`"),
        ({"axis": [{"name": "a", "key": "luck", "values": [1]}]}, "prediction.luck"),
        ({"axis": [{"name": "a", "key": "horizon", "values": [31]}]}, "prediction.horizon"),
        ({"prediction": {"target": "latency"}}, "prediction.data"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, others: dict[str, Any], says: str) -> None:
    made = content(tmp_path, **{"claim": [], "panel": [], **others})
    with pytest.raises(InputError) as refused:
        list(load_study({k: v for k, v in made.items() if v is not None}).runs())
    assert says in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_an_unknown_model_fails_its_run_alone(tmp_path: Path) -> None:
    axes = [{"name": "model", "key": "model", "values": ["oracle", "last value"]}]
    made = content(tmp_path, axis=axes, claim=[], panel=[], repeats=1)
    done = run_study(load_study(made), tmp_path / "study", jobs=1)
    assert [failure.labels["model"] for failure in done.failures] == ["oracle"]
    assert "expected arima, lstm, xgboost" in done.failures[0].error
    assert done.results.frame["model"].to_list() == ["last value"]
