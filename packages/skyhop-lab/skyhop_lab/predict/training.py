"""Training of models: from data to model directories with their cards."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from skyhop.errors import InputError, RunError
from skyhop.predict import cards
from skyhop.predict.cards import Card, HorizonCard, PartCard, SourceCard, better_baselines
from skyhop.predict.model import Model, evaluate, load_model
from skyhop.predict.models import ModelKind, kinds
from skyhop.predict.sources import Data
from skyhop.predict.split import (
    GAP_S,
    Bounds,
)
from skyhop.predict.training import Parts, Plan, Report
from skyhop.predict.windows import (
    TARGETS,
    Features,
    features_of,
    target_column,
)
from skyhop.version import __version__
from skyhop_lab.predict.kinds import trainers
from skyhop_lab.predict.kinds.trainer import check_libraries, train_predictor


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
        names: kinds of models, of `kinds.trainers()`.
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
        check_libraries(trainers()[kind.name])
    parts = [Parts.of(data, features, horizon, plan) for horizon in sorted(set(plan.horizons))]
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


def _kind(name: str) -> ModelKind:
    if name not in trainers():
        raise InputError(f'--model: expected {", ".join(trainers())} or all, not "{name}"')
    return kinds()[name]


def _train_horizon(
    kind: ModelKind, parts: Parts, plan: Plan, report: Report
) -> tuple[HorizonCard, bytes]:
    horizon_s = parts.fit.horizon_s
    report(f"{kind.name}, {horizon_s} s ahead: {len(parts.fit):,} windows")
    trained = train_predictor(
        trainers()[kind.name], parts.fit, parts.check, plan.seed, predicts=plan.predicts
    )
    made, tested = trained.made, evaluate(trained.predict, parts.test)
    compared = tested.comparison()
    card = HorizonCard(
        horizon_s=horizon_s,
        file=f"{kind.name}-{horizon_s}{kind.suffix}",
        sha256=hashlib.sha256(made.content).hexdigest(),
        train_seconds=len(parts.fit),
        check_seconds=len(parts.check),
        last_at_most=trained.last_at_most,
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
        skyhop=__version__,
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
            name: importlib.metadata.version(_distribution(name))
            for name in trainers()[kind.name].libraries
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
    from skyhop.data.files import Scratch, write_files

    if place.exists() and _is_used(place) and not _is_model(place):
        raise InputError(f"{place}: exists and is no model: give another directory with -o")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with Scratch(place.parent) as scratch:
            staged, older = scratch / "model", scratch / "older"
            staged.mkdir()
            write_files(staged, files)
            if place.exists():
                place.rename(older)
            staged.rename(place)
    except OSError as error:
        raise RunError(f"{place}: cannot write: {error.strerror}") from None


def _is_model(place: Path) -> bool:
    """Return whether a directory holds a model, and no other files, which would be lost."""
    try:
        card = cards.read_card(place / cards.FILE)
    except InputError:
        return False
    known = {cards.FILE, *(horizon.file for horizon in card.horizons)}
    return {entry.name for entry in place.iterdir()} <= known


def _is_used(place: Path) -> bool:
    return not place.is_dir() or any(place.iterdir())
