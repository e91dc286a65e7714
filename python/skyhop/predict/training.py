"""Training of models: from data to model directories with their cards."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import skyhop
from skyhop.errors import InputError, RunError
from skyhop.predict import cards
from skyhop.predict.baselines import BASELINES
from skyhop.predict.cards import Card, HorizonCard, PartCard, SourceCard, better_baselines
from skyhop.predict.model import Evaluation, Model, evaluate, load_model
from skyhop.predict.models import ModelKind, kinds
from skyhop.predict.models.kind import check_libraries
from skyhop.predict.sources import Data
from skyhop.predict.split import (
    GAP_S,
    LEAST_OTHERS,
    LEAST_TRAIN,
    TRAIN_SHARE,
    Bounds,
    bounds_of,
    parts_of,
)
from skyhop.predict.windows import (
    LONGEST_HORIZON_S,
    TARGETS,
    USUAL,
    Features,
    Target,
    Windows,
    features_of,
    target_column,
    windows_of,
)

Report = Callable[[str], None]
"""Function that receives lines about the progress."""


@dataclass(frozen=True)
class Plan:
    """Parameters of training.

    Attributes:
        target: "latency" or "throughput".
        horizons: horizons in seconds; each gets a file of its own in the model.
        groups: groups of features, from `windows.GROUPS`.
        seed: seed of all random numbers.
        train_share: share of each node's seconds to train with; the rest is the test part.
    """

    target: Target = "latency"
    horizons: Sequence[int] = (1,)
    groups: Sequence[str] = USUAL
    seed: int = 1
    train_share: float = TRAIN_SHARE

    def check(self) -> None:
        """Check the values; raise an InputError about an invalid one."""
        if self.target not in TARGETS:
            raise InputError(f'--target: expected {" or ".join(TARGETS)}, not "{self.target}"')
        if not self.horizons or not all(1 <= h <= LONGEST_HORIZON_S for h in self.horizons):
            raise InputError(f"--horizon: expected seconds from 1 to {LONGEST_HORIZON_S}")
        if not 0 <= self.seed < 2**32:
            raise InputError("--seed: expected a number from 0 to 4294967295")
        if not 0.1 <= self.train_share <= 0.95:  # noqa: PLR2004
            raise InputError("--train-share: expected a share from 0.1 to 0.95")


def train(
    data: Data,
    names: Sequence[str],
    output: str | Path,
    plan: Plan | None = None,
    report: Report = lambda _line: None,
) -> list[Model]:
    """Train models; write each to the directory `output`/NAME.

    Args:
        data: result of `read_data`.
        names: kinds of models, of `models.kinds()`.
        output: parent of the models' directories.
        plan: parameters of training.
        report: function that receives lines about the progress.

    Returns:
        The models, read from their directories.

    Raises:
        InputError: the data are too short or lack the target, a library is missing, or a directory
            exists and is not a model.
        RunError: training failed, or a directory cannot be written.
    """
    plan = plan or Plan()
    plan.check()
    chosen = [_kind(name) for name in dict.fromkeys(names)]
    column = target_column(data.frame, plan.target, data.options.direction)
    features = features_of(data.frame, plan.target, column, plan.groups)
    for kind in chosen:
        check_libraries(kind)
    parts = [_Parts.of(data, features, horizon, plan) for horizon in sorted(set(plan.horizons))]
    output = Path(output)
    models = []
    for kind in chosen:
        trained = [_train_horizon(kind, each, plan, report) for each in parts]
        horizons = [each for each, _ in trained]
        card = _card(kind, data, features, plan, bounds=parts[0].bounds, horizons=horizons)
        files = {each.file: content for each, content in trained}
        _write(output / kind.name, {**files, cards.FILE: card.text()})
        models.append(load_model(output / kind.name))
    return models


def evaluate_baseline(data: Data, name: str, plan: Plan) -> Evaluation:
    """Evaluate a baseline on the test part, for the first horizon of the plan.

    Raises:
        InputError: the data are too short or lack the target.
    """
    plan.check()
    column = target_column(data.frame, plan.target, data.options.direction)
    features = features_of(data.frame, plan.target, column, plan.groups)
    return evaluate(BASELINES[name], _Parts.of(data, features, plan.horizons[0], plan).test)


def _kind(name: str) -> ModelKind:
    if name not in kinds():
        raise InputError(f'--model: expected {", ".join(kinds())} or all, not "{name}"')
    return kinds()[name]


@dataclass(frozen=True)
class _Parts:
    """Windows of one horizon, split into parts."""

    fit: Windows
    check: Windows
    test: Windows
    bounds: list[Bounds]

    @staticmethod
    def of(data: Data, features: Features, horizon_s: int, plan: Plan) -> _Parts:
        names = data.frame["node"].to_numpy()
        nodes = np.concatenate(([0], np.cumsum(names[1:] != names[:-1]))).astype(np.int64)
        bounds = bounds_of(nodes, data.frame["time_ns"].to_numpy(), plan.train_share)
        windows = windows_of(data.frame, features, horizon_s)
        fit, check, test = (windows.select(part) for part in parts_of(windows, bounds))
        if len(fit) < LEAST_TRAIN or min(len(check), len(test)) < LEAST_OTHERS:
            raise InputError(
                f"the data are too short: {len(fit):,}, {len(check):,} and {len(test):,} windows "
                f"of {horizon_s} s to train, to check and to test with; it takes {LEAST_TRAIN}, "
                f"{LEAST_OTHERS} and {LEAST_OTHERS} at least, without gaps"
            )
        return _Parts(fit, check, test, bounds)


def _train_horizon(
    kind: ModelKind, parts: _Parts, plan: Plan, report: Report
) -> tuple[HorizonCard, bytes]:
    horizon_s = parts.fit.horizon_s
    report(f"{kind.name}, {horizon_s} s ahead: {len(parts.fit):,} windows")
    made = kind.train(parts.fit, parts.check, plan.seed)
    # Evaluate the model as read from its file, which is what users run.
    predict = kind.read(made.content, parts.fit.past.shape[2], parts.fit.covariates.shape[1])
    tested = evaluate(lambda windows: np.maximum(predict(windows), 0.0), parts.test)
    compared = tested.comparison()
    card = HorizonCard(
        horizon_s=horizon_s,
        file=f"{kind.name}-{horizon_s}{kind.suffix}",
        sha256=hashlib.sha256(made.content).hexdigest(),
        train_seconds=len(parts.fit),
        check_seconds=len(parts.check),
        details=dict(made.details),
        all_seconds=compared,
        grid_seconds=tested.comparison(grid_only=True),
        worse=better_baselines(compared),
    )
    return card, made.content


def _card(
    kind: ModelKind,
    data: Data,
    features: Features,
    plan: Plan,
    *,
    bounds: Sequence[Bounds],
    horizons: Sequence[HorizonCard],
) -> Card:
    names = data.frame["node"].unique(maintain_order=True).to_list()
    return Card(
        schema=cards.SCHEMA,
        skyhop=skyhop.__version__,
        model=kind.name,
        target=plan.target,
        column=features.column,
        unit=TARGETS[plan.target],
        direction=data.options.direction,
        per_second=data.options.per_second,
        features=list(features.groups),
        past=list(features.past),
        beside=list(features.covariates),
        seed=plan.seed,
        train_share=plan.train_share,
        gap_s=GAP_S,
        sources=[SourceCard(**vars(source)) for source in data.sources],
        parts=[PartCard(node=name, **vars(each)) for name, each in zip(names, bounds, strict=True)],
        libraries={
            name: importlib.metadata.version(_distribution(name)) for name in kind.libraries
        },
        horizons=list(horizons),
        notes=_notes(features),
    )


def _distribution(module: str) -> str:
    """Return the name of the installed distribution of a module; XGBoost has several."""
    return (importlib.metadata.packages_distributions().get(module) or [module])[0]


def _notes(features: Features) -> list[str]:
    notes = []
    if features.column in ("rx_bps", "tx_bps"):
        notes.append(
            "the throughput is the rate in use, not the capacity: the model predicts demand"
        )
    if "satellites" not in features.groups:
        notes.append("the data have no satellites: the model does not use their geometry")
    if "timestamp" in features.groups:
        notes.append("the time is a feature: trees memorise a trace with it")
    return notes


def _write(place: Path, files: dict[str, bytes]) -> None:
    """Write a model's directory, replacing an older model."""
    from skyhop.data.files import write_files

    if place.exists() and not (place / cards.FILE).is_file() and _is_used(place):
        raise InputError(f"{place}: exists and is no model: give another directory with -o")
    staged = place.with_name(f".{place.name}.new")
    try:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        write_files(staged, files)
        if place.exists():
            shutil.rmtree(place)
        staged.rename(place)
    except OSError as error:
        raise RunError(f"{place}: cannot write: {error.strerror}") from None


def _is_used(place: Path) -> bool:
    return not place.is_dir() or any(place.iterdir())
