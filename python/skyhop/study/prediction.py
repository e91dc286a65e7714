"""Studies with engine = "predict": their runs train a predictor, or ask a baseline, and test it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skyhop.data.files import Scratch
from skyhop.data.toml import read_toml
from skyhop.errors import InputError
from skyhop.study.metrics import WARNINGS, MetricInfo, MetricSet

if TYPE_CHECKING:
    from skyhop.predict import Data
    from skyhop.predict.cards import Compared, Measures

Asked = TypeVar("Asked", bound=BaseModel)

_ABSOLUTE = "ms or Mbit/s"
_UNITS = {"mape": "%", "weighted_ape": "%", "rmse": _ABSOLUTE, "mae": _ABSOLUTE, "within_5": "%",
          "within_10": "%", "ape_p50": "%", "ape_p95": "%", "ape_p99": "%"}  # fmt: skip
_TITLES = {"mape": "MAPE", "weighted_ape": "weighted APE", "rmse": "RMSE", "mae": "MAE",
           "within_5": "within 5 %", "within_10": "within 10 %", "ape_p50": "APE p50",
           "ape_p95": "APE p95", "ape_p99": "APE p99"}  # fmt: skip
_KINDS = {"": "", "best_": "best baseline's ", "grid_": "at the grid: "}
"""Of the predictor; the best of the baselines; of seconds with a moment of the grid."""

LAYOUT = 1
"""Counts up when predictors change, so that finished runs are made again."""
IS_LIVE = NEEDS_CORE = False

METRICS: tuple[MetricInfo, ...] = (
    *(
        MetricInfo(f"{kind}{name}", f"{kind}{name}", f"{said}{_TITLES[name]}", unit)
        for kind, said in _KINDS.items()
        for name, unit in _UNITS.items()
    ),
    MetricInfo("seconds", "seconds", "seconds tested", ""),
    MetricInfo("nonzero_seconds", "nonzero_seconds", "of them not 0", ""),
)
"""What claims and tables can ask for; RMSE and MAE in ms or Mbit/s."""


class Prediction(BaseModel):
    """What a run of engine = "predict" trains and tests; axes set its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    data: list[str] = Field(min_length=1)
    """Runs, paths, telemetry or measurements, as `skyhop predict` takes them."""
    target: Literal["latency", "throughput"] = "latency"
    direction: Literal["down", "up"] = "down"
    model: str = "xgboost"
    """One of `skyhop predict train`, or a baseline such as "last value"."""
    horizon: int = Field(1, ge=1, le=30)
    """In s."""
    features: list[str] = ["history", "position", "dish", "satellites", "obstruction", "hour",
                           "grid", "serving"]  # fmt: skip
    """Groups of docs/prediction.md; what the data do not know is left out."""


def resolve(base: Mapping[str, Any], sets: Sequence[str], origin: str) -> Prediction:
    """Return what a run does: the study's [prediction] with what axes set.

    Raises:
        InputError: a key is wrong.
    """
    return resolved_of(Prediction, base, sets, f"{origin}: prediction")


def resolved_of(
    kind: type[Asked], base: Mapping[str, Any], sets: Sequence[str], where: str
) -> Asked:
    """Return a study's table with what axes set; `where` is what messages call it.

    Raises:
        InputError: a key is wrong.
    """
    content = dict(base)
    for text in sets:
        content |= read_toml(text, where)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in first["loc"])
        raise InputError(f"{where}.{key}: {first['msg']}") from None


def data_of(asked: Prediction) -> Sequence[str]:
    """Return which data a run needs."""
    return asked.data


def find_data(name: str, beside: Path) -> Path:
    """Return where data are: beside the study, or from the current directory on."""
    place = beside / name
    return place if place.exists() else Path(name)


def rows_of(metrics: MetricSet, asked: Prediction, seed: int, beside: Path) -> list[dict[str, Any]]:
    """Train what is asked for, test it, and return the run's row.

    Raises:
        InputError: data or a library are missing, or the data are too short.
        RunError: training failed.
    """
    compared, grid, notes = _tested(asked, seed, beside)
    scale = 1.0 if asked.target == "latency" else 1e-6
    row: dict[str, Any] = {
        "flow": None,
        "seconds": compared.model.seconds,
        "nonzero_seconds": compared.model.nonzero_seconds,
    }
    for name in _UNITS:
        row[name] = _measure(compared.model, name, scale)
        row[f"grid_{name}"] = _measure(grid.model, name, scale)
        row[f"best_{name}"] = _best(compared.baselines, name, scale)
    return [{**metrics.with_expressions(row), WARNINGS: notes}]


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


def _tested(asked: Prediction, seed: int, beside: Path) -> tuple[Compared, Compared, list[str]]:
    from skyhop import predict
    from skyhop.predict.baselines import BASELINES
    from skyhop.predict.training import baseline_outcome

    files = tuple(str(find_data(name, beside)) for name in asked.data)
    data = _data(files, asked.direction)
    plan = predict.Plan(
        target=asked.target, horizons=(asked.horizon,), groups=tuple(asked.features), seed=seed
    )
    if asked.model in BASELINES:
        tested = baseline_outcome(data, asked.model, plan)
        return tested.compared(), tested.compared(of_grid=True), []
    with Scratch() as place:
        model = predict.train(data, [asked.model], place, plan)[0]
    horizon = model.card.horizons[0]
    return horizon.all_seconds, horizon.grid_seconds, []


@lru_cache(8)
def _data(files: tuple[str, ...], direction: str) -> Data:
    from skyhop import predict

    return predict.read_data(files, predict.Options(direction=direction))  # type: ignore[arg-type]


def resolved_dict(asked: Prediction) -> dict[str, Any]:
    """Return what a run does, as it is written down."""
    content: dict[str, Any] = json.loads(asked.model_dump_json())
    return content
