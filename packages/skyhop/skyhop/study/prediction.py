"""Engine "predict" of studies: each run trains and tests a predictor, or tests a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from skyhop.data.files import Scratch
from skyhop.errors import InputError
from skyhop.study.keys import StrictModel
from skyhop.study.metrics import MetricInfo
from skyhop.study.table_runs import TableKind, find_data, json_values, validated_table

if TYPE_CHECKING:
    from skyhop.predict import Data
    from skyhop.predict.cards import Comparison, Measures
    from skyhop.predict.model import Evaluation
    from skyhop.predict.training import Plan

_ABSOLUTE = "ms or Mbit/s"
_UNITS = {"mape": "%", "weighted_ape": "%", "rmse": _ABSOLUTE, "mae": _ABSOLUTE, "within_5": "%",
          "within_10": "%", "ape_p50": "%", "ape_p95": "%", "ape_p99": "%"}  # fmt: skip
_TITLES = {"mape": "MAPE", "weighted_ape": "weighted APE", "rmse": "RMSE", "mae": "MAE",
           "within_5": "within 5 %", "within_10": "within 10 %", "ape_p50": "APE p50",
           "ape_p95": "APE p95", "ape_p99": "APE p99"}  # fmt: skip
_KINDS = {"": "", "best_": "best baseline's ", "grid_": "at the grid: "}
"""Prefixes of metrics and titles: predictor, best baseline, predictor at the handover grid."""

METRICS: tuple[MetricInfo, ...] = (
    *(
        MetricInfo(f"{kind}{name}", f"{kind}{name}", f"{said}{_TITLES[name]}", unit)
        for kind, said in _KINDS.items()
        for name, unit in _UNITS.items()
    ),
    MetricInfo("seconds", "seconds", "seconds tested", ""),
    MetricInfo("nonzero_seconds", "nonzero_seconds", "of them not 0", ""),
)
"""Metrics for claims and panels; RMSE and MAE are in ms for latency, in Mbit/s for throughput."""


class Prediction(StrictModel):
    """Table [prediction] of a study file; axes set its keys."""

    data: list[str] = Field(min_length=1)
    """Runs, paths, telemetry or measurements, in a format that `skyhop predict` reads."""
    target: Literal["latency", "throughput"] = "latency"
    direction: Literal["down", "up"] = "down"
    model: str = "xgboost"
    """Kind of model of `skyhop predict train`, or a baseline such as "last value"."""
    horizon: int = Field(1, ge=1, le=30)
    """Horizon in s: time from the prediction to the end of the predicted second."""
    features: list[str] = Field(
        ["history", "position", "dish", "satellites", "obstruction", "hour", "grid", "serving"]
    )
    """Groups of features (docs/how-to/prediction.md); groups that the data lacks are left out."""
    predicts: Literal["change", "value"] = "change"
    """Quantity that models are trained to predict: the change from the last value, or the value."""
    blocks: int | None = Field(None, ge=2, le=1000)
    """Number of equal blocks of time of the test part. The run of a seed tests on the block of its
    number, all with the model of seed 1: intervals are then over blocks of time. By default each
    seed trains a model of its own, and tests it on the whole test part."""


class _PredictKind(TableKind[Prediction]):
    """Kind of runs that train and test a predictor, or test a baseline."""

    engine = "predict"
    table = "prediction"
    model = Prediction
    metrics = METRICS
    layout = 2
    needs_core = False

    def resolve(self, base: Mapping[str, Any], sets: Sequence[str], origin: str) -> Prediction:
        return validated_table(Prediction, base, sets, f"{origin}: prediction")

    def config_dict(self, config: Prediction) -> dict[str, Any]:
        return json_values(config)

    def input_files(self, config: Prediction) -> Sequence[str]:
        return config.data

    def row(
        self, config: Prediction, seed: int, study_dir: Path
    ) -> tuple[dict[str, Any], list[str]]:
        compared, grid, best = _tested_scores(config, seed, study_dir)
        scale = 1.0 if config.target == "latency" else 1e-6
        row: dict[str, Any] = {
            "seconds": compared.model.seconds,
            "nonzero_seconds": compared.model.nonzero_seconds,
        }
        for name in _UNITS:
            row[name] = _measure(compared.model, name, scale)
            row[f"grid_{name}"] = _measure(grid.model, name, scale)
            baseline = best[_column(name)]
            measures = None if baseline is None else compared.baselines[baseline]
            row[f"best_{name}"] = None if measures is None else _measure(measures, name, scale)
        return row, []


PREDICT = _PredictKind()


def _column(name: str) -> str:
    """Return the name of a measure in cards."""
    return name if name in ("rmse", "mae") else f"{name}_pct"


def _measure(measures: Measures, name: str, scale: float) -> float | None:
    value: float | None = getattr(measures, _column(name))
    return value if value is None or _column(name) != name else value * scale


def _tested_scores(
    config: Prediction, seed: int, study_dir: Path
) -> tuple[Comparison, Comparison, Mapping[str, str | None]]:
    """Return errors in all and in the grid's seconds, and the best baseline by each measure.

    The best baseline is that of the whole test part, also if the errors are those of a block.
    """
    from skyhop.predict.cards import best_baseline
    from skyhop.predict.measures import LOWER_IS_BETTER
    from skyhop.predict.training import Plan

    files = tuple(str(find_data(name, study_dir)) for name in config.data)
    plan = Plan(
        target=config.target, horizons=(config.horizon,), groups=tuple(config.features),
        seed=1 if config.blocks else seed, predicts=config.predicts,
    )  # fmt: skip
    tested = _evaluation(files, config.direction, config.model, plan)
    found = {name: best_baseline(tested.comparison().baselines, name) for name in LOWER_IS_BETTER}
    if config.blocks is not None:
        if seed > config.blocks:
            raise InputError(
                f"prediction.blocks: {config.blocks} blocks have no block {seed}: lower `repeats`"
            )
        tested = tested.block(seed - 1, config.blocks)
    best = {name: each and each[0] for name, each in found.items()}
    return tested.comparison(), tested.comparison(grid_only=True), best


@lru_cache(8)
def _evaluation(files: tuple[str, ...], direction: str, model: str, plan: Plan) -> Evaluation:
    """Train a model and test it, or test a baseline; cached, as blocks share the test."""
    from skyhop.predict.baselines import BASELINES
    from skyhop.predict.training import evaluate_baseline, trainer

    data = _data(files, direction)
    if model in BASELINES:
        return evaluate_baseline(data, model, plan)
    with Scratch() as place:
        return trainer()(data, [model], place, plan)[0].test(data)[0]


@lru_cache(8)
def _data(files: tuple[str, ...], direction: str) -> Data:
    from skyhop import predict

    return predict.read_data(files, predict.Options(direction=direction))  # type: ignore[arg-type]
