"""Engine "predict" of studies: each run trains and tests a predictor, or tests a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from skyhop.data.files import Scratch
from skyhop.study.keys import StrictModel
from skyhop.study.metrics import MetricInfo
from skyhop.study.table_runs import TableKind, find_data, json_values, validated_table

if TYPE_CHECKING:
    from skyhop.predict import Data
    from skyhop.predict.cards import Comparison, Measures

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


class _PredictKind(TableKind[Prediction]):
    """Kind of runs that train and test a predictor, or test a baseline."""

    engine = "predict"
    table = "prediction"
    model = Prediction
    metrics = METRICS
    layout = 1
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
        compared, grid, notes = _tested_scores(config, seed, study_dir)
        scale = 1.0 if config.target == "latency" else 1e-6
        row: dict[str, Any] = {
            "seconds": compared.model.seconds,
            "nonzero_seconds": compared.model.nonzero_seconds,
        }
        for name in _UNITS:
            row[name] = _measure(compared.model, name, scale)
            row[f"grid_{name}"] = _measure(grid.model, name, scale)
            row[f"best_{name}"] = _best(compared.baselines, name, scale)
        return row, notes


PREDICT = _PredictKind()


def _measure(measures: Measures, name: str, scale: float) -> float | None:
    column = name if name in ("rmse", "mae") else f"{name}_pct"
    value: float | None = getattr(measures, column)
    return value if value is None or column != name else value * scale


def _best(baselines: Mapping[str, Measures], name: str, scale: float) -> float | None:
    from skyhop.predict.cards import best_baseline

    is_absolute = name in ("rmse", "mae")
    found = best_baseline(baselines, name if is_absolute else f"{name}_pct")
    if found is None:
        return None
    return found[1] * scale if is_absolute else found[1]


def _tested_scores(
    config: Prediction, seed: int, study_dir: Path
) -> tuple[Comparison, Comparison, list[str]]:
    from skyhop.predict.baselines import BASELINES
    from skyhop.predict.training import Plan, evaluate_baseline, trainer

    files = tuple(str(find_data(name, study_dir)) for name in config.data)
    data = _data(files, config.direction)
    plan = Plan(
        target=config.target, horizons=(config.horizon,), groups=tuple(config.features), seed=seed
    )
    if config.model in BASELINES:
        tested = evaluate_baseline(data, config.model, plan)
        return tested.comparison(), tested.comparison(grid_only=True), []
    with Scratch() as place:
        model = trainer()(data, [config.model], place, plan)[0]
    horizon = model.card.horizons[0]
    return horizon.all_seconds, horizon.grid_seconds, []


@lru_cache(8)
def _data(files: tuple[str, ...], direction: str) -> Data:
    from skyhop import predict

    return predict.read_data(files, predict.Options(direction=direction))  # type: ignore[arg-type]
